//! The steps with which the daemon brings a cluster's rules into an empty kernel.

use crate::input::{Mode, World};
use engine::rehearsal::{Found, Rehearsed, Write, rehearse};
use iptables::build::{Capabilities, InvalidPackets};
use iptables::diff::observe::Observation;
use iptables::plan;
use model::Family;

/// The steps of one family; in iptables mode, in the order of `nf_tables`.
///
/// The engine is asked what it would do; every reading finds nothing and every step is taken.
pub fn first_load(world: &World, family: Family, capabilities: Capabilities) -> Vec<Rehearsed> {
    let found = match world.mode {
        Mode::Iptables => Found::Iptables(Observation::new(family)),
        Mode::Nftables => Found::OwnTable(None),
    };
    let engine = world.engine(family, capabilities, InvalidPackets::Dropped);
    rehearse(engine, family, &world.snapshot, found)
}

/// A step of iptables mode, if it is one.
pub fn of_iptables(step: Rehearsed) -> Option<plan::Step> {
    match step.write {
        Write::Iptables(step) => Some(step),
        Write::OwnTable(_) => None,
    }
}
