//! One object as one line: a Kubernetes object in JSON, trimmed to what the proxy reads.
//!
//! What is read back goes through the same conversion as what the API server sends, so nothing that is no name, no
//! address and no port gets past it, whatever the file says.

use crate::api::decode_object;
use model::object::{
    AUTOSCALER_TAINT, BALANCING_ANNOTATION, Eligibility, HEADLESS_LABEL, Hints, Kind, Node, OWNER_LABEL,
    Object, PROXY_NAME_LABEL, Service, ServiceCidr, ServiceKind, ServicePort, ServiceSkip, Slice,
    SliceEndpoint, SlicePort, SliceSkip, ZONE_LABEL,
};
use model::{Balancing, Family, Policy, Protocol};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt::Display;
use std::net::IpAddr;

/// How each kind's lines begin.
const BEGINNINGS: [(Kind, &[u8]); 4] = [
    (Kind::Service, b"{\"kind\":\"Service\","),
    (Kind::Slice, b"{\"kind\":\"EndpointSlice\","),
    (Kind::Node, b"{\"kind\":\"Node\","),
    (Kind::ServiceCidr, b"{\"kind\":\"ServiceCIDR\","),
];

/// An object's line, without its end.
pub(super) fn write(object: &Object) -> Vec<u8> {
    let line = match object {
        Object::Service(service) => serde_json::to_vec(&service_line(service)),
        Object::Slice(slice) => serde_json::to_vec(&slice_line(slice)),
        Object::Node(node) => serde_json::to_vec(&node_line(node)),
        Object::ServiceCidr(cidr) => serde_json::to_vec(&cidr_line(cidr)),
    };
    line.expect("invariant: texts and numbers can be written")
}

/// What a line holds; `None` when that is no object of a kind we know.
pub(super) fn read(line: &[u8]) -> Option<Object> {
    let (kind, _) = BEGINNINGS
        .into_iter()
        .find(|(_, beginning)| line.starts_with(beginning))?;
    decode_object(kind, line)
}

/// A field order that begins with the kind.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    kind: &'static str,
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    spec: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    status: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address_type: Option<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    ports: Vec<PortLine<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    endpoints: Vec<Endpoint<'a>>,
}

impl Line<'_> {
    fn new(kind: &'static str, namespace: Option<&str>, name: &str) -> Self {
        let mut metadata = Map::new();
        if let Some(namespace) = namespace {
            metadata.insert("namespace".into(), namespace.into());
        }
        metadata.insert("name".into(), name.into());
        Line {
            kind,
            metadata,
            spec: Map::new(),
            status: Map::new(),
            address_type: None,
            ports: Vec::new(),
            endpoints: Vec::new(),
        }
    }
}

/// A port of a Service or a slice; TCP is not said.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PortLine<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_port: Option<u16>,
}

/// There are 100,000 of these, so what is usual is not said.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint<'a> {
    addresses: [IpAddr; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<Conditions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hints: Option<Value>,
}

#[derive(Serialize)]
struct Conditions {
    ready: bool,
    serving: bool,
    terminating: bool,
}

fn service_line(service: &Service) -> Line<'_> {
    let mut line = Line::new("Service", Some(&service.name.namespace), &service.name.name);
    if let Some(created) = service.created.seconds().and_then(rfc3339) {
        line.metadata.insert("creationTimestamp".into(), created.into());
    }
    if service.skipped == Some(ServiceSkip::OtherProxy) {
        line.metadata
            .insert("labels".into(), json!({ PROXY_NAME_LABEL: "" }));
    }
    if service.balancing == Balancing::ClientHash {
        line.metadata.insert(
            "annotations".into(),
            json!({ BALANCING_ANNOTATION: "client-hash" }),
        );
    }
    let spec = &mut line.spec;
    let mut put = |field: &str, value: Value| drop(spec.insert(field.to_owned(), value));
    match service.kind {
        ServiceKind::ClusterIp => {}
        ServiceKind::NodePort => put("type", "NodePort".into()),
        ServiceKind::LoadBalancer => put("type", "LoadBalancer".into()),
        ServiceKind::ExternalName => put("type", "ExternalName".into()),
    }
    if service.skipped == Some(ServiceSkip::Headless) {
        put("clusterIP", "None".into());
    }
    put_addresses(service, &mut put);
    if let Some(affinity) = service.affinity {
        put("sessionAffinity", "ClientIP".into());
        let seconds = affinity.timeout_seconds;
        put(
            "sessionAffinityConfig",
            json!({"clientIP": {"timeoutSeconds": seconds}}),
        );
    }
    for (field, policy) in [
        ("internalTrafficPolicy", service.internal),
        ("externalTrafficPolicy", service.external),
    ] {
        if policy == Policy::Local {
            put(field, "Local".into());
        }
    }
    if let Some(port) = service.health_check_node_port {
        put("healthCheckNodePort", port.into());
    }
    if service.publish_not_ready {
        put("publishNotReadyAddresses", true.into());
    }
    let ports: Vec<PortLine<'_>> = service.ports.iter().map(service_port).collect();
    put("ports", json!(ports));
    if !service.load_balancer_ips.is_empty() {
        let ingress: Vec<Value> = service
            .load_balancer_ips
            .iter()
            .map(|ip| json!({ "ip": ip }))
            .collect();
        line.status
            .insert("loadBalancer".into(), json!({ "ingress": ingress }));
    }
    line
}

