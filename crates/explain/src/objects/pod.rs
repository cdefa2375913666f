//! Pods: their containers, and what keeps them from being ready.

use super::{Labels, is_true, labels, list, number, protocol, some_text, text};
use model::Protocol;
use model::address::parse_ip;
use serde_json::Value;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A container of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// When it runs.
    pub kind: ContainerKind,
    /// The ports that it declares; a program may listen on others.
    pub ports: Vec<ContainerPort>,
}

/// When a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerKind {
    /// While the pod serves.
    App,
    /// While the pod serves, though it stands among `initContainers` (`restartPolicy: Always`).
    Sidecar,
    /// Before the pod serves.
    Init,
}

/// A port that a container declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPort {
    /// Its name; empty when it has none.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
}

impl fmt::Display for ContainerPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ContainerPort {
            name,
            protocol,
            number,
        } = self;
        match name.as_str() {
            "" => write!(f, "{number}/{protocol}"),
            name => write!(f, "{name:?} {number}/{protocol}"),
        }
    }
}

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its labels.
    pub labels: Labels,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Its addresses in further networks, as Multus and others of the Network Plumbing Working Group write them down.
    pub further_ips: Vec<IpAddr>,
    /// The node it is on.
    pub node: Option<Arc<str>>,
    /// `status.phase`.
    pub phase: String,
    /// Whether the condition `Ready` is true.
    pub is_ready: bool,
    /// Whether it is being deleted.
    pub is_terminating: bool,
    /// Whether it uses the node's network.
    pub host_network: bool,
    /// `spec.dnsPolicy`, as written.
    pub dns_policy: String,
    /// Its containers, those that start it included.
    pub containers: Vec<Container>,
    /// Why it is not ready, as its status says: containers that wait or ended, readiness gates; empty when it says nothing.
    pub trouble: Vec<Trouble>,
}

/// Something that keeps a pod from being ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// In words: a container that waits or ended, or what the kubelet says.
    Told(String),
    /// A readiness gate whose condition is not True.
    Gate {
        /// Its condition.
        gate: String,
        /// What its owner says of it, in words.
        state: String,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Told(words) => f.write_str(words),
            Trouble::Gate { gate, state } => write!(f, "readiness gate {gate} {state}"),
        }
    }
}

impl Pod {
    /// Whether it has an address in any of its networks.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.ips.contains(&ip) || self.further_ips.contains(&ip)
    }

    /// Whether it asks the DNS servers of its node, which know no Services.
    pub fn asks_nodes_dns(&self) -> bool {
        match self.dns_policy.as_str() {
            "Default" => true,
            // What a pod has that says nothing, and what the kubelet makes Default for pods of the node's network.
            "" | "ClusterFirst" => self.host_network,
            _ => false,
        }
    }

    /// The readiness gate alone that keeps it from being ready, when its containers are.
    pub fn closed_gate(&self) -> Option<&str> {
        match self.trouble.first()? {
            Trouble::Gate { gate, .. } => Some(gate),
            Trouble::Told(_) => None,
        }
    }
}

/// Reads one.
pub(super) fn read(object: &Value) -> Pod {
    let mut ips: Vec<IpAddr> = list(object, "/status/podIPs")
        .iter()
        .filter_map(|ip| parse_ip(text(ip, "/ip")))
        .collect();
    ips.extend(parse_ip(text(object, "/status/podIP")).filter(|ip| !ips.contains(ip)));
    let conditions = list(object, "/status/conditions");
    let ready = conditions
        .iter()
        .find(|condition| text(condition, "/type") == "Ready");
    let apps = list(object, "/spec/containers").iter();
    let apps = apps.map(|value| container(value, ContainerKind::App));
    let starting = list(object, "/spec/initContainers").iter();
    let starting = starting.map(|value| match text(value, "/restartPolicy") {
        "Always" => container(value, ContainerKind::Sidecar),
        _ => container(value, ContainerKind::Init),
    });
    Pod {
        labels: labels(object, "/metadata/labels"),
        further_ips: further_ips(object),
        ips,
        node: some_text(object, "/spec/nodeName").map(Arc::from),
        phase: text(object, "/status/phase").to_owned(),
        is_ready: ready.is_some_and(|condition| text(condition, "/status") == "True"),
        is_terminating: !text(object, "/metadata/deletionTimestamp").is_empty(),
        host_network: is_true(object, "/spec/hostNetwork"),
        dns_policy: text(object, "/spec/dnsPolicy").to_owned(),
        containers: apps.chain(starting).collect(),
        trouble: trouble(object, ready),
    }
}

/// The annotations that list a pod's networks: of today, and of earlier versions.
const NETWORK_STATUS: [&str; 2] = [
    "k8s.v1.cni.cncf.io/network-status",
    "k8s.v1.cni.cncf.io/networks-status",
];

/// The addresses of all networks that the pod's annotation lists; its primary one is among them.
fn further_ips(object: &Value) -> Vec<IpAddr> {
    let annotations = labels(object, "/metadata/annotations");
    let written = NETWORK_STATUS.iter().filter_map(|key| annotations.get(*key));
    let networks = written.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let mut ips = Vec::new();
    for network in networks.flat_map(|all| list(&all, "").to_vec()) {
        let of_network = list(&network, "/ips").iter();
        ips.extend(of_network.filter_map(|ip| parse_ip(ip.as_str()?)));
    }
    ips
}

