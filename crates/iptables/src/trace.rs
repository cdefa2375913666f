//! Evaluates one chain of one table for one packet, as the kernel does.
//!
//! [`walk`] follows a packet from a built-in chain through jumps, gotos and returns to a verdict. What cannot be decided
//! from the rules and the [`Site`] is never guessed: the walk forks, each branch recording the [`Condition`] it stands
//! on. A random choice is a fork too; the chances of its two branches sum to one.
//!
//! All branches share one [`History`], a tree of [`Event`]s, so that a chain of a thousand endpoints costs a thousand
//! events and not a thousand times a thousand.

mod condition;
mod criteria;
mod history;
mod other;
mod packet;
mod site;
mod target;
mod walk;

#[cfg(test)]
mod tests;

pub use condition::Condition;
pub use criteria::Criterion;
pub use history::{Detail, Did, Event, History, NodeId, Place};
pub use packet::{Bits, Connection, Nat, State, Track};
pub use site::{Hook, Interface, LocalAddresses, Sender, Site};
pub use walk::{Limits, Verdict, walk};
