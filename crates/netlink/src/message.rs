//! Messages (`struct nlmsghdr`) and the replies that are the same for every netlink family.

use crate::attr::{Attrs, Fields, align};
use crate::error::{DecodeError, DecodeErrorKind, Errno, KernelError};

/// Bytes of `struct nlmsghdr`.
pub const HEADER_LENGTH: usize = 16;

/// `NLM_F_*` bits of the header.
pub mod flags {
    /// It is a request.
    pub const REQUEST: u16 = 0x01;
    /// Part of a dump that ends with `NLMSG_DONE`.
    pub const MULTI: u16 = 0x02;
    /// An acknowledgement is wanted.
    pub const ACK: u16 = 0x04;
    /// Send the resulting notification back to the requester too.
    pub const ECHO: u16 = 0x08;
    /// The dump saw a change under way and must be asked for again.
    pub const DUMP_INTR: u16 = 0x10;
    /// The kernel applied the filter that the dump asked for.
    pub const DUMP_FILTERED: u16 = 0x20;
    /// All objects, not one.
    pub const DUMP: u16 = 0x300;
    /// New: replace an existing object.
    pub const REPLACE: u16 = 0x100;
    /// New: fail if it exists. In replies: the acknowledgement carries only the header of the request.
    pub const EXCL: u16 = 0x200;
    /// New: create if it does not exist.
    pub const CREATE: u16 = 0x400;
    /// New: add at the end of the list.
    pub const APPEND: u16 = 0x800;
    /// Acknowledgement: the request's payload was left away.
    pub const CAPPED: u16 = 0x100;
    /// Acknowledgement: attributes follow.
    pub const ACK_TLVS: u16 = 0x200;
}

/// Message types below 16 belong to netlink itself.
mod control {
    pub(super) const NOOP: u16 = 1;
    pub(super) const ERROR: u16 = 2;
    pub(super) const DONE: u16 = 3;
    pub(super) const OVERRUN: u16 = 4;
}

/// A message's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the message, header included, without padding.
    pub length: u32,
    /// Type; for nfnetlink the subsystem in the upper and the operation in the lower byte.
    pub kind: u16,
    /// [`flags`].
    pub flags: u16,
    /// Sequence number: of the request that is answered, or that caused a notification.
    pub sequence: u32,
    /// Port of the socket: in replies the asker's own, in notifications **the writer's**. This is how a process
    /// tells its own changes from another's. 0 is the kernel.
    pub port: u32,
}

impl Header {
    /// Whether the kernel says that this dump is not consistent.
    pub const fn is_dump_interrupted(&self) -> bool {
        self.flags & flags::DUMP_INTR != 0
    }

    fn read(bytes: &[u8; HEADER_LENGTH]) -> Self {
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, p0, p1, p2, p3] = *bytes;
        Self {
            length: u32::from_ne_bytes([l0, l1, l2, l3]),
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            port: u32::from_ne_bytes([p0, p1, p2, p3]),
        }
    }
}

/// One message in a receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The header.
    pub header: Header,
    /// What follows the header, without padding.
    pub payload: &'a [u8],
}

/// Iterator over the messages of one receive buffer. It ends after the first error.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Messages<'a> {
    /// Reads what one `recv` returned.
    pub const fn new(buffer: &'a [u8]) -> Self {
        Self {
            rest: buffer,
            offset: 0,
        }
    }

    fn fail(&mut self, kind: DecodeErrorKind) -> DecodeError {
        self.rest = &[];
        DecodeError::new("netlink message", self.offset, kind)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let available = self.rest.len();
        let Some((head, _)) = self.rest.split_first_chunk::<HEADER_LENGTH>() else {
            return Some(Err(self.fail(DecodeErrorKind::Truncated {
                needed: HEADER_LENGTH,
                available,
            })));
        };
        let header = Header::read(head);
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        if length < HEADER_LENGTH || length > available {
            return Some(Err(self.fail(DecodeErrorKind::BadLength(length))));
        }
        let payload = &self.rest[HEADER_LENGTH..length];
        let step = align(length).min(available);
        self.rest = &self.rest[step..];
        self.offset += step;
        Some(Ok(Message { header, payload }))
    }
}

