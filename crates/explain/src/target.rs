//! Where to: which Service and port is meant, and at which address.

use crate::causes::service as service_causes;
use crate::finding::{Advice, Cause, Finding, subject};
use crate::known::{Kind, Known};
use crate::named;
use crate::objects::PodName;
use crate::question::{From, Port, Question, To};
use crate::stand_in;
use crate::world::World;
use model::object::{Service, ServicePort};
use model::{Family, Protocol, ServiceName};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Where a packet is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The destination.
    pub at: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The Service's address and port that this is, when it is one.
    pub known: Option<Known>,
    /// The Service that was asked for, or that has the address on another port.
    pub service: Option<ServiceName>,
    /// Ports of the Service that were not chosen, when none was asked for.
    pub others: Vec<String>,
}

/// What a question aims at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aim {
    /// A packet can be sent there.
    Packet(Target),
    /// There is nothing to send to, and why.
    Nowhere {
        /// The Service that was asked for.
        service: Option<ServiceName>,
        /// Why.
        why: Box<Finding>,
    },
}

/// What a question aims at.
pub fn aim(world: &World, question: &Question) -> Aim {
    match &question.to {
        To::Name(..) => match named::meant(world, question) {
            Ok(meant) => aim(world, &meant.question),
            Err(why) => nowhere(None, *why),
        },
        To::Address(ip, port) => address(world, question, *ip, *port),
        To::NodePort(port) => node_port(world, question, *port),
        To::Service(name, port) => service(world, question, name, port.as_ref()),
    }
}

fn nowhere(service: Option<&ServiceName>, why: Finding) -> Aim {
    Aim::Nowhere {
        service: service.cloned(),
        why: Box::new(why),
    }
}

/// An address, whoever has it. Without a port, the first that a Service has there.
fn address(world: &World, question: &Question, ip: IpAddr, port: Option<u16>) -> Aim {
    let all = world.known(Family::of(ip));
    let is_local =
        world.is_local(ip) || port.is_some_and(|port| world.is_taken_for_own(SocketAddr::new(ip, port)));
    let here = |known: &&Known| known.ip == Some(ip) || (known.kind == Kind::NodePort && is_local);
    let fits = |known: &&Known| {
        port.is_none_or(|port| known.port == port) && question.protocol.is_none_or(|p| known.protocol == p)
    };
    let has_address = |known: &&Known| known.ip == Some(ip);
    let exact = all
        .iter()
        .find(|known| has_address(known) && fits(known))
        .or_else(|| {
            all.iter()
                .find(|known| here(known) && port.is_some() && fits(known))
        });
    let owner = all.iter().find(has_address);
    let number = port
        .or(exact.map(|known| known.port))
        .or(owner.map(|known| known.port));
    let Some(number) = number else {
        let what = format!("no Service is known at {ip}, so a port is needed: --to {ip}:80");
        return nowhere(None, Finding::fault(Cause::NobodysAddress, what));
    };
    let protocol = question.protocol.or(exact.map(|known| known.protocol));
    Aim::Packet(Target {
        at: SocketAddr::new(ip, number),
        protocol: protocol.unwrap_or(Protocol::Tcp),
        known: exact.cloned(),
        service: exact.or(owner).map(|known| known.service.clone()),
        others: Vec::new(),
    })
}

fn node_port(world: &World, question: &Question, port: u16) -> Aim {
    let has_it = |family: &Family| {
        let known = world.known(*family);
        known
            .iter()
            .any(|known| known.kind == Kind::NodePort && known.port == port)
    };
    let family = asked_family(world, question).or_else(|| Family::ALL.into_iter().find(has_it));
    let family = family.unwrap_or(Family::V4);
    let primary = world.facts.node_ips.get(family).filter(|ip| !ip.is_loopback());
    let ip = primary.or_else(|| world.host_facts.primary_address(family));
    let Some(ip) = ip else {
        if world.addresses_are_unknown() {
            return address(world, question, stand_in::node(family), Some(port));
        }
        let what = format!("{} has no {family} address that is known", world.node_words());
        let advice = Advice::act(format!("name the address: --to IP:{port}"));
        return nowhere(None, Finding::fault(Cause::NotKnown, what).advise(advice));
    };
    address(world, question, ip, Some(port))
}

/// The family that the sender's addresses leave, where they leave one alone.
pub(crate) fn asked_family(world: &World, question: &Question) -> Option<Family> {
    let of_node = |name: &str| {
        let node = world.snapshot.node(name);
        node.map_or_else(Vec::new, |node| node.addresses.to_vec())
    };
    let addresses = match &question.from {
        From::Address(ip) | From::PodAddress(ip) => vec![*ip],
        From::Name(name) => match world.objects.addresses_of(name) {
            none if none.is_empty() => of_node(&name.name),
            some => some,
        },
        From::NamedNode(name) => of_node(name),
        From::Pod | From::Node | From::Outside => Vec::new(),
    };
    let families: BTreeSet<Family> = addresses.into_iter().map(Family::of).collect();
    families.first().copied().filter(|_| families.len() == 1)
}

