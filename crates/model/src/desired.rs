//! What traffic should do: the semantic intent, decided once, per family and per service.
//!
//! Backends turn these values into rules and decide nothing of this again. Each route carries its reason,
//! for the tools that explain.

use crate::settings::{LocalDetector, Mark};
use crate::{Family, ServiceName, ServicePortName};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Everything wanted for one family: the node's part and each service's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The part that no service owns.
    pub node: DesiredNode,
    /// The services' parts. Services that want nothing of this family are absent.
    pub services: BTreeMap<ServiceName, DesiredService>,
}

/// The part of one family that no service owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredNode {
    /// The family.
    pub family: Family,
    /// The masquerade mark.
    pub mark: Mark,
    /// How local pods' traffic is told; `None` when it can't be told.
    pub detector: Option<LocalDetector>,
    /// Where node ports are served.
    pub node_ports: NodePortTargets,
    /// Whether node ports are served on IPv4 loopback as well.
    pub localhost_node_ports: bool,
}

/// The addresses on which node ports are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortTargets {
    /// All of the host's addresses, loopback as the node part says.
    AllLocal,
    /// Just these, sorted, without doubles; may be empty.
    Only(Vec<IpAddr>),
}

/// One service's part of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredService {
    /// The service.
    pub name: ServiceName,
    /// Its ports in the order of their names (port name, then protocol).
    pub ports: Vec<DesiredPort>,
}

/// A traffic policy of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// All endpoints.
    Cluster,
    /// Endpoints on this node.
    Local,
}

/// Client-IP session affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Affinity {
    /// Seconds of silence after which a client is forgotten.
    pub timeout_seconds: u32,
}

/// How new connections are spread over the endpoints of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Balancing {
    /// Each by chance.
    #[default]
    Random,
    /// By the client's address, the same on every node ([`crate::balance`]).
    ClientHash,
}

/// One port of a service, for one family.
///
/// Invariant: endpoint lists are sorted by their printed form `ip:port` as text, which is the order upstream emits.
/// Invariant: a list that no route refers to is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredPort {
    /// Which port.
    pub name: ServicePortName,
    /// `internalTrafficPolicy`.
    pub internal: Policy,
    /// `externalTrafficPolicy`, `Cluster` where the type gives it no meaning.
    pub external: Policy,
    /// Session affinity, if asked for.
    pub affinity: Option<Affinity>,
    /// How new connections are spread; at random under session affinity.
    pub balancing: Balancing,
    /// The cluster list: endpoints that traffic under policy Cluster may reach.
    pub cluster: Vec<SocketAddr>,
    /// The local list: endpoints that traffic under policy Local may reach.
    pub local: Vec<SocketAddr>,
    /// Every endpoint that some traffic may reach (upstream's allReachableEndpoints).
    pub reachable: Vec<SocketAddr>,
    /// Those of the reachable ones that are on this node: they can reach themselves through it.
    pub on_node: Vec<SocketAddr>,
    /// The addresses that clients use, in the order: cluster IP, external IPs, load-balancer IPs, node port.
    pub frontends: Vec<Frontend>,
    /// The health-check node port, accepted by the host's filter (any destination address, TCP).
    pub health_check_node_port: Option<u16>,
    /// How many endpoints the slices list for this port, ready or not: the large-cluster count.
    pub listed_endpoints: usize,
}

impl DesiredPort {
    /// The endpoints of one of its two lists.
    pub fn list(&self, list: List) -> &[SocketAddr] {
        match list {
            List::Cluster => &self.cluster,
            List::Local => &self.local,
        }
    }
}

/// One address that clients use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// What kind of address, and the address.
    pub kind: FrontendKind,
    /// The port clients use (the node port for [`FrontendKind::NodePort`]).
    pub port: u16,
    /// What becomes of traffic, by kind of source.
    pub routes: Routes,
    /// Who may use it; `None` for everybody. Only load-balancer IPs have it, and only when they have endpoints.
    pub admission: Option<Admission>,
}

/// Kinds of frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKind {
    /// The cluster IP.
    ClusterIp(IpAddr),
    /// One of `spec.externalIPs`.
    ExternalIp(IpAddr),
    /// One of `status.loadBalancer.ingress[].ip` with ipMode VIP.
    LoadBalancerIp(IpAddr),
    /// The node port, on the addresses that [`DesiredNode::node_ports`] says.
    NodePort,
}

/// What becomes of traffic to one frontend, per kind of source.
///
/// A packet's source is a `pod` when the local detector says so; else `node` when its address is this host's;
/// else `outside`. Without a detector nothing counts as a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// Traffic of this node's pods (for a CIDR detector: of the cluster's pods).
    pub pod: Route,
    /// Traffic with an address of this host as source.
    pub node: Route,
    /// All other traffic.
    pub outside: Route,
}

/// One way for traffic to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// To one endpoint of a list.
    Endpoints {
        /// Which list.
        list: List,
        /// Whether the source is rewritten. An endpoint that talks to itself is always rewritten, whatever this says.
        masquerade: bool,
        /// Why this list, and why masqueraded or not.
        reason: Reason,
    },
    /// ICMP port unreachable.
    Reject(Reason),
    /// Silence.
    Drop(Reason),
}

/// Which of a port's endpoint lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    /// [`DesiredPort::cluster`].
    Cluster,
    /// [`DesiredPort::local`].
    Local,
}

/// Why a route is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No endpoint is ready, nor serving while it terminates.
    NoEndpoints,
    /// Policy Local, endpoints exist, none of them on this node.
    NoLocalEndpoints,
    /// Cluster-IP traffic from a pod, source kept.
    ClusterIpFromPod,
    /// Cluster-IP traffic that is no local pod's, so that replies come back through this node.
    ClusterIpOffCluster,
    /// Cluster-IP traffic with no detector to tell where it is from, source kept.
    ClusterIpUndetected,
    /// `masqueradeAll`.
    MasqueradeAll,
    /// External traffic under policy Cluster.
    ExternalCluster,
    /// External traffic under policy Local: source kept, local endpoints only.
    ExternalLocal,
    /// A pod's traffic to an external address short-cuts to all endpoints, source kept.
    ShortCircuitPod,
    /// The host's own traffic to an external address short-cuts to all endpoints, masqueraded.
    ShortCircuitNode,
}

/// Who may use a load-balancer IP (`loadBalancerSourceRanges`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Sources allowed, in the object's order.
    pub ranges: Vec<IpNet>,
    /// Load-balancer IPs that this node may have as source address, since the node itself is in a range:
    /// some load balancers are answered by the node with the VIP as source.
    pub self_sources: Vec<IpAddr>,
}

impl Admission {
    /// Whether a client with this address is let in.
    pub fn admits(&self, client: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(&client)) || self.self_sources.contains(&client)
    }
}
