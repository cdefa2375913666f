//! Which flows of the connection-tracking table lead where no endpoint is any more.
//!
//! NAT is decided once, with a flow's first packet. When an endpoint goes, the rules change and the flow does not:
//! a client that keeps its UDP port keeps talking to a pod that has gone. Somebody has to forget such flows.
//!
//! * What it is: an [`Expectation`] of one family's flows, kept up one service at a time, and
//!   [`decide`], which says for one [`Flow`] whether to keep or to delete it, and why.
//! * In and out: [`ServiceFlows`] (made of a service's objects) and [`NodeAddresses`] go in; a [`Verdict`] comes out.
//!   [`Pace`] says when to look through the table.
//! * What it deliberately does not know: netlink, the kernel, rules, clocks. `kernel::conntrack::sweep` reads the
//!   table and deletes.
//! * Where to start reading: [`decide`], then [`Expectation`].
//!
//! Invariant: a table that the present rules alone have made loses no flow
//! (test `flows_that_the_state_itself_makes_are_kept`).

mod changes;
mod decide;
mod expectation;
mod flow;
mod node;
mod pace;
mod service;

pub use changes::Changes;
pub use decide::{Keep, Stale, Verdict, decide};
pub use expectation::{Expectation, REMEMBERED_ENDPOINTS, Sweep, Urgency};
pub use flow::{Flow, FlowError};
pub use node::NodeAddresses;
pub use pace::Pace;
pub use service::{Allowed, FrontendKey, ServiceFlows, TcpOption};
