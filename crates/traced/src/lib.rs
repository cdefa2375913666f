//! What a trace carries along and writes down, whoever owns the rules.
//!
//! * What it is: the packet at one point of its way ([`State`]), what is known of the place where rules are asked
//!   ([`Site`]), the [`Event`]s of all branches in one [`History`], and the [`Condition`]s that branches stand on.
//! * In and out: values alone. The backends' walks ([`iptables`](../iptables/trace/index.html) and
//!   [`nftables`](../nftables/trace/index.html)) write them, the crate `path` goes from one walk to the next with them.
//! * What it deliberately does not know: rules of any kind.
//! * Where to start reading: [`State`], then [`History`].

mod condition;
mod criterion;
mod history;
mod packet;
mod sets;
mod site;
mod truth;
mod verdict;

pub use condition::{Condition, Lasts, implied, pattern_covers};
pub use criterion::Criterion;
pub use history::{Detail, Did, Event, Ground, History, NodeId, Place};
pub use packet::{Bits, Connection, Nat, Seen, State, Track};
pub use sets::{IpSets, NO_SETS};
pub use site::{Hook, Interface, LocalAddresses, Name, Sender, Site};
pub use truth::Truth;
pub use verdict::{Limits, Policy, Verdict, too_much};
