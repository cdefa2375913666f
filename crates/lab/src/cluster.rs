//! A topology that serves every endpoint of a cluster, from plain data or from its objects as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::topology::{Node, Outside, Pod, PodNetwork, Port, Proto, Route, Sink, Topology};

/// As much of a cluster as a lab needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Its nodes. The lab has at least two: what is missing is made up.
    pub nodes: Vec<ShapeNode>,
    /// Its endpoints; one address may come several times with other ports.
    pub endpoints: Vec<Endpoint>,
    /// Service, external and load-balancer addresses, which the client sends through the first node.
    #[serde(default)]
    pub service_addresses: BTreeSet<IpAddr>,
}

/// A node; what is empty is made up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapeNode {
    /// Its name.
    pub name: String,
    /// With prefix length.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// At most one of each family counts.
    #[serde(default)]
    pub pod_cidrs: Vec<IpNet>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// What it is called; its address is put behind it.
    pub name: String,
    /// Where it is. Loopback, link-local, multicast and unspecified addresses are left out.
    pub address: IpAddr,
    /// What it serves.
    pub ports: Vec<Port>,
    /// The node it is on; unknown or absent means the second. Names of unknown nodes are given to made-up ones.
    #[serde(default)]
    pub node: Option<String>,
}

/// The topology of a shape: its nodes, a pod for each endpoint address (on the host network where the address is a
/// node's), an outside client called `client` and a sink.
pub fn topology(prefix: &str, shape: &Shape) -> Topology {
    let families = Families::of(shape);
    let mut topology = Topology::new(prefix);
    topology.nodes = nodes(shape, families);
    topology.pods = pods(shape, &topology.nodes);
    topology.outside = vec![client(shape, &topology)];
    topology.sink = Some(Sink::default());
    topology
}

/// Which families the endpoints and nodes use.
#[derive(Clone, Copy)]
struct Families {
    v4: bool,
    v6: bool,
}

impl Families {
    fn of(shape: &Shape) -> Self {
        let endpoints = shape.endpoints.iter().map(|endpoint| endpoint.address);
        let nodes = shape
            .nodes
            .iter()
            .flat_map(|node| node.addresses.iter().map(IpNet::addr));
        let all: Vec<IpAddr> = endpoints
            .chain(nodes)
            .chain(shape.service_addresses.iter().copied())
            .collect();
        let v6 = all.iter().any(IpAddr::is_ipv6);
        Self {
            v4: !v6 || all.iter().any(IpAddr::is_ipv4),
            v6,
        }
    }

    fn has(self, address: IpAddr) -> bool {
        if address.is_ipv4() { self.v4 } else { self.v6 }
    }
}

fn nodes(shape: &Shape, families: Families) -> Vec<Node> {
    let given = at_least_two(shape);
    let as_node = |(index, node): (usize, &ShapeNode)| {
        let number = 200 + index;
        let own = [
            format!("192.168.50.{number}/24"),
            format!("2001:db8:50::{number:x}/64"),
        ];
        let cidrs = [format!("10.{number}.0.0/24"), format!("fd00:10:{number:x}::/64")];
        let parse =
            |texts: [String; 2]| texts.map(|text| text.parse().expect("invariant: a made-up network"));
        let guessed = [true, false]
            .into_iter()
            .filter_map(|v4| common_network(shape, &given, index, v4));
        let pod_cidrs = node.pod_cidrs.iter().copied().chain(guessed).collect();
        Node {
            name: node.name.clone(),
            addresses: fill(node.addresses.clone(), parse(own), families),
            pod_cidrs: fill(pod_cidrs, parse(cidrs), families),
            interfaces: vec![],
        }
    };
    given.iter().enumerate().map(as_node).collect()
}

/// The nodes that are there, and made-up ones called as endpoints call them.
fn at_least_two(shape: &Shape) -> Vec<ShapeNode> {
    let mut given = shape.nodes.clone();
    let mentioned = shape
        .endpoints
        .iter()
        .filter_map(|endpoint| endpoint.node.clone());
    let mentioned: BTreeSet<String> = mentioned.collect();
    for name in mentioned
        .into_iter()
        .chain(["node-1", "node-2", "node-3"].map(str::to_owned))
    {
        if given.len() < 2 && given.iter().all(|node| node.name != name) {
            given.push(ShapeNode {
                name,
                addresses: vec![],
                pod_cidrs: vec![],
            });
        }
    }
    given
}

