//! What should become of a packet: the answer that tracers and the kernel must agree with.
//!
//! Written from the meaning of services over [`Desired`], not from any rules. It says what the
//! iptables mode owes; where nftables mode owes something else is said beside it.
//!
//! A packet passes three questions. *Who sends it?* A pod of this node, the node, or somebody outside. *Which frontend
//! does it mean?* The addresses first, node ports last. *Does that frontend send this source to endpoints?* The first
//! that does decides. When none does, the packet meets the filters on its way: frontends without endpoints for it
//! refuse it, and health-check node ports are let in.

use crate::{
    Balancing, ConnState, Delivery, Desired, DesiredPort, Family, Frontend, FrontendKind, LocalDetector,
    NodeFacts, NodePortTargets, Origin, Outcome, Packet, Protocol, Route, Routes, balance,
};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Who sends a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A local pod, says the detector.
    Pod,
    /// This node.
    Node,
    /// Somebody else.
    Outside,
}

/// Tells who sends a packet. The detector goes first: a pod's address may be this host's as well.
pub fn source(packet: &Packet, detector: Option<&LocalDetector>, node: &NodeFacts) -> Source {
    let is_pod = match (detector, &packet.origin) {
        (Some(LocalDetector::Cidr(net)), _) => net.contains(&packet.src),
        // A packet that a process of this host sends has come in through no interface.
        (None, _) | (_, Origin::Host) => false,
        (Some(LocalDetector::Bridge(bridge)), Origin::Interface(interface)) => bridge == interface,
        (Some(LocalDetector::InterfacePrefix(prefix)), Origin::Interface(interface)) => {
            interface.starts_with(&**prefix)
        }
    };
    if is_pod {
        Source::Pod
    } else if node.is_local_address(packet.src) {
        Source::Node
    } else {
        Source::Outside
    }
}

/// What should become of a packet. `desired` must be of the packet's family.
///
/// Only packets that open a connection are looked at: an [`ConnState::Established`] one goes where its connection goes,
/// so it is [`Outcome::Untouched`]. An [`ConnState::Invalid`] one is dropped when it would be forwarded, as long as
/// `nf_conntrack_tcp_be_liberal` is off (nftables mode leaves it alone).
pub fn outcome(desired: &Desired, node: &NodeFacts, packet: &Packet) -> Outcome {
    let question = Question::new(desired, node, packet);
    match packet.state {
        ConnState::Invalid if question.path == Path::Forward => Outcome::Dropped,
        ConnState::Invalid | ConnState::Established => Outcome::Untouched,
        ConnState::New => {
            let meant = question.meant();
            question
                .delivered(&meant)
                .or_else(|| question.kept_out(&meant))
                .or_else(|| question.accepted())
                .or_else(|| question.refused(&meant))
                .unwrap_or(Outcome::Untouched)
        }
    }
}

/// Which way a packet takes when no service sends it elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// From this host to itself.
    Loop,
    /// From this host to somebody else.
    Out,
    /// To this host.
    In,
    /// Through this host.
    Forward,
}

/// One packet, and all that decides about it.
struct Question<'a> {
    desired: &'a Desired,
    node: &'a NodeFacts,
    packet: &'a Packet,
    source: Source,
    path: Path,
}

/// A frontend that a packet means.
struct Meant<'a> {
    port: &'a DesiredPort,
    frontend: &'a Frontend,
    /// Whether the frontend is served there at all: a node port may be restricted to some addresses, and is still
    /// refused on all others when it has no endpoints.
    is_served: bool,
}

impl<'a> Question<'a> {
    fn new(desired: &'a Desired, node: &'a NodeFacts, packet: &'a Packet) -> Self {
        let path = match (&packet.origin, node.is_local_address(packet.dst.ip())) {
            (Origin::Host, true) => Path::Loop,
            (Origin::Host, false) => Path::Out,
            (Origin::Interface(_), true) => Path::In,
            (Origin::Interface(_), false) => Path::Forward,
        };
        Question {
            desired,
            node,
            packet,
            source: source(packet, desired.node.detector.as_ref(), node),
            path,
        }
    }

