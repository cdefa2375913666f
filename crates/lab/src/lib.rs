//! A small cluster out of network namespaces: nodes, pods, outside clients and real packets.
//!
//! *What it is.* [`Lab::up`] builds a [`Topology`]: one namespace per node, pod and outside client, a bridge that
//! stands for the wire between them in a namespace of its own, and servers in the pods that say who they are and
//! which client address they saw. Nothing touches the machine's own namespace: links are made inside the lab's
//! namespaces, and only the names under `/run/netns` (all with the lab's prefix) are visible outside.
//!
//! *In and out.* A topology (plain data) in; [`ProbeOutcome`]s, captured packets and processes out.
//!
//! *What it does not know.* Rules and the proxy: it runs the binary as a process and never links it. Of Services it
//! reads from objects where endpoints run ([`cluster`]) and what they are called ([`dns`]), and no more.
//!
//! *Where to start.* [`topology`] for the words, [`plan`] for what is configured and why, [`Lab`] for the verbs,
//! [`seed`] for a ready cluster.

mod build;
mod claim;
pub mod cli;
pub mod cluster;
pub mod dns;
mod driver;
mod error;
mod icmp;
mod lab;
pub mod live;
pub mod netns;
pub mod plan;
pub mod probe;
mod prober;
mod process;
mod rootless;
mod scratch;
pub mod seed;
pub mod serve;
mod sink;
pub mod topology;
mod wire_format;

pub use error::LabError;
pub use lab::{Lab, Life, Options, Servers};
pub use netns::{Namespace, sweep};
pub use probe::{Probe, ProbeOutcome, Refusal};
pub use prober::{Prober, ProberReport, Sample};
pub use process::{Finished, HttpAnswer, LabProcess};
pub use rootless::{Privilege, reexec_rootless};
pub use rustix::process::Signal;
pub use scratch::Scratch;
pub use sink::SeenPacket;
pub use topology::{Interface, Node, Outside, Pod, PodNetwork, Port, Proto, Route, Sink, Topology};
