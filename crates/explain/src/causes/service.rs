//! Causes in the Service itself: who serves it, which addresses and ports it has.

use super::{listed, of_service, port_words};
use crate::finding::{Advice, Cause, Finding};
use crate::known::Known;
use crate::objects::{ServiceDetails, Target};
use crate::question::{From, Port, Question};
use crate::world::World;
use model::object::{PROXY_NAME_LABEL, Service, ServiceSkip};
use model::{Family, NoteKind, Protocol, ServiceName};
use std::net::IpAddr;

/// Why no proxy serves this Service at all; `None` when one does.
pub(crate) fn not_served(world: &World, name: &ServiceName) -> Option<Finding> {
    let service = world.snapshot.service(name)?;
    let details = world.objects.services.get(name);
    let finding = match service.skipped? {
        ServiceSkip::OtherProxy => other_proxy(name, details),
        ServiceSkip::Headless => headless(world, name),
        ServiceSkip::ExternalName => external_name(name, details),
        ServiceSkip::NoClusterIp => no_cluster_ip(world, name),
    };
    Some(finding.about(of_service(name)))
}

fn other_proxy(name: &ServiceName, details: Option<&ServiceDetails>) -> Finding {
    let value = details
        .and_then(|details| details.proxy_name.as_deref())
        .unwrap_or_default();
    let what = format!("Service {name} is left to another proxy, {value:?}, by its label {PROXY_NAME_LABEL}");
    Finding::fault(Cause::OtherProxy, what)
        .because(
            "kube-proxy does not watch Services that carry this label, whatever its value. Unless that other proxy \
             runs on the node, nobody serves the cluster IP.",
        )
        .advise(Advice::change(
            of_service(name),
            format!("metadata.labels[{PROXY_NAME_LABEL}]"),
            "remove the label, or look at the proxy it names",
        ))
}

fn headless(world: &World, name: &ServiceName) -> Finding {
    let slices = world.snapshot.slices_of(name);
    let mut ips: Vec<IpAddr> = slices
        .iter()
        .flat_map(|slice| {
            slice
                .endpoints
                .iter()
                .filter(|e| e.conditions.ready)
                .map(|e| e.ip)
        })
        .collect();
    ips.sort();
    ips.dedup();
    let told = match ips.as_slice() {
        [] => "No slice lists a ready address for it: DNS has no answer.".to_owned(),
        some => format!("Ready addresses: {}.", listed(some, 5)),
    };
    let what = format!("Service {name} is headless (clusterIP: None): kube-proxy has nothing to do for it");
    Finding::fault(Cause::Headless, what)
        .because(format!(
            "Clients get the pods' own addresses from DNS and connect to them directly, on the pods' port and not on \
             the Service's. {told}"
        ))
        .advise(Advice::act(format!(
            "look at what DNS says: nslookup {}.{}.svc.cluster.local",
            name.name, name.namespace
        )))
        .advise(Advice::change(
            of_service(name),
            "spec.clusterIP",
            "for one address that balances, create the Service anew without clusterIP: None",
        ))
}

fn external_name(name: &ServiceName, details: Option<&ServiceDetails>) -> Finding {
    let alias = details
        .and_then(|details| details.external_name.as_deref())
        .unwrap_or_default();
    let what = format!(
        "Service {name} is of type ExternalName: an alias in DNS for {alias:?}, without address and ports"
    );
    Finding::fault(Cause::ExternalName, what)
        .because(
            "DNS answers with that name, and the client connects to it by itself; kube-proxy and the Service's ports \
             have no part in it.",
        )
        .advise(Advice::act(format!("ask for the name itself: nslookup {alias}")))
        .advise(Advice::change(
            of_service(name),
            "spec.externalName",
            "if the name is wrong, correct it; an IP address does not work there",
        ))
}

fn no_cluster_ip(world: &World, name: &ServiceName) -> Finding {
    let service = of_service(name);
    let bad = world.notes_of(&service).find(|note| match &note.kind {
        NoteKind::BadField { field, .. } => field.starts_with("spec.clusterIP"),
        _ => false,
    });
    let what = format!("Service {name} has no cluster IP that can be used");
    let why = match bad {
        Some(note) => note.kind.to_string(),
        None => "Either the API server gave out none yet, or this manifest was never applied.".to_owned(),
    };
    Finding::fault(Cause::NoClusterIp, what)
        .because(why)
        .advise(Advice::change(
            service,
            "spec.clusterIP",
            format!(
                "look at it in the cluster: kubectl get service -n {} {} -o yaml",
                name.namespace, name.name
            ),
        ))
}