    /// The frontends the packet means: addresses first, node ports after them.
    fn meant(&self) -> Vec<Meant<'a>> {
        let mut addresses = Vec::new();
        let mut node_ports = Vec::new();
        for port in self.desired.services.values().flat_map(|service| &service.ports) {
            if port.name.protocol != self.packet.protocol {
                continue;
            }
            for frontend in &port.frontends {
                if frontend.port != self.packet.dst.port() {
                    continue;
                }
                match frontend.kind {
                    FrontendKind::ClusterIp(ip)
                    | FrontendKind::ExternalIp(ip)
                    | FrontendKind::LoadBalancerIp(ip) => {
                        addresses.extend((ip == self.packet.dst.ip()).then_some(Meant {
                            port,
                            frontend,
                            is_served: true,
                        }));
                    }
                    FrontendKind::NodePort => node_ports.extend(self.is_for_this_host().then(|| Meant {
                        port,
                        frontend,
                        is_served: self.serves_node_ports(),
                    })),
                }
            }
        }
        addresses.append(&mut node_ports);
        addresses
    }

    fn is_for_this_host(&self) -> bool {
        matches!(self.path, Path::Loop | Path::In)
    }

    /// Whether node ports are served on the packet's destination, which is this host's.
    fn serves_node_ports(&self) -> bool {
        let ip = self.packet.dst.ip();
        let node = &self.desired.node;
        match &node.node_ports {
            NodePortTargets::AllLocal => !ip.is_loopback() || (ip.is_ipv4() && node.localhost_node_ports),
            NodePortTargets::Only(targets) => targets.contains(&ip),
        }
    }

    fn route(&self, routes: &Routes) -> Route {
        match self.source {
            Source::Pod => routes.pod,
            Source::Node => routes.node,
            Source::Outside => routes.outside,
        }
    }

    /// The first frontend that sends this source to endpoints decides.
    fn delivered(&self, meant: &[Meant<'_>]) -> Option<Outcome> {
        meant.iter().find_map(|meant| {
            let Route::Endpoints { list, masquerade, .. } = self.route(&meant.frontend.routes) else {
                return None;
            };
            let is_admitted = meant
                .frontend
                .admission
                .as_ref()
                .is_none_or(|admission| admission.admits(self.packet.src));
            let endpoints = meant.port.list(list);
            let hashed = match meant.port.balancing {
                Balancing::Random => None,
                Balancing::ClientHash => balance::endpoint(self.packet.src, endpoints),
            };
            let endpoints = hashed.as_ref().map_or(endpoints, std::slice::from_ref);
            let deliveries: BTreeSet<Delivery> = endpoints
                .iter()
                .map(|endpoint| self.delivery(*endpoint, masquerade))
                .collect();
            (meant.is_served && is_admitted && !deliveries.is_empty())
                .then_some(Outcome::Delivered(deliveries))
        })
    }

    /// An endpoint that talks to itself is masqueraded, and so is what came with the mark already. What came in for an
    /// endpoint with an address of this host itself never passes POSTROUTING, and keeps its source.
    fn delivery(&self, endpoint: SocketAddr, masquerade: bool) -> Delivery {
        let is_hairpin = endpoint.ip() == self.packet.src;
        let is_marked = self.packet.mark & self.desired.node.mark.value() != 0;
        let ends_here = self.packet.origin != Origin::Host && self.node.is_local_address(endpoint.ip());
        Delivery {
            endpoint,
            masquerade: (masquerade || is_hairpin || is_marked) && !ends_here,
        }
    }

    /// The first filters on the way of a packet that went to no endpoint: it comes from where it must not come from.
    fn kept_out(&self, meant: &[Meant<'_>]) -> Option<Outcome> {
        let is_not_admitted = meant.iter().any(|meant| meant.frontend.admission.is_some());
        (self.is_martian() || is_not_admitted).then_some(Outcome::Dropped)
    }

    /// The last filters: there is no endpoint for it.
    fn refused(&self, meant: &[Meant<'_>]) -> Option<Outcome> {
        meant.iter().find_map(|meant| self.refused_by(meant.frontend))
    }

    fn refused_by(&self, frontend: &Frontend) -> Option<Outcome> {
        // A cluster IP is refused where packets leave or pass this host, all other frontends where they pass or come
        // in: a packet from this host to somebody else's external address is not ours to refuse. (nftables mode refuses
        // both on all ways.)
        let is_on_the_way = match frontend.kind {
            FrontendKind::ClusterIp(_) => self.path != Path::In,
            _ => self.path != Path::Out,
        };
        // The filters know no sources: what they refuse is refused for everybody who gets there.
        match frontend.routes.outside {
            _ if !is_on_the_way => None,
            Route::Endpoints { .. } => None,
            Route::Reject(_) => Some(Outcome::Rejected),
            Route::Drop(_) => Some(Outcome::Dropped),
        }
    }

    /// Packets to loopback from elsewhere, which the kernel lets in once node ports are served there.
    fn is_martian(&self) -> bool {
        self.desired.node.family == Family::V4
            && self.desired.node.localhost_node_ports
            && self.is_for_this_host()
            && is_loopback_v4(self.packet.dst.ip())
            && !is_loopback_v4(self.packet.src)
    }

    /// Health-check node ports are let in, on any address of this host. (nftables mode has no such rule.)
    fn accepted(&self) -> Option<Outcome> {
        let is_health_check =
            |port: &DesiredPort| port.health_check_node_port == Some(self.packet.dst.port());
        let ports = self.desired.services.values().flat_map(|service| &service.ports);
        let accepts = self.packet.protocol == Protocol::Tcp
            && self.is_for_this_host()
            && ports.into_iter().any(is_health_check);
        accepts.then_some(Outcome::Accepted)
    }
}

fn is_loopback_v4(ip: IpAddr) -> bool {
    ip.is_ipv4() && ip.is_loopback()
}
