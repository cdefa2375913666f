//! Small objects for tests.

use serde_json::{Value, json};

/// A Service in namespace `default` with one TCP port.
pub fn service(name: &str, cluster_ip: &str) -> Value {
    json!({
        "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterIP": cluster_ip, "ports": [{"name": "p", "port": 80}]},
    })
}

/// An `EndpointSlice` of a Service in namespace `default`, with ready endpoints.
pub fn slice(name: &str, service: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
        .collect();
    json!({
        "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
    })
}

/// A Node with one address.
pub fn node(name: &str, address: &str) -> Value {
    json!({
        "kind": "Node", "metadata": {"name": name},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    })
}

/// A `ServiceCIDR`.
pub fn service_cidr(name: &str, cidr: &str) -> Value {
    json!({"kind": "ServiceCIDR", "metadata": {"name": name}, "spec": {"cidrs": [cidr]}})
}

/// An Event about a Node, as kube-proxy sends it.
pub fn node_event(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "kube-proxy", "reportingInstance": format!("kube-proxy-{node}"),
        "action": "StartKubeProxy", "reason": "Starting", "type": "Normal", "note": "",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": node},
    })
}
