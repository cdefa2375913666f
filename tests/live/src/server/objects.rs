//! Objects as one posts them to a server: it gives addresses and ports itself.

use serde_json::{Value, json};

/// A Node, whose addresses are patched into its status.
pub fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

/// A service of both families with TCP port 80 to 8080, with these parts in its spec.
///
/// # Panics
/// When the parts are no object.
pub fn service(name: &str, parts: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"ipFamilyPolicy": "PreferDualStack",
                 "ports": [{"name": "p", "protocol": "TCP", "port": 80, "targetPort": 8080}]},
    });
    for (field, value) in parts.as_object().expect("parts are an object") {
        object["spec"][field] = value.clone();
    }
    object
}

/// A slice of a service: `NAME-v4` or `NAME-v6`.
pub struct Slice<'a> {
    /// The service.
    pub service: &'a str,
    /// `IPv4` or `IPv6`.
    pub family: &'a str,
    /// Ports, as the object has them.
    pub ports: Value,
    /// Endpoints, as the object has them.
    pub endpoints: Vec<Value>,
}

impl Slice<'_> {
    /// Its name.
    pub fn name(&self) -> String {
        format!("{}-{}", self.service, self.family.trim_start_matches("IP"))
    }

    /// The object.
    pub fn object(&self) -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "default", "name": self.name(),
                         "labels": {"kubernetes.io/service-name": self.service}},
            "addressType": self.family, "ports": self.ports, "endpoints": self.endpoints,
        })
    }

    /// With `count` ready endpoints on port 8080, the first of them on `node`.
    pub fn ready<'a>(service: &'a str, family: &'a str, count: usize, node: &str) -> Slice<'a> {
        let endpoint = |index: usize| {
            let address = match family {
                "IPv4" => format!("10.244.1.{}", index + 1),
                _ => format!("fd00:10:244::{:x}", index + 1),
            };
            let node = if index == 0 { node } else { "elsewhere" };
            json!({"addresses": [address], "nodeName": node})
        };
        Slice {
            service,
            family,
            ports: json!([{"name": "p", "protocol": "TCP", "port": 8080}]),
            endpoints: (0..count).map(endpoint).collect(),
        }
    }
}
