//! Causes at an address of a node: whose address it is, and whether node ports are served there.

use super::{address, listed, of_service, subject};
use crate::finding::{Advice, Cause, Finding};
use crate::known::{Kind, Known};
use crate::stand_in;
use crate::target::Target;
use crate::world::{AddressesFrom, Mode, World};
use model::{Family, NodePortTargets};
use std::net::{IpAddr, SocketAddr};

/// An address of a node, or a node port's number: is there such a node port, and is it served there?
pub(super) fn node_port(world: &World, target: &Target, all: &[Known]) -> Option<Finding> {
    let ip = target.at.ip();
    let is_own = world.is_local(ip) || stand_in::is_nodes(world, ip);
    let node = world.snapshot.nodes().find(|node| node.addresses.contains(&ip));
    let node_ports: Vec<&Known> = all.iter().filter(|known| known.kind == Kind::NodePort).collect();
    let here = node_ports.iter().find(|known| known.port == target.at.port());
    if here.is_none() && !is_own && node.is_none() {
        return None;
    }
    let (number, protocol) = (target.at.port(), target.protocol);
    let exact = node_ports
        .iter()
        .find(|known| (known.port, known.protocol) == (number, protocol));
    if let Some(known) = exact {
        return Some(match node {
            _ if is_own || world.addresses_are_unknown() => not_served_here(world, known, ip),
            Some(node) if *node.name != *world.facts.name => of_other_node(world, known, ip, &node.name),
            _ => not_the_nodes(world, known, ip),
        });
    }
    if let Some(other) = of_other_family(world, target) {
        return Some(other);
    }
    if let Some(other) = here {
        let what = format!(
            "node port {number} exists for {} only (Service {}), not for {protocol}",
            other.protocol, other.service
        );
        return Some(
            Finding::fault(Cause::OtherProtocol, what)
                .because(
                    "No Service takes the packet, so it goes to a socket of the node, if one listens there.",
                )
                .about(of_service(&other.service))
                .advise(Advice::change(
                    of_service(&other.service),
                    "spec.ports",
                    format!("add a port with protocol: {protocol} and nodePort: {number}"),
                )),
        );
    }
    Some(address::no_node_port(world, target, &node_ports))
}

/// The node port is there, for the other family alone.
fn of_other_family(world: &World, target: &Target) -> Option<Finding> {
    let (ip, number) = (target.at.ip(), target.at.port());
    let family = Family::of(ip);
    let other = Family::ALL.into_iter().find(|other| *other != family)?;
    let known = world.known(other).into_iter().find(|known| {
        (known.kind, known.port, known.protocol) == (Kind::NodePort, number, target.protocol)
    })?;
    let name = &known.service;
    let served: Vec<String> = node_port_addresses(world, other)
        .iter()
        .map(|ip| SocketAddr::new(*ip, number).to_string())
        .collect();
    let elsewhere = served
        .first()
        .map(|_| Advice::act(format!("connect to {}", listed(&served, 3))));
    let what =
        format!("node port {number} of Service {name} is for {other} alone, and {ip} is an {family} address");
    let (cause, why) = match (ip.is_loopback(), family) {
        (true, Family::V6) => (
            Cause::NodePortAddress,
            "Node ports are never served on ::1, those of IPv6 neither.",
        ),
        (true, Family::V4) => (
            Cause::NoAddressOfFamily,
            "On ::1, where localhost leads to as well, node ports are never served: with IPv6 a node has none on its loopback.",
        ),
        (false, _) => (
            Cause::NoAddressOfFamily,
            "A node port is served in the families that the Service has cluster IPs of.",
        ),
    };
    let finding = Finding::fault(cause, what).because(why).about(of_service(name));
    let finding = finding.advise_all(elsewhere);
    if ip.is_loopback() {
        return Some(finding);
    }
    let action =
        format!("in a dual-stack cluster set it to PreferDualStack, and add {family} to spec.ipFamilies");
    Some(finding.advise(Advice::change(of_service(name), "spec.ipFamilyPolicy", action)))
}

/// The address is another node's, and that node's rules decide.
fn of_other_node(world: &World, known: &Known, ip: IpAddr, node: &str) -> Finding {
    let (number, name) = (known.port, &known.service);
    let what = format!(
        "{ip} is an address of Node {node}, whose rules decide; here the rules of {} were asked",
        world.node_words()
    );
    Finding::fault(Cause::SeenFrom, what)
        .because(format!(
            "Node port {number} of Service {name} is translated by the node that has the address, and every other node lets the \
             packet pass."
        ))
        .about(of_service(name))
        .about(subject("Node", "", node))
        .advise(Advice::act(format!("ask that node: --node {node}")))
}

