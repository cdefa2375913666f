//! Who sends: an address, where its packets enter the host, and words for it.

use crate::causes::listed;
use crate::finding::{Advice, Cause, Finding, subject};
use crate::objects::PodName;
use crate::question::{From, Question, To};
use crate::stand_in;
use crate::told_apart;
use crate::world::World;
use ipnet::IpNet;
use model::object::Service;
use model::{Family, LocalDetector, Origin, ServiceName};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Who sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// In words: `pod default/web-1 (10.244.1.5)`.
    pub words: String,
    /// Its address.
    pub ip: IpAddr,
    /// Where its packets start their way through the host.
    pub origin: Origin,
    /// What it is.
    pub kind: SenderKind,
    /// Whether somebody is known to have that address.
    pub whose: Whose,
}

/// Whether somebody is known to have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// It was given.
    Given,
    /// It is of those that such senders have, and the question left the choice.
    Taken,
    /// Only that there is such a sender is known: its address was made up.
    MadeUp,
}

/// What a sender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderKind {
    /// A pod with an address of its own.
    Pod,
    /// A process of the node, or a pod in the node's network.
    Node,
    /// Anybody else.
    Outside,
}

/// Addresses of nobody, for clients of whom only that they are outside is known (RFC 5737, RFC 3849).
const OUTSIDE_V4: [u8; 4] = [198, 51, 100, 1];
const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);

/// The sender that a question means, for a destination.
///
/// # Errors
/// A finding, when there is no such sender.
pub fn sender(world: &World, question: &Question, to: IpAddr) -> Result<Sender, Box<Finding>> {
    let looked = Look { world, question, to };
    match &question.from {
        From::Name(name) => looked.named(name),
        From::PodAddress(ip) => Ok(looked.pod_at(*ip)),
        From::Pod => Ok(looked.any_pod()),
        From::Address(ip) => Ok(looked.address(*ip)),
        From::Node => looked.this_node(),
        From::NamedNode(name) => looked.node(name),
        From::Outside => Ok(looked.outside()),
    }
}

struct Look<'a> {
    world: &'a World,
    question: &'a Question,
    to: IpAddr,
}

