//! nfnetlink: the header that all netfilter subsystems share, and batches.

use crate::attr::Attrs;
use crate::error::{DecodeError, DecodeErrorKind, EncodeError};
use crate::message::{HEADER_LENGTH, Message, Messages, flags};
use crate::write::MessageWriter;

/// Protocol number for `socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER)`.
pub const NETLINK_NETFILTER: i32 = 12;

/// Bytes of `struct nfgenmsg`.
const NFGEN_LENGTH: usize = 4;

/// Multicast groups, for `NETLINK_ADD_MEMBERSHIP`.
pub mod groups {
    /// New conntrack entries.
    pub const CONNTRACK_NEW: u32 = 1;
    /// Removed conntrack entries.
    pub const CONNTRACK_DESTROY: u32 = 3;
    /// Changes of tables, chains, rules, sets, and the generation after each commit.
    pub const NFTABLES: u32 = 7;
    /// Traces of packets for which a rule set `nftrace`.
    pub const NFTRACE: u32 = 9;
}

/// Subsystems of nfnetlink that this crate speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subsystem {
    Conntrack,
    Logging,
    Ipset,
    Accounting,
    Nftables,
}

impl Subsystem {
    const fn code(self) -> u8 {
        match self {
            Self::Conntrack => 1,
            Self::Logging => 4,
            Self::Ipset => 6,
            Self::Accounting => 7,
            Self::Nftables => 10,
        }
    }

    /// The message type for one of the subsystem's operations.
    pub(crate) const fn kind(self, operation: u8) -> u16 {
        u16::from_be_bytes([self.code(), operation])
    }
}

/// Protocol families as netfilter numbers them (`NFPROTO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// All families (dumps), or none.
    Unspecified,
    /// IPv4 and IPv6 in one table; `nf_tables` only.
    Inet,
    /// IPv4; iptables' tables live here.
    Ipv4,
    /// ARP.
    Arp,
    /// Ingress of a device.
    Netdev,
    /// Bridge.
    Bridge,
    /// IPv6; ip6tables' tables live here.
    Ipv6,
    /// Anything else.
    Other(u8),
}

impl Family {
    /// The kernel's number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Unspecified => 0,
            Self::Inet => 1,
            Self::Ipv4 => 2,
            Self::Arp => 3,
            Self::Netdev => 5,
            Self::Bridge => 7,
            Self::Ipv6 => 10,
            Self::Other(code) => code,
        }
    }

    /// The family for a kernel number.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Unspecified,
            1 => Self::Inet,
            2 => Self::Ipv4,
            3 => Self::Arp,
            5 => Self::Netdev,
            7 => Self::Bridge,
            10 => Self::Ipv6,
            other => Self::Other(other),
        }
    }
}

/// A message of a known subsystem, split into its parts.
#[derive(Debug, Clone)]
pub(crate) struct Body<'a> {
    pub(crate) operation: u8,
    pub(crate) family: Family,
    pub(crate) resource: u16,
    pub(crate) attributes: &'a [u8],
}

impl<'a> Body<'a> {
    /// Splits a message, which must be of the given subsystem.
    pub(crate) fn read(message: Message<'a>, subsystem: Subsystem) -> Result<Self, DecodeError> {
        let what = "nfnetlink message";
        let [code, operation] = message.header.kind.to_be_bytes();
        if code != subsystem.code() {
            let kind = DecodeErrorKind::WrongSubsystem(message.header.kind);
            return Err(DecodeError::new(what, 0, kind));
        }
        let Some((head, attributes)) = message.payload.split_first_chunk::<NFGEN_LENGTH>() else {
            let kind = DecodeErrorKind::Truncated {
                needed: NFGEN_LENGTH,
                available: message.payload.len(),
            };
            return Err(DecodeError::new(what, HEADER_LENGTH, kind));
        };
        let [family, _version, high, low] = *head;
        let resource = u16::from_be_bytes([high, low]);
        Ok(Self {
            operation,
            family: Family::from_code(family),
            resource,
            attributes,
        })
    }

    /// The message's attributes, as those of the structure called `what`.
    pub(crate) const fn attrs(&self, what: &'static str) -> Attrs<'a> {
        Attrs::new(self.attributes, what, HEADER_LENGTH + NFGEN_LENGTH)
    }
}

/// Starts a message with its nfnetlink header.
pub(crate) fn begin(
    buffer: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    sequence: u32,
    family: Family,
) -> MessageWriter<'_> {
    begin_for(buffer, (kind, flags), sequence, family, 0)
}

/// The same, with the number that some subsystems have their objects by.
pub(crate) fn begin_for(
    buffer: &mut Vec<u8>,
    (kind, flags): (u16, u16),
    sequence: u32,
    family: Family,
    resource: u16,
) -> MessageWriter<'_> {
    let mut writer = MessageWriter::begin(buffer, kind, flags, sequence);
    let [high, low] = resource.to_be_bytes();
    writer.fixed(&[family.code(), 0, high, low]);
    writer
}

