//! A world out of what people have at hand: documents, a configuration, facts, saved rules.

use crate::causes::listed;
use crate::facts::HostFacts;
use crate::objects::Objects;
use crate::question::{From, Question};
use crate::world::{AddressesFrom, Mode, NodeChoice, NodePortsConfig, PodsTold, Rules, World};
use config::KubeProxyConfiguration;
use iptables::ast::{Ports, Ruleset};
use iptables::build::{BuildContext, Capabilities, EndpointComments, InvalidPackets, Nfacct, ruleset};
use model::crossing::ListedEndpoints;
use model::object;
use model::snapshot::{Change, Snapshot};
use model::{Desired, Family, NodeFacts, NodePortAddresses, Note, PerFamily, Settings};
use nftables::listed;
use path::{Host, LocalAddresses};
use serde_json::Value;
use std::net::IpAddr;

/// What people have at hand.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Objects, lists of them included.
    pub documents: Vec<Value>,
    /// The proxy's configuration; without it, the defaults and what [`HostFacts::config`] says.
    pub config: Option<KubeProxyConfiguration>,
    /// The mode, when it was said apart from the configuration.
    pub mode: Option<Mode>,
    /// The pods' networks, when they were said apart from the configuration.
    pub cluster_cidr: Option<String>,
    /// The node that is meant, when it was said.
    pub node: Option<String>,
    /// What is known of the host.
    pub facts: HostFacts,
    /// Addresses of the node, beside those of its Node object and of the facts.
    pub addresses: Vec<IpAddr>,
    /// The host's saved rules; `None` for a family whose rules nobody saved.
    pub saved: PerFamily<Option<Ruleset>>,
    /// The host's tables of nftables; `None` when nobody saved them. Those that iptables made may be among them.
    pub native: Option<listed::Ruleset>,
}

/// What a host has that lacks nothing.
const CAPABILITIES: Capabilities = Capabilities {
    masquerade_ports: Ports::RandomFully,
    nfacct: Nfacct::Present,
};

/// Puts a world together, as the node sees it whose rules the question is about.
///
/// # Errors
/// When the configuration in the facts cannot be used: says which field and why. When a node was named that is none of the
/// Nodes: says which there are.
pub fn assemble(parts: Parts, question: &Question) -> Result<World, String> {
    let said = parts.node.clone();
    let world = put_together(parts, Some(question))?;
    let asked = match &question.from {
        From::NamedNode(name) => Some(name.to_string()),
        _ => None,
    };
    said.into_iter()
        .chain(asked)
        .try_for_each(|name| is_a_node(&world.snapshot, &name))?;
    Ok(world)
}

/// A name that somebody gave is of one of the Nodes, when any is known.
fn is_a_node(snapshot: &Snapshot, name: &str) -> Result<(), String> {
    let mut nodes: Vec<&str> = snapshot.nodes().map(|node| &*node.name).collect();
    if nodes.is_empty() || nodes.contains(&name) {
        return Ok(());
    }
    nodes.sort_unstable();
    Err(format!(
        "there is no Node {name}; the Nodes are: {}",
        listed(&nodes, 10)
    ))
}

/// Puts a world together, as the node sees it that the parts name: where nobody asks about a packet.
///
/// # Errors
/// As of [`assemble`].
pub fn assemble_host(parts: Parts) -> Result<World, String> {
    put_together(parts, None)
}

fn put_together(mut parts: Parts, question: Option<&Question>) -> Result<World, String> {
    let (config, pods_told) = configured(&mut parts)?;
    let (snapshot, objects, notes) = read(std::mem::take(&mut parts.documents));
    let asked = question.and_then(|question| question.node(&snapshot, &objects));
    let asked = asked.map(|name| name.to_string());
    // Saved rules are of the host that the facts are of, wherever the sender is.
    let is_saved = parts.saved.v4.is_some() || parts.saved.v6.is_some() || parts.native.is_some();
    let of_rules = parts.facts.hostname.clone().filter(|_| is_saved);
    let (name, node_choice) = match parts.node.take().or(of_rules).or(asked) {
        Some(name) => (name, NodeChoice::Asked),
        None => likely_node(&snapshot, &config, &parts.facts),
    };
    let addresses_from = if parts.addresses.is_empty() && parts.facts.addresses().is_empty() {
        AddressesFrom::Node
    } else {
        AddressesFrom::Interfaces
    };
    let facts = facts(&config, &name, &snapshot, &parts.facts, parts.addresses);
    let settings = config::settings(&config, &facts);
    let (desired, notes) = resolved(&snapshot, &facts, &settings, notes);
    let mut world = World {
        snapshot,
        objects,
        notes,
        facts,
        node_choice,
        addresses_from,
        node_ports: NodePortsConfig {
            addresses: config.node_port_addresses.clone().unwrap_or_default(),
            localhost: settings.localhost_node_ports_wanted,
        },
        pods_told,
        desired,
        mode: mode(&config.mode),
        configured_mode: config.mode,
        host: Host::default(),
        rules: Rules::None,
        host_facts: parts.facts,
    };
    give_rules(&mut world, parts.saved, parts.native);
    Ok(world)
}

