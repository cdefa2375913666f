//! Why a Service can or cannot be reached, in the words of the user's objects; and what is wrong with a host.
//!
//! * What it is: a [`Question`] (who, where to) about a [`World`] (objects, a node, a host's rules and facts) in, an
//!   [`Explanation`] out: a verdict, what the client sees, endpoints, and [`Finding`]s with what to do. [`screen::text`] makes
//!   one screen of it.
//! * How: the packet's ways through the host's rules ([`path`]), or the oracle's answer ([`model::oracle`]), say what becomes
//!   of it; each file of `causes` looks at one layer and says why.
//!   [`doctor::examine`] looks at a whole host, whoever sends.
//! * What it deliberately does not know: files, flags, the API server, the live host; nothing is fetched or guessed. What is
//!   missing in the world is left unsaid.
//! * Where to start reading: [`explain()`], then [`finding`], then `causes/endpoints.rs`.

mod asked;
pub mod assemble;
mod causes;
mod client;
pub mod doctor;
mod explanation;
pub mod facts;
pub mod fate;
pub mod finding;
pub mod known;
mod named;
pub mod objects;
mod outcome;
mod outside;
pub mod page;
mod policy;
pub mod question;
pub mod screen;
mod seen_from;
pub mod sender;
mod served_at;
mod stand_in;
pub mod target;
mod told_apart;
mod unserved;
pub mod world;

pub use assemble::{Parts, assemble, assemble_host, assemble_running};
pub use causes::node_address::node_port_addresses;
pub use explanation::{Delivery, Explanation, Reach, Verdict, explain};
pub use facts::HostFacts;
pub use finding::{Advice, Cause, Finding, Severity};
pub use objects::Objects;
pub use question::{From, Question, To};
pub use world::{Mode, Rules, World};
