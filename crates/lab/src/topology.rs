//! What a lab consists of, as plain data. [`crate::plan`] says what is made of it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::LabError;

/// The namespace that holds the bridge all nodes and outsiders hang on.
pub const WIRE: &str = "wire";

/// The kernel's limit (`BR_MAX_PORTS` is 1,024, and port number 0 is not given): one more is refused with `EXFULL`.
pub const BRIDGE_PORTS: usize = 1023;

/// A whole lab. Names of nodes, pods, outsiders and the sink share one name space: they are places to probe from,
/// and the namespace of a place is called `PREFIX-NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Starts with a letter, then letters, digits and `_`, at most 24. No `-`: it separates prefix and place, so that
    /// sweeping one lab never hits another.
    pub prefix: String,
    /// The machines of the cluster.
    pub nodes: Vec<Node>,
    /// The pods, each on a node.
    #[serde(default)]
    pub pods: Vec<Pod>,
    /// Machines outside the cluster, on the same wire.
    #[serde(default)]
    pub outside: Vec<Outside>,
    /// Where packets go that nothing else takes; nodes and outsiders have their default route there.
    #[serde(default)]
    pub sink: Option<Sink>,
}

/// A machine of the cluster: `eth0` on the wire, `cni0` for its pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The Kubernetes node name; also what the proxy gets as `--hostname-override`.
    pub name: String,
    /// On `eth0`, with prefix length; the first of a family is the one that others route pods through.
    pub addresses: Vec<IpNet>,
    /// At most one of each family. `cni0` has the first address that no pod uses.
    #[serde(default)]
    pub pod_cidrs: Vec<IpNet>,
    /// More interfaces on the same wire.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
}

/// One more interface of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// At most 15 characters, not `eth0`, `cni0`, `lo` or `veth...`.
    pub name: String,
    /// With prefix length.
    pub addresses: Vec<IpNet>,
}

/// A pod and what it serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// Unique in the topology.
    pub name: String,
    /// The node it runs on.
    pub node: String,
    /// Inside a pod CIDR of the node: bridged to its neighbours. Outside: a host route through the node.
    pub addresses: Vec<IpAddr>,
    /// Its own network or the node's.
    #[serde(default)]
    pub network: PodNetwork,
    /// Served on every address.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// What its servers call themselves; the pod's name if absent. No blanks.
    #[serde(default)]
    pub answers_as: Option<String>,
}

/// Whose network a pod uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodNetwork {
    /// A namespace of its own behind `cni0`.
    #[default]
    Own,
    /// The node's namespace; the addresses must be the node's.
    Host,
}

/// A machine outside the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outside {
    /// Unique in the topology.
    pub name: String,
    /// With prefix length, on `eth0`.
    pub addresses: Vec<IpNet>,
    /// Which of the cluster's addresses (service, external, load balancer) it sends to which node.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Served on every address, under its name: a target for traffic that leaves the cluster.
    #[serde(default)]
    pub ports: Vec<Port>,
}

/// A route through a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The destination.
    pub to: IpNet,
    /// The node's name.
    pub via: String,
}

/// A machine that answers for every address nobody has, on every port, and says which destination it saw.
///
/// An answer from it means that the packet left the node untouched by destination NAT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sink {
    /// Unique in the topology; it answers under this name.
    pub name: String,
    /// Its own addresses, used as gateways.
    pub addresses: Vec<IpAddr>,
    /// What nodes and outsiders route to it.
    pub claims: Vec<IpNet>,
}

impl Default for Sink {
    /// Called `sink`, in the range kept for benchmarks (RFC 2544) and a unique local address; claims everything.
    fn default() -> Self {
        let address = |text: &str| text.parse().expect("invariant: a literal address");
        let network = |text: &str| text.parse().expect("invariant: a literal network");
        Self {
            name: "sink".to_owned(),
            addresses: vec![address("198.19.255.254"), address("fd00:51:4b::fe")],
            claims: vec![network("0.0.0.0/0"), network("::/0")],
        }
    }
}

/// A port of one transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    /// The protocol.
    pub proto: Proto,
    /// Not 0.
    pub port: u16,
}

/// A transport protocol that the lab serves and probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Proto {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP, one association a socket. Not every kernel has it.
    Sctp,
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

