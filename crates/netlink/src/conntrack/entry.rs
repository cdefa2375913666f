//! Entries of the connection table.

use super::tuple::Tuple;
use crate::attr::{Attrs, Fields};
use crate::error::DecodeError;

/// `IPS_*` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Status(pub u32);

impl Status {
    /// Packets have been seen in both directions.
    pub const SEEN_REPLY: u32 = 1 << 1;
    /// Not to be thrown out early when the table is full.
    pub const ASSURED: u32 = 1 << 2;
    /// The first packet has left the host.
    pub const CONFIRMED: u32 = 1 << 3;
    /// The source is translated.
    pub const SRC_NAT: u32 = 1 << 4;
    /// The destination is translated.
    pub const DST_NAT: u32 = 1 << 5;
    /// The entry is being removed.
    pub const DYING: u32 = 1 << 9;

    /// Whether all of these bits are set.
    pub const fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

/// Packets and bytes of one direction; there only with `nf_conntrack_acct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// When an entry began and ended, in nanoseconds of Unix time; there only with `nf_conntrack_timestamp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamps {
    /// Begin.
    pub start: Option<u64>,
    /// End, for removed entries.
    pub stop: Option<u64>,
}

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// As the connection's first packet came in, before NAT: its destination is the service.
    pub original: Tuple,
    /// As answers come in: its source is the endpoint that was chosen.
    pub reply: Tuple,
    /// Status bits.
    pub status: Status,
    /// Connection mark.
    pub mark: u32,
    /// Seconds left.
    pub timeout: Option<u32>,
    /// Tells an entry from a later one with the same tuples; to be given back unchanged.
    pub id: Option<u32>,
    /// Zone, if not 0.
    pub zone: Option<u16>,
    /// `TCP_CONNTRACK_*`: 1 is SYN sent, 3 established, 7 time wait.
    pub tcp_state: Option<u8>,
    /// Counters of the original direction.
    pub original_counters: Option<Counters>,
    /// Counters of the reply direction.
    pub reply_counters: Option<Counters>,
    /// Begin and end.
    pub timestamps: Option<Timestamps>,
}

/// `CTA_*`.
pub(super) mod at {
    pub(crate) const TUPLE_ORIG: u16 = 1;
    pub(crate) const TUPLE_REPLY: u16 = 2;
    pub(crate) const STATUS: u16 = 3;
    pub(super) const PROTOINFO: u16 = 4;
    pub(super) const TIMEOUT: u16 = 7;
    pub(crate) const MARK: u16 = 8;
    pub(super) const COUNTERS_ORIG: u16 = 9;
    pub(super) const COUNTERS_REPLY: u16 = 10;
    pub(crate) const ID: u16 = 12;
    pub(crate) const ZONE: u16 = 18;
    pub(super) const TIMESTAMP: u16 = 20;
    pub(crate) const MARK_MASK: u16 = 21;
    pub(crate) const FILTER: u16 = 25;
    pub(crate) const STATUS_MASK: u16 = 26;
    pub(super) const COUNT: usize = 27;
}

impl Entry {
    pub(super) fn read(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        let fields = Fields::<{ at::COUNT }>::read(attrs)?;
        let original = fields.need(at::TUPLE_ORIG, fields.nest(at::TUPLE_ORIG, "original tuple"))?;
        let reply = fields.need(at::TUPLE_REPLY, fields.nest(at::TUPLE_REPLY, "reply tuple"))?;
        let counters = |kind| {
            fields
                .nest(kind, "conntrack counters")
                .map(read_counters)
                .transpose()
        };
        Ok(Self {
            original: Tuple::read(original)?,
            reply: Tuple::read(reply)?,
            status: Status(fields.u32(at::STATUS)?.unwrap_or_default()),
            mark: fields.u32(at::MARK)?.unwrap_or_default(),
            timeout: fields.u32(at::TIMEOUT)?,
            id: fields.u32(at::ID)?,
            zone: fields.u16(at::ZONE)?,
            tcp_state: read_tcp_state(&fields)?,
            original_counters: counters(at::COUNTERS_ORIG)?,
            reply_counters: counters(at::COUNTERS_REPLY)?,
            timestamps: fields
                .nest(at::TIMESTAMP, "conntrack timestamps")
                .map(read_timestamps)
                .transpose()?,
        })
    }
}

fn read_tcp_state(fields: &Fields<'_, { at::COUNT }>) -> Result<Option<u8>, DecodeError> {
    const TCP: u16 = 1;
    const STATE: u16 = 1;
    let Some(nest) = fields.nest(at::PROTOINFO, "conntrack protocol state") else {
        return Ok(None);
    };
    let Some(tcp) = Fields::<4>::read(nest)?.nest(TCP, "conntrack TCP state") else {
        return Ok(None);
    };
    Fields::<6>::read(tcp)?.u8(STATE)
}

fn read_counters(attrs: Attrs<'_>) -> Result<Counters, DecodeError> {
    const PACKETS: u16 = 1;
    const BYTES: u16 = 2;
    let fields = Fields::<6>::read(attrs)?;
    Ok(Counters {
        packets: fields.u64(PACKETS)?.unwrap_or_default(),
        bytes: fields.u64(BYTES)?.unwrap_or_default(),
    })
}

fn read_timestamps(attrs: Attrs<'_>) -> Result<Timestamps, DecodeError> {
    const START: u16 = 1;
    const STOP: u16 = 2;
    let fields = Fields::<4>::read(attrs)?;
    Ok(Timestamps {
        start: fields.u64(START)?,
        stop: fields.u64(STOP)?,
    })
}
