//! `NetworkPolicies`: whose traffic they are about. What they let through is the network plugin's to say.

use super::{Labels, labels, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// A `NetworkPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkPolicy {
    /// The pods that it is about.
    pub pods: Selector,
    /// Which of their traffic.
    pub directions: BTreeSet<Direction>,
}

/// Traffic of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To it.
    Ingress,
    /// From it.
    Egress,
}

/// A selector of labels, as policies have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// `matchLabels`.
    pub labels: Labels,
    /// `matchExpressions`.
    pub expressions: Vec<Expression>,
}

/// One of `matchExpressions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Its values.
    pub values: Vec<String>,
}

impl Selector {
    /// Whether it selects whatever there is.
    pub fn is_all(&self) -> bool {
        self.labels.is_empty() && self.expressions.is_empty()
    }

    /// Whether it selects something with these labels.
    pub fn selects(&self, labels: &Labels) -> bool {
        let mut wanted = self.labels.iter();
        wanted.all(|(key, value)| labels.get(key) == Some(value))
            && self.expressions.iter().all(|expression| expression.holds(labels))
    }
}

impl Expression {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            // The API server takes no other.
            _ => false,
        }
    }
}

/// Reads one.
pub(super) fn read(object: &Value) -> NetworkPolicy {
    let named = list(object, "/spec/policyTypes").iter().filter_map(Value::as_str);
    let mut directions: BTreeSet<Direction> = named
        .filter_map(|word| match word {
            "Ingress" => Some(Direction::Ingress),
            "Egress" => Some(Direction::Egress),
            _ => None,
        })
        .collect();
    // What the API server fills in.
    if directions.is_empty() {
        directions.insert(Direction::Ingress);
        let has_egress = object.pointer("/spec/egress").is_some();
        directions.extend(has_egress.then_some(Direction::Egress));
    }
    let expression = |value: &Value| Expression {
        key: text(value, "/key").to_owned(),
        operator: text(value, "/operator").to_owned(),
        values: list(value, "/values")
            .iter()
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect(),
    };
    NetworkPolicy {
        pods: Selector {
            labels: labels(object, "/spec/podSelector/matchLabels"),
            expressions: list(object, "/spec/podSelector/matchExpressions")
                .iter()
                .map(expression)
                .collect(),
        },
        directions,
    }
}
