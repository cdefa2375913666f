//! Accounting objects: named counters that rules with the `nfacct` match count into.

use crate::attr::{Attrs, Fields};
use crate::error::{DecodeError, EncodeError};
use crate::message::{self, flags};
use crate::nfnl::{Body, Family, Subsystem, begin};

/// Longest name, in bytes without the closing NUL (`NFACCT_NAME_MAX` - 1).
pub const NAME_LIMIT: usize = 31;

mod msg {
    pub(super) const NEW: u8 = 0;
    pub(super) const GET: u8 = 1;
    pub(super) const DELETE: u8 = 3;
}

mod at {
    pub(super) const NAME: u16 = 1;
    pub(super) const PACKETS: u16 = 2;
    pub(super) const BYTES: u16 = 3;
    pub(super) const USE: u16 = 4;
    pub(super) const COUNT: usize = 9;
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Makes an object: an acknowledgement, or `EEXIST` if it is there (its numbers stay).
    New {
        /// Name.
        name: &'a str,
    },
    /// One object: one answer, or `ENOENT`. A kernel without accounting objects gives another error
    /// (`EINVAL`, as for any subsystem that is not there).
    Get {
        /// Name.
        name: &'a str,
    },
    /// Dump of all objects.
    Dump,
    /// Removes an object: an acknowledgement, or `EBUSY` if a rule counts into it.
    Delete {
        /// Name.
        name: &'a str,
    },
}

impl Request<'_> {
    /// Writes the request at the end of `buffer`.
    ///
    /// # Errors
    /// A name that is too long or holds a NUL; the buffer is then unchanged.
    pub fn encode(&self, sequence: u32, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (operation, more) = match self {
            Self::New { .. } => (msg::NEW, flags::ACK | flags::CREATE | flags::EXCL),
            Self::Get { .. } => (msg::GET, 0),
            Self::Dump => (msg::GET, flags::DUMP),
            Self::Delete { .. } => (msg::DELETE, flags::ACK),
        };
        let kind = Subsystem::Accounting.kind(operation);
        let mut writer = begin(buffer, kind, flags::REQUEST | more, sequence, Family::Unspecified);
        if let Self::New { name } | Self::Get { name } | Self::Delete { name } = *self {
            if name.len() > NAME_LIMIT {
                writer.refuse(EncodeError::NameTooLong {
                    length: name.len(),
                    limit: NAME_LIMIT,
                });
            }
            writer.text(at::NAME, name);
        }
        writer.finish()
    }
}

/// An accounting object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// Name.
    pub name: &'a str,
    /// Packets counted.
    pub packets: u64,
    /// Bytes counted.
    pub bytes: u64,
    /// References: 1, and one for each rule that counts into it.
    pub use_count: u32,
}

impl<'a> Object<'a> {
    /// Reads a message of the accounting subsystem.
    ///
    /// # Errors
    /// If the message is of another subsystem, or malformed.
    pub fn read(message: message::Message<'a>) -> Result<Self, DecodeError> {
        let body = Body::read(message, Subsystem::Accounting)?;
        Self::read_attrs(body.attrs("accounting object"))
    }

    fn read_attrs(attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        let fields = Fields::<{ at::COUNT }>::read(attrs)?;
        Ok(Self {
            name: fields.need(at::NAME, fields.text(at::NAME)?)?,
            packets: fields.u64(at::PACKETS)?.unwrap_or_default(),
            bytes: fields.u64(at::BYTES)?.unwrap_or_default(),
            use_count: fields.u32(at::USE)?.unwrap_or_default(),
        })
    }
}
