//! Matches on transport protocols.

use super::read::Struct;

/// Ports from `first` to `last`, both included; or all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// Lowest.
    pub first: u16,
    /// Highest.
    pub last: u16,
    /// Whether the range is what must *not* be.
    pub inverted: bool,
}

impl PortRange {
    /// Whether it says nothing.
    pub const fn is_any(&self) -> bool {
        self.first == 0 && self.last == u16::MAX && !self.inverted
    }
}

/// TCP flags: of those in `mask` exactly those in `set` are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpFlags {
    /// Flags looked at; 0 is no condition.
    pub mask: u8,
    /// Flags that are set.
    pub set: u8,
    /// Whether that must *not* be.
    pub inverted: bool,
}

/// `struct xt_tcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    /// Source ports.
    pub source: PortRange,
    /// Destination ports.
    pub destination: PortRange,
    /// Option that must be there; 0 is no condition.
    pub option: u8,
    /// Whether the option must *not* be there.
    pub option_inverted: bool,
    /// Flags.
    pub flags: TcpFlags,
}

impl Tcp {
    pub(super) fn read(info: &[u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        let source = [bytes.u16()?, bytes.u16()?];
        let destination = [bytes.u16()?, bytes.u16()?];
        let [option, mask, set, inverse] = bytes.array()?;
        Some(Self {
            source: range(source, inverse & 1 != 0),
            destination: range(destination, inverse & 2 != 0),
            option,
            option_inverted: inverse & 8 != 0,
            flags: TcpFlags {
                mask,
                set,
                inverted: inverse & 4 != 0,
            },
        })
    }
}

/// `struct xt_udp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Udp {
    /// Source ports.
    pub source: PortRange,
    /// Destination ports.
    pub destination: PortRange,
}

impl Udp {
    pub(super) fn read(info: &[u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        let source = [bytes.u16()?, bytes.u16()?];
        let destination = [bytes.u16()?, bytes.u16()?];
        let inverse = bytes.u8()?;
        Some(Self {
            source: range(source, inverse & 1 != 0),
            destination: range(destination, inverse & 2 != 0),
        })
    }
}

/// `struct xt_sctp_info`. Ports that are not set are any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sctp {
    /// Source ports, if looked at.
    pub source: Option<PortRange>,
    /// Destination ports, if looked at.
    pub destination: Option<PortRange>,
    /// Whether chunk types are looked at too (this crate does not say which).
    pub chunks: bool,
}

impl Sctp {
    pub(super) fn read(info: &[u8]) -> Option<Self> {
        const SOURCE: u32 = 1;
        const DESTINATION: u32 = 2;
        const CHUNKS: u32 = 4;
        let mut bytes = Struct(info);
        // Unlike those of TCP and UDP, destination ports come first.
        let destination = [bytes.u16()?, bytes.u16()?];
        let source = [bytes.u16()?, bytes.u16()?];
        // Chunk map (a word for each four chunk types), kind of match, four times three flag bytes, their count.
        bytes.bytes(256 + 4 + 12 + 4)?;
        let (flags, inverse) = (bytes.u32()?, bytes.u32()?);
        let side = |bit, ports| (flags & bit != 0).then(|| range(ports, inverse & bit != 0));
        Some(Self {
            source: side(SOURCE, source),
            destination: side(DESTINATION, destination),
            chunks: flags & CHUNKS != 0,
        })
    }
}

/// `struct ipt_icmp` and `struct ip6t_icmp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Icmp {
    /// Type; 255 is any for ICMP.
    pub kind: u8,
    /// Lowest code.
    pub first_code: u8,
    /// Highest code.
    pub last_code: u8,
    /// Whether that must *not* be.
    pub inverted: bool,
}

impl Icmp {
    pub(super) fn read(info: &[u8]) -> Option<Self> {
        let [kind, first_code, last_code, inverse] = *info.first_chunk()?;
        Some(Self {
            kind,
            first_code,
            last_code,
            inverted: inverse & 1 != 0,
        })
    }
}

/// Which port a multiport looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MultiportSide {
    /// Source.
    Source,
    /// Destination.
    Destination,
    /// Either.
    Either,
}

/// Most ports in a multiport; a range takes two.
const MULTIPORT_LIMIT: usize = 15;

/// `struct xt_multiport` and `xt_multiport_v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multiport {
    /// Which port.
    pub side: MultiportSide,
    ranges: [(u16, u16); MULTIPORT_LIMIT],
    count: usize,
    /// Whether the port must *not* be one of these.
    pub inverted: bool,
}

impl Multiport {
    /// The ports, as ranges with both ends included, in the order given.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.ranges[..self.count]
    }

    pub(super) fn read(revision: u32, info: &[u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        let side = match bytes.u8()? {
            0 => MultiportSide::Source,
            1 => MultiportSide::Destination,
            2 => MultiportSide::Either,
            _ => return None,
        };
        let used = usize::from(bytes.u8()?);
        let mut ports = [0; MULTIPORT_LIMIT];
        for port in &mut ports {
            *port = bytes.u16()?;
        }
        let (starts, inverted) = match revision {
            0 => ([0; MULTIPORT_LIMIT], false),
            _ => (bytes.array()?, bytes.u8()? != 0),
        };
        let mut multiport = Self {
            side,
            ranges: [(0, 0); MULTIPORT_LIMIT],
            count: 0,
            inverted,
        };
        let mut pairs = ports.get(..used)?.iter().zip(starts);
        while let Some((first, starts_range)) = pairs.next() {
            let last = if starts_range == 0 { first } else { pairs.next()?.0 };
            multiport.ranges[multiport.count] = (*first, *last);
            multiport.count += 1;
        }
        Some(multiport)
    }
}

const fn range([first, last]: [u16; 2], inverted: bool) -> PortRange {
    PortRange {
        first,
        last,
        inverted,
    }
}
