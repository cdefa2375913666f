//! Whether a valid configuration fits this node's families: what is wrong, and what may be.

use crate::settings::node_port_nets;
use crate::types::KubeProxyConfiguration;
use ipnet::IpNet;
use model::address::parse_net;
use model::{Family, PerFamily};
use std::net::{IpAddr, SocketAddr};

/// What decides which family a configuration is asked for.
#[derive(Clone, Debug)]
pub struct NodeFamilies {
    /// The family of the node's own address.
    pub primary: Family,
    /// Whether both families are served.
    pub dual_stack: bool,
    /// The node's address per family; loopback stands for none.
    pub ips: PerFamily<Option<IpAddr>>,
    /// `spec.podCIDRs` of the Node.
    pub pod_cidrs: Vec<IpNet>,
}

/// What was found, a line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// With these the proxy must not serve.
    pub fatal: Vec<String>,
    /// These are worth a look.
    pub warnings: Vec<String>,
}

/// Checks a configuration that has passed [`crate::validate()`] against the node.
pub fn checks(config: &KubeProxyConfiguration, node: &NodeFamilies) -> Checks {
    let mut found = Checks::default();
    found.warnings.extend(node_ports(config, node));
    wrong_families(config, node, &mut found);
    found
}

/// CIDRs of a list as it is written; what is none was refused before or does not count.
fn nets<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<IpNet> {
    texts.into_iter().filter_map(parse_net).collect()
}

fn cluster_cidrs(config: &KubeProxyConfiguration) -> Vec<IpNet> {
    nets(config.cluster_cidr.split(','))
}

fn excluded(config: &KubeProxyConfiguration) -> Vec<IpNet> {
    let listed = config.ipvs.exclude_cidrs.iter().flatten();
    nets(listed.map(String::as_str))
}

/// Whether a list has both families.
fn is_dual(nets: &[IpNet]) -> bool {
    Family::ALL
        .into_iter()
        .all(|family| nets.iter().any(|net| Family::of(net.addr()) == family))
}

/// Where node ports are served more widely than one may think.
fn node_ports(config: &KubeProxyConfiguration, node: &NodeFamilies) -> Option<String> {
    let accepted = node_port_nets(config, &node.ips);
    if accepted.is_empty() {
        return Some(
            "nodePortAddresses is not set, so node ports are served on every address of this host; [primary] would be its own address alone"
                .to_owned(),
        );
    }
    if config.node_port_addresses.as_deref() == Some(&["primary".to_owned()]) {
        // The node's addresses and no others, in both families (ADR 42).
        return None;
    }
    let primary = accepted
        .iter()
        .filter(|net| Family::of(net.addr()) == node.primary);
    let of_primary = primary.count();
    let lists = [
        cluster_cidrs(config),
        accepted.clone(),
        excluded(config),
        node.pod_cidrs.clone(),
    ];
    let everywhere = |family: Family| {
        Some(format!(
            "nodePortAddresses has no network of {family}, so node ports are served on every {family} address of this host; add the networks that are meant"
        ))
    };
    if lists.iter().any(|list| is_dual(list)) && of_primary == accepted.len() {
        return everywhere(other(node.primary));
    }
    (of_primary == 0).then(|| everywhere(node.primary)).flatten()
}

fn other(family: Family) -> Family {
    match family {
        Family::V4 => Family::V6,
        Family::V6 => Family::V4,
    }
}

/// Lists that have something, and nothing of the primary family.
fn wrong_families(config: &KubeProxyConfiguration, node: &NodeFamilies, found: &mut Checks) {
    let is_wrong =
        |nets: &[IpNet]| !nets.is_empty() && nets.iter().all(|net| Family::of(net.addr()) != node.primary);
    let line = |what: &str| {
        format!(
            "{what} contains only {} entries, and the node's own address is of {}",
            other(node.primary),
            node.primary
        )
    };
    if is_wrong(&cluster_cidrs(config)) {
        let fatal = config.detect_local_mode == "ClusterCIDR" && !node.dual_stack;
        found.add(fatal, line("clusterCIDR"));
    }
    if is_wrong(&node.pod_cidrs) {
        let fatal = config.detect_local_mode == "NodeCIDR";
        found.add(fatal, line("the Node's spec.podCIDRs"));
    }
    if node.dual_stack {
        return;
    }
    if is_wrong(&excluded(config)) {
        found.add(false, line("ipvs.excludeCIDRs"));
    }
    for (field, address) in [
        ("healthzBindAddress", &config.healthz_bind_address),
        ("metricsBindAddress", &config.metrics_bind_address),
    ] {
        let ip = address.parse().map(|address: SocketAddr| address.ip());
        let other_family = ip.is_ok_and(|ip| !ip.is_unspecified() && Family::of(ip) != node.primary);
        if other_family {
            found.add(false, line(field));
        }
    }
}

