//! Transitions: a small cluster before and after a change.

use crate::error::{ScenarioError, read, stem};
use crate::host;
use model::snapshot::Snapshot;
use model::{NodeFacts, Settings};
use serde_json::Value;
use std::path::Path;

/// The node of every transition.
const NODE: &str = "node-a";

/// One folder of `scenarios/transitions/`.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The folder's name.
    pub name: String,
    /// What happens: the comment that `after.yaml` begins with.
    pub title: String,
    /// The objects before.
    pub before: Snapshot,
    /// The objects after.
    pub after: Snapshot,
    /// The node, as its object before says it.
    pub facts: NodeFacts,
    /// The settings.
    pub settings: Settings,
}

/// Reads one transition.
///
/// # Errors
/// When a file is missing or malformed, or when something was left out of an object.
pub fn read_transition(folder: &Path) -> Result<Transition, ScenarioError> {
    let (before, _) = objects(&folder.join("before.yaml"))?;
    let (after, text) = objects(&folder.join("after.yaml"))?;
    let parts = serde_json::json!({"clusterCIDR": "10.244.0.0/16"});
    let config = host::configuration(&parts, NODE).map_err(|err| ScenarioError::form(folder, &err))?;
    let addresses = before
        .node(NODE)
        .map(|node| node.addresses.to_vec())
        .ok_or_else(|| ScenarioError::form(folder, &"before.yaml has no Node node-a"))?;
    let facts = host::facts(NODE, &before, &config, addresses);
    Ok(Transition {
        name: stem(folder),
        title: text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches(['#', ' '])
            .to_owned(),
        before,
        after,
        settings: config::settings(&config, &facts),
        facts,
    })
}

/// The objects of a file, which is one `List`, and its text.
fn objects(path: &Path) -> Result<(Snapshot, String), ScenarioError> {
    let text = read(path)?;
    let list: Value = serde_saphyr::from_str(&text).map_err(|err| ScenarioError::form(path, &err))?;
    let (snapshot, notes) = host::snapshot(vec![list]);
    match notes.first() {
        Some(note) => Err(ScenarioError::form(path, note)),
        None => Ok((snapshot, text)),
    }
}
