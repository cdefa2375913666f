//! A small cluster of both families for stories about flows: a node with two pods that serve UDP, a client outside, a
//! server outside, and a sink for whatever nobody translates.

use lab::{Interface, Lab, Node, Outside, Pod, PodNetwork, Port, Route, Sink, Topology};
use model::{Family, PerFamily};
use serde_json::{Value, json};

/// The node under test.
pub const NODE: &str = "node-a";
/// Outside, with routes to service addresses through the node.
pub const CLIENT: &str = "client";
/// Outside as well; it serves the number of a node port.
pub const SERVER: &str = "server";
/// Where pods serve.
pub const TARGET: u16 = 5353;
/// The node port of [`Service::everywhere`].
pub const NODE_PORT: u16 = 30053;

/// Addresses of one family.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The node's.
    pub node: &'static str,
    /// The node's, on another interface.
    pub other: &'static str,
    /// One that the node does not have yet.
    pub coming: &'static str,
    /// The server's.
    pub server: &'static str,
    /// Of pods `pod-a` and `pod-b`.
    pub pods: [&'static str; 2],
    /// Of service `s`: cluster IP, external IP, load balancer's IP.
    pub service: [&'static str; 3],
    /// The cluster IP of another service.
    pub canary: &'static str,
}

/// All addresses.
pub const ADDRESSES: PerFamily<Addresses> = PerFamily {
    v4: Addresses {
        node: "192.168.70.1",
        other: "198.51.100.1",
        coming: "203.0.113.77",
        server: "192.168.70.8",
        pods: ["10.244.1.10", "10.244.1.11"],
        service: ["10.96.0.53", "203.0.113.53", "203.0.113.54"],
        canary: "10.96.0.99",
    },
    v6: Addresses {
        node: "fd70::1",
        other: "2001:db8:51::1",
        coming: "2001:db8:203::77",
        server: "fd70::8",
        pods: ["fd00:244:1::10", "fd00:244:1::11"],
        service: ["fd00:96::53", "2001:db8:203::53", "2001:db8:203::54"],
        canary: "fd00:96::99",
    },
};

/// The node's pod networks.
const PODS: [&str; 2] = ["10.244.1.0/24", "fd00:244:1::/64"];

/// An address and a port, as text.
pub fn at(address: &str, port: u16) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

fn nets<T: std::str::FromStr>(texts: &[&str]) -> Vec<T>
where
    T::Err: std::fmt::Debug,
{
    let parse = |text: &&str| text.parse().expect("a good address");
    texts.iter().map(parse).collect()
}

/// Builds the lab.
///
/// # Panics
/// When it cannot be built.
pub fn up(stem: &str) -> Lab {
    let pod = |index: usize, name: &str| Pod {
        name: name.to_owned(),
        node: NODE.to_owned(),
        addresses: nets(&[ADDRESSES.v4.pods[index], ADDRESSES.v6.pods[index]]),
        network: PodNetwork::Own,
        ports: vec![Port::udp(TARGET)],
        answers_as: None,
    };
    let outside = |name: &str, addresses: &[&str], routes: &[&str]| Outside {
        name: name.to_owned(),
        addresses: nets(addresses),
        routes: nets(routes)
            .into_iter()
            .map(|to| Route {
                to,
                via: NODE.to_owned(),
            })
            .collect(),
        ports: vec![Port::udp(NODE_PORT)],
    };
    let routed = [
        "10.96.0.0/16",
        "203.0.113.0/24",
        "fd00:96::/64",
        "2001:db8:203::/64",
    ];
    let topology = Topology {
        nodes: vec![Node {
            name: NODE.to_owned(),
            addresses: nets(&["192.168.70.1/24", "fd70::1/64"]),
            pod_cidrs: nets(&PODS),
            interfaces: vec![Interface {
                name: "vip0".to_owned(),
                addresses: nets(&["198.51.100.1/24", "2001:db8:51::1/64"]),
            }],
        }],
        pods: vec![pod(0, "pod-a"), pod(1, "pod-b")],
        outside: vec![
            outside(CLIENT, &["192.168.70.9/24", "fd70::9/64"], &routed),
            outside(SERVER, &["192.168.70.8/24", "fd70::8/64"], &PODS),
        ],
        sink: Some(Sink::default()),
        ..Topology::new(&lab::live::prefix(stem))
    };
    Lab::up(&topology).unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// The Node.
pub fn node() -> Value {
    crate::manifests::node(NODE, &[ADDRESSES.v4.node, ADDRESSES.v6.node])
}

/// Service `name` of both families with a UDP port 53 at these cluster IPs alone.
pub fn service(name: &str, cluster_ips: [&str; 2]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "type": "ClusterIP", "clusterIP": cluster_ips[0], "clusterIPs": cluster_ips,
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack",
            "ports": [{"name": "dns", "protocol": "UDP", "port": 53, "targetPort": TARGET}],
        },
    })
}

/// As [`service`], for `s`, on a node port, an external IP and a load balancer's IP as well.
pub fn everywhere() -> Value {
    let of = |index: usize| [ADDRESSES.v4.service[index], ADDRESSES.v6.service[index]];
    let mut service = service("s", of(0));
    service["spec"]["type"] = json!("LoadBalancer");
    service["spec"]["ports"][0]["nodePort"] = json!(NODE_PORT);
    service["spec"]["externalIPs"] = json!(of(1));
    let ingress: Vec<Value> = of(2).iter().map(|ip| json!({"ip": ip})).collect();
    service["status"] = json!({"loadBalancer": {"ingress": ingress}});
    service
}

/// What an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Ready.
    Ready,
    /// On its way out, and still serving.
    Terminating,
}

/// The slices of a service: pods by index, each with its condition.
pub fn slices(service: &str, pods: &[(usize, Condition)]) -> Vec<Value> {
    let slice = |family: Family| {
        let endpoints: Vec<Value> = pods
            .iter()
            .map(|(index, condition)| {
                let is_ready = *condition == Condition::Ready;
                json!({
                    "addresses": [ADDRESSES.get(family).pods[*index]], "nodeName": NODE,
                    "conditions": {"ready": is_ready, "serving": true, "terminating": !is_ready},
                })
            })
            .collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "default", "name": format!("{service}-{family}").to_lowercase(),
                         "labels": {"kubernetes.io/service-name": service}},
            "addressType": family.to_string(), "endpoints": endpoints,
            "ports": [{"name": "dns", "protocol": "UDP", "port": TARGET}],
        })
    };
    Family::ALL.into_iter().map(slice).collect()
}
