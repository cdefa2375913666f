//! Golden cases: clusters as a real API server returned them, and what upstream wrote into the kernel for them.

use crate::error::{ScenarioError, read, stem};
use crate::host;
use config::KubeProxyConfiguration;
use ipnet::IpNet;
use model::snapshot::Snapshot;
use model::{Desired, NodeFacts, Note, PerFamily, Settings};
use serde::Deserialize;
use serde_json::Value;
use std::net::IpAddr;
use std::path::Path;

/// The node of every golden case.
const NODE: &str = "node-a";

/// One golden case.
#[derive(Clone, Debug)]
pub struct GoldenCase {
    /// The folder's name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Addresses of the node's first interface.
    pub addresses: Vec<IpNet>,
    /// Its further interfaces, by name, each with an address.
    pub interfaces: Vec<(String, IpNet)>,
    /// The configuration.
    pub config: KubeProxyConfiguration,
    /// The objects as found.
    pub cluster: Value,
    /// The objects.
    pub snapshot: Snapshot,
    /// What was left out of the objects.
    pub notes: Vec<Note>,
    /// The node.
    pub facts: NodeFacts,
    /// The settings.
    pub settings: Settings,
    /// What traffic should do.
    pub desired: PerFamily<Desired>,
    /// Upstream's rules of each family, as `iptables-save` and `ip6tables-save` print them.
    pub saved: PerFamily<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    interfaces: Vec<(String, String)>,
    #[serde(default)]
    config: Value,
}

/// Reads one golden case.
///
/// # Errors
/// When a file is missing or malformed.
pub fn read_golden_case(folder: &Path) -> Result<GoldenCase, ScenarioError> {
    let node_path = folder.join("node.yaml");
    let text = read(&node_path)?;
    let node: NodeFile =
        serde_saphyr::from_str(&text).map_err(|err| ScenarioError::form(&node_path, &err))?;
    let config =
        host::configuration(&node.config, NODE).map_err(|err| ScenarioError::form(&node_path, &err))?;
    let cluster_path = folder.join("cluster.json");
    let cluster: Value = serde_json::from_str(&read(&cluster_path)?)
        .map_err(|err| ScenarioError::form(&cluster_path, &err))?;
    let (snapshot, notes) = host::snapshot(vec![cluster.clone()]);
    let addresses = host::nets(&node.addresses).map_err(|err| ScenarioError::form(&node_path, &err))?;
    let interfaces: Result<Vec<(String, IpNet)>, String> = node
        .interfaces
        .into_iter()
        .map(|(name, text)| Ok((name, host::net(&text)?)))
        .collect();
    let interfaces = interfaces.map_err(|err| ScenarioError::form(&node_path, &err))?;
    let nets = addresses.iter().chain(interfaces.iter().map(|(_, net)| net));
    let interface_addresses: Vec<IpAddr> = nets.map(IpNet::addr).collect();
    let facts = host::facts(NODE, &snapshot, &config, interface_addresses);
    let settings = config::settings(&config, &facts);
    Ok(GoldenCase {
        name: stem(folder),
        title: text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches(['#', ' '])
            .to_owned(),
        addresses,
        interfaces,
        config,
        cluster,
        desired: host::desired(&snapshot, &facts, &settings),
        snapshot,
        notes,
        facts,
        settings,
        saved: PerFamily {
            v4: read(&folder.join("iptables.txt"))?,
            v6: read(&folder.join("ip6tables.txt"))?,
        },
    })
}
