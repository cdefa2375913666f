//! A table of another program under our table's name: not its rules are compared, but what they do.

use crate::input::World;
use difference::traffic::{Changes, Refusing, changes, of_desired, of_host};
use model::Family;
use nftables::listed::Table;
use path::{Host, LocalAddresses};

/// What the table does otherwise than the objects ask for.
pub(super) fn compared(world: &World, family: Family, table: Table) -> Changes {
    let mut host = Host {
        addresses: LocalAddresses::Known(world.facts.interface_addresses.iter().copied().collect()),
        ..Host::default()
    };
    host.native.tables.push(table);
    let want = of_desired(world.desired.get(family), Refusing::OnAllWays).by_address();
    let have = of_host(&host, family);
    let mut have = match have {
        Ok(have) => have.by_address(),
        Err(_) => difference::traffic::Behaviour {
            family,
            node: std::collections::BTreeMap::new(),
            ports: std::collections::BTreeMap::new(),
        },
    };
    // Upstream keeps these in sets that tell no service port.
    for (name, port) in &mut have.ports {
        if let Some(want) = want.ports.get(name) {
            port.affinity = want.affinity;
            port.health_check = want.health_check;
            for (title, frontend) in &mut port.frontends {
                frontend.admitted = want.frontends.get(title).and_then(|want| want.admitted.clone());
            }
        }
    }
    changes(&want, &have)
}
