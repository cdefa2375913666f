//! Objects, a node and a configuration, put together.

use config::KubeProxyConfiguration;
use ipnet::IpNet;
use model::object;
use model::snapshot::{Change, Snapshot};
use model::{Desired, Family, NodeFacts, Note, PerFamily, Settings};
use serde_json::Value;
use std::net::IpAddr;

/// A configuration file's text out of the parts that differ from the default.
pub(crate) fn configuration(parts: &Value, node_name: &str) -> Result<KubeProxyConfiguration, String> {
    let mut parts = match parts {
        Value::Null => serde_json::Map::new(),
        Value::Object(parts) => parts.clone(),
        other => return Err(format!("config: {other} is no object")),
    };
    parts.insert("apiVersion".into(), "kubeproxy.config.k8s.io/v1alpha1".into());
    parts.insert("kind".into(), "KubeProxyConfiguration".into());
    parts.insert("hostnameOverride".into(), node_name.into());
    let decoded =
        config::decode(&Value::Object(parts).to_string()).map_err(|err| format!("config: {err}"))?;
    if let Some(field) = decoded.unknown_fields.first() {
        return Err(format!("config: {field}: unknown field"));
    }
    let errors = config::validate(&decoded.config);
    match errors.first() {
        Some(err) => Err(format!("config: {err}")),
        None => Ok(decoded.config),
    }
}

/// Addresses with their networks.
pub(crate) fn nets(texts: &[String]) -> Result<Vec<IpNet>, String> {
    texts.iter().map(|text| net(text)).collect()
}

/// An address with its network.
pub(crate) fn net(text: &str) -> Result<IpNet, String> {
    text.parse()
        .map_err(|_| format!("{text}: no address with network"))
}

/// A snapshot of decoded objects, and the notes.
pub(crate) fn snapshot(documents: Vec<Value>) -> (Snapshot, Vec<Note>) {
    let mut snapshot = Snapshot::new();
    let mut notes = Vec::new();
    for document in documents {
        let decoded = object::decode(document);
        notes.extend(decoded.notes);
        for object in decoded.objects {
            snapshot.apply(Change::Apply(object));
        }
    }
    (snapshot, notes)
}

/// Facts of the node `name`: what its Node object says, what the configuration adds, and what its interfaces hold.
pub(crate) fn facts(
    name: &str,
    snapshot: &Snapshot,
    config: &KubeProxyConfiguration,
    mut interface_addresses: Vec<IpAddr>,
) -> NodeFacts {
    interface_addresses.extend([
        IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
    ]);
    interface_addresses.sort();
    interface_addresses.dedup();
    config::facts(config, name, snapshot, interface_addresses)
}

/// Both families' intent.
pub(crate) fn desired(snapshot: &Snapshot, facts: &NodeFacts, settings: &Settings) -> PerFamily<Desired> {
    PerFamily::from_fn(|family: Family| Desired::from_snapshot(snapshot, family, facts, settings).0)
}