impl Port {
    /// A TCP port.
    pub const fn tcp(port: u16) -> Self {
        Self {
            proto: Proto::Tcp,
            port,
        }
    }

    /// A UDP port.
    pub const fn udp(port: u16) -> Self {
        Self {
            proto: Proto::Udp,
            port,
        }
    }

    /// An SCTP port.
    pub const fn sctp(port: u16) -> Self {
        Self {
            proto: Proto::Sctp,
            port,
        }
    }
}

impl Pod {
    /// What its servers call themselves.
    pub fn reply_name(&self) -> &str {
        self.answers_as.as_deref().unwrap_or(&self.name)
    }
}

impl Node {
    /// The first address of the family of `like`.
    pub fn address_like(&self, like: IpAddr) -> Option<IpAddr> {
        self.addresses
            .iter()
            .map(IpNet::addr)
            .find(|own| own.is_ipv4() == like.is_ipv4())
    }

    /// Every address with its network, `eth0` first.
    pub fn all_addresses(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.addresses
            .iter()
            .chain(self.interfaces.iter().flat_map(|i| &i.addresses))
            .copied()
    }

    /// The pod network that `address` belongs to.
    pub fn pod_cidr_of(&self, address: IpAddr) -> Option<IpNet> {
        self.pod_cidrs
            .iter()
            .copied()
            .find(|cidr| cidr.contains(&address))
    }
}

