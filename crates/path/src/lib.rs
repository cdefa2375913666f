//! A packet's way through a whole host.
//!
//! * What it is: the kernel's hooks in order, each calling tables of iptables and base chains of nftables in the order of
//!   their priorities; the routing decisions between them; connection tracking, and nat once per connection. The chains
//!   themselves are evaluated by the backend that owns them ([`iptables::trace`], [`nftables::trace`]).
//! * In and out: a [`Host`] and a [`model::Packet`] in, an [`Answer`] out: every [`Way`] the packet can take.
//! * What it deliberately does not know: where rules come from, Services, sockets' programs, the network beyond the host.
//! * Where to start reading: [`trace`], then [`Answer`].

mod answer;
mod groups;
mod hooks;
mod host;
mod orders;
mod walk;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Claim, End, Leg, Listener, NoSingleOutcome, Routed, Source, Step, Way};
pub use hooks::TABLES_OF_HOOK;
pub use host::{Host, HostInterface, Route, Socket};
pub use traced::{
    Condition, Detail, Did, Event, Hook, Interface, IpSets, LocalAddresses, Name, Place, Policy,
};
pub use walk::trace;
