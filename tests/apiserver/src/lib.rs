//! A small API server for tests: a double of kube-apiserver, as far as a kube-proxy talks to one.
//!
//! * What it does: list, watch, streaming lists, bookmarks, 410 as answer and as event, resource versions, pages, label
//!   and field selectors, Events, Status objects, TLS, bearer tokens and rights by verb. Its objects are Services,
//!   `EndpointSlices`, Nodes, `ServiceCIDRs` and Events.
//! * What goes wrong when a test wants it: a [`Fault`] for the next requests of a verb and resource, a script that
//!   answers in the server's place ([`Options::script`]), [`Server::close`], [`Server::expire`],
//!   [`Server::change_authority`] and more.
//! * What it leaves out: YAML, protobuf and CBOR (asked for nothing else it says 406), server-side apply, subresources,
//!   most validation, admission, other resources. Strategic merge patches are taken for JSON merge patches.
//! * What keeps it honest: `tests/conformance` asks the same questions of it and of a real server.
//! * It is deterministic: versions and uids count up, times stand still, bookmarks come when a test says so (and
//!   shortly before a watch's time is up).
//! * Where to start reading: [`Server`], then `serve.rs`.

mod access;
mod asked;
mod event;
mod fault;
mod list;
pub mod objects;
mod query;
mod reply;
mod resource;
mod selector;
mod serve;
mod server;
mod status;
mod store;
mod tls;
pub mod transcript;
mod watch;
mod write;

pub use access::{Access, Right, Rights, User};
pub use asked::Asked;
pub use fault::{Damage, Fault, What};
pub use query::StreamingLists;
pub use reply::{Answer, Body, Part, Reply};
pub use resource::{Place, Resource};
pub use server::{Options, Script, Server, Transport};
pub use status::{Status, Wrong};