/// The configuration that holds: the one that was given, else the facts', else the cluster's own, else the defaults; with what
/// was said apart. And whether anybody told of pods' networks.
fn configured(parts: &mut Parts) -> Result<(KubeProxyConfiguration, PodsTold), String> {
    let given = match parts.config.take() {
        Some(config) => Some(config),
        None if parts.facts.config.is_null() => of_cluster(&parts.documents)?,
        None => Some(configuration(&parts.facts.config)?),
    };
    let pods_told = if given.is_some() || parts.cluster_cidr.is_some() {
        PodsTold::Yes
    } else {
        PodsTold::No
    };
    let mut config = given.unwrap_or_else(KubeProxyConfiguration::defaults);
    config.mode = parts.mode.map_or(config.mode, |mode| mode.to_string());
    // Some defaults follow the mode.
    config.fill_linux_defaults();
    config.cluster_cidr = parts.cluster_cidr.take().unwrap_or(config.cluster_cidr);
    Ok((config, pods_told))
}

/// What traffic should do, with the notes there were before and those that this adds.
fn resolved(
    snapshot: &Snapshot,
    facts: &NodeFacts,
    settings: &Settings,
    mut notes: Vec<Note>,
) -> (PerFamily<Desired>, Vec<Note>) {
    let desired = PerFamily::from_fn(|family| {
        let (desired, new) = Desired::from_snapshot(snapshot, family, facts, settings);
        notes.extend(new);
        desired
    });
    notes.sort();
    notes.dedup();
    (desired, notes)
}

/// A world as a running proxy has it: with nothing of objects but what the proxy itself reads, and its own rules.
pub fn assemble_running(
    snapshot: Snapshot,
    facts: NodeFacts,
    settings: &Settings,
    configured_mode: &str,
) -> World {
    let (desired, notes) = resolved(&snapshot, &facts, settings, Vec::new());
    let mut world = World {
        snapshot,
        objects: Objects::default(),
        notes,
        facts,
        node_choice: NodeChoice::Asked,
        addresses_from: AddressesFrom::Interfaces,
        node_ports: node_ports(settings),
        pods_told: PodsTold::Yes,
        desired,
        mode: mode(configured_mode),
        configured_mode: configured_mode.to_owned(),
        host: Host::default(),
        rules: Rules::None,
        host_facts: HostFacts::default(),
    };
    give_rules(&mut world, PerFamily::default(), None);
    world
}

/// What a running proxy goes by: words of its configuration are not kept there, the networks that they mean are. Only
/// `primary` means no address of a family.
fn node_ports(settings: &Settings) -> NodePortsConfig {
    let of = |family: Family| settings.node_port_addresses.get(family);
    let is_primary = Family::ALL
        .into_iter()
        .any(|family| *of(family) == NodePortAddresses::Nowhere);
    let nets = Family::ALL.into_iter().flat_map(|family| match of(family) {
        NodePortAddresses::In(nets) => nets.as_slice(),
        NodePortAddresses::All | NodePortAddresses::Nowhere => &[],
    });
    NodePortsConfig {
        addresses: if is_primary {
            vec!["primary".to_owned()]
        } else {
            nets.map(ToString::to_string).collect()
        },
        localhost: settings.localhost_node_ports_wanted,
    }
}

fn mode(configured: &str) -> Mode {
    match configured {
        "nftables" => Mode::Nftables,
        _ => Mode::Iptables,
    }
}

fn read(documents: Vec<Value>) -> (Snapshot, Objects, Vec<Note>) {
    let mut snapshot = Snapshot::new();
    let mut objects = Objects::default();
    let mut notes = Vec::new();
    for document in documents {
        objects.take(&document);
        let decoded = object::decode(document);
        notes.extend(decoded.notes);
        for object in decoded.objects {
            snapshot.apply(Change::Apply(object));
        }
    }
    (snapshot, objects, notes)
}

/// The node, when nobody said which: the configuration's, the host's own name, else the first Node there is.
fn likely_node(
    snapshot: &Snapshot,
    config: &KubeProxyConfiguration,
    host: &HostFacts,
) -> (String, NodeChoice) {
    let configured = Some(config.hostname_override.clone()).filter(|name| !name.is_empty());
    if let Some(said) = configured.or_else(|| host.hostname.clone()) {
        return (said, NodeChoice::Asked);
    }
    let mut nodes = snapshot.nodes();
    let first = nodes
        .next()
        .map_or_else(String::new, |node| node.name.to_string());
    let choice = match nodes.next() {
        Some(_) => NodeChoice::OneOfSeveral,
        None => NodeChoice::Asked,
    };
    (first, choice)
}

