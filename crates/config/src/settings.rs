//! From configuration and node to the settings that decide what traffic should do.

use crate::types::KubeProxyConfiguration;
use ipnet::IpNet;
use model::address::parse_net;
use model::snapshot::Snapshot;
use model::{ClientHashing, Family, LocalDetector, Mark, NodeFacts, NodePortAddresses, PerFamily, Settings};
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
    let gate = config.feature_gates.get("AllowServiceExternalIPs");
    let external_ips = match (gate, &config.allowed_external_ips) {
        (Some(false), _) => model::ExternalIps::Ignored,
        (_, Some(nets)) => model::ExternalIps::Within(nets.clone()),
        (_, None) => model::ExternalIps::Allowed,
    };
    Settings {
        masquerade_all,
        mark,
        detectors: PerFamily::from_fn(|family| detector(config, node, family)),
        node_port_addresses: PerFamily::from_fn(|family| node_port_addresses(config, node, family)),
        localhost_node_ports_wanted: !nftables && config.iptables.localhost_node_ports.unwrap_or(true),
        external_ips,
        client_hashing: if nftables {
            ClientHashing::Possible
        } else {
            ClientHashing::Impossible
        },
    }
}

/// Only the first CIDR of a family counts, as upstream has it.
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

/// `primary` becomes the node's addresses; a family without a network of its own serves all addresses.
///
/// Deviation: ADR 42. Upstream serves all addresses of a family in which a node with `primary` has none.
fn node_port_addresses(
    config: &KubeProxyConfiguration,
    node: &NodeFacts,
    family: Family,
) -> NodePortAddresses {
    let configured = config.node_port_addresses.as_deref().unwrap_or_default();
    let nets = node_port_nets(config, &node.node_ips);
    let any = !nets.is_empty();
    let of_family: Vec<IpNet> = nets
        .into_iter()
        .filter(|net| Family::of(net.addr()) == family)
        .collect();
    if configured == ["primary"] && any && of_family.is_empty() {
        return NodePortAddresses::Nowhere;
    }
    if of_family.is_empty() || of_family.iter().any(|net| net.prefix_len() == 0) {
        NodePortAddresses::All
    } else {
        NodePortAddresses::In(of_family)
    }
}

/// The networks that `nodePortAddresses` means, of both families. `primary` means the node's addresses as far as they are
/// known.
pub(crate) fn node_port_nets(
    config: &KubeProxyConfiguration,
    node_ips: &PerFamily<Option<IpAddr>>,
) -> Vec<IpNet> {
    let configured = config.node_port_addresses.as_deref().unwrap_or_default();
    if configured == ["primary"] {
        let known = Family::ALL.into_iter().filter_map(|family| *node_ips.get(family));
        return known.filter(|ip| !ip.is_loopback()).map(IpNet::from).collect();
    }
    configured.iter().filter_map(|text| parse_net(text)).collect()
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
/// `node_addresses` are the Node's internal addresses in order, then its external ones. Without either the
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Where node ports are served with `primary`, on a node with these addresses.
    fn primary(addresses: &[&str]) -> PerFamily<NodePortAddresses> {
        let mut config = KubeProxyConfiguration::before_flags();
        config.fill_linux_defaults();
        config.node_port_addresses = Some(vec!["primary".to_owned()]);
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let node = NodeFacts {
            node_ips: node_ips(&config, &addresses).1,
            ..NodeFacts::default()
        };
        settings(&config, &node).node_port_addresses
    }

    fn only(net: &str) -> NodePortAddresses {
        NodePortAddresses::In(vec![net.parse().unwrap()])
    }

    #[test]
    fn primary_node_ports_are_the_nodes_addresses_and_nothing_in_a_family_without_one() {
        let (v4, v6) = (only("192.168.0.2/32"), only("2001:db8::1/128"));
        let of = primary(&["192.168.0.2", "2001:db8::1"]);
        assert_eq!((of.v4, of.v6), (v4.clone(), v6.clone()));
        let of = primary(&["192.168.0.2"]);
        assert_eq!((of.v4, of.v6), (v4, NodePortAddresses::Nowhere));
        let of = primary(&["2001:db8::1"]);
        assert_eq!((of.v4, of.v6), (NodePortAddresses::Nowhere, v6));
        // Of a node of which nothing is known, every address is served, as upstream has it.
        let of = primary(&[]);
        assert_eq!((of.v4, of.v6), (NodePortAddresses::All, NodePortAddresses::All));
    }
}
