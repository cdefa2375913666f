//! How a walk through one base chain ends, and how far it may go.

use std::sync::Arc;

/// What a base chain (of iptables: a table) says about a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// On to the next one.
    Accept,
    /// Gone.
    Drop,
    /// Gone, and the sender is told with this ICMP answer or `tcp-reset`.
    Reject(Arc<str>),
    /// Nobody can say: these words are why.
    Undecided(Arc<str>),
}

/// What becomes of packets that no rule of a base chain (of iptables: a built-in one) decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// On to the next one.
    Accept,
    /// Gone.
    Drop,
}

impl Policy {
    /// The policy's word, as `iptables` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Policy::Accept => "ACCEPT",
            Policy::Drop => "DROP",
        }
    }
}

/// Bounds of a walk, beside the work that its [`History`](crate::History) allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many branches there may be. Branches beyond that end [`Verdict::Undecided`] and say so.
    pub branches: usize,
}

impl Default for Limits {
    /// Far above what one service with thousands of endpoints takes: an affinity service takes two branches an endpoint.
    fn default() -> Self {
        Limits { branches: 1 << 16 }
    }
}

impl Limits {
    /// The verdict of branches beyond the limit.
    pub fn exceeded(self) -> Verdict {
        Verdict::Undecided(format!("more than {} ways: the rest is not followed", self.branches).into())
    }
}

/// The verdict of branches for which no work is left.
pub fn too_much() -> Verdict {
    Verdict::Undecided("there is too much to follow: the rest is not followed".into())
}
