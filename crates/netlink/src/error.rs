//! What can go wrong while reading or writing bytes, and what the kernel says went wrong.

use thiserror::Error;

/// Bytes that are not what they should be. Nothing in this crate panics on input; it returns this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{what}: {kind} (at byte {offset})")]
pub struct DecodeError {
    /// Which structure was being read.
    pub what: &'static str,
    /// Where: bytes from the start of the message's header, or from the start of the buffer for the header itself.
    pub offset: usize,
    /// What is wrong.
    pub kind: DecodeErrorKind,
}

/// The ways in which bytes can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeErrorKind {
    /// Fewer bytes than the structure needs.
    #[error("needs {needed} bytes and has {available}")]
    Truncated {
        /// Bytes wanted.
        needed: usize,
        /// Bytes there.
        available: usize,
    },
    /// A length field that is smaller than its own header or larger than what is left.
    #[error("length field says {0}")]
    BadLength(usize),
    /// An attribute that the structure cannot do without.
    #[error("attribute {0} is missing")]
    Missing(u16),
    /// An attribute's payload has the wrong size.
    #[error("attribute {attribute} has {length} bytes")]
    BadSize {
        /// Attribute type.
        attribute: u16,
        /// Payload bytes.
        length: usize,
    },
    /// A name that is not UTF-8. Names of kube-proxy are ASCII, so such an object is a stranger's.
    #[error("attribute {0} is not UTF-8")]
    NotUtf8(u16),
    /// A value this crate has no meaning for.
    #[error("attribute {attribute} holds the unknown value {value}")]
    UnknownValue {
        /// Attribute type.
        attribute: u16,
        /// The number.
        value: u64,
    },
    /// An attribute this crate does not know, or one that came twice, where nothing may be left out.
    #[error("attribute {0} is unknown or repeated")]
    Stranger(u16),
    /// The message belongs to another subsystem than the decoder's.
    #[error("message type {0:#06x} belongs to another subsystem")]
    WrongSubsystem(u16),
}

impl DecodeError {
    pub(crate) const fn new(what: &'static str, offset: usize, kind: DecodeErrorKind) -> Self {
        Self { what, offset, kind }
    }
}

/// A value that netlink cannot carry. The message it was meant for has not been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// Attribute lengths are 16 bits wide, header included.
    #[error("attribute {attribute} would be {length} bytes long; the limit is 65535")]
    AttributeTooLong {
        /// Attribute type.
        attribute: u16,
        /// Length with header.
        length: usize,
    },
    /// A name with a NUL byte would be read as a shorter name.
    #[error("the text of attribute {0} holds a NUL byte")]
    NulInText(u16),
    /// The message is longer than its 32-bit length field can say.
    #[error("the message would be {0} bytes long")]
    MessageTooLong(usize),
    /// A name is longer than the kernel takes.
    #[error("name of {length} bytes; the limit is {limit}")]
    NameTooLong {
        /// Bytes in the name.
        length: usize,
        /// Bytes allowed, without the closing NUL.
        limit: usize,
    },
}

/// An error number of Linux, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Operation not permitted: no `CAP_NET_ADMIN`, or another process owns the table.
    pub const EPERM: Self = Self(1);
    /// The named object does not exist.
    pub const ENOENT: Self = Self(2);
    /// The dump was interrupted by a change.
    pub const EINTR: Self = Self(4);
    /// Try again.
    pub const EAGAIN: Self = Self(11);
    /// No memory.
    pub const ENOMEM: Self = Self(12);
    /// The object is in use.
    pub const EBUSY: Self = Self(16);
    /// The object exists already, or exists with another shape.
    pub const EEXIST: Self = Self(17);
    /// The request is malformed or not allowed here.
    pub const EINVAL: Self = Self(22);
    /// The batch was made for another generation (`NFNL_BATCH_GENID`).
    pub const ERESTART: Self = Self(85);
    /// The kernel lacks the feature.
    pub const EOPNOTSUPP: Self = Self(95);
    /// The receive buffer overflowed; messages were lost.
    pub const ENOBUFS: Self = Self(105);

    /// The symbolic name, for the numbers this crate has met.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::EPERM => "EPERM",
            Self::ENOENT => "ENOENT",
            Self::EINTR => "EINTR",
            Self::EAGAIN => "EAGAIN",
            Self::ENOMEM => "ENOMEM",
            Self::EBUSY => "EBUSY",
            Self::EEXIST => "EEXIST",
            Self::EINVAL => "EINVAL",
            Self::ERESTART => "ERESTART",
            Self::EOPNOTSUPP => "EOPNOTSUPP",
            Self::ENOBUFS => "ENOBUFS",
            _ => return None,
        })
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

/// The kernel's refusal of one request, with what the extended acknowledgement adds
/// (`NETLINK_EXT_ACK` must be set on the socket for that).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the kernel refused message {sequence} (type {request_type:#06x}): {errno}{}",
    Self::detail(self)
)]
pub struct KernelError {
    /// The error number.
    pub errno: Errno,
    /// Sequence number of the refused request; in a batch it names the operation.
    pub sequence: u32,
    /// Type of the refused request.
    pub request_type: u16,
    /// The kernel's own words.
    pub message: Option<String>,
    /// Where the offending attribute starts in the refused request, in bytes from its header.
    pub offset: Option<u32>,
    /// Type of an attribute that was missing.
    pub missing_attribute: Option<u32>,
}

impl KernelError {
    fn detail(&self) -> String {
        let mut text = String::new();
        if let Some(message) = &self.message {
            text.push_str(": ");
            text.push_str(message);
        }
        match self.offset {
            Some(offset) => text + &format!(" (attribute at byte {offset})"),
            None => text,
        }
    }
}
