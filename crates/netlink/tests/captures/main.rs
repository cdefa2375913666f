//! Tests on captured messages (`tests/data`): what this crate reads must be what the system's tools said of the same
//! kernel state.

// The captures are of a little-endian machine.
#![cfg(target_endian = "little")]
#![allow(
    clippy::unwrap_used,
    clippy::format_push_string,
    reason = "a test may panic, and need not be fast"
)]

mod iptables_rules;
mod native_rules;
mod notifications;
mod own_rules;
mod render;
mod render_match;
mod replies;
mod wire;

use std::path::PathBuf;

use netlink::message::{Message, Messages, Reply};

/// A file of captured bytes or text.
fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The messages of a capture, without its end of dump.
fn messages(bytes: &[u8]) -> Vec<Message<'_>> {
    let replies = Messages::new(bytes).map(|message| Reply::read(message.unwrap()).unwrap());
    replies
        .filter_map(|reply| match reply {
            Reply::Data(message) => Some(message),
            Reply::Done(None) => None,
            other => panic!("unexpected reply {other:?}"),
        })
        .collect()
}
