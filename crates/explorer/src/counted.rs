//! What was counted of one service's traffic, for who keeps counters (ADR 63).

use explain::Mode;
use model::Family;
use serde_json::{Value, json};

/// How often counters are read at most, in seconds: what the page says, and what the reader keeps to.
pub const COUNTED_EVERY_SECONDS: u64 = 10;

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

/// Null where nobody keeps counters, or where the mode counts no such packets: nothing is not none.
pub(crate) fn json(mode: Mode, counted: Option<&[Counted]>) -> Value {
    let Some(counted) = counted else {
        return Value::Null;
    };
    let rows = counted.iter().map(|one| {
        json!({
            "family": one.family.to_string(),
            "port": one.port,
            "connections": one.connections,
            "rejected": one.rejected,
            "dropped": match mode {
                Mode::Iptables => Some(one.dropped),
                Mode::Nftables => None,
            },
        })
    });
    rows.collect()
}
