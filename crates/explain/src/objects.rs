//! What explanations need of objects beyond what the proxy reads: selectors, target ports, pods, the pods behind
//! endpoints, Endpoints objects.
//!
//! The proxy itself has no right to read Pods, and its [`model::snapshot::Snapshot`] keeps no selector. Whatever is
//! missing here is left unsaid.

use model::address::parse_ip;
use model::object::{HEADLESS_LABEL, OWNER_LABEL, SliceName};
use model::{Protocol, ServiceName};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Labels or a selector.
pub type Labels = BTreeMap<String, String>;

/// A Pod's namespace and name.
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

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its labels.
    pub labels: Labels,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
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
    /// Named container ports.
    pub ports: Vec<(String, Protocol, u16)>,
    /// Why it is not ready, as its status says: containers that wait or ended, readiness gates; empty when it says nothing.
    pub trouble: Vec<String>,
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
                pods.insert(PodName { namespace, name }, pod(object));
            }
            "Endpoints" => {
                let name = ServiceName::new(namespace, name);
                self.endpoints.insert(name, endpoints(object));
            }
            _ => {}
        }
    }

    /// The Pod that has an address: of the Pods themselves, else of the slices.
    pub fn pod_of(&self, ip: IpAddr) -> Option<PodName> {
        let named = self.pods.iter().flatten();
        let mut by_pod = named.filter(|(_, pod)| !pod.host_network && pod.ips.contains(&ip));
        if let Some((name, _)) = by_pod.next() {
            return Some(name.clone());
        }
        self.slices
            .values()
            .find_map(|slice| slice.pods.get(&ip))
            .cloned()
    }

    /// A Pod.
    pub fn pod(&self, name: &PodName) -> Option<&Pod> {
        self.pods.as_ref()?.get(name)
    }

    /// The addresses of a Pod: of the Pod itself, else of the slices that name it.
    pub fn addresses_of(&self, name: &PodName) -> Vec<IpAddr> {
        if let Some(pod) = self.pod(name).filter(|pod| !pod.ips.is_empty()) {
            return pod.ips.clone();
        }
        let of = self.slices.values().flat_map(|slice| &slice.pods);
        let mut found: Vec<IpAddr> = of.filter(|(_, pod)| *pod == name).map(|(ip, _)| *ip).collect();
        found.sort();
        found.dedup();
        found
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
        without_node_ports: object.pointer("/spec/allocateLoadBalancerNodePorts")
            == Some(&Value::Bool(false)),
        kind: text(object, "/spec/type").to_owned(),
    }
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

fn pod(object: &Value) -> Pod {
    let mut ips: Vec<IpAddr> = list(object, "/status/podIPs")
        .iter()
        .filter_map(|ip| parse_ip(text(ip, "/ip")))
        .collect();
    ips.extend(parse_ip(text(object, "/status/podIP")).filter(|ip| !ips.contains(ip)));
    let conditions = list(object, "/status/conditions");
    let ready = conditions
        .iter()
        .find(|condition| text(condition, "/type") == "Ready");
    let mut ports = Vec::new();
    let containers = list(object, "/spec/containers").iter();
    for container in containers.chain(list(object, "/spec/initContainers")) {
        for port in list(container, "/ports") {
            if let (Some(protocol), Some(number)) = (protocol(port), number(port, "/containerPort")) {
                ports.push((text(port, "/name").to_owned(), protocol, number));
            }
        }
    }
    Pod {
        labels: labels(object, "/metadata/labels"),
        ips,
        node: some_text(object, "/spec/nodeName").map(Arc::from),
        phase: text(object, "/status/phase").to_owned(),
        is_ready: ready.is_some_and(|condition| text(condition, "/status") == "True"),
        is_terminating: !text(object, "/metadata/deletionTimestamp").is_empty(),
        host_network: is_true(object, "/spec/hostNetwork"),
        ports,
        trouble: trouble(object, ready),
    }
}

/// Why a pod is not ready, as its status says.
fn trouble(pod: &Value, ready: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    let statuses = list(pod, "/status/initContainerStatuses").iter();
    for status in statuses.chain(list(pod, "/status/containerStatuses")) {
        let name = text(status, "/name");
        let waiting = text(status, "/state/waiting/reason");
        let ended = text(status, "/state/terminated/reason");
        let never_ready = !is_true(status, "/ready");
        match (waiting, ended) {
            ("", "") if never_ready && status.pointer("/state/running").is_some() => {
                found.push(format!("container {name} runs and its readiness probe fails"));
            }
            ("", "") => {}
            ("", ended) if never_ready && ended != "Completed" => {
                found.push(format!("container {name} ended: {ended}"));
            }
            ("", _) => {}
            (waiting, _) => found.push(format!("container {name} waits: {waiting}")),
        }
    }
    let gates = list(pod, "/spec/readinessGates").iter();
    for gate in gates.map(|gate| text(gate, "/conditionType")) {
        let is_met = list(pod, "/status/conditions")
            .iter()
            .any(|one| text(one, "/type") == gate && text(one, "/status") == "True");
        if !is_met {
            found.push(format!("readiness gate {gate} is not true"));
        }
    }
    let message = ready.map_or("", |ready| text(ready, "/message"));
    if found.is_empty() && !message.is_empty() {
        found.push(message.to_owned());
    }
    found
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
