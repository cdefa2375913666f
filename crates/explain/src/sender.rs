//! Who sends: an address, where its packets enter the host, and words for it.

use crate::finding::{Advice, Cause, Finding, subject};
use crate::objects::PodName;
use crate::question::{From, Question};
use crate::world::World;
use ipnet::IpNet;
use model::{Family, LocalDetector, Origin};
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
        From::Pod => looked.any_pod(),
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
            return self.node(&name.name).map_err(|_| Box::new(self.nobody(name)));
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

    fn nobody(&self, name: &PodName) -> Finding {
        let what = format!("there is no Pod {name}, and no Node {}", name.name);
        let known = match self.world.objects.pods {
            Some(_) => "Neither Pods nor slices name it.",
            None => "No Pods were given, and no slice names it.",
        };
        Finding::fault(Cause::NoSuchPod, what)
            .because(known)
            .advise(Advice::act(
                "give the sender's IP address with --from, or its namespace and name",
            ))
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
        })
    }

    fn any_pod(&self) -> Result<Sender, Box<Finding>> {
        let ip = self.some_pod_address().ok_or_else(|| {
            let what = "which addresses pods have is not known";
            let advice = Advice::act("give a pod's address: --from pod:10.244.1.5");
            Box::new(Finding::fault(Cause::NotKnown, what).advise(advice))
        })?;
        let mut sender = self.pod_at(ip);
        sender.words = format!("a pod of {} (taken as {ip})", self.world.node_words());
        Ok(sender)
    }

    /// An address that a pod of this node could have, and that none is likely to have.
    fn some_pod_address(&self) -> Option<IpAddr> {
        let family = self.family();
        let of_family = |net: &&IpNet| Family::of(net.addr()) == family;
        let detector = self.world.desired.get(family).node.detector.as_ref();
        let by_detector = match detector {
            Some(LocalDetector::Cidr(net)) => Some(net),
            _ => None,
        };
        let of_node = self.world.facts.pod_cidrs.iter().find(of_family);
        let net = of_node.or(by_detector)?;
        match net {
            IpNet::V4(net) => Some(IpAddr::from(
                u32::from(net.broadcast()).saturating_sub(1).to_be_bytes(),
            )),
            IpNet::V6(net) => {
                let ip = u128::from(net.network()) | 0xfffe;
                Some(IpAddr::V6(Ipv6Addr::from(ip)))
            }
        }
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
        }
    }

    fn outside(&self) -> Sender {
        let ip = match self.family() {
            Family::V4 => IpAddr::from(OUTSIDE_V4),
            Family::V6 => IpAddr::V6(OUTSIDE_V6),
        };
        Sender {
            words: format!("a client outside of the cluster (taken as {ip})"),
            ip,
            origin: self.enters(ip),
            kind: SenderKind::Outside,
        }
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
