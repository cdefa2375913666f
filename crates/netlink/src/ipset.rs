//! ipset: the name of a set by its number, which is all that a rule's `set` match says of it, and the end of a set.

use crate::attr::Fields;
use crate::error::{DecodeError, EncodeError, Errno};
use crate::message::{self, flags};
use crate::nfnl::{Body, Family, Subsystem, begin};

/// `IPSET_PROTOCOL`; with 6 the kernel (6.18) refuses this question.
const PROTOCOL: u8 = 7;
/// `IPSET_CMD_DESTROY`.
const DESTROY: u8 = 3;
/// `IPSET_MAXNAMELEN`, without the closing NUL.
pub const NAME_LIMIT: usize = 31;
/// `IPSET_ERR_BUSY`: a rule names the set.
pub const IN_USE: Errno = Errno(4100);
/// `IPSET_CMD_GET_BYINDEX`.
const GET_BY_INDEX: u8 = 15;

mod at {
    pub(super) const PROTOCOL: u16 = 1;
    pub(super) const NAME: u16 = 2;
    pub(super) const INDEX: u16 = 11;
    pub(super) const COUNT: usize = 12;
}

/// Asks for the name of the set with this number ([`crate::xt::Set`]): one answer, or `ENOENT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameRequest {
    /// Number of the set.
    pub index: u16,
}

impl NameRequest {
    /// Writes the request at the end of `buffer`.
    ///
    /// # Errors
    /// Never for this request; the signature is that of all requests.
    pub fn encode(&self, sequence: u32, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let kind = Subsystem::Ipset.kind(GET_BY_INDEX);
        let mut writer = begin(buffer, kind, flags::REQUEST, sequence, Family::Unspecified);
        writer.u8(at::PROTOCOL, PROTOCOL);
        writer.u16(at::INDEX, self.index);
        writer.finish()
    }
}

/// Destroys a set with all its entries: an acknowledgement, `ENOENT` if there is none of this name, or [`IN_USE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destroy<'a> {
    /// Name of the set.
    pub name: &'a str,
}

impl Destroy<'_> {
    /// Writes the request at the end of `buffer`.
    ///
    /// # Errors
    /// A name that is too long or empty, which would mean every set; the buffer is then unchanged.
    pub fn encode(&self, sequence: u32, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let kind = Subsystem::Ipset.kind(DESTROY);
        // With EXCL the kernel says so when there is no such set.
        let all = flags::REQUEST | flags::ACK | flags::EXCL;
        let mut writer = begin(buffer, kind, all, sequence, Family::Unspecified);
        let length = self.name.len();
        if length == 0 || length > NAME_LIMIT {
            writer.refuse(EncodeError::NameTooLong {
                length,
                limit: NAME_LIMIT,
            });
        }
        writer.u8(at::PROTOCOL, PROTOCOL);
        writer.text(at::NAME, self.name);
        writer.finish()
    }
}

/// Reads the set's name from the answer.
///
/// # Errors
/// If the message is of another subsystem, or malformed.
pub fn read_name(message: message::Message<'_>) -> Result<&str, DecodeError> {
    let body = Body::read(message, Subsystem::Ipset)?;
    let fields = Fields::<{ at::COUNT }>::read(body.attrs("ipset name"))?;
    fields.need(at::NAME, fields.text(at::NAME)?)
}
