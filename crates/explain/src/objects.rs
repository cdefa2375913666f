//! What explanations need of objects beyond what the proxy reads: selectors, target ports, pods, the pods behind
//! endpoints, Endpoints objects, `NetworkPolicies`.
//!
//! The proxy itself has no right to read Pods, and its [`model::snapshot::Snapshot`] keeps no selector. Whatever is
//! missing here is left unsaid.

mod node;
mod pod;
mod policy;
mod whose;
mod workload;

pub use node::NodeDetails;
pub use pod::{Container, ContainerKind, ContainerPort, Pod, Trouble};
pub use policy::{Direction, Expression, NetworkPolicy, Selector};
pub use workload::Workload;

use model::address::parse_ip;
use model::object::{HEADLESS_LABEL, OWNER_LABEL, SliceName};
use model::{Protocol, ServiceName};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Labels or a selector.
pub type Labels = BTreeMap<String, String>;

/// A namespace and name: of a Pod, mostly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// What explanations need of objects beyond the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Services.
    pub services: BTreeMap<ServiceName, ServiceDetails>,
    /// Slices.
    pub slices: BTreeMap<SliceName, SliceDetails>,
    /// Pods; `None` when nobody gave any, which is not the same as there being none.
    pub pods: Option<BTreeMap<PodName, Pod>>,
    /// Endpoints objects.
    pub endpoints: BTreeMap<ServiceName, Vec<SocketAddr>>,
    /// `NetworkPolicies`, by namespace and name.
    pub policies: BTreeMap<PodName, NetworkPolicy>,
    /// Nodes by name.
    pub nodes: BTreeMap<Arc<str>, NodeDetails>,
    /// What makes pods.
    pub workloads: Vec<Workload>,
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceDetails {
    /// `spec.selector`; empty when there is none.
    pub selector: Labels,
    /// Its ports as written, in the object's order.
    pub ports: Vec<PortDetails>,
    /// `spec.externalName`.
    pub external_name: Option<String>,
    /// The label `service.kubernetes.io/service-proxy-name`.
    pub proxy_name: Option<String>,
    /// `status.loadBalancer.ingress`: address or host name, and ipMode.
    pub ingress: Vec<Ingress>,
    /// Addresses that a load balancer is asked for: `spec.loadBalancerIP`, and the annotations of controllers that
    /// took its place (`metallb.io/loadBalancerIPs` and the like).
    pub asked_ips: Vec<IpAddr>,
    /// `spec.allocateLoadBalancerNodePorts: false`.
    pub without_node_ports: bool,
    /// `spec.type`, as written.
    pub kind: String,
}

/// One port of a Service, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDetails {
    /// Its name; empty when it has none.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
    /// `targetPort`.
    pub target: Target,
    /// `nodePort`.
    pub node_port: Option<u16>,
}

/// Where a Service's port leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The same number.
    Same,
    /// This number.
    Number(u16),
    /// The containers' port of this name.
    Name(String),
}

/// One point of entry of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Its address, when it has one.
    pub ip: Option<IpAddr>,
    /// Its host name, when it has one.
    pub hostname: Option<String>,
    /// `ipMode`, when it is said.
    pub mode: Option<String>,
}

/// A slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceDetails {
    /// `addressType`, as written.
    pub address_type: String,
    /// Who keeps it (`endpointslice.kubernetes.io/managed-by`).
    pub managed_by: Option<String>,
    /// The other cluster whose pods it lists (`multicluster.kubernetes.io/source-cluster`).
    pub source_cluster: Option<String>,
    /// The names of its ports, with protocol and number, as written.
    pub ports: Vec<(String, Protocol, Option<u16>)>,
    /// The pods behind its addresses.
    pub pods: BTreeMap<IpAddr, PodName>,
    /// Its addresses as written, good or bad.
    pub addresses: Vec<String>,
    /// Whether it carries the headless label.
    pub is_headless: bool,
    /// Whether a label says which Service it belongs to.
    pub has_owner: bool,
}

/// Who keeps the slices of Services with a selector.
pub(crate) const CONTROLLER: &str = "endpointslice-controller.k8s.io";

impl SliceDetails {
    /// Whether its addresses are those that pods' status has. Other keepers list others: those of further networks, or
    /// of something in front of the pod.
    pub(crate) fn is_of_primary_addresses(&self) -> bool {
        let keeper = self.managed_by.as_deref();
        keeper.is_none_or(|keeper| keeper == CONTROLLER)
    }
}

impl Objects {
    /// Takes a document in: an object, or a list of any kind.
    pub fn take(&mut self, document: &Value) {
        let kind = text(document, "/kind");
        if let Some(of) = kind.strip_suffix("List") {
            let items = document.get("items").and_then(Value::as_array);
            for item in items.into_iter().flatten() {
                match text(item, "/kind") {
                    "" => self.take_as(of, item),
                    _ => self.take(item),
                }
            }
            if of == "Pod" {
                self.pods.get_or_insert_default();
            }
            return;
        }
        self.take_as(kind, document);
    }

