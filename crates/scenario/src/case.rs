//! Objects of broken setups after public reports, seen by a node of the usual addresses.

use crate::error::{ScenarioError, read};
use crate::host;
use model::snapshot::Snapshot;
use model::{Desired, NodeFacts, Note, PerFamily};
use serde_json::{Value, json};
use std::path::Path;

/// The node of every case, its address, and the pods' networks.
const NODE: &str = "node-a";
const ADDRESS: [u8; 4] = [192, 0, 2, 11];
const PODS: &str = "10.244.0.0/16,2001:db8:244::/48";

/// One file of objects in a folder of `scenarios/cases/`.
#[derive(Clone, Debug)]
pub struct Case {
    /// The objects.
    pub snapshot: Snapshot,
    /// What reading them left to say.
    pub notes: Vec<Note>,
    /// What resolving them left to say, each once.
    pub resolved: Vec<Note>,
    /// The node.
    pub facts: NodeFacts,
    /// What traffic should do.
    pub desired: PerFamily<Desired>,
}

impl Case {
    /// All that is said about the objects, a line each.
    pub fn said(&self) -> String {
        let lines = self.notes.iter().chain(&self.resolved).map(ToString::to_string);
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Reads a case's objects; cases need no Node.
///
/// # Errors
/// When the file is missing or malformed.
pub fn read_case(path: &Path) -> Result<Case, ScenarioError> {
    let wrong = |err: &dyn std::fmt::Display| ScenarioError::form(path, err);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&read(path)?).map_err(|err| wrong(&err))?;
    let (snapshot, notes) = host::snapshot(documents);
    let config = host::configuration(&json!({"clusterCIDR": PODS}), NODE).map_err(|err| wrong(&err))?;
    let facts = host::facts(NODE, &snapshot, &config, vec![ADDRESS.into()]);
    let settings = config::settings(&config, &facts);
    let mut resolved = Vec::new();
    let desired = PerFamily::from_fn(|family| {
        let (desired, notes) = Desired::from_snapshot(&snapshot, family, &facts, &settings);
        resolved.extend(notes);
        desired
    });
    resolved.sort();
    resolved.dedup();
    Ok(Case {
        snapshot,
        notes,
        resolved,
        facts,
        desired,
    })
}
