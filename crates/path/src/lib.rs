//! A packet's way through a whole host.
//!
//! * What it is: the kernel's hooks in order, each calling its tables in the order of their priorities; the routing
//!   decisions between them; connection tracking, and nat once per connection. The chains themselves are evaluated by
//!   the backend that owns them ([`iptables::trace`]).
//! * In and out: a [`Host`] and a [`model::Packet`] in, an [`Answer`] out: every [`Way`] the packet can take.
//! * What it deliberately does not know: where rules come from, Services, sockets' programs, the network beyond the host.
//! * Where to start reading: [`trace`], then [`Answer`].

mod answer;
mod host;
mod walk;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Claim, End, Leg, Listener, NoSingleOutcome, Routed, Source, Step, Way};
pub use host::{Host, HostInterface, Route, Socket};
pub use iptables::trace::{Condition, Detail, Did, Event, Hook, Interface, LocalAddresses, Place};
pub use walk::{TABLES_OF_HOOK, trace};
