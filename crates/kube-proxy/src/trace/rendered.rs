//! The rules that we would write for manifests, on a host of which only the addresses are known.

use crate::input::{EVERY_CAPABILITY, Mode, World};
use crate::render::own_table;
use model::Family;
use nftables::listed;
use path::{Host, LocalAddresses};

/// A node of the world with its rules of one family.
pub(super) fn host(world: &World, family: Family) -> Host {
    let mut host = Host {
        addresses: LocalAddresses::Known(world.facts.interface_addresses.iter().copied().collect()),
        ..Host::default()
    };
    match world.mode {
        Mode::Iptables => *host.rules.get_mut(family) = world.ruleset(family, EVERY_CAPABILITY),
        Mode::Nftables => host.native.tables.push(table(world, family)),
    }
    host
}

/// The table of nftables mode.
fn table(world: &World, family: Family) -> listed::Table {
    let (frame, elements) = own_table::table(world, family);
    listed::of_frame(&frame, &elements)
}