/// The Service has no address of the sender's family.
pub(crate) fn no_address(
    world: &World,
    name: &ServiceName,
    question: &Question,
    asked: Option<Family>,
) -> Finding {
    let service = world.snapshot.service(name);
    let asked = asked.unwrap_or(Family::V4);
    let has = |family: Family| service.and_then(|service| *service.cluster_ips.get(family));
    let others: Vec<String> = Family::ALL
        .into_iter()
        .filter_map(|family| has(family).map(|ip| format!("{family} ({ip})")))
        .collect();
    let what = format!(
        "Service {name} has no {asked} cluster IP, only {}",
        listed(&others, 2)
    );
    let client = match &question.from {
        From::Name(name) => format!("{name} has {asked} addresses alone. "),
        _ => String::new(),
    };
    let action =
        format!("in a dual-stack cluster set it to PreferDualStack, and add {asked} to spec.ipFamilies");
    Finding::fault(Cause::NoAddressOfFamily, what)
        .because(format!("{client}A packet and its destination are of one family."))
        .about(of_service(name))
        .advise(Advice::change(of_service(name), "spec.ipFamilyPolicy", action))
        .advise(Advice::act(format!(
            "otherwise the client needs an address of the family that the Service has ({})",
            listed(&others, 2)
        )))
}

/// The Service's cluster IP and port are another's.
pub(crate) fn of_another(name: &ServiceName, owner: &Known) -> Finding {
    let winner = &owner.service;
    let what = format!(
        "{} is that of Service {winner}, and {name} has the same",
        owner.words()
    );
    Finding::fault(Cause::Claimed, what)
        .because(format!(
            "An address and port lead to one Service: clients of {name} reach {winner}. The API server gives out no address twice; \
             objects that were restored or copied with theirs can have one of others."
        ))
        .about(of_service(name))
        .about(of_service(winner))
        .advise(Advice::change(
            of_service(name),
            "spec.clusterIP",
            "create the Service anew without clusterIP and clusterIPs",
        ))
}

/// The Service has no port of this name or number.
pub(crate) fn no_port(world: &World, name: &ServiceName, port: Option<&Port>) -> Finding {
    let Some(service) = world.snapshot.service(name) else {
        return Finding::fault(Cause::NoSuchService, format!("there is no Service {name}"));
    };
    let declared = declared(service);
    if declared.is_empty() {
        return Finding::fault(Cause::NoPorts, format!("Service {name} has no usable port"))
            .about(of_service(name))
            .advise(Advice::change(of_service(name), "spec.ports", "give it a port"));
    }
    let asked = match port {
        Some(Port::Name(name)) => format!(" named {name:?}"),
        Some(Port::Number(number)) => format!(" {number}"),
        None => " of that protocol".to_owned(),
    };
    let what = format!(
        "Service {name} has no port{asked}; it has {}",
        listed(&declared, 6)
    );
    Finding::fault(Cause::NoSuchPort, what)
        .about(of_service(name))
        .advise(Advice::act(format!("use {}", listed(&declared, 6))))
}

/// The ports of a Service, in words.
pub(crate) fn declared(service: &Service) -> Vec<String> {
    let ports = service.ports.iter();
    ports
        .map(|port| port_words(&port.name, port.port, port.protocol))
        .collect()
}