/// One operation of a batch, as [`Batch::push`] takes it.
pub trait Operation {
    /// Writes the operation as one message with the given flags added to its own.
    ///
    /// # Errors
    /// A value that netlink cannot carry; the buffer is then unchanged.
    fn encode(&self, sequence: u32, extra_flags: u16, buffer: &mut Vec<u8>) -> Result<(), EncodeError>;
}

/// An operation that is refused (EEXIST) when what it would make is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnlyNew<T>(pub T);

impl<T: Operation> Operation for OnlyNew<T> {
    fn encode(&self, sequence: u32, extra_flags: u16, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.0.encode(sequence, extra_flags | flags::EXCL, buffer)
    }
}

/// A transaction: the kernel carries out all of its operations or none.
///
/// The acknowledgement is asked for on the last operation alone. One per operation overflows the receive buffer
/// (ENOBUFS at 2,000 messages), and kernels before 6.10 do not answer on the batch's end.
#[derive(Debug, Clone)]
pub struct Batch {
    bytes: Vec<u8>,
    first: u32,
    next: u32,
    last_at: Option<usize>,
}

/// A finished batch, ready to be sent in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchBytes {
    /// What to send.
    pub bytes: Vec<u8>,
    /// Sequence number of the batch's begin message; refusals of the batch as a whole (wrong generation, no
    /// permission) carry it.
    pub begin_sequence: u32,
    /// Sequence number of the first operation; the others follow one by one.
    pub first_operation: u32,
    /// Sequence number of the last operation: an ACK with it means that the batch is committed.
    pub last_operation: u32,
}

impl BatchBytes {
    /// Which operation, counted from zero, a sequence number of a refusal names.
    pub fn operation(&self, sequence: u32) -> Option<usize> {
        let index = sequence.wrapping_sub(self.first_operation);
        let last = self.last_operation.wrapping_sub(self.first_operation);
        if index <= last {
            usize::try_from(index).ok()
        } else {
            None
        }
    }

    /// The message with this sequence number, as it was sent.
    pub fn message(&self, sequence: u32) -> Option<Message<'_>> {
        let messages = Messages::new(&self.bytes).map_while(Result::ok);
        messages
            .into_iter()
            .find(|message| message.header.sequence == sequence)
    }

    /// The sequence number after the batch's last message.
    pub const fn next_sequence(&self) -> u32 {
        self.last_operation.wrapping_add(2)
    }
}

/// `NFNL_MSG_BATCH_BEGIN` and `_END`.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `NFNL_BATCH_GENID`.
const BATCH_GENERATION: u16 = 1;

impl Batch {
    /// Starts a batch of `nf_tables` operations. With a generation the kernel refuses the whole batch (ERESTART) if
    /// anybody has committed since that generation.
    pub fn new(sequence: u32, generation: Option<u32>) -> Self {
        let mut bytes = Vec::new();
        let resource = u16::from(Subsystem::Nftables.code());
        let head = (BATCH_BEGIN, flags::REQUEST);
        let mut writer = begin_for(&mut bytes, head, sequence, Family::Unspecified, resource);
        if let Some(generation) = generation {
            writer.u32(BATCH_GENERATION, generation);
        }
        writer
            .finish()
            .expect("invariant: two fixed numbers fit any message");
        let first = sequence.wrapping_add(1);
        Self {
            bytes,
            first,
            next: first,
            last_at: None,
        }
    }

    /// Adds an operation and returns its sequence number.
    ///
    /// # Errors
    /// A value that netlink cannot carry; the batch is then as before.
    pub fn push(&mut self, operation: &impl Operation) -> Result<u32, EncodeError> {
        let at = self.bytes.len();
        let sequence = self.next;
        operation.encode(sequence, 0, &mut self.bytes)?;
        self.last_at = Some(at);
        self.next = sequence.wrapping_add(1);
        Ok(sequence)
    }

    /// Bytes so far. A socket's send buffer bounds a batch: with the default of 208 KiB larger ones are refused.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing has been added.
    pub const fn is_empty(&self) -> bool {
        self.last_at.is_none()
    }

    /// Ends the batch; nothing if it has no operation.
    pub fn finish(self) -> Option<BatchBytes> {
        let mut batch = self.rehearsal()?;
        let head = (BATCH_END, flags::REQUEST);
        let resource = u16::from(Subsystem::Nftables.code());
        let sequence = batch.last_operation.wrapping_add(1);
        begin_for(&mut batch.bytes, head, sequence, Family::Unspecified, resource)
            .finish()
            .expect("invariant: an empty message fits");
        Some(batch)
    }

    /// Leaves the batch open: the kernel looks at each operation, loads what modules they take, answers, and forgets
    /// them. Nothing changes, and nobody is notified (`nft --check` does the same).
    pub fn rehearsal(mut self) -> Option<BatchBytes> {
        const FLAGS_AT: usize = 6;
        let at = self.last_at? + FLAGS_AT;
        let own = u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]]);
        self.bytes[at..at + 2].copy_from_slice(&(own | flags::ACK).to_ne_bytes());
        Some(BatchBytes {
            bytes: self.bytes,
            begin_sequence: self.first.wrapping_sub(1),
            first_operation: self.first,
            last_operation: self.next.wrapping_sub(1),
        })
    }
}
