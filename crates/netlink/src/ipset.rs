//! ipset: only the name of a set by its number, which is all that a rule's `set` match says of it.

use crate::attr::Fields;
use crate::error::{DecodeError, EncodeError};
use crate::message::{self, flags};
use crate::nfnl::{Body, Family, Subsystem, begin};

/// `IPSET_PROTOCOL`; with 6 the kernel (6.18) refuses this question.
const PROTOCOL: u8 = 7;
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

/// Reads the set's name from the answer.
///
/// # Errors
/// If the message is of another subsystem, or malformed.
pub fn read_name(message: message::Message<'_>) -> Result<&str, DecodeError> {
    let body = Body::read(message, Subsystem::Ipset)?;
    let fields = Fields::<{ at::COUNT }>::read(body.attrs("ipset name"))?;
    fields.need(at::NAME, fields.text(at::NAME)?)
}
