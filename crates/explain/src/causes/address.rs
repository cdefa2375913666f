//! Causes at the destination's address: nobody serves it, or not there, or not this Service.

use super::{listed, node_address, of_service, service, subject};
use crate::finding::{Advice, Cause, Finding};
use crate::known::Known;
use crate::target::Target;
use crate::world::World;
use model::object::ServiceSkip;
use model::{Family, Note, NoteKind, ServiceName};
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
        .or_else(|| pending(world, ip))
        .or_else(|| skipped(world, ip))
        .or_else(|| endpoint(world, target))
        .or_else(|| in_service_range(world, target))
        .or_else(|| node_address::node_port(world, target, &all));
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

/// An address that a Service asks its load balancer for, and that its status does not have.
fn pending(world: &World, ip: IpAddr) -> Option<Finding> {
    let mut services = world.objects.services.iter();
    let (name, details) =
        services.find(|(_, details)| details.kind == "LoadBalancer" && details.asked_ips.contains(&ip))?;
    let has: Vec<String> = details
        .ingress
        .iter()
        .filter_map(|of| of.ip.map(|ip| ip.to_string()).or(of.hostname.clone()))
        .collect();
    let (what, told) = match has.as_slice() {
        [] => (
            format!(
                "Service {name} asks for load-balancer IP {ip}, and nobody assigned it: its status lists no address"
            ),
            "`kubectl get service` shows its EXTERNAL-IP as <pending>.".to_owned(),
        ),
        has => {
            let has = listed(has, 3);
            (
                format!("Service {name} asks for load-balancer IP {ip}, and was given {has}"),
                format!("Its status lists {has}."),
            )
        }
    };
    Some(
        Finding::fault(Cause::LoadBalancerPending, what)
            .because(format!(
                "kube-proxy serves the addresses in status.loadBalancer.ingress; what spec.loadBalancerIP or an annotation asks for is for \
                 the load balancer's controller alone. {told} That controller is not there, or the address is in none of its pools, or \
                 another Service has it."
            ))
            .about(of_service(name))
            .advise(Advice::change(
                of_service(name),
                "status.loadBalancer.ingress",
                format!(
                    "the load balancer's controller writes it; its events say why it does not: kubectl describe service -n {} {}",
                    name.namespace, name.name
                ),
            ))
            .advise(Advice::change(
                of_service(name),
                "spec.loadBalancerIP",
                "ask for an address of one of its pools, or take the request out",
            )),
    )
}

/// An address that a Service claims and does not get.
fn left_out(world: &World, target: &Target) -> Option<Finding> {
    let ip = target.at.ip();
    let printed = format!("{}/{}", target.at, target.protocol);
    let is_it = |note: &&Note| match &note.kind {
        NoteKind::Claimed { frontend, .. } => *frontend == printed,
        NoteKind::ExternalIpNotAllowed { ip: external } => *external == ip,
        _ => false,
    };
    world.notes.iter().find(is_it).and_then(not_its)
}

/// An address that a note says was left out, since another Service has it or it is not allowed.
pub(crate) fn not_its(note: &Note) -> Option<Finding> {
    match &note.kind {
        NoteKind::Claimed { frontend, winner } => {
            let what = format!(
                "{frontend} belongs to Service {winner}, and {} claims it too",
                note.subject
            );
            Some(
                Finding::fault(Cause::Claimed, what)
                    .because("Cluster IPs come before load-balancer IPs before external IPs; then the older Service has it.")
                    .about(of_service(winner))
                    .about(note.subject.clone())
                    .advise(Advice::change(note.subject.clone(), "spec.externalIPs", "take another address or port")),
            )
        }
        NoteKind::ExternalIpNotAllowed { ip } => {
            let what = format!(
                "external IP {ip} of {} is in no network of --external-ip-allowed-cidrs",
                note.subject
            );
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
    }
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

pub(super) fn no_node_port(world: &World, target: &Target, node_ports: &[&Known]) -> Finding {
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
    nobodys_node_port(world, target, node_ports)
}

/// No Service has this node port, and none has it for its port.
fn nobodys_node_port(world: &World, target: &Target, node_ports: &[&Known]) -> Finding {
    let (number, protocol) = (target.at.port(), target.protocol);
    let near: Vec<String> = node_ports
        .iter()
        .map(|known| format!("{} ({})", known.port, known.service))
        .collect();
    let has = match near.as_slice() {
        [] => "No Service has a node port at all.".to_owned(),
        near => format!("Node ports are: {}.", listed(near, 6)),
    };
    let socket = "The packet goes to a socket of the node, if one listens there.";
    let without: Vec<&ServiceName> = without_node_ports(world);
    let Some(first) = without.first() else {
        let what = format!("no Service has node port {number}/{protocol}");
        return Finding::fault(Cause::NoNodePort, what)
            .because(format!("{has} {socket}"))
            .advise(Advice::act(
                "look for the port: kubectl get services -A | grep NodePort",
            ));
    };
    let names = listed(&without, 3);
    let of_those = match without.len() {
        1 => format!("load balancer {names} was told to have none"),
        _ => format!("load balancers {names} were told to have none"),
    };
    let what = format!("no Service has node port {number}/{protocol}; {of_those}");
    Finding::fault(Cause::NoNodePort, what)
        .because(format!(
            "With allocateLoadBalancerNodePorts: false only a cluster IP and the addresses in the status are served, and whoever \
             sends to nodes finds nothing. {has} {socket}"
        ))
        .about(of_service(first))
        .advise(Advice::change(
            of_service(first),
            "spec.allocateLoadBalancerNodePorts",
            format!("if the client means this Service: set it to true, and nodePort: {number} on its port"),
        ))
        .advise(Advice::act(format!(
            "otherwise look whose node port {number} was, before it was made anew: kubectl get services -A"
        )))
}

/// Load balancers that were told to have no node ports, and have none.
fn without_node_ports(world: &World) -> Vec<&ServiceName> {
    let services = world.objects.services.iter();
    let fitting = services.filter(|(_, details)| {
        let has_one = details.ports.iter().any(|port| port.node_port.is_some());
        details.kind == "LoadBalancer" && details.without_node_ports && !has_one
    });
    fitting.map(|(name, _)| name).collect()
}

/// A cluster IP that no Service has.
fn in_service_range(world: &World, target: &Target) -> Option<Finding> {
    let ip = target.at.ip();
    let is_a_nodes = world.is_local(ip) || world.snapshot.nodes().any(|node| node.addresses.contains(&ip));
    let (cidr, net) = world.service_range(ip).filter(|_| !is_a_nodes)?;
    let what = format!("no Service has the cluster IP {ip}");
    Some(
        Finding::fault(Cause::NobodysAddress, what)
            .because(format!(
                "It lies in the service range {net}, so a Service may have had it: a client that remembers an address, or a name \
                 that DNS answers from its cache, outlives a Service that was created anew."
            ))
            .about(subject("ServiceCIDR", "", cidr))
            .advise(Advice::act("ask DNS again, and connect by the Service's name")),
    )
}

fn nobody(world: &World, target: &Target) -> Finding {
    let ip = target.at.ip();
    let what = format!("no Service has the address {ip}");
    let why = if world.has_objects() {
        "It is no cluster IP, external IP or load-balancer IP of these objects, and no node's address."
    } else {
        "No rule of kube-proxy names it."
    };
    Finding::fault(Cause::NobodysAddress, what)
        .because(why)
        .advise(Advice::act("look for it: kubectl get services -A -o wide"))
}
