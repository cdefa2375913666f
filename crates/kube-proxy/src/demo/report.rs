//! What came of a request: prediction and observation side by side. Printed as text or as JSON.

use iptables::ast::{ChainName, TableName};
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use std::fmt;

/// A rule met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The table.
    pub table: TableName,
    /// The chain.
    pub chain: ChainName,
    /// The rule's number in it, from 1.
    pub rule: u32,
    /// The rule as `iptables-save` prints it.
    pub text: String,
    /// The rule in a few words.
    pub what: String,
}

impl Step {
    /// Whether it is the same rule at the same place.
    pub fn is_same(&self, other: &Step) -> bool {
        (self.table, &self.chain, self.rule, &self.text)
            == (other.table, &other.chain, other.rule, &other.text)
    }
}

/// `nat:KUBE-SERVICES 2`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} {}", self.table, self.chain, self.rule)
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Step", 4)?;
        out.serialize_field("table", self.table.as_str())?;
        out.serialize_field("chain", self.chain.as_str())?;
        out.serialize_field("rule", &self.rule)?;
        out.serialize_field("text", &self.text)?;
        out.end()
    }
}

/// A line of the table: what was predicted, what was observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// By `trace`.
    pub predicted: Option<Step>,
    /// In the kernel.
    pub observed: Option<Step>,
}

impl Row {
    /// Whether both sides are the same.
    pub fn agrees(&self) -> bool {
        match (&self.predicted, &self.observed) {
            (Some(one), Some(other)) => one.is_same(other),
            _ => false,
        }
    }
}

/// Puts two lists of steps side by side, so that as many as possible stand beside their like.
pub fn side_by_side(predicted: Vec<Step>, observed: Vec<Step>) -> Vec<Row> {
    let pairs = common(&predicted, &observed);
    let mut rows = Vec::new();
    let (mut left, mut right) = (predicted.into_iter(), observed.into_iter());
    let (mut left_at, mut right_at) = (0, 0);
    let end = (left.len(), right.len());
    for (to_left, to_right) in pairs.into_iter().chain([end]) {
        let odd_left: Vec<Step> = left.by_ref().take(to_left - left_at).collect();
        let odd_right: Vec<Step> = right.by_ref().take(to_right - right_at).collect();
        rows.extend(odd_rows(odd_left, odd_right));
        if let (Some(predicted), Some(observed)) = (left.next(), right.next()) {
            rows.push(Row {
                predicted: Some(predicted),
                observed: Some(observed),
            });
        }
        (left_at, right_at) = (to_left + 1, to_right + 1);
    }
    rows
}

/// Steps between two common ones.
fn odd_rows(left: Vec<Step>, right: Vec<Step>) -> Vec<Row> {
    let count = left.len().max(right.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    let row = |_| Row {
        predicted: left.next(),
        observed: right.next(),
    };
    (0..count).map(row).collect()
}

/// The indices of a longest common subsequence.
fn common(left: &[Step], right: &[Step]) -> Vec<(usize, usize)> {
    // longest[i][j]: of left from i and right from j.
    let mut longest = vec![vec![0_usize; right.len() + 1]; left.len() + 1];
    for i in (0..left.len()).rev() {
        for j in (0..right.len()).rev() {
            longest[i][j] = if left[i].is_same(&right[j]) {
                longest[i + 1][j + 1] + 1
            } else {
                longest[i + 1][j].max(longest[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < left.len() && j < right.len() {
        if left[i].is_same(&right[j]) {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[i + 1][j] >= longest[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// One side of a request, beside its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Side {
    /// The client's address that the endpoint sees; `None` when not known.
    pub source: Option<String>,
    /// The endpoint's address and port; `None` when not known.
    pub destination: Option<String>,
    /// Who answers, in the lab's words; `None` when nobody does.
    pub answered_by: Option<String>,
}

/// A request and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Asked {
    /// What happened, in words.
    pub title: String,
    /// The client's address and port.
    pub from: String,
    /// Whom it asked.
    pub to: String,
    /// The chance of each way that `trace` sees.
    pub chances: Vec<f64>,
    /// The chance of the way that is shown.
    pub chance: f64,
    /// The rules met.
    pub steps: Vec<Row>,
    /// By `trace`, for the endpoint that the kernel chose.
    pub predicted: Side,
    /// In the kernel, by conntrack and the answer.
    pub observed: Side,
    /// What the client got, in words, with the client address and port that the endpoint saw.
    pub outcome: String,
    /// Client and endpoint as conntrack has them behind NAT, with ports.
    pub translation: Option<String>,
    /// How the predicted way ends, in words.
    pub predicted_end: String,
    /// What becomes of the source on the predicted way, in words.
    pub predicted_source: String,
    /// Why the source is kept or rewritten.
    pub why: String,
    /// Whether `trace` over the kernel's own rules says what the kernel did.
    pub trace_of_live_rules_agrees: bool,
}

impl Asked {
    /// Whether prediction and observation are the same in everything.
    pub fn agrees(&self) -> bool {
        self.steps.iter().all(Row::agrees) && self.predicted == self.observed
    }
}

/// A line of `kubectl get services`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceLine {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Type.
    pub kind: String,
    /// Cluster IP.
    pub cluster_ip: String,
    /// External and load-balancer IPs.
    pub external_ip: String,
    /// Ports.
    pub ports: String,
}

/// A line of `kubectl get endpoints`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndpointsLine {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Addresses and ports.
    pub endpoints: String,
}

/// All of a demonstration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The cluster's services.
    pub services: Vec<ServiceLine>,
    /// Their endpoints.
    pub endpoints: Vec<EndpointsLine>,
    /// How the rules that the proxy wrote differ from those that `render` shows, in words.
    pub differences: Vec<String>,
    /// The requests.
    pub requests: Vec<Asked>,
    /// Whether every prediction came true.
    pub agrees: bool,
}
