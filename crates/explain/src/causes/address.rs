//! Causes at the destination's address: nobody serves it, or not there, or not this Service.

use super::{listed, of_service, service, subject};
use crate::finding::{Advice, Cause, Finding};
use crate::known::{Kind, Known};
use crate::target::Target;
use crate::world::{Mode, World};
use model::object::ServiceSkip;
use model::{Family, NodePortTargets, NoteKind, ServiceName};
use std::net::IpAddr;

/// Why no Service serves this destination: the most telling reason first. Empty when one does.
pub(crate) fn not_served(world: &World, target: &Target) -> Vec<Finding> {
    let Looked { ip, family } = Looked {
        ip: target.at.ip(),
        family: Family::of(target.at.ip()),
    };
    let all = world.known(family);
    let owner = all
        .iter()
        .find(|known| known.ip == Some(ip))
        .map(|known| known.service.clone());
    let asked = || {
        target
            .service
            .clone()
            .filter(|name| has_cluster_ip(world, name, ip))
    };
    if let Some(name) = owner.or_else(asked) {
        return vec![service::undeclared(
            world,
            &name,
            target.at.port(),
            target.protocol,
        )];
    }
    let found = load_balancer(world, ip)
        .or_else(|| left_out(world, target))
        .or_else(|| skipped(world, ip))
        .or_else(|| endpoint(world, target))
        .or_else(|| node_port(world, target, &all))
        .or_else(|| in_service_range(world, target));
    match found {
        Some(found) => vec![found],
        None => vec![nobody(world, target)],
    }
}

struct Looked {
    ip: IpAddr,
    family: Family,
}

fn has_cluster_ip(world: &World, name: &ServiceName, ip: IpAddr) -> bool {
    let service = world.snapshot.service(name);
    service.is_some_and(|service| *service.cluster_ips.get(Family::of(ip)) == Some(ip))
}

/// An address of a load balancer that wants to see the traffic itself.
fn load_balancer(world: &World, ip: IpAddr) -> Option<Finding> {
    let mut services = world.objects.services.iter();
    let (name, mode) = services.find_map(|(name, details)| {
        let of_ip = details.ingress.iter().find(|ingress| ingress.ip == Some(ip))?;
        Some((name, of_ip.mode.clone()?))
    })?;
    if mode == "VIP" {
        return None;
    }
    let what = format!(
        "{ip} is a load balancer of Service {name} with ipMode: {mode}, so kube-proxy leaves it alone"
    );
    Some(
        Finding::warning(Cause::IpModeProxy, what)
            .because(
                "Traffic for it leaves the node and passes the load balancer, as it should when that ends TLS or speaks the PROXY \
                 protocol. What it does with it cannot be seen from here.",
            )
            .about(of_service(name))
            .advise(Advice::act("from inside of the cluster use the cluster IP"))
            .advise(Advice::change(
                of_service(name),
                "status.loadBalancer.ingress[].ipMode",
                "the load balancer's controller writes it; VIP has nodes answer for the address",
            )),
    )
}

/// An address that a Service claims and does not get.
fn left_out(world: &World, target: &Target) -> Option<Finding> {
    let ip = target.at.ip();
    let printed = format!("{}/{}", target.at, target.protocol);
    world.notes.iter().find_map(|note| match &note.kind {
        NoteKind::Claimed { frontend, winner } if *frontend == printed => {
            let what = format!("{frontend} belongs to Service {winner}, and {} claims it too", note.subject);
            Some(
                Finding::fault(Cause::Claimed, what)
                    .because("Cluster IPs come before load-balancer IPs before external IPs; then the older Service has it.")
                    .about(of_service(winner))
                    .about(note.subject.clone())
                    .advise(Advice::change(note.subject.clone(), "spec.externalIPs", "take another address or port")),
            )
        }
        NoteKind::ExternalIpNotAllowed { ip: external } if *external == ip => {
            let what = format!("external IP {ip} of {} is in no network of --external-ip-allowed-cidrs", note.subject);
            Some(
                Finding::fault(Cause::ExternalIpNotAllowed, what)
                    .because("kube-proxy was told which external IPs Services may have, and leaves out all others.")
                    .about(note.subject.clone())
                    .advise(Advice {
                        object: None,
                        field: Some("--external-ip-allowed-cidrs".to_owned()),
                        action: format!("add the network of {ip} to it, if the Service may have that address"),
                    }),
            )
        }
        _ => None,
    })
}

