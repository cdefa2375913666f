//! The small cluster that stories about the daemon play in: the lab's seed, with services of our own.

use crate::manifests::{node, node_port_service, service, slice};
use lab::{Lab, Probe, seed};
use serde_json::Value;
use std::net::SocketAddr;

/// The node under test.
pub const NODE: &str = seed::NODE_A;

/// Outside the cluster.
pub const CLIENT: &str = seed::CLIENT;

/// Pods that serve TCP 8080: name, address, node.
pub const PODS: [(&str, &str, &str); 4] = [
    ("spring-test-a", "10.244.1.3", seed::NODE_A),
    ("spring-test-b", "10.244.2.3", seed::NODE_B),
    ("sender-a", "10.244.1.7", seed::NODE_A),
    ("sender-b", "10.244.2.7", seed::NODE_B),
];

/// Where `web` is.
pub const WEB: &str = "10.1.0.80:80";

/// Where `web` is on the node.
pub const WEB_NODE_PORT: &str = "192.168.50.238:30080";

/// Builds the lab.
pub fn up(stem: &str) -> Lab {
    let topology = seed::topology(&lab::live::prefix(stem));
    Lab::up(&topology).unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// Runs a script on the node under test, to its first failure; what it printed.
///
/// # Panics
/// When it fails.
pub fn shell(lab: &Lab, script: &str) -> String {
    lab.must_exec(NODE, &["sh", "-e", "-c", script])
        .unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// The Node, and service `web` in front of the first `count` of [`PODS`].
pub fn web(count: usize) -> Vec<Value> {
    vec![
        node(NODE, &["192.168.50.238"]),
        node_port_service("web", "10.1.0.80", 80, 8080, 30080),
        endpoints("web", count),
    ]
}

/// A service's slice with the first `count` of [`PODS`].
pub fn endpoints(service: &str, count: usize) -> Value {
    let pods: Vec<(&str, &str)> = PODS
        .iter()
        .take(count)
        .map(|(_, address, node)| (*address, *node))
        .collect();
    slice(service, 8080, &pods)
}

/// Services that nobody talks to, each with two of [`PODS`], to make a load of rules.
pub fn crowd(count: usize) -> Vec<Value> {
    let mut objects = vec![];
    for index in 0..count {
        let name = format!("crowd-{index}");
        let address = format!("10.1.{}.{}", 100 + index / 250, 1 + index % 250);
        objects.push(service(&name, &address, 80, 8080));
        objects.push(endpoints(&name, 2));
    }
    objects
}

/// As upstream's nftables mode serves `web`, for two of its pods.
pub const NFTABLES_MODE: &str = "
table ip kube-proxy {
  comment \"rules for kube-proxy\"
  set cluster-ips {
    type ipv4_addr
    elements = { 10.1.0.80 }
  }
  map service-ips {
    type ipv4_addr . inet_proto . inet_service : verdict
  }
  chain endpoint-a {
    meta l4proto tcp dnat to 10.244.1.3:8080
  }
  chain endpoint-b {
    meta l4proto tcp dnat to 10.244.2.3:8080
  }
  chain service-web {
    numgen random mod 2 vmap { 0 : goto endpoint-a, 1 : goto endpoint-b }
  }
  chain services {
    ip daddr . meta l4proto . th dport vmap @service-ips
  }
  chain nat-prerouting {
    type nat hook prerouting priority -100;
    jump services
  }
  chain nat-postrouting {
    type nat hook postrouting priority 100;
    ct status dnat masquerade
  }
}
add element ip kube-proxy service-ips { 10.1.0.80 . tcp . 80 : goto service-web }
table ip6 kube-proxy {
}
table inet strangers {
}
";

/// A TCP probe.
pub fn tcp(to: &str) -> Probe {
    let to: SocketAddr = to.parse().expect("a socket address");
    Probe::tcp(to)
}
