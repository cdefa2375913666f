//! What becomes of packets that no pod of this host sends: the host's own, those of clients of node ports, and what other
//! nodes send for pods, wrapped up.

use super::forwarding::{how_far, rule_words, stopped_by, stopped_on_way, verb};
use super::pods::names;
use super::{MOST_TRIED, Patient, plain_tool};
use crate::facts::{HostFacts, InterfaceFacts};
use crate::fate::{Fate, RuleLine, fates};
use crate::finding::{Advice, Cause, Finding};
use crate::known::{Kind, Known};
use crate::policy;
use crate::world::World;
use model::object::Node;
use model::{Family, Origin, Packet, Protocol};
use path::Socket;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    for family in patient.families() {
        add(&mut found, of_the_host(patient, family));
        found.extend(node_ports(patient, family));
    }
    let overlays = overlays_of(&patient.world.host_facts);
    found.extend(overlays.filter_map(|of| overlay(patient, &of)));
    found
}

/// Adds a finding; of one that is there already, for the other family, only what to do.
fn add(all: &mut Vec<Finding>, one: Option<Finding>) {
    let Some(one) = one else { return };
    match all.iter_mut().find(|same| same.what == one.what) {
        Some(same) => same.advice.extend(one.advice),
        None => all.push(one),
    }
}

/// How one accepts something in the chain of a rule.
fn accept_words(rule: &RuleLine, family: Family, of_iptables: &str, of_nftables: &str) -> String {
    let tool = plain_tool(family);
    let chain = &rule.chain;
    if rule.table.contains(' ') {
        format!("nft insert rule {} {chain} {of_nftables} accept", rule.table)
    } else {
        format!("{tool} -t {} -I {chain} {of_iptables} -j ACCEPT", rule.table)
    }
}

/// Connections of the host's processes to Services that are translated and then stopped.
fn of_the_host(patient: &Patient, family: Family) -> Option<Finding> {
    let world = &patient.world;
    let stopped = patient
        .cluster_ips(family, MOST_TRIED)
        .into_iter()
        .find_map(|(at, protocol, service)| {
            let from = world.host_facts.source_towards(at.ip())?;
            let fates = fates(world, &Packet::new(from, at, protocol, Origin::Host));
            let stopped = |fate: &&Fate| stopped_on_way(world, fate).is_some();
            let fate = fates.iter().find(stopped)?.clone();
            let rule = stopped_by(&fate)?.clone();
            Some((fate, rule, service, at))
        });
    let (fate, rule, service, at) = stopped?;
    let bound_for = if fate.is_translated() {
        patient.pod_network_words(family)
    } else {
        at.ip().to_string()
    };
    let field = match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    let what = format!(
        "the host's own traffic to services is {} by {}",
        verb(&fate),
        rule.place()
    );
    let of_iptables = format!("-d {bound_for}");
    let advice = match policy::elsewhere(&rule, plain_tool(family), std::slice::from_ref(&of_iptables)) {
        Some(told) => told.advice,
        None => format!(
            "accept what goes to {}, as in: {}",
            if fate.is_translated() { "pods" } else { "Services" },
            accept_words(&rule, family, &of_iptables, &format!("{field} daddr {bound_for}"))
        ),
    };
    let seen = if fate.is_translated() {
        " A filter of what the host sends sees the endpoint's address and port, and not the Service's."
    } else {
        ""
    };
    Some(
        Finding::fault(Cause::HostTrafficDropped, what)
            .because(format!(
                "Tried with a connection of a process of this host to {service}: {}.{seen} The API server calls webhooks and aggregated APIs \
                 that way where it runs on this host; so do pods with hostNetwork.",
                how_far(&fate, &rule)
            ))
            .advise(Advice::act(advice)),
    )
}

/// Somebody who is not on this host, and the interface that he comes in through.
struct Client {
    ip: IpAddr,
    interface: Arc<str>,
}

/// Clients of all kinds: far away, on the same network, and other nodes.
fn clients(patient: &Patient, family: Family) -> Vec<Client> {
    let facts = &patient.world.host_facts;
    let far: IpAddr = match family {
        Family::V4 => [198, 51, 100, 1].into(),
        Family::V6 => [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1].into(),
    };
    let mut defaults = facts.routes.iter().flatten().filter(|of| {
        of.is_main() && of.route.to.prefix_len() == 0 && Family::of(of.route.to.addr()) == family
    });
    let gateway = defaults.next().and_then(|of| of.route.via);
    let all = [Some(far), gateway].into_iter().flatten();
    let of_nodes = other_nodes(&patient.world).flat_map(|node| node.addresses.iter().copied());
    let all = all.chain(of_nodes.filter(|ip| Family::of(*ip) == family));
    all.filter_map(|ip| {
        let interface = facts.route_to(ip)?.route.interface.clone();
        Some(Client { ip, interface })
    })
    .collect()
}