/// Another Service claims the address and port that this one has.
pub(crate) fn claimed_by_others(world: &World, target: &Target) -> Option<Finding> {
    let known = target.known.as_ref()?;
    let printed = match known.ip {
        Some(_) => format!("{}/{}", target.at, target.protocol),
        None => format!("node port {}/{}", known.port, known.protocol),
    };
    let mut loser = world.notes.iter().filter_map(|note| match &note.kind {
        NoteKind::Claimed { frontend, .. } if *frontend == printed => Some(&note.subject),
        _ => None,
    });
    let loser = loser.next()?;
    let what = format!(
        "{printed} belongs to Service {}, and {loser} claims it too",
        known.service
    );
    Some(
        Finding::warning(Cause::Claimed, what)
            .because(
                "Cluster IPs come before load-balancer IPs before external IPs; then the older Service has it. The other goes \
                 without.",
            )
            .about(loser.clone())
            .about(of_service(&known.service))
            .advise(Advice::change(
                loser.clone(),
                "spec.externalIPs",
                "take another address or port",
            )),
    )
}

/// An address of a Service that no proxy serves.
fn skipped(world: &World, ip: IpAddr) -> Option<Finding> {
    let mut services = world.snapshot.services();
    let of = services.find(|service| {
        let has = *service.cluster_ips.get(Family::of(ip)) == Some(ip)
            || service.external_ips.contains(&ip)
            || service.load_balancer_ips.contains(&ip);
        has && matches!(
            service.skipped,
            Some(ServiceSkip::OtherProxy | ServiceSkip::ExternalName | ServiceSkip::Headless)
        )
    })?;
    service::not_served(world, &of.name)
}

/// An endpoint's own address: no Service is asked for.
fn endpoint(world: &World, target: &Target) -> Option<Finding> {
    let ip = target.at.ip();
    let pod = world.objects.pod_of(ip);
    let mut slices = world.snapshot.slices();
    let slice = slices.find(|slice| slice.endpoints.iter().any(|endpoint| endpoint.ip == ip));
    if world.is_local(ip) || (pod.is_none() && slice.is_none()) {
        return None;
    }
    let of = match (&pod, &slice) {
        (Some(pod), _) => format!("pod {pod}"),
        (None, Some(slice)) => format!("an endpoint in slice {}", slice.name),
        (None, None) => return None,
    };
    let what = format!("{ip} is the address of {of} itself: no Service is involved");
    let mut finding = Finding::remark(Cause::DirectToEndpoint, what)
        .because("kube-proxy has no part in it. Whether the packet may pass is the network plugin's and NetworkPolicy's business.");
    if let Some(pod) = pod {
        finding = finding.about(subject("Pod", &pod.namespace, &pod.name));
    }
    Some(finding)
}

