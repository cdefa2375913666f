//! Questions to conntrack, and deletions.

use std::net::IpAddr;

use super::entry::at;
use super::msg;
use super::tuple::{Tuple, ip, proto, write_address};
use crate::error::EncodeError;
use crate::message::flags;
use crate::nfnl::{Family, Subsystem, begin};
use crate::write::MessageWriter;

/// Which of an entry's tuples a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// As the first packet came in.
    Original,
    /// As answers come in.
    Reply,
}

/// What a dump is narrowed to, by the kernel. Kernels before 5.8 ignore `protocol` and `destination`, so **check the
/// entries that come back**; an answer with `NLM_F_DUMP_FILTERED` was filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filter {
    /// Mark and mask.
    pub mark: Option<(u32, u32)>,
    /// Status bits and mask. Younger in the kernel than the others.
    pub status: Option<(u32, u32)>,
    /// Protocol number of the original direction.
    pub protocol: Option<u8>,
    /// Destination address of the original direction.
    pub destination: Option<IpAddr>,
    /// Destination port of the original direction; needs `protocol`.
    pub destination_port: Option<u16>,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Dump of a family; of all with [`Family::Unspecified`].
    Dump {
        /// Family.
        family: Family,
        /// Narrowing.
        filter: Filter,
    },
    /// One entry: one answer, or `ENOENT`.
    Get {
        /// Which of its tuples is given.
        direction: Direction,
        /// The tuple.
        tuple: Tuple,
        /// Zone, if not 0.
        zone: Option<u16>,
    },
    /// Removes one entry, or `ENOENT`. There is no request here that removes all: a deletion always has a tuple.
    Delete {
        /// Which of its tuples is given.
        direction: Direction,
        /// The tuple.
        tuple: Tuple,
        /// Only the entry with this id, not a later one with the same tuple.
        id: Option<u32>,
        /// Zone, if not 0.
        zone: Option<u16>,
    },
}

impl Request {
    /// Writes the request at the end of `buffer`. A deletion asks for its acknowledgement; many may be sent in one
    /// call, each with its own sequence number.
    ///
    /// # Errors
    /// Never for these requests; the signature is that of all requests.
    pub fn encode(&self, sequence: u32, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (operation, more, family) = match *self {
            Self::Dump { family, .. } => (msg::GET, flags::DUMP, family),
            Self::Get { tuple, .. } => (msg::GET, 0, tuple.family()),
            Self::Delete { tuple, .. } => (msg::DELETE, flags::ACK, tuple.family()),
        };
        let kind = Subsystem::Conntrack.kind(operation);
        let mut writer = begin(buffer, kind, flags::REQUEST | more, sequence, family);
        match *self {
            Self::Dump { filter, .. } => write_filter(&mut writer, &filter),
            Self::Get {
                direction,
                tuple,
                zone,
            } => write_key(&mut writer, direction, &tuple, zone),
            Self::Delete {
                direction,
                tuple,
                id,
                zone,
            } => {
                write_key(&mut writer, direction, &tuple, zone);
                if let Some(id) = id {
                    writer.u32(at::ID, id);
                }
            }
        }
        writer.finish()
    }
}

fn write_key(writer: &mut MessageWriter<'_>, direction: Direction, tuple: &Tuple, zone: Option<u16>) {
    let kind = match direction {
        Direction::Original => at::TUPLE_ORIG,
        Direction::Reply => at::TUPLE_REPLY,
    };
    writer.nest(kind, |writer| tuple.write(writer));
    if let Some(zone) = zone {
        writer.u16(at::ZONE, zone);
    }
}

/// `CTA_FILTER_F_*` of `net/netfilter/nf_conntrack_netlink.c`: which parts of the given tuple count.
mod filter_flag {
    pub(super) const IP_DST: u32 = 1 << 1;
    pub(super) const PROTO_NUM: u32 = 1 << 3;
    pub(super) const PROTO_DST_PORT: u32 = 1 << 5;
}

fn write_filter(writer: &mut MessageWriter<'_>, filter: &Filter) {
    if let Some((mark, mask)) = filter.mark {
        writer.u32(at::MARK, mark);
        writer.u32(at::MARK_MASK, mask);
    }
    if let Some((status, mask)) = filter.status {
        writer.u32(at::STATUS, status);
        writer.u32(at::STATUS_MASK, mask);
    }
    write_tuple_filter(writer, filter);
}

fn write_tuple_filter(writer: &mut MessageWriter<'_>, filter: &Filter) {
    const TUPLE_IP: u16 = 1;
    const TUPLE_PROTO: u16 = 2;
    const ORIG_FLAGS: u16 = 1;
    const REPLY_FLAGS: u16 = 2;
    // A port without its protocol would be refused.
    let port = filter.destination_port.filter(|_| filter.protocol.is_some());
    let mut wanted = 0_u32;
    wanted |= filter.destination.map_or(0, |_| filter_flag::IP_DST);
    wanted |= filter.protocol.map_or(0, |_| filter_flag::PROTO_NUM);
    wanted |= port.map_or(0, |_| filter_flag::PROTO_DST_PORT);
    if wanted == 0 {
        return;
    }
    writer.nest(at::TUPLE_ORIG, |writer| {
        if let Some(address) = filter.destination {
            writer.nest(TUPLE_IP, |writer| {
                write_address(writer, address, ip::V4_DST, ip::V6_DST);
            });
        }
        if let Some(protocol) = filter.protocol {
            writer.nest(TUPLE_PROTO, |writer| {
                writer.u8(proto::NUM, protocol);
                if let Some(port) = port {
                    writer.u16(proto::DST_PORT, port);
                }
            });
        }
    });
    writer.nest(at::FILTER, |writer| {
        writer.bytes(ORIG_FLAGS, &wanted.to_ne_bytes());
        writer.bytes(REPLY_FLAGS, &0_u32.to_ne_bytes());
    });
}
