//! Matches whose structures are a few numbers.

use super::read::Struct;

/// `struct xt_statistic_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// Matches with a chance of `probability` / 2^31.
    Random {
        /// `0x8000_0000` is certain.
        probability: u32,
        /// Whether it matches otherwise.
        inverted: bool,
    },
    /// Matches one packet in `every`.
    Nth {
        /// Period. The structure holds one less; this is as iptables writes it.
        every: u32,
        /// Which of them, from 0.
        packet: u32,
        /// Whether it matches otherwise.
        inverted: bool,
    },
}

impl Statistic {
    pub(super) fn read(info: &[u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        let (mode, flags) = (bytes.u16()?, bytes.u16()?);
        let inverted = flags & 1 != 0;
        match mode {
            0 => Some(Self::Random {
                probability: bytes.u32()?,
                inverted,
            }),
            1 => {
                let (every, packet) = (bytes.u32()?, bytes.u32()?);
                Some(Self::Nth {
                    every: every.checked_add(1)?,
                    packet,
                    inverted,
                })
            }
            _ => None,
        }
    }
}

/// Address types as bits; bit n is type n of `rtnetlink.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeMask(pub u16);

impl TypeMask {
    /// Names in the order of their bits, as iptables writes them.
    const NAMES: [&'static str; 12] = [
        "UNSPEC",
        "UNICAST",
        "LOCAL",
        "BROADCAST",
        "ANYCAST",
        "MULTICAST",
        "BLACKHOLE",
        "UNREACHABLE",
        "PROHIBIT",
        "THROW",
        "NAT",
        "XRESOLVE",
    ];

    /// `LOCAL` alone.
    pub const LOCAL: Self = Self(1 << 2);

    /// Names of the types in it.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 >> bit & 1 != 0)
            .map(|(_, name)| *name)
    }
}

/// To which interface an address type is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfaceLimit {
    /// None.
    None,
    /// The incoming one.
    In,
    /// The outgoing one.
    Out,
}

/// `struct xt_addrtype_info_v1`. A mask of 0 is no condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddrType {
    /// Types of the source.
    pub source: TypeMask,
    /// Whether the source must be of none of them.
    pub source_inverted: bool,
    /// Types of the destination.
    pub destination: TypeMask,
    /// Whether the destination must be of none of them.
    pub destination_inverted: bool,
    /// Interface.
    pub limit: IfaceLimit,
}

impl AddrType {
    pub(super) fn read(info: &[u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        let (source, destination, flags) = (bytes.u16()?, bytes.u16()?, bytes.u32()?);
        let limit = match flags >> 2 {
            0 => IfaceLimit::None,
            1 => IfaceLimit::In,
            2 => IfaceLimit::Out,
            _ => return None,
        };
        Some(Self {
            source: TypeMask(source),
            source_inverted: flags & 1 != 0,
            destination: TypeMask(destination),
            destination_inverted: flags & 2 != 0,
            limit,
        })
    }
}

/// `struct xt_mark_mtinfo1`: `(mark & mask) == value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Value.
    pub value: u32,
    /// Bits looked at.
    pub mask: u32,
    /// Whether that must *not* be.
    pub inverted: bool,
}

impl Mark {
    pub(super) fn read(info: &[u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        Some(Self {
            value: bytes.u32()?,
            mask: bytes.u32()?,
            inverted: bytes.u8()? != 0,
        })
    }
}

/// `struct xt_set_info`, at the start of all revisions of the set match. The set is named by its number in the
/// kernel; ask ipset for the name. A match with conditions on counters or elements is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Set {
    /// Number of the set.
    pub index: u16,
    /// Number of dimensions.
    pub dimensions: u8,
    /// Bit 0 inverts; bit n is set if dimension n, counted from 1, is of the packet's source.
    flags: u8,
}

impl Set {
    /// `IPSET_DIM_MAX`.
    const DIMENSION_LIMIT: u8 = 6;
    /// `IPSET_RETURN_NOMATCH`.
    const RETURN_NOMATCH: u8 = 1 << 7;

    /// Whether the packet must *not* be in the set.
    pub const fn is_inverted(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Whether dimension `n`, counted from 0, is of the packet's source; otherwise it is of its destination.
    pub const fn is_source(&self, n: u8) -> bool {
        n < Self::DIMENSION_LIMIT && self.flags >> (n + 1) & 1 != 0
    }

    pub(super) fn read(info: &[u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        let set = Self {
            index: bytes.u16()?,
            dimensions: bytes.u8()?,
            flags: bytes.u8()?,
        };
        // What follows says conditions on counters, in revisions 3 and 4, and is zero without them.
        let plain = bytes.0.iter().all(|byte| *byte == 0) && set.flags & Self::RETURN_NOMATCH == 0;
        (plain && set.dimensions <= Self::DIMENSION_LIMIT).then_some(set)
    }
}
