//! What was counted of one service's traffic, for who keeps counters (ADR 63).

use model::Family;
use serde_json::{Value, json};

/// What was counted for one port of a Service, by packets to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The family.
    pub family: Family,
    /// The port's name; empty when it has none.
    pub port: String,
    /// New connections.
    pub connections: u64,
    /// Packets that were answered with an error.
    pub rejected: u64,
    /// Packets that were not answered.
    pub dropped: u64,
}

/// Null where nobody keeps counters.
pub(crate) fn json(counted: Option<&[Counted]>) -> Value {
    let Some(counted) = counted else {
        return Value::Null;
    };
    let rows = counted.iter().map(|one| {
        json!({
            "family": one.family.to_string(),
            "port": one.port,
            "connections": one.connections,
            "rejected": one.rejected,
            "dropped": one.dropped,
        })
    });
    rows.collect()
}
