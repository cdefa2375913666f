//! Conntrack: listing, looking up and deleting entries.

mod entry;
mod request;
mod tuple;

pub use entry::{Counters, Entry, Status, Timestamps};
pub use request::{Direction, Filter, Request};
pub use tuple::{Layer4, Tuple};

use crate::error::DecodeError;
use crate::message;
use crate::nfnl::{Body, Subsystem};

/// `IPCTNL_MSG_CT_*`.
mod msg {
    pub(super) const NEW: u8 = 0;
    pub(super) const GET: u8 = 1;
    pub(super) const DELETE: u8 = 2;
}

/// A message of conntrack: an answer or a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// An entry there is, or that was made or changed.
    Entry(Entry),
    /// An entry that was removed.
    Removed(Entry),
    /// Anything else.
    Other {
        /// Operation number (`IPCTNL_MSG_CT_*`).
        operation: u8,
        /// Attributes.
        raw: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Reads a message of the conntrack subsystem.
    ///
    /// # Errors
    /// If the message is of another subsystem, or malformed.
    pub fn read(message: message::Message<'a>) -> Result<Self, DecodeError> {
        let body = Body::read(message, Subsystem::Conntrack)?;
        Ok(match body.operation {
            msg::NEW => Self::Entry(Entry::read(body.attrs("conntrack entry"))?),
            msg::DELETE => Self::Removed(Entry::read(body.attrs("conntrack entry"))?),
            operation => Self::Other {
                operation,
                raw: body.attributes,
            },
        })
    }
}
