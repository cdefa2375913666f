//! Shared by the tests on captures: reading the files, and writing decoded rules in the words of iptables-save.

pub mod render;
pub mod render_match;

use std::path::PathBuf;

use netlink::message::{Message, Messages, Reply};

/// A file of captured bytes or text.
pub fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The messages of a capture, without its end of dump.
pub fn messages(bytes: &[u8]) -> Vec<Message<'_>> {
    let replies = Messages::new(bytes).map(|message| Reply::read(message.unwrap()).unwrap());
    replies
        .filter_map(|reply| match reply {
            Reply::Data(message) => Some(message),
            Reply::Done(None) => None,
            other => panic!("unexpected reply {other:?}"),
        })
        .collect()
}