fn put_addresses(service: &Service, put: &mut impl FnMut(&str, Value)) {
    let cluster_ips: Vec<IpAddr> = Family::ALL
        .into_iter()
        .filter_map(|family| *service.cluster_ips.get(family))
        .collect();
    if !cluster_ips.is_empty() {
        put("clusterIPs", json!(cluster_ips));
    }
    if !service.external_ips.is_empty() {
        put("externalIPs", json!(service.external_ips));
    } else if service.kind == ServiceKind::ClusterIp && service.external == Policy::Local {
        // Its external IPs were all of no use, and the policy counts because there were some.
        put("externalIPs", json!([""]));
    }
    if !service.source_ranges.is_empty() {
        put("loadBalancerSourceRanges", texts(&service.source_ranges));
    }
}

fn service_port(port: &ServicePort) -> PortLine<'_> {
    PortLine {
        name: &port.name,
        protocol: protocol(port.protocol),
        port: port.port,
        node_port: port.node_port,
    }
}

fn slice_line(slice: &Slice) -> Line<'_> {
    let mut line = Line::new("EndpointSlice", Some(&slice.name.namespace), &slice.name.name);
    let mut labels = Map::new();
    if let Some(service) = &slice.service {
        labels.insert(OWNER_LABEL.to_owned(), (*service.name).into());
    }
    if slice.skipped == Some(SliceSkip::Headless) {
        labels.insert(HEADLESS_LABEL.to_owned(), "".into());
    }
    if !labels.is_empty() {
        line.metadata.insert("labels".into(), labels.into());
    }
    line.address_type = Some(match slice.family {
        Some(Family::V4) => "IPv4",
        Some(Family::V6) => "IPv6",
        None => "FQDN",
    });
    line.ports = slice.ports.iter().map(slice_port).collect();
    line.endpoints = slice.endpoints.iter().map(endpoint).collect();
    line
}

fn slice_port(port: &SlicePort) -> PortLine<'_> {
    PortLine {
        name: &port.name,
        protocol: protocol(port.protocol),
        port: port.port,
        node_port: None,
    }
}

fn endpoint(endpoint: &SliceEndpoint) -> Endpoint<'_> {
    let state = endpoint.conditions;
    let is_usual = state.ready && state.serving && !state.terminating;
    Endpoint {
        addresses: [endpoint.ip],
        conditions: (!is_usual).then_some(Conditions {
            ready: state.ready,
            serving: state.serving,
            terminating: state.terminating,
        }),
        node_name: endpoint.node.as_deref(),
        hints: endpoint.hints.as_deref().map(hints),
    }
}

fn hints(hints: &Hints) -> Value {
    let named = |names: &[std::sync::Arc<str>]| -> Vec<Value> {
        names.iter().map(|name| json!({ "name": **name })).collect()
    };
    json!({"forZones": named(&hints.zones), "forNodes": named(&hints.nodes)})
}

fn node_line(node: &Node) -> Line<'_> {
    let mut line = Line::new("Node", None, &node.name);
    if let Some(zone) = &node.zone {
        line.metadata
            .insert("labels".into(), json!({ ZONE_LABEL: **zone }));
    }
    match node.eligibility {
        Eligibility::Eligible => {}
        // Only that there is a time counts.
        Eligibility::Deleting => {
            line.metadata
                .insert("deletionTimestamp".into(), "1970-01-01T00:00:00Z".into());
        }
        Eligibility::ToBeDeleted => {
            line.spec
                .insert("taints".into(), json!([{"key": AUTOSCALER_TAINT}]));
        }
    }
    line.spec.insert("podCIDRs".into(), texts(&node.pod_cidrs));
    let addresses: Vec<Value> = node
        .addresses
        .iter()
        .map(|ip| json!({"type": "InternalIP", "address": ip}))
        .collect();
    line.status.insert("addresses".into(), addresses.into());
    line
}

fn cidr_line(cidr: &ServiceCidr) -> Line<'_> {
    let mut line = Line::new("ServiceCIDR", None, &cidr.name);
    line.spec.insert("cidrs".into(), texts(&cidr.cidrs));
    line
}

fn texts(items: &[impl Display]) -> Value {
    items.iter().map(|item| Value::from(item.to_string())).collect()
}

fn protocol(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Tcp => None,
        Protocol::Udp => Some("UDP"),
        Protocol::Sctp => Some("SCTP"),
    }
}

fn rfc3339(seconds: i64) -> Option<String> {
    Some(jiff::Timestamp::from_second(seconds).ok()?.to_string())
}

#[cfg(test)]
mod tests;
