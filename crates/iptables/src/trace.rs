//! Evaluates one chain of one table for one packet, as the kernel does.
//!
//! [`walk`] follows a packet from a built-in chain through jumps, gotos and returns to a verdict. What cannot be decided
//! from the rules and the [`Site`] is never guessed: the walk forks, each branch recording the [`Condition`] it stands
//! on. A random choice is a fork too; the chances of its two branches sum to one.
//!
//! All branches share one [`History`], a tree of [`Event`]s, so that a chain of a thousand endpoints costs a thousand
//! events and not a thousand times a thousand.

mod criteria;
mod other;
mod target;
mod walk;

#[cfg(test)]
mod tests;

use crate::ast::{ChainName, TableName};
pub use traced::{
    Bits, Condition, Connection, Criterion, Detail, Did, Event, History, Hook, Interface, Limits,
    LocalAddresses, Nat, NodeId, Place, Sender, Site, State, Track, Verdict,
};
pub use walk::walk;

/// The table and chain of a place; `None` when it is none of iptables.
pub fn of_iptables(place: &Place) -> Option<(TableName, ChainName)> {
    let tables = TableName::ALL.into_iter();
    let table = tables.into_iter().find(|table| place.table == table.as_str())?;
    Some((table, ChainName::new(place.chain.as_str()).ok()?))
}
