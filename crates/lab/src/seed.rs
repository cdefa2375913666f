//! The demonstration cluster: two nodes, spring-test and sender behind node ports, kube-dns.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use crate::topology::{Node, Outside, Pod, PodNetwork, Port, Route, Sink, Topology};

/// The first node, at 192.168.50.238.
pub const NODE_A: &str = "node-a";

/// The second node, at 192.168.50.239.
pub const NODE_B: &str = "node-b";

/// The outside client, at 192.168.50.10 on the nodes' network.
pub const CLIENT: &str = "client";

/// The service network; the client sends it through the first node.
pub const SERVICE_CIDR: &str = "10.1.0.0/16";

/// The lab of the seed cluster: every endpoint of its objects on its node, a client and a sink.
pub fn topology(prefix: &str) -> Topology {
    Topology {
        prefix: prefix.to_owned(),
        nodes: vec![
            node(NODE_A, "192.168.50.238/24", "10.244.1.0/24"),
            node(NODE_B, "192.168.50.239/24", "10.244.2.0/24"),
        ],
        pods: pods(),
        outside: vec![Outside {
            name: CLIENT.to_owned(),
            addresses: vec![net("192.168.50.10/24")],
            routes: vec![Route {
                to: net(SERVICE_CIDR),
                via: NODE_A.to_owned(),
            }],
            ports: vec![],
        }],
        sink: Some(Sink::default()),
    }
}

/// The Service before the cluster's DNS servers.
pub const DNS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 10));

/// The pods behind [`DNS`].
pub const DNS_PODS: [&str; 3] = ["kube-dns-a1", "kube-dns-a2", "kube-dns-b"];

/// The same lab with port 53 of [`DNS_PODS`] left to servers that answer for names ([`crate::dns::Dns`]).
pub fn topology_for_dns(prefix: &str) -> Topology {
    let mut topology = topology(prefix);
    for pod in &mut topology.pods {
        pod.ports.retain(|port| port.port != 53);
    }
    topology
}

fn pods() -> Vec<Pod> {
    let web = [Port::tcp(8080)];
    let dns = [Port::udp(53), Port::tcp(53), Port::tcp(9153)];
    vec![
        pod("spring-test-a", NODE_A, "10.244.1.3", &web),
        pod("spring-test-b", NODE_B, "10.244.2.3", &web),
        pod("sender-a", NODE_A, "10.244.1.7", &web),
        pod("sender-b", NODE_B, "10.244.2.7", &web),
        pod("kube-dns-a1", NODE_A, "10.244.1.2", &dns),
        pod("kube-dns-a2", NODE_A, "10.244.1.4", &dns),
        pod("kube-dns-b", NODE_B, "10.244.2.2", &dns),
    ]
}

fn node(name: &str, address: &str, pod_cidr: &str) -> Node {
    let (addresses, pod_cidrs) = (vec![net(address)], vec![net(pod_cidr)]);
    Node {
        name: name.to_owned(),
        addresses,
        pod_cidrs,
        interfaces: vec![],
    }
}

fn pod(name: &str, node: &str, address: &str, ports: &[Port]) -> Pod {
    let address: IpAddr = address.parse().expect("invariant: a literal address");
    Pod {
        name: name.to_owned(),
        node: node.to_owned(),
        addresses: vec![address],
        network: PodNetwork::Own,
        ports: ports.to_vec(),
        answers_as: None,
    }
}

fn net(text: &str) -> IpNet {
    text.parse().expect("invariant: a literal network")
}