/// Nobody said that the node has the address.
fn not_the_nodes(world: &World, known: &Known, ip: IpAddr) -> Finding {
    let (number, name) = (known.port, &known.service);
    let node = world.node_words();
    let all = world.own_addresses(Family::of(ip));
    let (from, give) = match world.addresses_from {
        AddressesFrom::Interfaces => (
            "of the host's interfaces",
            "give them in --facts, or with the objects of that node",
        ),
        AddressesFrom::Node => (
            "status.addresses of its Node object; an interface may have others, which --facts can tell",
            "if it is the node's: give it in --facts (addresses)",
        ),
    };
    let told = match all.as_slice() {
        [] => format!("No {} address of it is known.", Family::of(ip)),
        some => format!("Known are {} ({from}).", listed(some, 5)),
    };
    let lists_it = world
        .snapshot
        .node(&world.facts.name)
        .is_some_and(|node| node.addresses.contains(&ip));
    let what = if lists_it {
        format!("{ip} is not one of the known addresses of {node}, so node port {number} is not served there")
    } else {
        format!(
            "nobody is known to have {ip}, no Service, pod or Node; node port {number} is served on nodes' addresses alone"
        )
    };
    let translated = if lists_it {
        " Its Node object lists the address, and no interface has it: whoever translates it to one of those (a cloud does) makes it \
         work, kube-proxy does not."
    } else {
        ""
    };
    let mut finding = Finding::fault(Cause::NotTheNodesAddress, what)
        .because(format!(
            "Each node serves the node ports of Service {name} on its own addresses. {told}{translated}"
        ))
        .about(of_service(name));
    if let Some(own) = all.first() {
        finding = finding.advise(Advice::act(format!(
            "connect to {}",
            SocketAddr::new(*own, number)
        )));
    }
    finding.advise(Advice::act(give))
}

/// The node port is there, and not on this address of the node.
fn not_served_here(world: &World, known: &Known, ip: IpAddr) -> Finding {
    let served = node_port_addresses(world, Family::of(ip));
    let (number, name) = (known.port, &known.service);
    let what = format!("node port {number} of Service {name} is not served on {ip}");
    let finding = Finding::fault(Cause::NodePortAddress, what).about(of_service(name));
    if ip.is_loopback() {
        return on_loopback(world, finding, ip, number, &served);
    }
    let set = world.node_ports.addresses.as_slice();
    let (served, or) = match served.as_slice() {
        [] => ("No address of this node is in it".to_owned(), ""),
        some => (
            format!("Of this node's addresses it leaves {}", listed(some, 5)),
            ", or use an address that is served",
        ),
    };
    let why = match (set, world.mode) {
        // Of rules that somebody saved; what was configured there, nobody told.
        ([], _) => "The host's rules take node ports at other addresses alone, and no configuration was given that says so.".to_owned(),
        ([one], Mode::Nftables) if one == "primary" => format!(
            "nodePortAddresses is primary, which is the default in nftables mode: the addresses of the Node object alone. {served}."
        ),
        (some, _) => format!("nodePortAddresses is {}. {served}.", listed(some, 5)),
    };
    let net = ipnet::IpNet::from(ip);
    let action = match set {
        [one] if one == "primary" => {
            format!("list networks in place of primary, {net} among them{or}")
        }
        _ => format!("add {net}, or a network that holds it{or}"),
    };
    finding.because(why).advise(Advice {
        object: None,
        field: Some("nodePortAddresses".to_owned()),
        action,
    })
}

/// Loopback serves node ports in iptables mode alone, and only if it was asked to.
fn on_loopback(world: &World, finding: Finding, ip: IpAddr, number: u16, served: &[IpAddr]) -> Finding {
    let field = |field: &str, action: &str| Advice {
        object: None,
        field: Some(field.to_owned()),
        action: action.to_owned(),
    };
    let own = served.iter().find(|ip| !ip.is_loopback());
    let elsewhere = own.map(|ip| {
        let at = SocketAddr::new(*ip, number);
        Advice::act(format!("use the node's own address: {at}"))
    });
    let wants_localnet = "kube-proxy also sets the sysctl net.ipv4.conf.all.route_localnet to 1, which loopback's packets need to \
                          leave the host";
    match (world.mode, world.node_ports.localhost) {
        _ if ip.is_ipv6() => finding
            .because("Node ports are never served on ::1.")
            .advise_all(elsewhere),
        (Mode::Nftables, _) => finding
            .because("nftables mode never serves node ports on loopback, whatever nodePortAddresses says.")
            .advise_all(elsewhere),
        (Mode::Iptables, false) => finding
            .because(format!(
                "iptables.localhostNodePorts is false, so loopback is left out. With true, {wants_localnet}."
            ))
            .advise_all(elsewhere)
            .advise(field(
                "iptables.localhostNodePorts",
                "set it to true (--iptables-localhost-nodeports)",
            )),
        (Mode::Iptables, true) => finding
            .because(format!(
                "nodePortAddresses is {}, which leaves out 127.0.0.0/8. With it, {wants_localnet}.",
                match world.node_ports.addresses.as_slice() {
                    [] => "not known, and by the host's rules something".to_owned(),
                    some => listed(some, 5),
                }
            ))
            .advise_all(elsewhere)
            .advise(field("nodePortAddresses", "add 127.0.0.0/8")),
    }
}

/// The addresses on which a node serves node ports: its own, sorted, and loopback last where that serves them too.
pub fn node_port_addresses(world: &World, family: Family) -> Vec<IpAddr> {
    let node = &world.desired.get(family).node;
    let mut served: Vec<IpAddr> = match &node.node_ports {
        NodePortTargets::Only(targets) => targets.clone(),
        NodePortTargets::AllLocal => world.own_addresses(family),
    };
    if family == Family::V4
        && node.localhost_node_ports
        && node.node_ports == NodePortTargets::AllLocal
        && world.mode == Mode::Iptables
    {
        served.push(IpAddr::from([127, 0, 0, 1]));
    }
    served
}
