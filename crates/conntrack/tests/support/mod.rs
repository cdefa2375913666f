//! Clusters for tests of the decision.

#![allow(dead_code, reason = "each test crate uses its part")]

use conntrack::{Expectation, Flow, TcpOption};
use ipnet::IpNet;
use model::object::decode;
use model::snapshot::{Change, Snapshot};
use model::{Family, NodeFacts, NodePortAddresses, Protocol, Settings};
use serde_json::Value;
use std::net::IpAddr;

/// A cluster and the node that looks at it.
#[derive(Clone, Default)]
pub struct World {
    pub snapshot: Snapshot,
    pub facts: NodeFacts,
    pub settings: Settings,
}

impl World {
    pub fn new(addresses: &[IpAddr]) -> Self {
        let mut world = World::default();
        world.facts.name = "node-a".into();
        world.facts.interface_addresses = addresses.to_vec();
        world.settings.localhost_node_ports_wanted = true;
        world
    }

    pub fn set_objects(&mut self, objects: &[Value]) {
        self.snapshot = Snapshot::new();
        for object in objects {
            let decoded = decode(object.clone());
            assert_eq!(decoded.notes, [], "the object is flawless");
            for object in decoded.objects {
                self.snapshot.apply(Change::Apply(object));
            }
        }
    }

    pub fn restrict_node_ports(&mut self, nets: Vec<IpNet>) {
        self.settings.node_port_addresses.v4 = NodePortAddresses::In(nets);
    }

    pub fn expectation(&self, family: Family, tcp: TcpOption) -> Expectation {
        Expectation::from_snapshot(&self.snapshot, family, &self.facts, &self.settings, tcp)
    }
}

/// Documents of a YAML file.
pub fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("well-formed YAML")
}

/// Reads a flow as it prints itself.
pub fn flow(text: &str) -> Flow {
    let (protocol, rest) = text.split_once(' ').expect("a protocol first");
    let (client, rest) = rest.split_once(" -> ").expect("an arrow");
    let (destination, answerer) = rest.split_once(" => ").unwrap_or((rest, rest));
    let protocol = Protocol::ALL
        .into_iter()
        .find(|each| each.to_string() == protocol);
    let flow = Flow {
        protocol: protocol.expect("a protocol"),
        client: client.parse().expect("a client"),
        destination: destination.parse().expect("a destination"),
        answerer: answerer.parse().expect("an answerer"),
    };
    assert_eq!(flow.to_string(), text, "a flow prints what was read");
    flow
}
