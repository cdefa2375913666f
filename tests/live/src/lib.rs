//! Tests of the real binary in labs of network namespaces: real packets, real rules, real faults.
//!
//! * What it is: what the tests beside it share. Each file in `tests/` is one story.
//! * In and out: scenarios go in; what the binary wrote, and what probes, sinks and counters saw, comes out.
//! * What it deliberately does not know: how the daemon works inside. It starts it, changes files and looks.
//! * Where to start reading: [`daemon`], then [`truth`].
//!
//! Tests need root and tools; without them they say `SKIPPED`, or fail where `KPRS_REQUIRE_LIVE` is set.

pub mod api;
pub mod cluster;
pub mod container;
pub mod daemon;
pub mod everybody;
pub mod exposition;
pub mod flow;
pub mod forks;
pub mod health;
pub mod manifests;
pub mod random;
pub mod rules;
pub mod server;
pub mod small_server;
pub mod stubs;
pub mod traffic;
pub mod truth;
pub mod two_families;
mod wait;

pub use wait::{told, within, within_or};