    fn take_as(&mut self, kind: &str, object: &Value) {
        let namespace: Arc<str> = match text(object, "/metadata/namespace") {
            "" => "default".into(),
            namespace => namespace.into(),
        };
        let name: Arc<str> = text(object, "/metadata/name").into();
        match kind {
            "Service" => {
                let name = ServiceName::new(namespace, name);
                self.services.insert(name, service(object));
            }
            "EndpointSlice" => {
                let details = slice(&namespace, object);
                self.slices.insert(SliceName::new(namespace, name), details);
            }
            "Pod" => {
                let pods = self.pods.get_or_insert_default();
                pods.insert(PodName { namespace, name }, pod::read(object));
            }
            "Endpoints" => {
                let name = ServiceName::new(namespace, name);
                self.endpoints.insert(name, endpoints(object));
            }
            "Node" => {
                self.nodes.insert(name, node::read(object));
            }
            "NetworkPolicy" => {
                self.policies
                    .insert(PodName { namespace, name }, policy::read(object));
            }
            kind => self
                .workloads
                .extend(workload::read(kind, namespace, name, object)),
        }
    }
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn some_text(value: &Value, pointer: &str) -> Option<String> {
    Some(text(value, pointer).to_owned()).filter(|text| !text.is_empty())
}

fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

fn is_true(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool) == Some(true)
}

fn labels(value: &Value, pointer: &str) -> Labels {
    let Some(Value::Object(fields)) = value.pointer(pointer) else {
        return Labels::new();
    };
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    fields
        .iter()
        .map(|(key, value)| (key.clone(), word(value)))
        .collect()
}

fn number(value: &Value, pointer: &str) -> Option<u16> {
    let number = value.pointer(pointer)?.as_u64()?;
    u16::try_from(number).ok().filter(|port| *port != 0)
}

/// A protocol as the API has it: TCP when it is not said.
fn protocol(value: &Value) -> Option<Protocol> {
    match text(value, "/protocol") {
        "" => Some(Protocol::Tcp),
        word => Protocol::ALL
            .into_iter()
            .find(|protocol| protocol.to_string() == word),
    }
}

fn service(object: &Value) -> ServiceDetails {
    let port = |value: &Value| {
        Some(PortDetails {
            name: text(value, "/name").to_owned(),
            protocol: protocol(value)?,
            port: number(value, "/port")?,
            target: match value.get("targetPort") {
                Some(Value::String(name)) if name.parse::<u16>().is_err() => Target::Name(name.clone()),
                Some(Value::String(digits)) => digits.parse().map_or(Target::Same, Target::Number),
                _ => number(value, "/targetPort").map_or(Target::Same, Target::Number),
            },
            node_port: number(value, "/nodePort"),
        })
    };
    let ingress = |value: &Value| Ingress {
        ip: parse_ip(text(value, "/ip")),
        hostname: some_text(value, "/hostname"),
        mode: some_text(value, "/ipMode"),
    };
    let all = labels(object, "/metadata/labels");
    ServiceDetails {
        selector: labels(object, "/spec/selector"),
        ports: list(object, "/spec/ports").iter().filter_map(port).collect(),
        external_name: some_text(object, "/spec/externalName"),
        proxy_name: all.get(model::object::PROXY_NAME_LABEL).cloned(),
        ingress: list(object, "/status/loadBalancer/ingress")
            .iter()
            .map(ingress)
            .collect(),
        asked_ips: asked_ips(object),
        without_node_ports: object.pointer("/spec/allocateLoadBalancerNodePorts")
            == Some(&Value::Bool(false)),
        kind: text(object, "/spec/type").to_owned(),
    }
}

/// Addresses that a load balancer is asked for.
fn asked_ips(object: &Value) -> Vec<IpAddr> {
    let annotations = labels(object, "/metadata/annotations");
    let by_annotation = annotations
        .iter()
        .filter(|(key, _)| key.to_ascii_lowercase().ends_with("/loadbalancerips"))
        .map(|(_, value)| value.as_str());
    let words = by_annotation.chain([text(object, "/spec/loadBalancerIP")]);
    let mut ips: Vec<IpAddr> = words
        .flat_map(|words| words.split(','))
        .filter_map(|word| parse_ip(word.trim()))
        .collect();
    ips.sort();
    ips.dedup();
    ips
}

fn slice(namespace: &str, object: &Value) -> SliceDetails {
    let all = labels(object, "/metadata/labels");
    let port = |value: &Value| {
        let name = text(value, "/name").to_owned();
        Some((name, protocol(value)?, number(value, "/port")))
    };
    let mut details = SliceDetails {
        address_type: text(object, "/addressType").to_owned(),
        managed_by: all.get("endpointslice.kubernetes.io/managed-by").cloned(),
        source_cluster: all.get("multicluster.kubernetes.io/source-cluster").cloned(),
        ports: list(object, "/ports").iter().filter_map(port).collect(),
        is_headless: all.contains_key(HEADLESS_LABEL),
        has_owner: all.get(OWNER_LABEL).is_some_and(|owner| !owner.is_empty()),
        ..SliceDetails::default()
    };
    for endpoint in list(object, "/endpoints") {
        let Some(first) = list(endpoint, "/addresses").first().and_then(Value::as_str) else {
            continue;
        };
        details.addresses.push(first.to_owned());
        if let ("Pod", Some(ip)) = (text(endpoint, "/targetRef/kind"), parse_ip(first)) {
            let of = match text(endpoint, "/targetRef/namespace") {
                "" => namespace,
                other => other,
            };
            let pod = PodName {
                namespace: of.into(),
                name: text(endpoint, "/targetRef/name").into(),
            };
            details.pods.insert(ip, pod);
        }
    }
    details
}

fn endpoints(object: &Value) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for subset in list(object, "/subsets") {
        for address in list(subset, "/addresses") {
            let Some(ip) = parse_ip(text(address, "/ip")) else {
                continue;
            };
            let ports = list(subset, "/ports").iter();
            found
                .extend(ports.filter_map(|port| number(port, "/port").map(|port| SocketAddr::new(ip, port))));
        }
    }
    found.sort();
    found.dedup();
    found
}
