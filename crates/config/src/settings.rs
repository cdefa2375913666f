//! From configuration and node to the settings that decide what traffic should do (control.md 10).

use crate::types::KubeProxyConfiguration;
use ipnet::IpNet;
use model::address::parse_net;
use model::snapshot::Snapshot;
use model::{Family, LocalDetector, Mark, NodeFacts, NodePortAddresses, PerFamily, Settings};
use std::net::IpAddr;

/// The settings for this node. The configuration must have passed [`crate::validate()`].
pub fn settings(config: &KubeProxyConfiguration, node: &NodeFacts) -> Settings {
    let nftables = config.mode == "nftables";
    let (bit, masquerade_all) = if nftables {
        (config.nftables.masquerade_bit, config.nftables.masquerade_all)
    } else {
        (config.iptables.masquerade_bit, config.iptables.masquerade_all)
    };
    let mark = bit
        .and_then(|bit| u32::try_from(bit).ok())
        .and_then(Mark::from_bit)
        .unwrap_or_default();
    let external_ips = match config.feature_gates.get("AllowServiceExternalIPs") {
        Some(false) => model::ExternalIps::Ignored,
        _ => model::ExternalIps::Allowed,
    };
    Settings {
        masquerade_all,
        mark,
        detectors: PerFamily::from_fn(|family| detector(config, node, family)),
        node_port_addresses: PerFamily::from_fn(|family| node_port_addresses(config, node, family)),
        localhost_node_ports_wanted: !nftables && config.iptables.localhost_node_ports.unwrap_or(true),
        external_ips,
    }
}

/// Only the first CIDR of a family counts (control.md 10.1).
fn detector(config: &KubeProxyConfiguration, node: &NodeFacts, family: Family) -> Option<LocalDetector> {
    let of_family = |net: &IpNet| Family::of(net.addr()) == family;
    match config.detect_local_mode.as_str() {
        "NodeCIDR" => node
            .pod_cidrs
            .iter()
            .map(IpNet::trunc)
            .find(of_family)
            .map(LocalDetector::Cidr),
        "BridgeInterface" => Some(LocalDetector::Bridge(
            config.detect_local.bridge_interface.as_str().into(),
        )),
        "InterfaceNamePrefix" => Some(LocalDetector::InterfacePrefix(
            config.detect_local.interface_name_prefix.as_str().into(),
        )),
        _ => config
            .cluster_cidr
            .split(',')
            .filter_map(parse_net)
            .find(of_family)
            .map(LocalDetector::Cidr),
    }
}

/// `primary` becomes the node's addresses; a family without a network of its own serves all addresses (control.md 10.2).
fn node_port_addresses(
    config: &KubeProxyConfiguration,
    node: &NodeFacts,
    family: Family,
) -> NodePortAddresses {
    let configured = config.node_port_addresses.as_deref().unwrap_or_default();
    let nets: Vec<IpNet> = if configured == ["primary"] {
        node.node_ips
            .get(family)
            .filter(|ip| !ip.is_loopback())
            .map(IpNet::from)
            .into_iter()
            .collect()
    } else {
        configured.iter().filter_map(|text| parse_net(text)).collect()
    };
    let of_family: Vec<IpNet> = nets
        .into_iter()
        .filter(|net| Family::of(net.addr()) == family)
        .collect();
    if of_family.is_empty() || of_family.iter().any(|net| net.prefix_len() == 0) {
        NodePortAddresses::All
    } else {
        NodePortAddresses::In(of_family)
    }
}

/// The node's facts: what its Node object says, if there is one, what the configuration says of its addresses, and the
/// addresses of the host's interfaces.
pub fn facts(
    config: &KubeProxyConfiguration,
    name: &str,
    snapshot: &Snapshot,
    interface_addresses: Vec<IpAddr>,
) -> NodeFacts {
    let mut facts = NodeFacts {
        name: name.into(),
        interface_addresses,
        ..NodeFacts::default()
    };
    let mut node_addresses: &[IpAddr] = &[];
    if let Some(node) = snapshot.node(name) {
        node.tell(&mut facts);
        node_addresses = &node.addresses;
    }
    (_, facts.node_ips) = node_ips(config, node_addresses);
    facts
}

/// The node's primary address per family: the Node object's addresses, overridden by a specified `bindAddress`.
///
/// `node_addresses` are the Node's internal addresses in order, then its external ones (control.md 3.3). Without either the
/// family's loopback address stands in, as upstream has it. Comes with the primary family.
pub fn node_ips(
    config: &KubeProxyConfiguration,
    node_addresses: &[IpAddr],
) -> (Family, PerFamily<Option<IpAddr>>) {
    let mut ips = PerFamily {
        v4: Some(IpAddr::from([127, 0, 0, 1])),
        v6: Some(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)),
    };
    let mut primary = Family::V4;
    if let Some(first) = node_addresses.first() {
        primary = Family::of(*first);
        for family in Family::ALL {
            if let Some(ip) = node_addresses.iter().find(|ip| Family::of(**ip) == family) {
                *ips.get_mut(family) = Some(*ip);
            }
        }
    }
    if let Some(bind) = model::address::parse_ip(&config.bind_address).filter(|ip| !ip.is_unspecified()) {
        primary = Family::of(bind);
        *ips.get_mut(primary) = Some(bind);
    }
    (primary, ips)
}
