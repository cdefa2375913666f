//! Where objects come from.
//!
//! * What it is: two sources of Services, `EndpointSlices`, the own Node and `ServiceCIDRs` behind one interface: the
//!   [`api`] server, and files ([`manifests`]).
//!   Between the API server and who listens there can be a memory on disk ([`state`]).
//! * In and out: a server's address or a path goes in; [`SourceEvent`]s come out of a bounded channel, their objects
//!   already converted to `model`'s compact values. The API's JSON is dropped object by object.
//! * What it deliberately does not know: what a Service means, rules, the kernel. It keeps names, not objects.
//! * Where to start reading: [`SourceEvent`], then `api/watch.rs` and `manifests/folder.rs`.

pub mod api;
mod event;
mod known;
pub mod manifests;
mod scan;
mod share;
pub mod state;

pub use event::{Delivery, Health, Remembered, SourceEvent};
pub use model::object::Kind;

/// An error and its causes on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = api::one_line(&cause.to_string());
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        next = cause.source();
    }
    api::one_line(&line)
}