impl Look<'_> {
    fn family(&self) -> Family {
        Family::of(self.to)
    }

    fn named(&self, name: &PodName) -> Result<Sender, Box<Finding>> {
        let addresses = self.world.objects.addresses_of(name);
        let pod = self.world.objects.pod(name);
        if pod.is_some_and(|pod| pod.host_network) {
            let mut sender = self.this_node()?;
            sender.words = format!("pod {name}, which uses its node's network ({})", sender.ip);
            return Ok(sender);
        }
        let of_family = addresses.iter().find(|ip| Family::of(**ip) == self.family());
        if let Some(ip) = of_family {
            return Ok(self.pod_at(*ip));
        }
        if pod.is_none() && addresses.is_empty() {
            return self.by_name_alone(name);
        }
        let family = self.family();
        let what = format!("Pod {name} has no {family} address");
        let why = "A packet and its destination are of one family.";
        let finding = Finding::fault(Cause::NoAddressOfFamily, what).because(why);
        Err(Box::new(finding.about(subject(
            "Pod",
            &name.namespace,
            &name.name,
        ))))
    }

    /// A name that no object has. A client need be no endpoint of anything: where nobody gave Pods, it is taken for one.
    fn by_name_alone(&self, name: &PodName) -> Result<Sender, Box<Finding>> {
        let may_be_a_pod = self.world.objects.pods.is_none() && *name.namespace != *"default";
        self.node(&name.name).or_else(|_| {
            if may_be_a_pod {
                Ok(self.some_pod(&format!("pod {name}, which no object tells of")))
            } else {
                Err(Box::new(self.nobody(name)))
            }
        })
    }

    fn nobody(&self, name: &PodName) -> Finding {
        let what = format!("there is no Pod {name}, and no Node {}", name.name);
        let near = self.near(name);
        let known = match (&self.world.objects.pods, near.as_slice()) {
            (None, _) => "No Pods were given, and no slice names it.".to_owned(),
            (Some(_), []) => "Neither Pods nor slices name it.".to_owned(),
            (Some(_), near) => format!("There is {}.", listed(near, 3)),
        };
        let finding = Finding::fault(Cause::NoSuchPod, what).because(known);
        let pod = near
            .first()
            .map(|pod| Advice::act(format!("name the pod: --from {pod}")));
        finding.advise_all(pod).advise(Advice::act(
            "give the sender's IP address with --from, or its namespace and name",
        ))
    }

    /// Pods of this name elsewhere, or whose names begin with it, as those that a Deployment of that name makes.
    fn near(&self, name: &PodName) -> Vec<&PodName> {
        let pods = self.world.objects.pods.iter().flatten().map(|(pod, _)| pod);
        let begins = |pod: &PodName| {
            let rest = pod.name.strip_prefix(&*name.name);
            rest.is_some_and(|rest| rest.starts_with('-'))
        };
        let fits = |pod: &&PodName| pod.name == name.name || begins(pod);
        let mut near: Vec<&PodName> = pods.filter(fits).collect();
        near.sort_by_key(|pod| pod.namespace != name.namespace);
        near
    }

    fn node(&self, name: &str) -> Result<Sender, Box<Finding>> {
        let world = self.world;
        let is_this = *world.facts.name == *name || world.host_facts.hostname.as_deref() == Some(name);
        if is_this {
            return self.this_node();
        }
        let node = world.snapshot.node(name);
        let mut addresses = node.iter().flat_map(|node| node.addresses.iter());
        match addresses.find(|ip| Family::of(**ip) == self.family()) {
            Some(ip) => Ok(Sender {
                words: format!("node {name} ({ip})"),
                ip: *ip,
                origin: self.enters(*ip),
                kind: SenderKind::Outside,
                whose: Whose::Given,
            }),
            None => Err(Box::new(Finding::fault(
                Cause::NoSuchPod,
                format!("Node {name} is not known, or has no {} address", self.family()),
            ))),
        }
    }

    fn this_node(&self) -> Result<Sender, Box<Finding>> {
        let world = self.world;
        let family = self.family();
        let own = || {
            let mut all = world.facts.interface_addresses.iter();
            all.find(|ip| Family::of(**ip) == family && !ip.is_loopback())
                .copied()
        };
        let primary = world.facts.node_ips.get(family).filter(|ip| !ip.is_loopback());
        // A packet to an address of the host itself has it for its source as well.
        let to_itself = Some(self.to).filter(|to| world.is_local(*to));
        let ip = to_itself
            .or_else(|| world.host_facts.source_towards(self.to))
            .or(primary)
            .or_else(|| world.host_facts.primary_address(family))
            .or_else(own);
        let name = world.node_words();
        if ip.is_none() && world.addresses_are_unknown() {
            let ip = stand_in::node(family);
            return Ok(Sender {
                words: format!("a process on {name}, whose addresses are not known"),
                ip,
                origin: Origin::Host,
                kind: SenderKind::Node,
                whose: Whose::MadeUp,
            });
        }
        let Some(ip) = ip else {
            let what = format!("{name} has no {family} address that is known");
            let advice = Advice::act("give a Node with addresses among the objects, or --node-address");
            return Err(Box::new(Finding::fault(Cause::NotKnown, what).advise(advice)));
        };
        Ok(Sender {
            words: format!("a process on {name} ({ip})"),
            ip,
            origin: Origin::Host,
            kind: SenderKind::Node,
            whose: Whose::Given,
        })
    }

    fn any_pod(&self) -> Sender {
        let of = format!("a pod of {}", self.world.node_words());
        self.some_pod(&of)
    }

    /// A pod of which only is known that it is one.
    fn some_pod(&self, who: &str) -> Sender {
        let (ip, whose) = stand_in::pod(self.world, self.family(), self.service());
        let known = match whose {
            Whose::Given | Whose::Taken => "",
            Whose::MadeUp => ", since no other pod's address is known",
        };
        let origin = match &self.question.in_interface {
            Some(_) => self.enters_from_pod(ip),
            None => stand_in::origin(self.enters_from_pod(ip), whose),
        };
        Sender {
            words: format!("{who} (taken as {ip}{known})"),
            origin,
            whose,
            ..self.pod_at(ip)
        }
    }

    /// The Service that the question is about, as objects have it.
    fn service(&self) -> Option<&ServiceName> {
        let is_it = |service: &&Service| match &self.question.to {
            To::Service(name, _) => service.name == *name,
            To::Address(ip, _) => {
                *service.cluster_ips.get(self.family()) == Some(*ip)
                    || service.external_ips.contains(ip)
                    || service.load_balancer_ips.contains(ip)
            }
            To::Name(name, _) => *service.name.name == **name,
            To::NodePort(port) => service.ports.iter().any(|one| one.node_port == Some(*port)),
        };
        self.world
            .snapshot
            .services()
            .find(is_it)
            .map(|service| &service.name)
    }

    fn pod_at(&self, ip: IpAddr) -> Sender {
        let words = match self.world.objects.pod_of(ip) {
            Some(name) => format!("pod {name} ({ip})"),
            None => format!("pod {ip}"),
        };
        Sender {
            words,
            ip,
            origin: self.enters_from_pod(ip),
            kind: SenderKind::Pod,
            whose: Whose::Given,
        }
    }

    fn address(&self, ip: IpAddr) -> Sender {
        let world = self.world;
        if world.is_local(ip) && self.question.in_interface.is_none() {
            return Sender {
                words: format!("a process on {} ({ip})", world.node_words()),
                ip,
                origin: Origin::Host,
                kind: SenderKind::Node,
                whose: Whose::Given,
            };
        }
        let detector = world.desired.get(Family::of(ip)).node.detector.as_ref();
        let in_pods = matches!(detector, Some(LocalDetector::Cidr(net)) if net.contains(&ip));
        if in_pods || world.objects.pod_of(ip).is_some() {
            return self.pod_at(ip);
        }
        Sender {
            words: match world.snapshot.nodes().find(|node| node.addresses.contains(&ip)) {
                Some(node) => format!("node {} ({ip})", node.name),
                None => format!("{ip}"),
            },
            ip,
            origin: self.enters(ip),
            kind: SenderKind::Outside,
            whose: Whose::Given,
        }
    }

    /// Any client outside: one that is let in, where a load balancer's address is for some only.
    fn outside(&self) -> Sender {
        let family = self.family();
        let limits = self.limits();
        let let_in = limits.iter().filter_map(|net| Some((self.outsider(net)?, net)));
        // A network that nodes or pods are in comes after those that are nobody's here.
        let let_in = let_in.min_by_key(|((has_own, _), _)| *has_own);
        let (ip, of) = match (let_in, family) {
            (Some(((_, ip), net)), _) => (ip, format!(", in {net}")),
            (None, Family::V4) => (IpAddr::from(OUTSIDE_V4), String::new()),
            (None, Family::V6) => (IpAddr::V6(OUTSIDE_V6), String::new()),
        };
        Sender {
            words: format!("a client outside of the cluster{of} (taken as {ip})"),
            ip,
            origin: self.enters(ip),
            kind: SenderKind::Outside,
            whose: Whose::Taken,
        }
    }

    /// An address of this network that is none of the cluster's own, which have routes of their own; and whether the network
    /// holds some of those.
    fn outsider(&self, net: &IpNet) -> Option<(bool, IpAddr)> {
        let (world, family) = (self.world, self.family());
        let hosts = world
            .snapshot
            .nodes()
            .flat_map(|node| node.addresses.iter().copied());
        let hosts = hosts.chain(world.own_addresses(family)).map(IpNet::from);
        let mut all = world.pod_networks(family);
        all.extend(hosts.filter(|host| Family::of(host.addr()) == family));
        let is_the_clusters = all.iter().any(|own| own.contains(net));
        if Family::of(net.addr()) != family || is_the_clusters {
            return None;
        }
        let has_own = all.iter().any(|own| net.contains(own));
        all.insert(*net);
        let found = told_apart::addresses(family, &all);
        found.get(&Some(*net)).map(|ip| (has_own, *ip))
    }

    /// The source ranges that hold for the destination; none where everybody is let in.
    fn limits(&self) -> &[IpNet] {
        let mut services = self.world.snapshot.services();
        let limited = services.find(|service| service.load_balancer_ips.contains(&self.to));
        let ranges = limited.map_or(&[][..], |service| &service.source_ranges);
        if ranges.iter().any(|net| net.prefix_len() == 0) {
            return &[];
        }
        ranges
    }

    /// The interface that packets of this address come in through: the one that answers would leave through.
    fn enters(&self, ip: IpAddr) -> Origin {
        if let Some(name) = &self.question.in_interface {
            return Origin::Interface(name.clone());
        }
        let facts = &self.world.host_facts;
        let routed = facts.route_to(ip).map(|of| of.route.interface.clone());
        let connected = || facts.connected(ip).map(|(interface, _)| interface.name.clone());
        Origin::Interface(connected().or(routed).unwrap_or_default())
    }

    fn enters_from_pod(&self, ip: IpAddr) -> Origin {
        let detector = self.world.desired.get(Family::of(ip)).node.detector.as_ref();
        let told: Option<Arc<str>> = match detector {
            Some(LocalDetector::Bridge(name)) => Some(name.clone()),
            Some(LocalDetector::InterfacePrefix(prefix)) => Some(format!("{prefix}0").into()),
            _ => None,
        };
        match (self.enters(ip), told) {
            (Origin::Interface(name), Some(told)) if name.is_empty() => Origin::Interface(told),
            (origin, _) => origin,
        }
    }
}
