//! Tuples: one direction of a connection.

use std::net::IpAddr;

use crate::attr::{Attrs, Fields};
use crate::error::DecodeError;
use crate::nfnl::Family;
use crate::write::MessageWriter;

/// What tells flows between two addresses apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer4 {
    /// TCP, UDP, SCTP and the like.
    Ports {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// ICMP and `ICMPv6`.
    Icmp {
        /// Identifier.
        id: u16,
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
    },
    /// Protocols without either.
    None,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address; of the same family as `source`, or the kernel refuses it.
    pub destination: IpAddr,
    /// Protocol number: 6 is TCP, 17 UDP, 132 SCTP.
    pub protocol: u8,
    /// Ports or their like.
    pub layer4: Layer4,
    /// Zone of this direction, if it is not the default zone 0 and not both directions'.
    pub zone: Option<u16>,
}

/// `CTA_TUPLE_*`.
mod at {
    pub(super) const IP: u16 = 1;
    pub(super) const PROTO: u16 = 2;
    pub(super) const ZONE: u16 = 3;
    pub(super) const COUNT: usize = 4;
}

/// `CTA_IP_*`.
pub(super) mod ip {
    pub(crate) const V4_SRC: u16 = 1;
    pub(crate) const V4_DST: u16 = 2;
    pub(crate) const V6_SRC: u16 = 3;
    pub(crate) const V6_DST: u16 = 4;
    pub(super) const COUNT: usize = 5;
}

/// `CTA_PROTO_*`.
pub(super) mod proto {
    pub(crate) const NUM: u16 = 1;
    pub(crate) const SRC_PORT: u16 = 2;
    pub(crate) const DST_PORT: u16 = 3;
    pub(super) const ICMP_ID: u16 = 4;
    pub(super) const ICMPV6_ID: u16 = 7;
    pub(super) const COUNT: usize = 10;
}

const ICMPV6: u8 = 58;

impl Tuple {
    /// The family of its addresses.
    pub const fn family(&self) -> Family {
        match self.source {
            IpAddr::V4(_) => Family::Ipv4,
            IpAddr::V6(_) => Family::Ipv6,
        }
    }

    pub(super) fn read(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        let fields = Fields::<{ at::COUNT }>::read(attrs)?;
        let addresses = fields.need(at::IP, fields.nest(at::IP, "conntrack addresses"))?;
        let protocol = fields.need(at::PROTO, fields.nest(at::PROTO, "conntrack protocol"))?;
        let (source, destination) = read_addresses(addresses)?;
        let (protocol, layer4) = read_protocol(protocol)?;
        Ok(Self {
            source,
            destination,
            protocol,
            layer4,
            zone: fields.u16(at::ZONE)?,
        })
    }

    pub(super) fn write(&self, writer: &mut MessageWriter<'_>) {
        writer.nest(at::IP, |writer| {
            write_address(writer, self.source, ip::V4_SRC, ip::V6_SRC);
            write_address(writer, self.destination, ip::V4_DST, ip::V6_DST);
        });
        writer.nest(at::PROTO, |writer| {
            writer.u8(proto::NUM, self.protocol);
            match self.layer4 {
                Layer4::Ports { source, destination } => {
                    writer.u16(proto::SRC_PORT, source);
                    writer.u16(proto::DST_PORT, destination);
                }
                Layer4::Icmp { id, kind, code } => {
                    let first = if self.protocol == ICMPV6 {
                        proto::ICMPV6_ID
                    } else {
                        proto::ICMP_ID
                    };
                    writer.u16(first, id);
                    writer.u8(first + 1, kind);
                    writer.u8(first + 2, code);
                }
                Layer4::None => {}
            }
        });
        if let Some(zone) = self.zone {
            writer.u16(at::ZONE, zone);
        }
    }
}

/// Writes an address under the number of its family.
pub(super) fn write_address(writer: &mut MessageWriter<'_>, address: IpAddr, v4: u16, v6: u16) {
    match address {
        IpAddr::V4(address) => writer.bytes(v4, &address.octets()),
        IpAddr::V6(address) => writer.bytes(v6, &address.octets()),
    }
}

fn read_addresses(attrs: Attrs<'_>) -> Result<(IpAddr, IpAddr), DecodeError> {
    let fields = Fields::<{ ip::COUNT }>::read(attrs)?;
    if let (Some(source), Some(destination)) = (fields.ipv4(ip::V4_SRC)?, fields.ipv4(ip::V4_DST)?) {
        return Ok((source.into(), destination.into()));
    }
    let source = fields.need(ip::V6_SRC, fields.ipv6(ip::V6_SRC)?)?;
    let destination = fields.need(ip::V6_DST, fields.ipv6(ip::V6_DST)?)?;
    Ok((source.into(), destination.into()))
}

fn read_protocol(attrs: Attrs<'_>) -> Result<(u8, Layer4), DecodeError> {
    let fields = Fields::<{ proto::COUNT }>::read(attrs)?;
    let number = fields.need(proto::NUM, fields.u8(proto::NUM)?)?;
    if let (Some(source), Some(destination)) = (fields.u16(proto::SRC_PORT)?, fields.u16(proto::DST_PORT)?) {
        return Ok((number, Layer4::Ports { source, destination }));
    }
    let first = if number == ICMPV6 {
        proto::ICMPV6_ID
    } else {
        proto::ICMP_ID
    };
    Ok((
        number,
        match (fields.u16(first)?, fields.u8(first + 1)?, fields.u8(first + 2)?) {
            (Some(id), Some(kind), Some(code)) => Layer4::Icmp { id, kind, code },
            _ => Layer4::None,
        },
    ))
}
