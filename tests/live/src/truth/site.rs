//! The lab of a round: the node under test, other nodes, endpoints as servers, sources, and the way back.

use super::rounds::{Round, Station};
use ipnet::IpNet;
use lab::{Lab, LabError, Node, Outside, Pod, PodNetwork, Port, Proto, Route, Sink, Topology, serve};
use model::{Outcome, Protocol};
use scenario::{Flow, Variant};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// A lab for the rows of a round, without rules.
pub struct Site {
    /// The lab.
    pub lab: Lab,
    /// The node under test.
    pub node: String,
    /// Its addresses, with those of its pod network: what a masqueraded packet may come from.
    pub own: BTreeSet<IpAddr>,
    places: BTreeMap<IpAddr, String>,
    servers: Vec<serve::Serving>,
}

impl Site {
    /// Builds it.
    ///
    /// # Errors
    /// What the lab could not do.
    pub fn up(prefix: &str, variant: &Variant, round: &Round<'_>) -> Result<Site, LabError> {
        let endpoints = endpoints(variant);
        let topology = topology(prefix, variant, round, &endpoints);
        let node = variant.facts.name.to_string();
        let gateways = topology.nodes[0]
            .pod_cidrs
            .iter()
            .filter_map(|cidr| topology.gateway(*cidr));
        let own = variant
            .addresses
            .iter()
            .copied()
            .chain(gateways)
            .map(|net| net.addr())
            .collect();
        let mut places: BTreeMap<IpAddr, String> = BTreeMap::new();
        for (address, station) in &round.stations {
            places.insert(*address, place(*address, station, &node));
        }
        let mut site = Site {
            lab: Lab::up(&topology)?,
            node,
            own,
            places,
            servers: vec![],
        };
        site.settle(round)?;
        site.serve_endpoints(&endpoints)?;
        Ok(site)
    }

    /// The place a source is at.
    pub fn place(&self, source: IpAddr) -> &str {
        &self.places[&source]
    }

    /// The node serves there itself, under the name `node`. False when somebody (the daemon) does already.
    pub fn serve_on_node(&mut self, protocol: Protocol, address: SocketAddr) -> bool {
        let Some(proto) = proto(protocol) else {
            return false;
        };
        match self.lab.serve(&self.node, "node", &[(proto, address)]) {
            Ok(serving) => {
                self.servers.push(serving);
                true
            }
            Err(_) => false,
        }
    }

