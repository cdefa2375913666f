//! All that an explanation looks at.

use crate::facts::HostFacts;
use crate::finding::{Cause, Finding};
use crate::known::{self, Kind, Known};
use crate::objects::Objects;
use ipnet::IpNet;
use model::note::Subject;
use model::snapshot::Snapshot;
use model::{Desired, DesiredPort, Family, LocalDetector, NodeFacts, Note, PerFamily, Protocol, ServiceName};
use path::Host;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The proxy's mode, as far as explanations differ by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// iptables.
    #[default]
    Iptables,
    /// nftables.
    Nftables,
}

/// The word of `mode` in the configuration.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Iptables => "iptables",
            Mode::Nftables => "nftables",
        })
    }
}

/// Where the rules of [`World::host`] come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Somebody saved them on a host: they decide.
    Observed,
    /// They are what the proxy would write for the objects, in a mode whose rules can be walked.
    Rendered,
    /// There are none to walk: what traffic should do is asked of the oracle.
    #[default]
    None,
}

/// Who chose the node whose rules are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeChoice {
    /// The question, or there is only one.
    #[default]
    Asked,
    /// Nobody: it is one of several.
    OneOfSeveral,
}

/// Where the node's own addresses are known from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressesFrom {
    /// Its interfaces: these are all.
    #[default]
    Interfaces,
    /// Its Node object, which need not list all.
    Node,
}

/// Whether anybody told by which networks kube-proxy tells pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodsTold {
    /// A configuration did, be it that it names none.
    #[default]
    Yes,
    /// No configuration was given: the defaults name none, and few clusters go by them.
    No,
}

/// What was configured of node ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePortsConfig {
    /// `nodePortAddresses`; empty when it is not set.
    pub addresses: Vec<String>,
    /// `iptables.localhostNodePorts`.
    pub localhost: bool,
}

/// All that an explanation looks at. Whatever is missing is left unsaid.
#[derive(Clone, Debug)]
pub struct World {
    /// The objects that the proxy reads; empty when there are none.
    pub snapshot: Snapshot,
    /// What is needed of objects beyond those.
    pub objects: Objects,
    /// What was left out while objects were read and resolved.
    pub notes: Vec<Note>,
    /// The node.
    pub facts: NodeFacts,
    /// Who chose that node.
    pub node_choice: NodeChoice,
    /// Where its addresses are known from.
    pub addresses_from: AddressesFrom,
    /// What was configured of node ports.
    pub node_ports: NodePortsConfig,
    /// Whether anybody told by which networks pods are told.
    pub pods_told: PodsTold,
    /// What traffic should do there.
    pub desired: PerFamily<Desired>,
    /// The proxy's mode.
    pub mode: Mode,
    /// The mode as configured: one whose answers are not known here is told as iptables mode.
    pub configured_mode: String,
    /// The host with its rules.
    pub host: Host,
    /// Where those rules come from.
    pub rules: Rules,
    /// What else is known of the host.
    pub host_facts: HostFacts,
}

impl World {
    /// Every address and port of a Service that is known, from objects and from rules.
    pub fn known(&self, family: Family) -> Vec<Known> {
        let mut all = known::of_desired(self.desired.get(family));
        if self.rules == Rules::Observed {
            let seen: BTreeSet<_> = all.iter().map(Known::at).collect();
            let in_rules = known::of_rules(self.host.rules.get(family)).into_iter();
            all.extend(in_rules.filter(|one| !seen.contains(&one.at())));
        }
        all
    }

    /// One port of a Service, as resolved for a family.
    pub fn port(
        &self,
        family: Family,
        service: &ServiceName,
        name: &str,
        protocol: Protocol,
    ) -> Option<&DesiredPort> {
        let service = self.desired.get(family).services.get(service)?;
        let mut ports = service.ports.iter();
        ports.find(|port| (&*port.name.port, port.name.protocol) == (name, protocol))
    }

    /// Whether objects were given at all.
    pub fn has_objects(&self) -> bool {
        self.snapshot.services().next().is_some() || self.snapshot.slices().next().is_some()
    }