/// Which of the nodes an endpoint is on: the one it names, or the second.
fn home(endpoint: &Endpoint, nodes: &[ShapeNode]) -> usize {
    nodes
        .iter()
        .position(|node| Some(&node.name) == endpoint.node.as_ref())
        .unwrap_or(1)
}

/// The /24 or /64 that holds all pods of a node and nothing else, as a network plug-in would have given it.
fn common_network(shape: &Shape, nodes: &[ShapeNode], index: usize, v4: bool) -> Option<IpNet> {
    let length = if v4 { 24 } else { 64 };
    let pods = || {
        shape
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.address.is_ipv4() == v4)
    };
    let (own, others): (Vec<_>, Vec<_>) = pods().partition(|endpoint| home(endpoint, nodes) == index);
    let network = IpNet::new(own.first()?.address, length).ok()?.trunc();
    let holds = |address: IpAddr| network.contains(&address);
    let nets = nodes
        .iter()
        .flat_map(|node| node.addresses.iter().chain(&node.pod_cidrs));
    let is_free = !others.iter().any(|endpoint| holds(endpoint.address))
        && !nets
            .clone()
            .any(|net| holds(net.addr()) || net.contains(&network));
    (is_free && own.iter().all(|endpoint| holds(endpoint.address))).then_some(network)
}

/// The first given network of each family, or the made-up one if the family is used.
fn fill(given: Vec<IpNet>, made_up: [IpNet; 2], families: Families) -> Vec<IpNet> {
    let mut filled: Vec<IpNet> = vec![];
    let made_up = made_up.into_iter().filter(|net| families.has(net.addr()));
    for net in given.into_iter().chain(made_up) {
        if filled
            .iter()
            .all(|have| have.addr().is_ipv4() != net.addr().is_ipv4())
        {
            filled.push(net);
        }
    }
    filled
}

fn pods(shape: &Shape, nodes: &[Node]) -> Vec<Pod> {
    let mut by_address: BTreeMap<IpAddr, Pod> = BTreeMap::new();
    for endpoint in shape
        .endpoints
        .iter()
        .filter(|endpoint| can_be_a_pod(endpoint.address))
    {
        let pod = by_address
            .entry(endpoint.address)
            .or_insert_with(|| pod_of(endpoint, nodes));
        pod.ports.extend(&endpoint.ports);
        pod.ports.sort();
        pod.ports.dedup();
    }
    by_address.into_values().collect()
}

fn pod_of(endpoint: &Endpoint, nodes: &[Node]) -> Pod {
    let host = nodes
        .iter()
        .find(|node| node.all_addresses().any(|net| net.addr() == endpoint.address));
    let named = nodes
        .iter()
        .find(|node| Some(&node.name) == endpoint.node.as_ref());
    let second = nodes.get(1).expect("invariant: at least two nodes were made");
    let node = host.or(named).unwrap_or(second);
    let tail = endpoint.address.to_string().replace(['.', ':'], "-");
    let name: String = format!("{}-{tail}", endpoint.name.to_ascii_lowercase());
    let fits = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') {
            c
        } else {
            '-'
        }
    };
    Pod {
        name: name.chars().map(fits).collect(),
        node: node.name.clone(),
        addresses: vec![endpoint.address],
        network: if host.is_some() {
            PodNetwork::Host
        } else {
            PodNetwork::Own
        },
        ports: vec![],
        answers_as: None,
    }
}

