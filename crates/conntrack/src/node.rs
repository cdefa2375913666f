//! On which addresses node ports are served at the moment.

use model::{DesiredNode, Family, NodeFacts, NodePortTargets};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The addresses of one family on which this host serves node ports now.
///
/// Deviation: upstream compares the port alone, and so deletes other hosts' flows to equal port numbers (ADR 10).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    addresses: BTreeSet<IpAddr>,
    loopback: Loopback,
}

/// Whether all of 127/8 is served, whatever the interfaces list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Loopback {
    Served,
    #[default]
    NotServed,
}

impl NodeAddresses {
    /// The addresses that the node's part wants, out of those that the host has.
    pub fn of(node: &DesiredNode, facts: &NodeFacts) -> Self {
        let of_family = |ip: &&IpAddr| Family::of(**ip) == node.family && !ip.is_loopback();
        match &node.node_ports {
            NodePortTargets::AllLocal => NodeAddresses {
                addresses: facts
                    .interface_addresses
                    .iter()
                    .filter(of_family)
                    .copied()
                    .collect(),
                loopback: if node.localhost_node_ports {
                    Loopback::Served
                } else {
                    Loopback::NotServed
                },
            },
            NodePortTargets::Only(addresses) => NodeAddresses {
                addresses: addresses.iter().copied().collect(),
                loopback: Loopback::NotServed,
            },
        }
    }

    /// Whether node ports are served on this address.
    pub fn serve(&self, ip: IpAddr) -> bool {
        self.addresses.contains(&ip)
            || (self.loopback == Loopback::Served && ip.is_loopback() && ip.is_ipv4())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Mark, NodePortTargets};

    fn node(family: Family, node_ports: NodePortTargets, localhost_node_ports: bool) -> DesiredNode {
        DesiredNode {
            family,
            mark: Mark::default(),
            detector: None,
            node_ports,
            localhost_node_ports,
        }
    }

    fn facts(addresses: &[&str]) -> NodeFacts {
        NodeFacts {
            interface_addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
            ..NodeFacts::default()
        }
    }

    fn served(addresses: &NodeAddresses, candidates: &[&str]) -> Vec<String> {
        let candidates = candidates
            .iter()
            .filter(|ip| addresses.serve(ip.parse().unwrap()));
        candidates.map(ToString::to_string).collect()
    }

    #[test]
    fn without_a_restriction_the_hosts_addresses_of_the_family_are_served() {
        let facts = facts(&["127.0.0.1", "192.0.2.11", "::1", "2001:db8::11"]);
        let candidates = [
            "127.0.0.1",
            "127.8.8.8",
            "192.0.2.11",
            "192.0.2.12",
            "::1",
            "2001:db8::11",
        ];
        let v4 =
            |localhost| NodeAddresses::of(&node(Family::V4, NodePortTargets::AllLocal, localhost), &facts);
        assert_eq!(
            served(&v4(true), &candidates),
            ["127.0.0.1", "127.8.8.8", "192.0.2.11"]
        );
        assert_eq!(served(&v4(false), &candidates), ["192.0.2.11"]);
        let v6 = NodeAddresses::of(&node(Family::V6, NodePortTargets::AllLocal, false), &facts);
        assert_eq!(served(&v6, &candidates), ["2001:db8::11"]);
    }

    #[test]
    fn with_a_restriction_just_these_are_served() {
        let only = NodePortTargets::Only(vec!["192.0.2.11".parse().unwrap()]);
        let addresses = NodeAddresses::of(
            &node(Family::V4, only, true),
            &facts(&["192.0.2.11", "198.51.100.1"]),
        );
        assert_eq!(
            served(&addresses, &["127.0.0.1", "192.0.2.11", "198.51.100.1"]),
            ["192.0.2.11"]
        );
    }
}
