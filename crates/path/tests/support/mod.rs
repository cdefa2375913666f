//! What several tests need: hosts out of golden cases, and the packets worth asking about.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod native;
mod upstream;

use iptables::ast::Ports;
use iptables::build::{BuildContext, Capabilities, EndpointComments, InvalidPackets, Nfacct};
use model::{
    Desired, DesiredPort, Family, Frontend, FrontendKind, NodeFacts, NodePortTargets, Origin, Packet,
    Protocol,
};
use path::{Answer, Host, LocalAddresses};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// A host of which the addresses are known, and no routes.
pub fn host(facts: &NodeFacts, family: Family, rules: iptables::ast::Ruleset) -> Host {
    let mut host = Host {
        addresses: LocalAddresses::Known(facts.interface_addresses.iter().copied().collect()),
        ..Host::default()
    };
    *host.rules.get_mut(family) = rules;
    host
}

/// The packets worth asking about: to each frontend and to the port beside it, from pods here and elsewhere, from the
/// node, from outside, and from each endpoint to its own service.
pub fn probes(desired: &Desired, facts: &NodeFacts) -> Vec<Packet> {
    let mut probes = BTreeSet::new();
    for port in desired.services.values().flat_map(|service| &service.ports) {
        for frontend in &port.frontends {
            for to in addresses(frontend, desired, facts) {
                for (source, origin) in sources(port, frontend, desired, facts) {
                    let mut packet = Packet::new(source, to, port.name.protocol, origin);
                    probes.insert(packet.clone());
                    packet.dst.set_port(to.port().wrapping_add(1).max(1));
                    probes.insert(packet);
                }
            }
        }
        if let Some(health) = port.health_check_node_port {
            for ip in own(desired, facts) {
                let to = SocketAddr::new(ip, health);
                probes.insert(Packet::new(outside(desired), to, Protocol::Tcp, arriving("eth0")));
            }
        }
    }
    probes.into_iter().collect()
}

fn arriving(interface: &str) -> Origin {
    Origin::Interface(interface.into())
}

fn outside(desired: &Desired) -> IpAddr {
    match desired.node.family {
        Family::V4 => "198.51.100.7".parse().expect("a good address"),
        Family::V6 => "2001:db8:ffff::7".parse().expect("a good address"),
    }
}

/// The node's own addresses of the family that a packet of another host can carry.
fn own(desired: &Desired, facts: &NodeFacts) -> Vec<IpAddr> {
    let of_family = |ip: &&IpAddr| Family::of(**ip) == desired.node.family && !ip.is_loopback();
    facts
        .interface_addresses
        .iter()
        .filter(of_family)
        .copied()
        .collect()
}

fn addresses(frontend: &Frontend, desired: &Desired, facts: &NodeFacts) -> Vec<SocketAddr> {
    let ips = match frontend.kind {
        FrontendKind::ClusterIp(ip) | FrontendKind::ExternalIp(ip) | FrontendKind::LoadBalancerIp(ip) => {
            vec![ip]
        }
        FrontendKind::NodePort => {
            let mut all = own(desired, facts);
            if let NodePortTargets::Only(some) = &desired.node.node_ports {
                all.extend(some);
            }
            all
        }
    };
    ips.into_iter()
        .map(|ip| SocketAddr::new(ip, frontend.port))
        .collect()
}

fn sources(
    port: &DesiredPort,
    frontend: &Frontend,
    desired: &Desired,
    facts: &NodeFacts,
) -> Vec<(IpAddr, Origin)> {
    let pod: IpAddr = match desired.node.family {
        Family::V4 => "10.244.0.77".parse().expect("a good address"),
        Family::V6 => "fd00:10:244::77".parse().expect("a good address"),
    };
    let mut all = vec![(pod, arriving("cali7")), (outside(desired), arriving("eth0"))];
    all.extend(own(desired, facts).into_iter().map(|ip| (ip, Origin::Host)));
    // An endpoint that is this very node is covered by the line above.
    let endpoints = port.reachable.iter().map(SocketAddr::ip);
    let pods = endpoints.filter(|ip| !facts.is_local_address(*ip)).take(2);
    all.extend(pods.map(|ip| (ip, arriving("cali8"))));
    if let Some(admission) = &frontend.admission {
        let ranges = admission.ranges.iter().map(ipnet::IpNet::addr);
        let allowed = ranges.filter(|ip| !facts.is_local_address(*ip)).take(1);
        all.extend(allowed.map(|ip| (ip, arriving("eth0"))));
    }
    all
}

/// Rules as on a host of today, of a small cluster.
pub fn context() -> BuildContext {
    BuildContext {
        capabilities: Capabilities {
            masquerade_ports: Ports::RandomFully,
            nfacct: Nfacct::Present,
        },
        endpoint_comments: EndpointComments::Kept,
        invalid: InvalidPackets::Dropped,
    }
}

/// An answer in a few lines, for failures.
pub fn told(answer: &Answer) -> String {
    let mut lines = vec![answer.packet.to_string()];
    for way in &answer.ways {
        let met: Vec<String> = answer
            .met(way)
            .into_iter()
            .map(|(table, chain, rule)| format!("{table}:{chain}:{rule}"))
            .collect();
        lines.push(format!(
            "  {:.6} {:?} {:?} {}",
            way.state.chance,
            way.end,
            way.translated,
            met.join(" ")
        ));
    }
    lines.join("\n")
}
