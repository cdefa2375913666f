//! The part of a family that no service owns.

use crate::address::family_of_net;
use crate::{DesiredNode, Family, NodeFacts, NodePortAddresses, NodePortTargets, Settings};
use ipnet::IpNet;
use std::net::IpAddr;

/// Resolves the node's part of one family: which addresses serve node ports, and whether loopback does.
pub fn resolve_node(family: Family, node: &NodeFacts, settings: &Settings) -> DesiredNode {
    DesiredNode {
        family,
        mark: settings.mark,
        detector: settings.detectors.get(family).clone(),
        node_ports: node_ports(family, node, settings),
        localhost_node_ports: settings.localhost_node_ports(family),
    }
}

fn node_ports(family: Family, node: &NodeFacts, settings: &Settings) -> NodePortTargets {
    let nets = match settings.node_port_addresses.get(family) {
        NodePortAddresses::All => return NodePortTargets::AllLocal,
        NodePortAddresses::Nowhere => return NodePortTargets::Only(Vec::new()),
        NodePortAddresses::In(nets) => nets,
    };
    let nets: Vec<&IpNet> = nets.iter().filter(|net| family_of_net(net) == family).collect();
    // Networks of the other family alone restrict nothing here; neither does the network of all addresses.
    if nets.is_empty() || nets.iter().any(|net| net.prefix_len() == 0) {
        return NodePortTargets::AllLocal;
    }
    let loopback_is_served = settings.localhost_node_ports(family);
    let is_target =
        |ip: &IpAddr| nets.iter().any(|net| net.contains(ip)) && (loopback_is_served || !ip.is_loopback());
    let mut targets: Vec<IpAddr> = node
        .interface_addresses
        .iter()
        .copied()
        .filter(is_target)
        .collect();
    targets.sort();
    targets.dedup();
    NodePortTargets::Only(targets)
}
