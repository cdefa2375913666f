//! What makes pods, and how many: Deployments and the like.

use super::{Labels, labels};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// A Deployment, a `StatefulSet` or a `ReplicaSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The labels of its pods.
    pub labels: Labels,
    /// `spec.replicas`, 1 where it is not said.
    pub replicas: u64,
}

/// Kinds that are read. A `DaemonSet` has no number of its own.
pub(super) const KINDS: [&str; 3] = ["Deployment", "StatefulSet", "ReplicaSet"];

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Reads one; old generations of a Deployment are its own business.
pub(super) fn read(kind: &str, namespace: Arc<str>, name: Arc<str>, object: &Value) -> Option<Workload> {
    let is_owned = object.pointer("/metadata/ownerReferences/0").is_some();
    let kind = KINDS.into_iter().find(|one| *one == kind).filter(|_| !is_owned)?;
    Some(Workload {
        kind,
        namespace,
        name,
        labels: labels(object, "/spec/template/metadata/labels"),
        replicas: object
            .pointer("/spec/replicas")
            .and_then(Value::as_u64)
            .unwrap_or(1),
    })
}