impl Checks {
    fn add(&mut self, fatal: bool, line: String) {
        if fatal {
            self.fatal.push(line);
        } else {
            self.warnings.push(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(primary: Family, dual_stack: bool) -> NodeFamilies {
        NodeFamilies {
            primary,
            dual_stack,
            ips: PerFamily {
                v4: Some("192.168.0.2".parse().unwrap()),
                v6: Some("::1".parse().unwrap()),
            },
            pod_cidrs: Vec::new(),
        }
    }

    /// A configuration with defaults and these node-port addresses.
    fn config(node_ports: &[&str]) -> KubeProxyConfiguration {
        let mut config = KubeProxyConfiguration::before_flags();
        config.fill_linux_defaults();
        config.node_port_addresses = Some(node_ports.iter().map(|text| (*text).to_owned()).collect());
        config
    }

    fn fields(lines: &[String]) -> Vec<&str> {
        lines.iter().map(|line| line.split(' ').next().unwrap()).collect()
    }

    #[test]
    fn node_ports_that_are_served_everywhere_are_warned_about() {
        let warned = |node_ports: &[&str], cluster: &str, primary| {
            let mut config = config(node_ports);
            config.cluster_cidr = cluster.to_owned();
            let lines = checks(&config, &node(primary, true)).warnings;
            lines
                .into_iter()
                .filter(|line| line.starts_with("nodePort"))
                .collect::<Vec<_>>()
        };
        assert!(warned(&[], "", Family::V4)[0].contains("every address"));
        let v4 = ["192.168.0.0/24"];
        assert_eq!(warned(&v4, "10.244.0.0/16", Family::V4), [""; 0]);
        assert!(warned(&v4, "10.244.0.0/16,fd00::/64", Family::V4)[0].contains("every IPv6 address"));
        assert!(warned(&v4, "fd00::/64", Family::V6)[0].contains("every IPv6 address"));
        assert_eq!(
            warned(
                &["192.168.0.0/24", "fd00::/64"],
                "10.0.0.0/8,fd00::/64",
                Family::V4
            ),
            [""; 0]
        );
        assert_eq!(warned(&["primary"], "10.0.0.0/8,fd00::/64", Family::V4), [""; 0]);
    }

    #[test]
    fn a_cluster_cidr_of_the_wrong_family_is_fatal_where_nothing_else_serves_it() {
        for (cidr, mode, dual, fatal) in [
            ("fd00::/64", "ClusterCIDR", false, true),
            ("fd00::/64", "ClusterCIDR", true, false),
            ("fd00::/64", "BridgeInterface", false, false),
        ] {
            let mut config = config(&["primary"]);
            (config.cluster_cidr, config.detect_local_mode) = (cidr.to_owned(), mode.to_owned());
            let found = checks(&config, &node(Family::V4, dual));
            let (has, lacks) = if fatal {
                (found.fatal, found.warnings)
            } else {
                (found.warnings, found.fatal)
            };
            assert_eq!(
                (fields(&has), lacks),
                (vec!["clusterCIDR"], vec![]),
                "{mode} {dual}"
            );
        }
        let mut right = config(&["primary"]);
        right.cluster_cidr = "fd00::/64,10.0.0.0/8".to_owned();
        assert_eq!(checks(&right, &node(Family::V4, false)), Checks::default());
    }

    #[test]
    fn pod_cidrs_of_the_wrong_family_are_fatal_when_local_traffic_is_told_by_them() {
        for (mode, fatal) in [("NodeCIDR", 1), ("ClusterCIDR", 0)] {
            let mut config = config(&["primary"]);
            config.detect_local_mode = mode.to_owned();
            let mut node = node(Family::V4, true);
            node.pod_cidrs = vec!["fd00::/64".parse().unwrap()];
            let found = checks(&config, &node);
            assert_eq!(
                (found.fatal.len(), found.warnings.len()),
                (fatal, 1 - fatal),
                "{mode}"
            );
        }
    }

    #[test]
    fn bind_addresses_of_the_other_family_are_warned_about_on_a_single_stack_node() {
        let mut config = config(&["primary"]);
        config.healthz_bind_address = "[fd00::1]:10256".to_owned();
        config.metrics_bind_address = "[::]:10249".to_owned();
        config.ipvs.exclude_cidrs = Some(vec!["fd00::/64".to_owned()]);
        let single = checks(&config, &node(Family::V4, false));
        assert_eq!(
            fields(&single.warnings),
            ["ipvs.excludeCIDRs", "healthzBindAddress"]
        );
        assert_eq!(single.fatal, [""; 0]);
        assert_eq!(checks(&config, &node(Family::V4, true)), Checks::default());
    }
}