/// A message, told apart by netlink's own types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Something of the family's own: give it to the family's decoder.
    Data(Message<'a>),
    /// The end of a dump. With an error the dump failed half-way.
    Done(Option<KernelError>),
    /// The request with this header's sequence number was carried out.
    Ack(Header),
    /// The request was refused.
    Refused(KernelError),
    /// To be ignored.
    Noop,
    /// Messages were lost.
    Overrun,
}

impl<'a> Reply<'a> {
    /// Tells what a message is.
    ///
    /// # Errors
    /// If an acknowledgement or an end of dump is malformed.
    pub fn read(message: Message<'a>) -> Result<Self, DecodeError> {
        Ok(match message.header.kind {
            control::NOOP => Self::Noop,
            control::ERROR => match read_error(message)? {
                Some(error) => Self::Refused(error),
                None => Self::Ack(message.header),
            },
            control::DONE => Self::Done(read_done(message)?),
            control::OVERRUN => Self::Overrun,
            _ => Self::Data(message),
        })
    }
}

/// `struct nlmsgerr`: error, the request's header, its payload unless capped, attributes.
fn read_error(message: Message<'_>) -> Result<Option<KernelError>, DecodeError> {
    const FIXED: usize = 4 + HEADER_LENGTH;
    let what = "netlink acknowledgement";
    let errno = read_errno(message.payload, what)?;
    if errno == 0 {
        return Ok(None);
    }
    let Some(request) = message
        .payload
        .get(4..)
        .and_then(<[u8]>::first_chunk::<HEADER_LENGTH>)
    else {
        let kind = DecodeErrorKind::Truncated {
            needed: FIXED,
            available: message.payload.len(),
        };
        return Err(DecodeError::new(what, HEADER_LENGTH, kind));
    };
    let request = Header::read(request);
    let mut error = KernelError {
        errno: Errno(errno),
        sequence: message.header.sequence,
        request_type: request.kind,
        message: None,
        offset: None,
        missing_attribute: None,
    };
    if message.header.flags & flags::ACK_TLVS != 0 {
        let copied = if message.header.flags & flags::CAPPED == 0 {
            usize::try_from(request.length)
                .unwrap_or(usize::MAX)
                .saturating_sub(HEADER_LENGTH)
        } else {
            0
        };
        let at = align(FIXED.saturating_add(copied));
        read_extended(
            message.payload.get(at..).unwrap_or_default(),
            HEADER_LENGTH + at,
            &mut error,
        )?;
    }
    Ok(Some(error))
}

/// Some families end a dump with a bare header; a missing number means no error.
fn read_done(message: Message<'_>) -> Result<Option<KernelError>, DecodeError> {
    if message.payload.is_empty() {
        return Ok(None);
    }
    let errno = read_errno(message.payload, "netlink end of dump")?;
    if errno == 0 {
        return Ok(None);
    }
    let mut error = KernelError {
        errno: Errno(errno),
        sequence: message.header.sequence,
        request_type: message.header.kind,
        message: None,
        offset: None,
        missing_attribute: None,
    };
    if message.header.flags & flags::ACK_TLVS != 0 {
        read_extended(
            message.payload.get(4..).unwrap_or_default(),
            HEADER_LENGTH + 4,
            &mut error,
        )?;
    }
    Ok(Some(error))
}

/// The kernel writes error numbers negative.
fn read_errno(payload: &[u8], what: &'static str) -> Result<i32, DecodeError> {
    let Some(bytes) = payload.first_chunk::<4>() else {
        let kind = DecodeErrorKind::Truncated {
            needed: 4,
            available: payload.len(),
        };
        return Err(DecodeError::new(what, HEADER_LENGTH, kind));
    };
    Ok(i32::from_ne_bytes(*bytes).saturating_neg())
}

fn read_extended(bytes: &[u8], offset: usize, error: &mut KernelError) -> Result<(), DecodeError> {
    const MESSAGE: u16 = 1;
    const OFFSET: u16 = 2;
    const MISSING_TYPE: u16 = 5;
    let fields = Fields::<7>::read(Attrs::new(bytes, "extended acknowledgement", offset))?;
    let text = fields.bytes(MESSAGE).map(crate::attr::until_nul);
    error.message = text.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    error.offset = fields.u32_native(OFFSET)?;
    error.missing_attribute = fields.u32_native(MISSING_TYPE)?;
    Ok(())
}
