//! A small cluster as `kubectl get -o yaml` shows it, without what it needs not have: Nodes without podCIDR, no Pods.

use explain::{Explanation, HostFacts, Parts, Question, Reach, assemble, explain};
use serde_json::{Value, json};

pub fn node(name: &str, address: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}})
}

/// A Service of the port 80, with what its spec and status have beside.
pub fn service(name: &str, ip: &str, spec: &Value, ingress: &Value) -> Value {
    let mut all = json!({"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "selector": {"app": name},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    json!({"kind": "Service", "metadata": {"name": name, "namespace": "shop"}, "spec": all,
        "status": {"loadBalancer": {"ingress": ingress}}})
}

/// Its slice, with ready endpoints on node-a.
pub fn slice(service: &str, addresses: &[&str]) -> Value {
    let endpoint =
        |ip: &&str| json!({"addresses": [ip], "conditions": {"ready": true}, "nodeName": "node-a"});
    json!({"kind": "EndpointSlice", "metadata": {"name": format!("{service}-x"), "namespace": "shop",
        "labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>()})
}

/// The port 80 with a node port.
pub fn with_node_port(number: u16) -> Value {
    json!({"type": "NodePort", "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": number}]})
}

/// What is asked of these objects, on a host of which these facts are known.
pub fn ask_on(documents: &[Value], facts: &Value, from: &str, to: &str) -> Explanation {
    ask_as(documents, facts, from, to, None)
}

/// The same of a packet that comes in through an interface, when one is named.
pub fn ask_as(
    documents: &[Value],
    facts: &Value,
    from: &str,
    to: &str,
    in_interface: Option<&str>,
) -> Explanation {
    let question = Question {
        from: from.parse().expect("a sender"),
        to: to.parse().expect("a destination"),
        protocol: None,
        in_interface: in_interface.map(Into::into),
    };
    let parts = Parts {
        documents: documents.to_vec(),
        facts: HostFacts::read(facts).expect("good facts"),
        ..Parts::default()
    };
    explain(&assemble(parts, &question).expect("good parts"), &question)
}

pub fn ask(documents: &[Value], from: &str, to: &str) -> Explanation {
    ask_on(documents, &json!({}), from, to)
}

/// The kind of the first finding that is more than a remark.
pub fn cause(answer: &Explanation) -> &'static str {
    let mut found = answer.findings.iter();
    let first = found.find(|finding| finding.severity > explain::Severity::Remark);
    first.map_or("", |finding| finding.cause.as_str())
}

/// The answer and its first cause are these.
#[track_caller]
pub fn says(answer: &Explanation, reach: Reach, first: &str) {
    assert_eq!((answer.reach, cause(answer)), (reach, first), "{}", told(answer));
}

/// The screen, in one line and without styles.
pub fn told(answer: &Explanation) -> String {
    let screen = explain::screen::text(answer, 80);
    let mut parts = screen.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    plain.extend(parts.map(|part| part.split_once('m').map_or(part, |(_, rest)| rest)));
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}
