//! The part of a rule that was not true of a packet.

use std::fmt;

/// The part of a rule that was not true of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Criterion {
    /// `-s`
    Source,
    /// `-d`
    Destination,
    /// `-i`
    InInterface,
    /// `-o`
    OutInterface,
    /// `-p`
    Protocol,
    /// The match (of nftables: the statement) of this index in the rule's list.
    Match(usize),
    /// What the rule hangs on is not so on this branch, or chance went against it.
    Branch,
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Criterion::Source => f.write_str("source"),
            Criterion::Destination => f.write_str("destination"),
            Criterion::InInterface => f.write_str("incoming interface"),
            Criterion::OutInterface => f.write_str("outgoing interface"),
            Criterion::Protocol => f.write_str("protocol"),
            Criterion::Match(index) => write!(f, "match {}", index + 1),
            Criterion::Branch => f.write_str("not on this way"),
        }
    }
}