/// Why nothing serves this port on an address of the Service: the most telling reason first.
pub(crate) fn undeclared(world: &World, name: &ServiceName, number: u16, protocol: Protocol) -> Finding {
    let Some(service) = world.snapshot.service(name) else {
        return undeclared_by_rules(world, name, number, protocol);
    };
    let asked = format!("{number}/{protocol}");
    let declared = declared(service);
    let same_number = service.ports.iter().find(|port| port.port == number);
    if let Some(other) = same_number {
        return other_protocol(world, service, other.protocol, number, protocol);
    }
    let details = world.objects.services.get(name);
    let leads_there = details
        .into_iter()
        .flat_map(|details| &details.ports)
        .find(|port| port.protocol == protocol && port.target == Target::Number(number));
    if let Some(port) = leads_there {
        let what = format!(
            "{asked} is the target port of Service {name}, the port of its pods; the Service's own port is {}",
            port.port
        );
        return mixed_up(name, what, format!("connect to port {}", port.port));
    }
    if let Some(port) = service.ports.iter().find(|port| port.node_port == Some(number)) {
        let what = format!(
            "{number} is the node port of Service {name}; on its cluster IP the port is {}",
            port.port
        );
        return mixed_up(
            name,
            what,
            format!(
                "connect to port {}, or to {number} on a node's address",
                port.port
            ),
        );
    }
    let what = format!(
        "Service {name} has no port {asked}; it has {}",
        listed(&declared, 6)
    );
    Finding::fault(Cause::NoSuchPort, what)
        .because(mode_words(world))
        .about(of_service(name))
        .advise(Advice::act(format!("connect to {}", listed(&declared, 6))))
        .advise(Advice::change(
            of_service(name),
            "spec.ports",
            format!("add {asked}"),
        ))
}

fn mixed_up(name: &ServiceName, what: String, action: String) -> Finding {
    Finding::fault(Cause::PortMixedUp, what)
        .because("A Service listens on its port alone; the target port is what its pods listen on.")
        .about(of_service(name))
        .advise(Advice::act(action))
        .advise(Advice::change(
            of_service(name),
            "spec.ports[].port",
            "change the Service's port",
        ))
}

/// The number is there, and not for this protocol.
fn other_protocol(
    world: &World,
    service: &Service,
    has: Protocol,
    number: u16,
    protocol: Protocol,
) -> Finding {
    let name = &service.name;
    let what = format!("Service {name} has no port {number}/{protocol}, only {number}/{has}");
    let mut why = "Number and protocol together make a port.".to_owned();
    let mut finding = Finding::fault(Cause::OtherProtocol, what).about(of_service(name));
    for slice in world.snapshot.slices_of(name) {
        let known = |port: &str| {
            service
                .ports
                .iter()
                .any(|one| (&*one.name, one.protocol) == (port, protocol))
        };
        let left = slice
            .ports
            .iter()
            .find(|port| port.protocol == protocol && !known(&port.name));
        if let Some(port) = left {
            why = format!(
                "{why} Slice {} still lists a port named {:?} for {protocol}: the Service had one once, and an apply \
                 may have merged the two ports of one number into one.",
                slice.name.name, &*port.name
            );
            finding = finding.about(super::subject(
                "EndpointSlice",
                &slice.name.namespace,
                &slice.name.name,
            ));
            break;
        }
    }
    if let Some((pod, target)) = super::declared::speaks(world, name, (number, has), protocol) {
        return finding
            .because(format!(
                "{why} Pod {pod} declares {target}/{protocol} and not {target}/{has}; protocol: TCP is what a port of a Service has when \
                 nobody says otherwise. {}",
                mode_words(world)
            ))
            .advise(Advice::change(
                of_service(name),
                "spec.ports[].protocol",
                format!("set it to {protocol} for port {number}"),
            ));
    }
    finding
        .because(format!("{why} {}", mode_words(world)))
        .advise(Advice::change(
            of_service(name),
            "spec.ports",
            format!("add port {number} with protocol: {protocol}, under a name of its own"),
        ))
}

fn undeclared_by_rules(world: &World, name: &ServiceName, number: u16, protocol: Protocol) -> Finding {
    let mut declared: Vec<String> = Family::ALL
        .into_iter()
        .flat_map(|family| world.known(family))
        .filter(|known| known.service == *name)
        .map(|known| known.words())
        .collect();
    declared.sort();
    declared.dedup();
    let what = format!("the rules know Service {name}, and no port {number}/{protocol} of it");
    Finding::fault(Cause::NoSuchPort, what)
        .because(format!("They have {}.", listed(&declared, 6)))
        .about(of_service(name))
        .advise(Advice::act(
            "connect to one of those, or look at the Service's spec.ports",
        ))
}

fn mode_words(world: &World) -> &'static str {
    match world.mode {
        crate::world::Mode::Iptables => {
            "iptables mode has no rule for other ports of a cluster IP: such a packet keeps its destination and leaves \
             by the default route, where nobody knows it."
        }
        crate::world::Mode::Nftables => "nftables mode refuses other ports of a cluster IP.",
    }
}
