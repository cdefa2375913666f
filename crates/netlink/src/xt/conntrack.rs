//! The conntrack match.

use std::net::IpAddr;

use super::ports::PortRange;
use super::read::Struct;
use crate::nfnl::Family;

/// State bits of the conntrack match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConntrackState(pub u16);

impl ConntrackState {
    /// The packet belongs to no connection.
    pub const INVALID: u16 = 1;
    /// The connection has seen packets in both directions.
    pub const ESTABLISHED: u16 = 1 << 1;
    /// The packet is about another connection, such as an ICMP error.
    pub const RELATED: u16 = 1 << 2;
    /// The packet begins a connection.
    pub const NEW: u16 = 1 << 3;
    /// The source is translated.
    pub const SNAT: u16 = 1 << 6;
    /// The destination is translated.
    pub const DNAT: u16 = 1 << 7;
    /// The packet is exempt from tracking.
    pub const UNTRACKED: u16 = 1 << 8;

    /// Names and bits, in the order in which iptables writes them.
    pub const NAMES: [(&'static str, u16); 7] = [
        ("INVALID", Self::INVALID),
        ("NEW", Self::NEW),
        ("RELATED", Self::RELATED),
        ("ESTABLISHED", Self::ESTABLISHED),
        ("UNTRACKED", Self::UNTRACKED),
        ("SNAT", Self::SNAT),
        ("DNAT", Self::DNAT),
    ];

    /// Names of the states in it.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .iter()
            .filter(move |(_, bit)| self.0 & bit != 0)
            .map(|(name, _)| *name)
    }
}

/// A condition and whether it must *not* hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConntrackField<T> {
    /// What is asked for.
    pub value: T,
    /// Whether it must *not* be so.
    pub inverted: bool,
}

/// An address with a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConntrackAddress {
    /// Address.
    pub address: IpAddr,
    /// Mask.
    pub mask: IpAddr,
}

/// Port conditions on the connection's tuples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConntrackPorts {
    /// Source port of the original direction.
    pub original_source: Option<PortRange>,
    /// Destination port of the original direction.
    pub original_destination: Option<PortRange>,
    /// Source port of the replies.
    pub reply_source: Option<PortRange>,
    /// Destination port of the replies.
    pub reply_destination: Option<PortRange>,
}

/// `struct xt_conntrack_mtinfo1` to `3`. What is `None` is no condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conntrack {
    /// States.
    pub state: Option<ConntrackField<ConntrackState>>,
    /// `IPS_*` bits; 0 asks for none of them.
    pub status: Option<ConntrackField<u16>>,
    /// Protocol number.
    pub protocol: Option<ConntrackField<u16>>,
    /// Source of the original direction.
    pub original_source: Option<ConntrackField<ConntrackAddress>>,
    /// Destination of the original direction: the service's address.
    pub original_destination: Option<ConntrackField<ConntrackAddress>>,
    /// Source of the replies.
    pub reply_source: Option<ConntrackField<ConntrackAddress>>,
    /// Destination of the replies.
    pub reply_destination: Option<ConntrackField<ConntrackAddress>>,
    /// Ports.
    pub ports: ConntrackPorts,
    /// Seconds left: lowest and highest.
    pub expires: Option<ConntrackField<(u32, u32)>>,
    /// The packet's direction is the original one; inverted, the reply's.
    pub direction: Option<ConntrackField<()>>,
    /// It was written as `-m state`.
    pub is_state_alias: bool,
}

/// `XT_CONNTRACK_*` flags.
mod flag {
    pub(super) const STATE: u16 = 1;
    pub(super) const PROTO: u16 = 1 << 1;
    pub(super) const ORIGSRC: u16 = 1 << 2;
    pub(super) const ORIGDST: u16 = 1 << 3;
    pub(super) const REPLSRC: u16 = 1 << 4;
    pub(super) const REPLDST: u16 = 1 << 5;
    pub(super) const STATUS: u16 = 1 << 6;
    pub(super) const EXPIRES: u16 = 1 << 7;
    pub(super) const ORIGSRC_PORT: u16 = 1 << 8;
    pub(super) const ORIGDST_PORT: u16 = 1 << 9;
    pub(super) const REPLSRC_PORT: u16 = 1 << 10;
    pub(super) const REPLDST_PORT: u16 = 1 << 11;
    pub(super) const DIRECTION: u16 = 1 << 12;
    pub(super) const STATE_ALIAS: u16 = 1 << 13;
}

/// `match_flags` and `invert_flags`.
#[derive(Clone, Copy)]
struct Flags {
    wanted: u16,
    inverted: u16,
}

impl Flags {
    fn field<T>(self, bit: u16, value: T) -> Option<ConntrackField<T>> {
        (self.wanted & bit != 0).then_some(ConntrackField {
            value,
            inverted: self.inverted & bit != 0,
        })
    }

    fn ports(self, bit: u16, first: u16, last: u16) -> Option<PortRange> {
        (self.wanted & bit != 0).then_some(PortRange {
            first,
            last,
            inverted: self.inverted & bit != 0,
        })
    }
}

impl Conntrack {
    pub(super) fn read(family: Family, revision: u32, info: &[u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        let mut address = || {
            let (address, mask) = (bytes.address(family)?, bytes.address(family)?);
            Some(ConntrackAddress { address, mask })
        };
        let addresses = [address()?, address()?, address()?, address()?];
        let expires = (bytes.u32()?, bytes.u32()?);
        let protocol = bytes.u16()?;
        let mut low = [0; 4];
        for port in &mut low {
            // Revision 3 holds ports in the machine's order, since it has ranges.
            *port = if revision == 3 {
                bytes.u16()?
            } else {
                bytes.port()?
            };
        }
        let flags = Flags {
            wanted: bytes.u16()?,
            inverted: bytes.u16()?,
        };
        let (state, status) = match revision {
            1 => (u16::from(bytes.u8()?), u16::from(bytes.u8()?)),
            _ => (bytes.u16()?, bytes.u16()?),
        };
        let mut high = low;
        if revision == 3 {
            for port in &mut high {
                *port = bytes.u16()?;
            }
        }
        Some(Self {
            state: flags.field(flag::STATE, ConntrackState(state)),
            status: flags.field(flag::STATUS, status),
            protocol: flags.field(flag::PROTO, protocol),
            original_source: flags.field(flag::ORIGSRC, addresses[0]),
            original_destination: flags.field(flag::ORIGDST, addresses[1]),
            reply_source: flags.field(flag::REPLSRC, addresses[2]),
            reply_destination: flags.field(flag::REPLDST, addresses[3]),
            ports: read_ports(flags, low, high),
            expires: flags.field(flag::EXPIRES, expires),
            direction: flags.field(flag::DIRECTION, ()),
            is_state_alias: flags.wanted & flag::STATE_ALIAS != 0,
        })
    }
}

fn read_ports(flags: Flags, low: [u16; 4], high: [u16; 4]) -> ConntrackPorts {
    ConntrackPorts {
        original_source: flags.ports(flag::ORIGSRC_PORT, low[0], high[0]),
        original_destination: flags.ports(flag::ORIGDST_PORT, low[1], high[1]),
        reply_source: flags.ports(flag::REPLSRC_PORT, low[2], high[2]),
        reply_destination: flags.ports(flag::REPLDST_PORT, low[3], high[3]),
    }
}