fn other_nodes(world: &World) -> impl Iterator<Item = &Node> {
    let nodes = world.snapshot.nodes();
    nodes.filter(|node| {
        *node.name != *world.facts.name && !node.addresses.iter().any(|ip| world.is_local(*ip))
    })
}

/// Whether a rule is asked before destinations are translated.
pub(super) fn is_before_services(world: &World, rule: &RuleLine) -> bool {
    if ["raw", "mangle", "ip raw", "ip mangle", "ip6 raw", "ip6 mangle"].contains(&rule.table.as_str()) {
        return true;
    }
    let mut tables = world.host.native.tables.iter();
    let table = tables.find(|table| table.title() == rule.table);
    let chain = table.and_then(|table| table.chain(&rule.chain));
    chain.is_some_and(|chain| {
        chain
            .base
            .as_ref()
            .is_some_and(|base| ["prerouting", "output"].contains(&&*base.hook))
    })
}

/// Node ports that nobody from anywhere reaches: what a firewall closes for some may be meant, for all it is not.
fn node_ports(patient: &Patient, family: Family) -> Option<Finding> {
    let world = &patient.world;
    let own = world.host_facts.primary_address(family)?;
    let clients = clients(patient, family);
    let mut closed = Vec::new();
    let mut by: Option<(RuleLine, &'static str)> = None;
    let known = patient.known(family).iter();
    for known in known
        .filter(|known| known.kind == Kind::NodePort)
        .take(MOST_TRIED)
    {
        let stops: Vec<(RuleLine, &'static str)> = clients
            .iter()
            .filter_map(|client| stopped_early(world, known, own, client))
            .collect();
        if let Some(first) = stops.first().filter(|_| stops.len() == clients.len()) {
            closed.push(format!("{} ({})", known.port, known.service));
            by.get_or_insert(first.clone());
        }
    }
    let (rule, verb) = by?;
    let what = format!(
        "node ports are {verb} by {}, before kube-proxy's rules see them",
        rule.place()
    );
    Some(
        Finding::warning(Cause::NodePortDropped, what)
            .because(format!(
                "Tried from {}: {} stops all of them at {own}. Nobody reaches {}; load balancers that use node ports, or ask there for this \
                 host's health, take it for dead. Where nobody is to use node ports, that is as it should be.",
                names(clients.iter().map(|client| client.ip.to_string()).collect(), 3),
                rule_words(&rule),
                names(closed, 4)
            ))
            .advise(Advice::act(
                "leave those out of that rule who may come (! -s NETWORK), or take it out; to have node ports on some addresses only, set \
                 nodePortAddresses in kube-proxy's configuration",
            )),
    )
}

fn stopped_early(
    world: &World,
    known: &Known,
    own: IpAddr,
    client: &Client,
) -> Option<(RuleLine, &'static str)> {
    let at = SocketAddr::new(own, known.port);
    let origin = Origin::Interface(client.interface.clone());
    let fates = fates(world, &Packet::new(client.ip, at, known.protocol, origin));
    let is_stopped = |fate: &Fate| {
        let early = |rule: &RuleLine| is_before_services(world, rule);
        !fate.is_translated() && stopped_by(fate).is_some_and(early)
    };
    let first = fates.first().filter(|_| fates.iter().all(is_stopped))?;
    Some((stopped_by(first)?.clone(), verb(first)))
}

/// What overlays wrap packets into: the interface's type, what its name begins with, and the UDP port.
const OVERLAYS: [(&str, &str, u16); 14] = [
    // One a family: flannel.1 and flannel-v6.1, vxlan.calico and vxlan-v6.calico.
    ("vxlan", "flannel", 8472),
    ("vxlan", "cilium", 8472),
    ("vxlan", "vxlan.calico", 4789),
    ("vxlan", "vxlan-v6.calico", 4789),
    // Of Open vSwitch, with the port in the name: Antrea's, Kube-OVN's, OVN-Kubernetes'.
    ("vxlan", "vxlan_sys_", 4789),
    // Weave's.
    ("vxlan", "vxlan-6784", 6784),
    ("geneve", "", 6081),
    ("wireguard", "wireguard.cali", 51820),
    ("wireguard", "wg-v6.cali", 51821),
    ("wireguard", "flannel-wg-v6", 51821),
    ("wireguard", "flannel-wg", 51820),
    ("wireguard", "cilium_wg", 51871),
    ("wireguard", "antrea-wg", 51820),
    ("wireguard", "kilo", 51820),
];

/// An interface whose packets travel in others.
struct Overlay<'a> {
    interface: &'a str,
    /// Where what it wraps comes to.
    port: u16,
    /// The family of the packets outside, where the name tells it.
    family: Option<Family>,
}

/// The host's overlays.
fn overlays_of(facts: &HostFacts) -> impl Iterator<Item = Overlay<'_>> {
    facts.interfaces.iter().filter_map(|of| overlay_at(facts, of))
}