fn service(world: &World, question: &Question, name: &ServiceName, port: Option<&Port>) -> Aim {
    if world.snapshot.service(name).is_none() {
        return by_rules(world, question, name, port);
    }
    if let Some(why) = service_causes::not_served(world, name) {
        return nowhere(Some(name), why);
    }
    let service = world.snapshot.service(name).expect("asked for above");
    let of_family = |family: Family| *service.cluster_ips.get(family);
    let asked = asked_family(world, question);
    // Pods ask at an address of the family that they are known to have, if there is one.
    let families = || {
        let all = Family::ALL.into_iter();
        all.filter(|family| of_family(*family).is_some())
    };
    let is_pods = |family: &Family| question.from == From::Pod && !world.pod_networks(*family).is_empty();
    let family = asked.or_else(|| families().find(is_pods).or(families().next()));
    let Some(ip) = family.and_then(of_family) else {
        return nowhere(
            Some(name),
            service_causes::no_address(world, name, question, asked),
        );
    };
    let fits = |found: &&ServicePort| {
        question
            .protocol
            .is_none_or(|protocol| found.protocol == protocol)
            && match port {
                None => true,
                Some(Port::Number(number)) => found.port == *number,
                Some(Port::Name(name)) => *found.name == **name,
            }
    };
    let found = service.ports.iter().find(fits);
    let number = match (found, port) {
        (Some(found), _) => found.port,
        (None, Some(Port::Number(number))) => *number,
        (None, _) => return nowhere(Some(name), service_causes::no_port(world, name, port)),
    };
    let others = match port {
        Some(_) => Vec::new(),
        None => found.map_or_else(Vec::new, |found| others_than(service, found)),
    };
    let protocol = question
        .protocol
        .or(found.map(|port| port.protocol))
        .unwrap_or(Protocol::Tcp);
    let all = world.known(Family::of(ip));
    let known = all
        .into_iter()
        .find(|known| known.ip == Some(ip) && (known.port, known.protocol) == (number, protocol));
    if let Some(owner) = known.as_ref().filter(|known| known.service != *name) {
        return nowhere(Some(name), service_causes::of_another(name, owner));
    }
    Aim::Packet(Target {
        at: SocketAddr::new(ip, number),
        protocol,
        known,
        service: Some(name.clone()),
        others,
    })
}

/// The ports of a Service but for one, in words.
pub(crate) fn others_than(service: &Service, one: &ServicePort) -> Vec<String> {
    let others = service.ports.iter().filter(|other| *other != one);
    others
        .map(|other| format!("{}/{}", other.port, other.protocol))
        .collect()
}

/// A Service that no object describes: by the comments of the host's rules.
fn by_rules(world: &World, question: &Question, name: &ServiceName, port: Option<&Port>) -> Aim {
    let family = asked_family(world, question);
    let families = Family::ALL
        .into_iter()
        .filter(|one| family.is_none_or(|family| family == *one));
    let known: Vec<Known> = families.flat_map(|family| world.known(family)).collect();
    let fits = |known: &&Known| {
        known.service == *name
            && question
                .protocol
                .is_none_or(|protocol| protocol == known.protocol)
            && match port {
                None => true,
                Some(Port::Number(number)) => known.port == *number,
                Some(Port::Name(name)) => known.port_name == *name,
            }
    };
    let found = known.iter().find(|one| one.ip.is_some() && fits(one));
    match found.and_then(|found| Some((found, found.ip?))) {
        Some((found, ip)) => Aim::Packet(Target {
            at: SocketAddr::new(ip, found.port),
            protocol: found.protocol,
            known: Some(found.clone()),
            service: Some(name.clone()),
            others: Vec::new(),
        }),
        None => nowhere(None, no_such_service(world, name, &known)),
    }
}

fn no_such_service(world: &World, name: &ServiceName, known: &[Known]) -> Finding {
    let in_objects = world.snapshot.services().map(|service| &service.name);
    let all = in_objects.chain(known.iter().map(|known| &known.service));
    let mut near: Vec<String> = all
        .filter(|other| {
            let is_turned = other.name == name.namespace && other.namespace == name.name;
            is_turned || other.name == name.name || is_near(&other.name, &name.name)
        })
        .map(ToString::to_string)
        .collect();
    near.sort();
    near.dedup();
    let what = format!("there is no Service {name}");
    let mut finding =
        Finding::fault(Cause::NoSuchService, what).about(subject("Service", &name.namespace, &name.name));
    let pod = PodName {
        namespace: name.namespace.clone(),
        name: name.name.clone(),
    };
    if let Some(pod) = world.objects.pod(&pod) {
        let why = "It is the name of a Pod. DNS knows Services by their names, and pods only behind a headless Service that their \
                   spec.subdomain names.";
        let asked = pod.ips.iter().map(|ip| format!("--to {ip}"));
        return finding
            .because(why)
            .advise_all(asked.map(|to| Advice::act(format!("ask for its address: {to}"))));
    }
    if !near.is_empty() {
        near.truncate(5);
        finding.why = format!("There is {}.", near.join(", "));
    }
    let list = format!("kubectl get services -n {}", name.namespace);
    finding.advise(Advice::act(format!("look for its name and namespace: {list}")))
}

/// Whether one edit makes one of the other.
fn is_near(one: &str, other: &str) -> bool {
    let (a, b) = (one.as_bytes(), other.as_bytes());
    if a.len().abs_diff(b.len()) > 1 {
        return false;
    }
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (x, y) = (&a[same..], &b[same..]);
    let skip = |bytes: &[u8]| bytes.get(1..).unwrap_or_default().to_vec();
    match a.len().cmp(&b.len()) {
        std::cmp::Ordering::Equal => skip(x) == skip(y),
        std::cmp::Ordering::Less => x == skip(y),
        std::cmp::Ordering::Greater => skip(x) == y,
    }
}
