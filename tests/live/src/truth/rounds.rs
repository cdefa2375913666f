//! Which rows of a situation can share a lab, and where each row's packets come from.

use model::{NodeFacts, Origin};
use scenario::{Flow, Variant};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Where a source address is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Station {
    /// The node itself, at one of its addresses.
    Node,
    /// The node itself, at an address that it gets for this.
    NodeBorrowing,
    /// A pod of this node, behind this interface.
    Pod {
        /// The node's interface.
        interface: String,
    },
    /// Outside the cluster.
    Outside,
}

/// Rows that one lab can hold: each source address is in one place.
#[derive(Clone, Debug, Default)]
pub struct Round<'a> {
    /// The rows.
    pub flows: Vec<&'a Flow>,
    /// Where each source is.
    pub stations: BTreeMap<IpAddr, Station>,
}

/// Distributes the rows of a situation.
pub fn rounds(variant: &Variant) -> Vec<Round<'_>> {
    let mut rounds: Vec<Round<'_>> = vec![];
    for flow in &variant.flows {
        let station = station(flow, &variant.facts);
        let source = flow.packet.src;
        let fits = |round: &Round<'_>| {
            let known = round.stations.get(&source);
            let borrowing = |other: &Station| *other == Station::NodeBorrowing;
            // An address that the node has borrowed is no stranger's any more.
            let alike = round
                .stations
                .values()
                .all(|other| borrowing(other) == borrowing(&station));
            alike && known.is_none_or(|known| *known == station)
        };
        let index = rounds.iter().position(fits).unwrap_or_else(|| {
            rounds.push(Round::default());
            rounds.len() - 1
        });
        let round = &mut rounds[index];
        round.stations.insert(source, station);
        round.flows.push(flow);
    }
    rounds
}

fn station(flow: &Flow, facts: &NodeFacts) -> Station {
    let source = flow.packet.src;
    match &flow.packet.origin {
        Origin::Host if facts.is_local_address(source) => Station::Node,
        Origin::Host => Station::NodeBorrowing,
        Origin::Interface(name) if &**name == "eth0" => Station::Outside,
        Origin::Interface(name) if !name.is_empty() => Station::Pod {
            interface: name.to_string(),
        },
        Origin::Interface(_) if is_pod_address(source) => Station::Pod {
            interface: "cni0".to_owned(),
        },
        Origin::Interface(_) => Station::Outside,
    }
}

/// The address plan of the truth tables: pods are in `10.0.0.0/8` and `fd00:10::/32`.
fn is_pod_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 10,
        IpAddr::V6(v6) => v6.segments()[..2] == [0xfd00, 0x10],
    }
}