    fn settle(&self, round: &Round<'_>) -> Result<(), LabError> {
        let outside = &self.lab.topology().outside;
        let nodes = &self.lab.topology().nodes;
        let sink = self.lab.topology().sink.iter().map(|sink| sink.name.as_str());
        let others: Vec<&str> = nodes[1..]
            .iter()
            .map(|node| node.name.as_str())
            .chain(sink)
            .collect();
        // Connection tracking must see both directions, also where nothing is masqueraded.
        for address in outside
            .iter()
            .flat_map(|one| one.addresses.iter().map(IpNet::addr))
        {
            let via = nodes[0]
                .address_like(address)
                .expect("a source has a family of the node");
            for place in &others {
                self.ip(
                    place,
                    &format!("route replace {address} via {via} dev eth0 onlink"),
                )?;
            }
        }
        for (address, station) in &round.stations {
            match station {
                Station::NodeBorrowing => self.ip(&self.node, &format!("addr add {address} dev lo"))?,
                Station::Pod { interface } if interface != "cni0" => self.rewire(*address, interface)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives a pod a link of its own in place of its port of `cni0`, as plug-ins without a bridge do.
    fn rewire(&self, address: IpAddr, interface: &str) -> Result<(), LabError> {
        let pod = self.place(address);
        let namespace = self.lab.topology().namespace_name(pod);
        self.ip(pod, "link delete eth0")?;
        self.ip(
            &self.node,
            &format!("link add {interface} type veth peer name eth0 netns {namespace}"),
        )?;
        let proxy = format!("net/ipv4/conf/{interface}/proxy_arp");
        let delay = format!("net/ipv4/neigh/{interface}/proxy_delay");
        self.lab.must_exec(
            &self.node,
            &["sysctl", "-qw", &format!("{proxy}=1"), &format!("{delay}=0")],
        )?;
        self.ip(&self.node, &format!("link set {interface} up"))?;
        self.ip(&self.node, &format!("route replace {address} dev {interface}"))?;
        self.ip(pod, "link set eth0 up")?;
        self.ip(pod, &format!("addr add {address}/32 dev eth0"))?;
        self.ip(pod, "route add default dev eth0")
    }

    fn ip(&self, place: &str, words: &str) -> Result<(), LabError> {
        let mut argv = vec!["ip"];
        argv.extend(words.split(' '));
        self.lab.must_exec(place, &argv).map(|_| ())
    }

    fn serve_endpoints(&mut self, endpoints: &BTreeMap<IpAddr, EndpointOf>) -> Result<(), LabError> {
        for (address, endpoint) in endpoints {
            for port in &endpoint.ports {
                let socket = SocketAddr::new(*address, port.port);
                let pod = pod_name(*address);
                let on_node = self.own.contains(address);
                let place = if on_node { &self.node } else { &pod };
                let serving = self
                    .lab
                    .serve(place, &socket.to_string(), &[(port.proto, socket)])?;
                self.servers.push(serving);
            }
        }
        Ok(())
    }
}

/// What this kernel can speak: not every one has SCTP.
pub fn proto(protocol: Protocol) -> Option<Proto> {
    match protocol {
        Protocol::Tcp => Some(Proto::Tcp),
        Protocol::Udp => Some(Proto::Udp),
        Protocol::Sctp => lab::live::has_sctp().then_some(Proto::Sctp),
    }
}

/// An endpoint's node and what it serves.
#[derive(Clone, Debug, Default)]
struct EndpointOf {
    node: String,
    ports: BTreeSet<Port>,
}

/// Every address of every slice, usable or not: what must not be reached must be there to be missed.
fn endpoints(variant: &Variant) -> BTreeMap<IpAddr, EndpointOf> {
    let mut all: BTreeMap<IpAddr, EndpointOf> = BTreeMap::new();
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    for slice in variant
        .documents
        .iter()
        .filter(|document| document["kind"] == "EndpointSlice")
    {
        for one in list(slice, "endpoints") {
            for address in list(&one, "addresses") {
                let address = address.as_str().and_then(|text| text.parse().ok());
                let endpoint = all
                    .entry(address.expect("an endpoint has an address"))
                    .or_default();
                one["nodeName"]
                    .as_str()
                    .unwrap_or_default()
                    .clone_into(&mut endpoint.node);
                endpoint
                    .ports
                    .extend(list(slice, "ports").iter().filter_map(port));
            }
        }
    }
    all
}

fn port(port: &Value) -> Option<Port> {
    let number = u16::try_from(port["port"].as_u64()?).ok()?;
    match port["protocol"].as_str() {
        None | Some("TCP") => Some(Port::tcp(number)),
        Some("UDP") => Some(Port::udp(number)),
        Some("SCTP") => lab::live::has_sctp().then(|| Port::sctp(number)),
        Some(_) => None,
    }
}

fn topology(
    prefix: &str,
    variant: &Variant,
    round: &Round<'_>,
    endpoints: &BTreeMap<IpAddr, EndpointOf>,
) -> Topology {
    let has_v6 = variant.addresses.iter().any(|net| net.addr().is_ipv6());
    let node = variant.facts.name.to_string();
    let mut topology = Topology::new(prefix);
    topology.nodes = vec![Node {
        name: node.clone(),
        addresses: variant.addresses.clone(),
        pod_cidrs: families(["10.254.0.0/24", "fd00:fe::/64"], has_v6),
        interfaces: vec![],
    }];
    let others: BTreeSet<&str> = endpoints
        .values()
        .map(|endpoint| endpoint.node.as_str())
        .collect();
    for (index, name) in others.into_iter().filter(|name| *name != node).enumerate() {
        let number = index + 1;
        topology.nodes.push(Node {
            name: name.to_owned(),
            addresses: families(
                [
                    &format!("192.168.77.{number}/24"),
                    &format!("2001:db8:77::{number}/64"),
                ],
                has_v6,
            ),
            pod_cidrs: families(
                [
                    &format!("10.254.{number}.0/24"),
                    &format!("fd00:fe:{number}::/64"),
                ],
                has_v6,
            ),
            interfaces: vec![],
        });
    }
    let sources = round.stations.iter();
    let pods = sources.filter(|(_, station)| matches!(station, Station::Pod { .. }));
    let mut homes: BTreeMap<IpAddr, &str> = pods.map(|(address, _)| (*address, node.as_str())).collect();
    homes.extend(
        endpoints
            .iter()
            .map(|(address, endpoint)| (*address, endpoint.node.as_str())),
    );
    // An endpoint at the node's own address is a process of the node.
    homes.retain(|address, _| !variant.facts.is_local_address(*address));
    topology.pods = homes
        .into_iter()
        .map(|(address, node)| pod(address, node))
        .collect();
    let outside = round
        .stations
        .iter()
        .filter(|(_, station)| **station == Station::Outside);
    topology.outside = outside
        .map(|(address, _)| client(*address, &round.flows, variant))
        .collect();
    topology.sink = Some(Sink::default());
    topology
}

fn families(texts: [&str; 2], has_v6: bool) -> Vec<IpNet> {
    let wanted = texts.into_iter().take(if has_v6 { 2 } else { 1 });
    wanted
        .map(|text| text.parse().expect("a made-up network"))
        .collect()
}

fn pod(address: IpAddr, node: &str) -> Pod {
    Pod {
        name: pod_name(address),
        node: node.to_owned(),
        addresses: vec![address],
        network: PodNetwork::Own,
        ports: vec![],
        answers_as: None,
    }
}

/// A client that sends to everything the rows name through the node, if it is not the node's own.
fn client(address: IpAddr, flows: &[&Flow], variant: &Variant) -> Outside {
    let length = if address.is_ipv4() { 24 } else { 64 };
    let from_here = flows.iter().filter(|flow| flow.packet.src == address);
    let targets: BTreeSet<IpAddr> = from_here.map(|flow| flow.packet.dst.ip()).collect();
    let strangers = targets
        .into_iter()
        .filter(|target| !variant.facts.is_local_address(*target));
    Outside {
        name: outside_name(address),
        addresses: vec![IpNet::new(address, length).expect("a length of its family")],
        routes: strangers
            .map(|target| Route {
                to: IpNet::from(target),
                via: variant.facts.name.to_string(),
            })
            .collect(),
        ports: vec![],
    }
}

fn place(address: IpAddr, station: &Station, node: &str) -> String {
    match station {
        Station::Node | Station::NodeBorrowing => node.to_owned(),
        Station::Pod { .. } => pod_name(address),
        Station::Outside => outside_name(address),
    }
}

fn pod_name(address: IpAddr) -> String {
    format!("p-{}", address.to_string().replace([':', '.'], "-"))
}

fn outside_name(address: IpAddr) -> String {
    format!("x-{}", address.to_string().replace([':', '.'], "-"))
}

/// The endpoints that a row may reach and whether each sees the client; empty for other outcomes.
pub fn expected(outcome: &Outcome) -> BTreeMap<String, bool> {
    match outcome {
        Outcome::Delivered(to) => to
            .iter()
            .map(|one| (one.endpoint.to_string(), one.masquerade))
            .collect(),
        _ => BTreeMap::new(),
    }
}