    /// Whether packets to this address end on the node: by its interfaces, else by its Node object.
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.facts.is_local_address(ip) || self.host_facts.addresses().contains(&ip)
    }

    /// Whether nothing is known of the node's own addresses.
    pub fn addresses_are_unknown(&self) -> bool {
        self.host_facts.addresses().is_empty()
            && self.facts.interface_addresses.iter().all(IpAddr::is_loopback)
    }

    /// The node's own addresses of a family that are known, but for loopback, sorted.
    pub fn own_addresses(&self, family: Family) -> Vec<IpAddr> {
        let own = self.facts.interface_addresses.iter().copied();
        let all: BTreeSet<IpAddr> = own.chain(self.host_facts.addresses()).collect();
        let fits = |ip: &IpAddr| Family::of(*ip) == family && !ip.is_loopback();
        all.into_iter().filter(fits).collect()
    }

    /// The networks of a family that pods are known to have, each once: the Nodes', this node's, and the one that their traffic
    /// is told by.
    pub(crate) fn pod_networks(&self, family: Family) -> BTreeSet<IpNet> {
        let detected = match &self.desired.get(family).node.detector {
            Some(LocalDetector::Cidr(net)) => Some(*net),
            _ => None,
        };
        let of_nodes = self.snapshot.nodes().flat_map(|node| node.pod_cidrs.iter());
        let all = of_nodes.chain(&self.facts.pod_cidrs).copied().chain(detected);
        all.filter(|net| Family::of(net.addr()) == family).collect()
    }

    /// Whether an address is taken for the node's where nobody told which it has: it is when a node port is asked for there,
    /// and not otherwise: nobody's Service or pod has an address of the node by accident.
    pub fn is_taken_for_own(&self, at: SocketAddr) -> bool {
        if !self.addresses_are_unknown() || at.ip().is_loopback() {
            return false;
        }
        let known = self.known(Family::of(at.ip()));
        let is_service = known.iter().any(|known| known.ip == Some(at.ip()));
        let has_node_port = known
            .iter()
            .any(|known| known.kind == Kind::NodePort && known.port == at.port());
        !is_service && has_node_port && self.service_range(at.ip()).is_none()
    }

    /// The `ServiceCIDR` that an address lies in, and its range.
    pub(crate) fn service_range(&self, ip: IpAddr) -> Option<(&str, &IpNet)> {
        let cidrs = self.snapshot.service_cidrs();
        let mut ranges = cidrs.flat_map(|cidr| cidr.cidrs.iter().map(move |net| (&*cidr.name, net)));
        ranges.find(|(_, net)| net.contains(&ip))
    }

    /// That another node may answer otherwise.
    pub fn node_remark(&self) -> Option<Finding> {
        let node = self.node_words();
        let what = format!(
            "these are the rules of Node {node}, the first of the Nodes; other nodes may answer otherwise (--node NAME)"
        );
        (self.node_choice == NodeChoice::OneOfSeveral).then(|| Finding::remark(Cause::SeenFrom, what))
    }

    /// That the mode is one whose answers are not known.
    pub fn mode_remark(&self) -> Option<Finding> {
        let mode = self.configured_mode.as_str();
        let is_known = ["", "iptables", "nftables"].contains(&mode);
        let what = format!("mode {mode} is told as iptables mode, which most of its answers equal");
        (!is_known).then(|| Finding::remark(Cause::NotKnown, what))
    }

    /// What was left out of an object.
    pub fn notes_of<'a>(&'a self, object: &'a Subject) -> impl Iterator<Item = &'a Note> {
        self.notes.iter().filter(move |note| note.subject == *object)
    }

    /// The node's name in words.
    pub fn node_words(&self) -> String {
        match (&*self.facts.name, &self.host_facts.hostname) {
            ("", Some(name)) => name.clone(),
            ("", None) => "the node".to_owned(),
            (name, _) => name.to_owned(),
        }
    }
}