fn container(value: &Value, kind: ContainerKind) -> Container {
    let port = |value: &Value| {
        Some(ContainerPort {
            name: text(value, "/name").to_owned(),
            protocol: protocol(value)?,
            number: number(value, "/containerPort")?,
        })
    };
    Container {
        name: text(value, "/name").to_owned(),
        kind,
        ports: list(value, "/ports").iter().filter_map(port).collect(),
    }
}

/// Why a pod is not ready, as its status says.
fn trouble(pod: &Value, ready: Option<&Value>) -> Vec<Trouble> {
    let mut found = Vec::new();
    found.extend(unscheduled(pod).map(Trouble::Told));
    found.extend(ended(pod).map(Trouble::Told));
    let starting = list(pod, "/status/initContainerStatuses").iter();
    found.extend(starting.filter_map(|status| of_container(status, kind_of(pod, text(status, "/name")))));
    let serving = list(pod, "/status/containerStatuses").iter();
    found.extend(serving.filter_map(|status| of_container(status, ContainerKind::App)));
    let gates = list(pod, "/spec/readinessGates").iter();
    found.extend(gates.filter_map(|gate| closed_gate(pod, text(gate, "/conditionType"))));
    let message = ready.map_or("", |ready| text(ready, "/message"));
    if found.is_empty() && !message.is_empty() {
        found.push(Trouble::Told(message.to_owned()));
    }
    found
}

/// What kind one of the `initContainers` is.
fn kind_of(pod: &Value, name: &str) -> ContainerKind {
    let mut all = list(pod, "/spec/initContainers").iter();
    let spec = all.find(|one| text(one, "/name") == name);
    match spec.map(|spec| text(spec, "/restartPolicy")) {
        Some("Always") => ContainerKind::Sidecar,
        _ => ContainerKind::Init,
    }
}

/// What keeps a container from being ready, as its status says.
fn of_container(status: &Value, kind: ContainerKind) -> Option<Trouble> {
    let name = text(status, "/name");
    let waiting = text(status, "/state/waiting/reason");
    let ended = text(status, "/state/terminated/reason");
    let is_ready = is_true(status, "/ready");
    let runs = status.pointer("/state/running").is_some();
    let is_starting = status.pointer("/started") == Some(&Value::Bool(false));
    let before = match text(status, "/lastState/terminated/reason") {
        "" | "Completed" | "Error" => String::new(),
        reason => format!(" (it ended before: {reason})"),
    };
    let words = match (waiting, ended, kind) {
        // Those that start the pod end when they are done; they have no probes.
        ("", "", ContainerKind::Init) if runs => {
            format!(
                "container {name} of initContainers has not ended yet, and the others start after it{before}"
            )
        }
        ("", "", _) if !is_ready && runs && is_starting => {
            format!("container {name} runs and its startup probe has not succeeded yet{before}")
        }
        ("", "", _) if !is_ready && runs => {
            format!("container {name} runs and its readiness probe fails{before}")
        }
        ("", "", _) | ("", "Completed", ContainerKind::Init) => return None,
        ("", ended, _) if !is_ready && ended != "Completed" => format!("container {name} ended: {ended}"),
        ("", _, _) => return None,
        (waiting, _, _) => format!("container {name} waits: {waiting}{before}"),
    };
    Some(Trouble::Told(words))
}

/// That no node takes the pod, and why.
fn unscheduled(pod: &Value) -> Option<String> {
    let mut conditions = list(pod, "/status/conditions").iter();
    let scheduled = conditions.find(|one| text(one, "/type") == "PodScheduled")?;
    let is_open = text(scheduled, "/status") == "False";
    let told = [text(scheduled, "/message"), text(scheduled, "/reason")];
    let why = told.into_iter().find(|told| !told.is_empty()).unwrap_or_default();
    is_open.then(|| format!("no node takes it: {}", why.trim_end_matches('.')))
}

/// Why a pod as a whole has ended, such as Evicted.
fn ended(pod: &Value) -> Option<String> {
    let reason = some_text(pod, "/status/reason")?;
    Some(match text(pod, "/status/message").trim_end_matches(['.', ' ']) {
        "" => reason,
        message => format!("{reason}: {message}"),
    })
}

/// A readiness gate that keeps the pod from being ready, with the reason that its owner gives.
fn closed_gate(pod: &Value, gate: &str) -> Option<Trouble> {
    let mut conditions = list(pod, "/status/conditions").iter();
    let condition = conditions.find(|one| text(one, "/type") == gate);
    let told = condition.map(|condition| (text(condition, "/status"), text(condition, "/reason")));
    let state = match told {
        None => "was set by nobody".to_owned(),
        Some(("True", _)) => return None,
        Some((_, "")) => "is not True".to_owned(),
        Some((_, reason)) => format!("is not True ({reason})"),
    };
    let gate = gate.to_owned();
    Some(Trouble::Gate { gate, state })
}