/// An address of a node: is there such a node port, and is it served there?
fn node_port(world: &World, target: &Target, all: &[Known]) -> Option<Finding> {
    let ip = target.at.ip();
    let is_node = world.is_local(ip) || world.snapshot.nodes().any(|node| node.addresses.contains(&ip));
    let node_ports: Vec<&Known> = all.iter().filter(|known| known.kind == Kind::NodePort).collect();
    let here = node_ports.iter().find(|known| known.port == target.at.port());
    // With nothing known of the node's addresses, a known node port's number tells what is meant.
    let may_be_node = here.is_some() && world.addresses_are_unknown();
    if !(is_node || may_be_node) {
        return None;
    }
    let (number, protocol) = (target.at.port(), target.protocol);
    let exact = node_ports
        .iter()
        .find(|known| (known.port, known.protocol) == (number, protocol));
    if let Some(known) = exact {
        return Some(not_on_this_address(world, known, ip));
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
    Some(no_node_port(world, target, &node_ports))
}

/// The node port is there, and not on this address.
fn not_on_this_address(world: &World, known: &Known, ip: IpAddr) -> Finding {
    let served = node_port_addresses(world, Family::of(ip));
    let (number, name) = (known.port, &known.service);
    let what = format!("node port {number} of Service {name} is not served on {ip}");
    let mut finding = Finding::fault(Cause::NodePortAddress, what).about(of_service(name));
    if ip.is_loopback() {
        let by_mode = match (world.mode, ip.is_ipv6()) {
            (_, true) => "Node ports are never served on ::1.",
            (Mode::Nftables, _) => "nftables mode never serves node ports on loopback.",
            (Mode::Iptables, _) => {
                "Loopback is served while iptables.localhostNodePorts is true and nodePortAddresses leaves it in."
            }
        };
        return finding.because(by_mode).advise(Advice::act(
            match served.iter().find(|ip| !ip.is_loopback()) {
                Some(ip) => format!(
                    "use the node's own address: {}",
                    std::net::SocketAddr::new(*ip, number)
                ),
                None => "use the node's own address".to_owned(),
            },
        ));
    }
    finding.why = match served.as_slice() {
        [] => "nodePortAddresses leaves no address of this node.".to_owned(),
        some => format!(
            "nodePortAddresses of kube-proxy's configuration leaves: {}.",
            listed(some, 5)
        ),
    };
    finding.advise(Advice {
        object: None,
        field: Some("nodePortAddresses".to_owned()),
        action: format!("add a network of {ip} to nodePortAddresses, or use an address that is served"),
    })
}

fn no_node_port(world: &World, target: &Target, node_ports: &[&Known]) -> Finding {
    let (number, protocol) = (target.at.port(), target.protocol);
    let mut services = world.snapshot.services();
    let by_port = services.find_map(|service| {
        let port = service
            .ports
            .iter()
            .find(|port| (port.port, port.protocol) == (number, protocol))?;
        Some((service, port))
    });
    if let Some((service, port)) = by_port.filter(|(service, _)| service.skipped.is_none()) {
        let name = &service.name;
        let (what, action) = match port.node_port {
            Some(node_port) => (
                format!("{number} is the port of Service {name}; its node port is {node_port}"),
                format!("connect to port {node_port} on the node"),
            ),
            None => (
                format!("Service {name} has port {number}, and no node port"),
                "give the Service type: NodePort, or LoadBalancer with node ports".to_owned(),
            ),
        };
        let cause = if port.node_port.is_some() {
            Cause::PortMixedUp
        } else {
            Cause::NoNodePort
        };
        return Finding::fault(cause, what)
            .because("On a node's own address a Service is reached by its node port.")
            .about(of_service(name))
            .advise(Advice::change(of_service(name), "spec.ports[].nodePort", action));
    }
    let near: Vec<String> = node_ports
        .iter()
        .map(|known| format!("{} ({})", known.port, known.service))
        .collect();
    let what = format!("no Service has node port {number}/{protocol}");
    Finding::fault(Cause::NoNodePort, what)
        .because(match near.as_slice() {
            [] => "No Service has a node port at all. The packet goes to a socket of the node, if one listens there.".to_owned(),
            near => format!(
                "Node ports are: {}. The packet goes to a socket of the node, if one listens there.",
                listed(near, 6)
            ),
        })
        .advise(Advice::act("look for the port: kubectl get services -A | grep NodePort"))
}

/// A cluster IP that no Service has.
fn in_service_range(world: &World, target: &Target) -> Option<Finding> {
    let ip = target.at.ip();
    let mut ranges = world
        .snapshot
        .service_cidrs()
        .flat_map(|cidr| cidr.cidrs.iter().map(move |net| (cidr, net)));
    let (cidr, net) = ranges.find(|(_, net)| net.contains(&ip))?;
    let what = format!("no Service has the cluster IP {ip}");
    Some(
        Finding::fault(Cause::NobodysAddress, what)
            .because(format!(
                "It lies in the service range {net}, so a Service may have had it: a client that remembers an address, or a name \
                 that DNS answers from its cache, outlives a Service that was created anew."
            ))
            .about(subject("ServiceCIDR", "", &cidr.name))
            .advise(Advice::act("ask DNS again, and connect by the Service's name")),
    )
}

fn nobody(world: &World, target: &Target) -> Finding {
    let ip = target.at.ip();
    let what = format!("no Service has the address {ip}");
    let why = match (world.has_objects(), world.mode) {
        (true, _) => {
            "It is no cluster IP, external IP or load-balancer IP of these objects, and no node's address."
        }
        (false, _) => "No rule of kube-proxy names it.",
    };
    Finding::fault(Cause::NobodysAddress, what)
        .because(why)
        .advise(Advice::act("look for it: kubectl get services -A -o wide"))
}

/// The addresses on which a node serves node ports, sorted.
pub(crate) fn node_port_addresses(world: &World, family: Family) -> Vec<IpAddr> {
    let node = &world.desired.get(family).node;
    let mut own: Vec<IpAddr> = world.host_facts.addresses().into_iter().collect();
    own.extend(world.facts.interface_addresses.iter().copied());
    own.sort();
    own.dedup();
    let mut served: Vec<IpAddr> = match &node.node_ports {
        NodePortTargets::Only(targets) => targets.clone(),
        NodePortTargets::AllLocal => own
            .into_iter()
            .filter(|ip| Family::of(*ip) == family && !ip.is_loopback())
            .collect(),
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