fn can_be_a_pod(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(link_local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

fn client(shape: &Shape, topology: &Topology) -> Outside {
    let own: [IpNet; 2] = ["203.0.113.10/24", "2001:db8:cafe::10/64"]
        .map(|text| text.parse().expect("invariant: a literal network"));
    let first = topology
        .nodes
        .first()
        .expect("invariant: at least two nodes were made");
    let has = |net: &IpNet| first.address_like(net.addr()).is_some();
    let is_a_nodes = |address: &IpAddr| {
        topology
            .nodes
            .iter()
            .any(|node| node.all_addresses().any(|net| net.addr() == *address))
    };
    let routed = shape
        .service_addresses
        .iter()
        .filter(|address| can_be_a_pod(**address) && !is_a_nodes(address));
    Outside {
        name: "client".to_owned(),
        addresses: own.into_iter().filter(has).collect(),
        routes: routed
            .map(|address| Route {
                to: IpNet::from(*address),
                via: first.name.clone(),
            })
            .collect(),
        ports: vec![],
    }
}

/// Reads Nodes, Services and `EndpointSlices` out of a `List` (or an array) of API objects. What it does not
/// understand it leaves out: what is wrong with objects is another's business.
pub fn read(objects: &Value) -> Shape {
    let items = objects
        .get("items")
        .unwrap_or(objects)
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut shape = Shape::default();
    for item in items {
        match item.get("kind").and_then(Value::as_str) {
            Some("Node") => shape.nodes.extend(read_node(item)),
            Some("Service") => shape.service_addresses.extend(read_service(item)),
            Some("EndpointSlice") => shape.endpoints.extend(read_slice(item)),
            _ => {}
        }
    }
    shape
}

fn read_node(item: &Value) -> Option<ShapeNode> {
    let with_length = |address: IpAddr| IpNet::new(address, if address.is_ipv4() { 24 } else { 64 }).ok();
    let internal =
        list(item, "/status/addresses").filter(|one| one.get("type") == Some(&"InternalIP".into()));
    Some(ShapeNode {
        name: text(item, "/metadata/name")?.to_owned(),
        addresses: internal
            .filter_map(|one| with_length(text(one, "/address")?.parse().ok()?))
            .collect(),
        pod_cidrs: list(item, "/spec/podCIDRs")
            .filter_map(|one| one.as_str()?.parse().ok())
            .collect(),
    })
}

fn read_service(item: &Value) -> Vec<IpAddr> {
    let cluster = list(item, "/spec/clusterIPs").chain(list(item, "/spec/externalIPs"));
    let ingress = list(item, "/status/loadBalancer/ingress").filter_map(|one| one.get("ip"));
    cluster
        .chain(ingress)
        .filter_map(|one| one.as_str()?.parse().ok())
        .collect()
}

fn read_slice(item: &Value) -> Vec<Endpoint> {
    let service = item
        .pointer("/metadata/labels/kubernetes.io~1service-name")
        .and_then(Value::as_str);
    let name = service
        .or_else(|| text(item, "/metadata/name"))
        .unwrap_or("endpoint");
    let ports: Vec<Port> = list(item, "/ports").filter_map(read_port).collect();
    let mut endpoints = vec![];
    for one in list(item, "/endpoints") {
        let node = text(one, "/nodeName").map(ToOwned::to_owned);
        for address in list(one, "/addresses").filter_map(|address| address.as_str()?.parse().ok()) {
            endpoints.push(Endpoint {
                name: name.to_owned(),
                address,
                ports: ports.clone(),
                node: node.clone(),
            });
        }
    }
    endpoints
}

fn read_port(port: &Value) -> Option<Port> {
    let proto = match text(port, "/protocol") {
        None | Some("TCP") => Proto::Tcp,
        Some("UDP") => Proto::Udp,
        Some(_) => return None,
    };
    let port = u16::try_from(port.get("port")?.as_u64()?)
        .ok()
        .filter(|port| *port != 0)?;
    Some(Port { proto, port })
}

pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn endpoint(address: &str, node: Option<&str>) -> Endpoint {
        let node = node.map(ToOwned::to_owned);
        Endpoint {
            name: "web".to_owned(),
            address: address.parse().unwrap(),
            ports: vec![Port::tcp(80)],
            node,
        }
    }

    #[test]
    fn an_endpoint_without_a_node_is_on_the_second() {
        let endpoints = vec![endpoint("10.1.0.1", None), endpoint("10.1.0.2", Some("gone"))];
        let topology = topology(
            "t",
            &Shape {
                endpoints,
                ..Shape::default()
            },
        );
        let nodes: Vec<&str> = topology.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(nodes, ["gone", "node-1"]);
        let homes: Vec<&str> = topology.pods.iter().map(|pod| pod.node.as_str()).collect();
        assert_eq!(homes, ["node-1", "gone"]);
        topology.validate().unwrap();
    }

    #[test]
    fn a_made_up_node_is_called_as_endpoints_call_it_and_has_the_network_of_its_pods() {
        let nodes = vec![ShapeNode {
            name: "a".to_owned(),
            addresses: vec!["192.168.50.1/24".parse().unwrap()],
            pod_cidrs: vec!["10.244.1.0/24".parse().unwrap()],
        }];
        let mut endpoints = vec![
            endpoint("10.244.1.3", Some("a")),
            endpoint("10.244.2.3", Some("b")),
        ];
        let made_up = |endpoints: &[Endpoint]| {
            let shape = Shape {
                nodes: nodes.clone(),
                endpoints: endpoints.to_vec(),
                ..Shape::default()
            };
            let node = topology("t", &shape).nodes[1].clone();
            (node.name, node.pod_cidrs)
        };
        let network = |text: &str| vec![text.parse::<IpNet>().unwrap()];
        assert_eq!(made_up(&endpoints), ("b".to_owned(), network("10.244.2.0/24")));
        endpoints.push(endpoint("10.244.1.4", Some("b")));
        assert_eq!(made_up(&endpoints), ("b".to_owned(), network("10.201.0.0/24")));
    }

    #[test]
    fn an_endpoint_at_a_nodes_address_is_a_host_network_pod_of_that_node() {
        let nodes = vec![ShapeNode {
            name: "a".to_owned(),
            addresses: vec!["192.168.50.1/24".parse().unwrap()],
            pod_cidrs: vec![],
        }];
        let endpoints = vec![endpoint("192.168.50.1", Some("elsewhere"))];
        let topology = topology(
            "t",
            &Shape {
                nodes,
                endpoints,
                ..Shape::default()
            },
        );
        assert_eq!(
            (topology.pods[0].node.as_str(), topology.pods[0].network),
            ("a", PodNetwork::Host)
        );
        topology.validate().unwrap();
    }

    #[test]
    fn addresses_that_no_pod_can_have_are_left_out_and_ports_of_one_address_are_joined() {
        let mut endpoints: Vec<Endpoint> = [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.1.1",
            "224.0.0.1",
            "fe80::1",
            "::1",
            "10.1.0.1",
            "10.1.0.1",
        ]
        .map(|address| endpoint(address, None))
        .to_vec();
        endpoints[7].ports = vec![Port::udp(53), Port::tcp(80)];
        let topology = topology(
            "t",
            &Shape {
                endpoints,
                ..Shape::default()
            },
        );
        assert_eq!(topology.pods.len(), 1);
        assert_eq!(topology.pods[0].ports, [Port::tcp(80), Port::udp(53)]);
    }

    #[test]
    fn dual_stack_objects_give_dual_stack_nodes_and_client() {
        let objects = json!({"items": [
            {"kind": "EndpointSlice", "metadata": {"name": "web-1"}, "endpoints": [{"addresses": ["fd00:1::5"]}],
             "ports": [{"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "SCTP"}, {"port": null}]},
            {"kind": "Service", "spec": {"clusterIPs": ["10.96.0.5", "None"], "externalIPs": ["198.51.100.1"]},
             "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.77"}, {"hostname": "x"}]}}},
        ]});
        let shape = read(&objects);
        assert_eq!(shape.endpoints[0].ports, [Port::tcp(80)]);
        assert_eq!(shape.service_addresses.len(), 3);
        let topology = topology("t", &shape);
        assert!(
            topology
                .nodes
                .iter()
                .all(|node| node.addresses.len() == 2 && node.pod_cidrs.len() == 2)
        );
        assert_eq!(topology.outside[0].addresses.len(), 2);
        assert_eq!(topology.outside[0].routes.len(), 3);
        topology.validate().unwrap();
    }
}