fn facts(
    config: &KubeProxyConfiguration,
    name: &str,
    snapshot: &Snapshot,
    host: &HostFacts,
    mut own: Vec<IpAddr>,
) -> NodeFacts {
    own.extend(host.addresses());
    if own.is_empty() {
        own.extend(
            snapshot
                .node(name)
                .iter()
                .flat_map(|node| node.addresses.iter().copied()),
        );
    }
    own.extend([
        IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
    ]);
    own.sort();
    own.dedup();
    config::facts(config, name, snapshot, own)
}

/// The host's rules: those that were saved, else those that the objects ask for.
fn give_rules(world: &mut World, saved: PerFamily<Option<Ruleset>>, native: Option<listed::Ruleset>) {
    let mut host = Host {
        addresses: LocalAddresses::Known(world.facts.interface_addresses.iter().copied().collect()),
        ..Host::default()
    };
    let is_observed = saved.v4.is_some() || saved.v6.is_some() || native.is_some();
    if world.addresses_are_unknown() {
        host.addresses = LocalAddresses::Unknown;
    }
    world.host_facts.tell(&mut host);
    if is_observed {
        host.rules = PerFamily {
            v4: saved.v4.unwrap_or_default(),
            v6: saved.v6.unwrap_or_default(),
        };
        host.native = native.unwrap_or_default();
        world.rules = Rules::Observed;
    } else if world.mode == Mode::Iptables {
        host.rules = PerFamily::from_fn(|family| rendered(world.desired.get(family)));
        world.rules = Rules::Rendered;
    }
    world.host = host;
}

fn rendered(desired: &Desired) -> Ruleset {
    let context = BuildContext {
        capabilities: CAPABILITIES,
        endpoint_comments: EndpointComments::for_cluster(&ListedEndpoints::of(desired)),
        invalid: InvalidPackets::Dropped,
    };
    ruleset(desired, &context)
}

/// The configuration that a cluster made by kubeadm keeps for its kube-proxies, when it is among the objects.
fn of_cluster(documents: &[Value]) -> Result<Option<KubeProxyConfiguration>, String> {
    let text =
        |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let is_it = |object: &&Value| {
        text(object, "/kind").as_deref() == Some("ConfigMap")
            && text(object, "/metadata/namespace").as_deref() == Some("kube-system")
            && text(object, "/metadata/name").as_deref() == Some("kube-proxy")
    };
    let lists = documents
        .iter()
        .filter_map(|list| list.get("items")?.as_array())
        .flatten();
    let found = documents.iter().chain(lists).find(is_it);
    let Some(written) = found.and_then(|object| text(object, "/data/config.conf")) else {
        return Ok(None);
    };
    let decoded =
        config::decode(&written).map_err(|err| format!("ConfigMap kube-system/kube-proxy: {err}"))?;
    Ok(Some(decoded.config))
}

/// A configuration out of the parts that differ from the default.
fn configuration(parts: &Value) -> Result<KubeProxyConfiguration, String> {
    let mut fields = match parts {
        Value::Null => return Ok(KubeProxyConfiguration::defaults()),
        Value::Object(fields) => fields.clone(),
        other => return Err(format!("config: {other} is no map of configuration fields")),
    };
    fields.insert("apiVersion".into(), "kubeproxy.config.k8s.io/v1alpha1".into());
    fields.insert("kind".into(), "KubeProxyConfiguration".into());
    let decoded =
        config::decode(&Value::Object(fields).to_string()).map_err(|err| format!("config: {err}"))?;
    if let Some(field) = decoded.unknown_fields.first() {
        return Err(format!("config: {field}: there is no such field"));
    }
    match config::validate(&decoded.config).first() {
        Some(err) => Err(format!("config: {err}")),
        None => Ok(decoded.config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_proxys_node_port_addresses_are_told_by_what_they_mean() {
        let told = |configured: &[&str], node_ip: &str| {
            let mut config = KubeProxyConfiguration::defaults();
            config.node_port_addresses = Some(configured.iter().map(|text| (*text).to_owned()).collect());
            let mut node = NodeFacts::default();
            node.node_ips.v4 = Some(node_ip.parse().expect("an address"));
            node_ports(&config::settings(&config, &node)).addresses
        };
        assert_eq!(told(&[], "192.0.2.11"), [""; 0]);
        assert_eq!(
            told(&["192.0.2.0/24", "2001:db8::/64"], "192.0.2.11"),
            ["192.0.2.0/24", "2001:db8::/64"]
        );
        // The node has no IPv6 address, so that family serves none.
        assert_eq!(told(&["primary"], "192.0.2.11"), ["primary"]);
    }
}