impl Topology {
    /// An empty lab.
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            nodes: vec![],
            pods: vec![],
            outside: vec![],
            sink: None,
        }
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The pod of this name.
    pub fn pod(&self, name: &str) -> Option<&Pod> {
        self.pods.iter().find(|pod| pod.name == name)
    }

    /// The address `cni0` has in `cidr`: the first host address that no pod has.
    pub fn gateway(&self, cidr: IpNet) -> Option<IpNet> {
        let taken: BTreeSet<IpAddr> = self
            .pods
            .iter()
            .flat_map(|pod| pod.addresses.iter().copied())
            .collect();
        // `hosts()` of an IPv6 network starts with the subnet-router anycast address, which is no host's.
        let free = cidr
            .hosts()
            .find(|host| *host != cidr.network() && !taken.contains(host))?;
        IpNet::new(free, cidr.prefix_len()).ok()
    }

    /// The name of the namespace of a place.
    pub fn namespace_name(&self, place: &str) -> String {
        format!("{}-{place}", self.prefix)
    }

    /// Every place, the wire first. Pods on the host network have no namespace of their own and are left out.
    pub fn places(&self) -> Vec<&str> {
        let pods = self
            .pods
            .iter()
            .filter(|pod| pod.network == PodNetwork::Own)
            .map(|pod| pod.name.as_str());
        std::iter::once(WIRE)
            .chain(self.nodes.iter().map(|node| node.name.as_str()))
            .chain(pods)
            .chain(self.outside.iter().map(|outside| outside.name.as_str()))
            .chain(self.sink.iter().map(|sink| sink.name.as_str()))
            .collect()
    }

    /// Refuses what cannot be built.
    ///
    /// # Errors
    /// [`LabError::Topology`] with the first contradiction found.
    pub fn validate(&self) -> Result<(), LabError> {
        check_prefix(&self.prefix)?;
        self.check_names()?;
        for node in &self.nodes {
            check_node(node)?;
        }
        self.check_addresses()?;
        self.check_bridges()?;
        self.pods.iter().try_for_each(|pod| self.check_pod(pod))?;
        for route in self.outside.iter().flat_map(|outside| &outside.routes) {
            if self.node(&route.via).is_none() {
                return problem(format!(
                    "route to {} goes via unknown node {:?}",
                    route.to, route.via
                ));
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), LabError> {
        let host = self
            .pods
            .iter()
            .filter(|pod| pod.network == PodNetwork::Host)
            .map(|pod| pod.name.as_str());
        let mut seen = BTreeSet::new();
        for name in self.places().into_iter().chain(host) {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
            if name.is_empty() || name.len() > 200 || !name.chars().all(fits) {
                return problem(format!(
                    "{name:?} is no name: lower-case letters, digits, '-', '.' and '_'"
                ));
            }
            if !seen.insert(name) {
                return problem(format!("two places are called {name:?}"));
            }
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), LabError> {
        let nodes = self
            .nodes
            .iter()
            .flat_map(|node| node.all_addresses().map(|net| net.addr()));
        let outside = self
            .outside
            .iter()
            .flat_map(|outside| outside.addresses.iter().map(IpNet::addr));
        let pods = self.pods.iter().filter(|pod| pod.network == PodNetwork::Own);
        let sink = self.sink.iter().flat_map(|sink| sink.addresses.iter().copied());
        let mut seen = BTreeSet::new();
        for address in nodes
            .chain(outside)
            .chain(pods.flat_map(|pod| pod.addresses.iter().copied()))
            .chain(sink)
        {
            if !seen.insert(address) {
                return problem(format!("two places have the address {address}"));
            }
        }
        Ok(())
    }

    fn check_bridges(&self) -> Result<(), LabError> {
        let on = |node: &Node| self.pods.iter().filter(|pod| pod.node == node.name).count();
        let members = self
            .nodes
            .iter()
            .map(|node| 1 + node.interfaces.len())
            .sum::<usize>()
            + self.outside.len()
            + 1;
        let full = self.nodes.iter().find(|node| on(node) > BRIDGE_PORTS);
        match full {
            Some(node) => problem(format!(
                "{} pods on node {}: a bridge has {BRIDGE_PORTS} ports",
                on(node),
                node.name
            )),
            None if members > BRIDGE_PORTS => problem(format!(
                "{members} links on the wire, which has {BRIDGE_PORTS} ports"
            )),
            None => Ok(()),
        }
    }

    fn check_pod(&self, pod: &Pod) -> Result<(), LabError> {
        let Some(node) = self.node(&pod.node) else {
            return problem(format!("pod {} is on unknown node {:?}", pod.name, pod.node));
        };
        if pod.reply_name().is_empty() || pod.reply_name().contains(char::is_whitespace) {
            return problem(format!(
                "pod {} answers as {:?}, which has blanks",
                pod.name,
                pod.reply_name()
            ));
        }
        if pod.ports.iter().any(|port| port.port == 0) {
            return problem(format!("pod {} serves port 0", pod.name));
        }
        for &address in &pod.addresses {
            let on_node = node.all_addresses().any(|net| net.addr() == address);
            if pod.network == PodNetwork::Host && !on_node {
                return problem(format!(
                    "{address} of host-network pod {} is not its node's",
                    pod.name
                ));
            }
            let has_gateway = node
                .pod_cidrs
                .iter()
                .any(|cidr| cidr.addr().is_ipv4() == address.is_ipv4());
            if pod.network == PodNetwork::Own && !has_gateway {
                return problem(format!("node {} has no pod network for {address}", node.name));
            }
        }
        Ok(())
    }
}

fn check_prefix(prefix: &str) -> Result<(), LabError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if prefix.len() > 24
        || !prefix.starts_with(|c: char| c.is_ascii_alphabetic())
        || !prefix.chars().all(fits)
    {
        return problem(format!(
            "{prefix:?} is no prefix: a letter, then letters, digits or '_', at most 24"
        ));
    }
    Ok(())
}

fn check_node(node: &Node) -> Result<(), LabError> {
    if node.addresses.is_empty() {
        return problem(format!("node {} has no address", node.name));
    }
    if node.pod_cidrs.iter().filter(|cidr| cidr.addr().is_ipv4()).count() > 1
        || node.pod_cidrs.iter().filter(|cidr| cidr.addr().is_ipv6()).count() > 1
    {
        return problem(format!("node {} has two pod networks of one family", node.name));
    }
    for interface in &node.interfaces {
        let name = interface.name.as_str();
        let taken = matches!(name, "" | "eth0" | "cni0" | "lo") || name.starts_with("veth");
        if taken || name.len() > 15 || name.contains(|c: char| c.is_whitespace() || c == '/') {
            return problem(format!("node {}: {name:?} cannot name an interface", node.name));
        }
    }
    Ok(())
}

fn problem<T>(what: String) -> Result<T, LabError> {
    Err(LabError::Topology(what))
}