fn overlay_at<'a>(facts: &'a HostFacts, of: &'a InterfaceFacts) -> Option<Overlay<'a>> {
    let kind = of.kind.as_deref()?;
    let mut all = OVERLAYS.iter();
    let (_, _, usual) = all.find(|(wanted, name, _)| *wanted == kind && of.name.starts_with(name))?;
    let told = of
        .name
        .split_once("_sys_")
        .and_then(|(_, port)| port.parse().ok());
    let usual = told.unwrap_or(*usual);
    // The port is a setting. The kernel's own socket tells it, and is no process's.
    let is_open = |port: &u16| {
        let at = |of: &Socket| (of.address.port(), of.protocol) == (*port, Protocol::Udp);
        let listening = facts.listening.as_ref();
        listening.is_none_or(|all| all.iter().any(|of| at(&of.socket)))
    };
    let is_like = |other: &str| (other == "wireguard") == (kind == "wireguard");
    let others = OVERLAYS.iter().filter(|(kind, _, _)| is_like(kind));
    let others = others.map(|(_, _, port)| *port);
    let port = std::iter::once(usual).chain(others).find(is_open)?;
    Some(Overlay {
        interface: &of.name,
        port,
        family: of.name.contains("-v6").then_some(Family::V6),
    })
}

/// The addresses that another node may send from: those of the overlay's family, which is that of the node's first one
/// where nothing tells it.
fn of_overlay(node: &Node, family: Option<Family>) -> impl Iterator<Item = IpAddr> {
    let first = node.addresses.first().map(|ip| Family::of(*ip));
    let family = family.or(first);
    let addresses = node.addresses.iter().copied();
    addresses.filter(move |ip| Some(Family::of(*ip)) == family)
}

/// What stops the overlay's packets from an address of another node.
fn overlay_stopped(patient: &Patient, from: IpAddr, port: u16) -> Option<(Fate, RuleLine)> {
    let facts = &patient.world.host_facts;
    let (own, route) = (facts.source_towards(from)?, facts.route_to(from)?);
    let origin = Origin::Interface(route.route.interface.clone());
    let packet = Packet::new(from, SocketAddr::new(own, port), Protocol::Udp, origin);
    let fates = fates(&patient.world, &packet);
    let is_stopped = fates.iter().all(|fate| stopped_by(fate).is_some());
    let first = fates.first().filter(|_| is_stopped)?;
    Some((first.clone(), stopped_by(first)?.clone()))
}

/// Packets from other nodes' pods that are stopped before they are unwrapped.
fn overlay(patient: &Patient, overlay: &Overlay<'_>) -> Option<Finding> {
    let world = &patient.world;
    let Overlay { interface, port, .. } = *overlay;
    let mut lost = Vec::new();
    let mut by: Option<(Fate, RuleLine)> = None;
    for node in other_nodes(world) {
        let mut tried = of_overlay(node, overlay.family).map(|ip| (ip, overlay_stopped(patient, ip, port)));
        let Some((first, Some(stop))) = tried.next() else {
            continue;
        };
        // One that has another address, beside, may send from that.
        if tried.all(|(_, stop)| stop.is_some()) {
            lost.push(first);
            by.get_or_insert(stop);
        }
    }
    let (fate, rule) = by?;
    let family = Family::of(*lost.first()?);
    let what = format!(
        "what other nodes send for pods of this one is {} by {}: UDP {port}, the overlay of {interface}",
        verb(&fate),
        rule.place()
    );
    let nodes = names(lost.iter().map(ToString::to_string).collect(), 4);
    let accept = accept_words(
        &rule,
        family,
        &format!("-s NODES -p udp --dport {port}"),
        &format!("udp dport {port}"),
    );
    Some(
        Finding::fault(Cause::OverlayDropped, what)
            .because(format!(
                "Tried with UDP to port {port} of this host from {nodes}: {} stops it. Pods' packets between nodes travel in such packets, which are \
                 the host's own until they are unwrapped. Services work as long as the endpoint is on the client's node, and hang otherwise.",
                rule_words(&rule)
            ))
            .advise(Advice::act(format!(
                "accept it from the other nodes, before that rule: {accept}; and write it where the firewall keeps its rules"
            ))),
    )
}
