//! Expressions: the steps of a rule, as values.
//!
//! Reading is total and loses nothing: an expression of an unknown name, with an unknown attribute, with an unknown
//! code or malformed inside becomes [`Expr::Other`] with its bytes.

use super::names::{
    BitwiseOp, CmpOp, CtDirection, CtKey, DynsetOp, FibResult, LimitType, MetaKey, NatType, NumgenType,
    PayloadBase, RangeOp, RejectType,
};
use super::objects::Counters;
use super::uapi;
use super::verdict::Verdict;
use crate::attr::{Attr, Attrs, Fields};
use crate::error::DecodeError;

/// A register number. 0 holds the verdict; 1 to 4 are 16 bytes wide, 8 to 23 are the same space in pieces of 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register(pub u32);

impl Register {
    /// `NFT_REG_VERDICT`.
    pub const VERDICT: Self = Self(0);
    /// `NFT_REG_1`.
    pub const R1: Self = Self(1);
    /// `NFT_REG_2`.
    pub const R2: Self = Self(2);
}

/// What an immediate puts into its register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Bytes.
    Data(&'a [u8]),
    /// A verdict.
    Verdict(Verdict<'a>),
}

/// One expression. Registers are named `sreg` (read) and `dreg` (written). Payload data are in network order, meta
/// and ct data in the machine's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expr<'a> {
    /// Sets a register, or decides.
    Immediate {
        /// Destination.
        dreg: Register,
        /// Data or verdict.
        value: Value<'a>,
    },
    /// Goes on if a register compares as said. It compares as many bytes as there are data: iptables-nft writes
    /// `/8` as a load of one byte and `eth+` as a comparison without the closing NUL.
    Cmp {
        /// Register to compare.
        sreg: Register,
        /// How.
        op: CmpOp,
        /// With what.
        data: &'a [u8],
    },
    /// Goes on if a register lies inside (or outside) two values, both included.
    Range {
        /// Register to compare.
        sreg: Register,
        /// Inside or outside.
        op: RangeOp,
        /// Lowest.
        from: &'a [u8],
        /// Highest.
        to: &'a [u8],
    },
    /// Changes bits: `dreg = (sreg & mask) ^ xor`, or a shift.
    Bitwise {
        /// Source.
        sreg: Register,
        /// Destination.
        dreg: Register,
        /// Bytes.
        len: u32,
        /// What is done.
        op: BitwiseOp<'a>,
    },
    /// Loads bytes of the packet.
    Payload {
        /// Destination.
        dreg: Register,
        /// Which header.
        base: PayloadBase,
        /// Bytes from the header's start.
        offset: u32,
        /// Bytes.
        len: u32,
    },
    /// Loads something known about the packet.
    Meta {
        /// Destination.
        dreg: Register,
        /// What.
        key: MetaKey,
    },
    /// Sets something about the packet: mark, nftrace, priority, ...
    MetaSet {
        /// Source.
        sreg: Register,
        /// What.
        key: MetaKey,
    },
    /// Loads something known about the packet's connection.
    Ct {
        /// Destination.
        dreg: Register,
        /// What.
        key: CtKey,
        /// Of which direction's tuple.
        direction: Option<CtDirection>,
    },
    /// Sets something about the packet's connection.
    CtSet {
        /// Source.
        sreg: Register,
        /// What.
        key: CtKey,
        /// Of which direction.
        direction: Option<CtDirection>,
    },
    /// Counts.
    Counter(Counters),
    /// Looks a register up in a set; with `dreg`, in a map.
    Lookup {
        /// Name of the set.
        set: &'a str,
        /// Key.
        sreg: Register,
        /// Where the map's data go.
        dreg: Option<Register>,
        /// Go on if it is *not* in the set.
        inverted: bool,
    },
    /// Looks a register up in a map of the same batch that has no name yet. The kernel reports it as a `Lookup`.
    LookupNew {
        /// Template of its name, such as `__map%d`.
        set: &'a str,
        /// Its number.
        id: u32,
        /// Key.
        sreg: Register,
        /// Where the map's data go.
        dreg: Register,
    },
    /// Changes a set from a rule.
    Dynset {
        /// Name of the set.
        set: &'a str,
        /// What is done.
        op: DynsetOp,
        /// Key.
        sreg: Register,
        /// Milliseconds after which the element goes; the set's own without.
        timeout: Option<u64>,
    },
    /// Asks the routing table.
    Fib {
        /// Destination.
        dreg: Register,
        /// What is asked for.
        result: FibResult,
        /// `NFTA_FIB_F_*`: which of the packet's properties make the question.
        flags: u32,
    },
    /// Source or destination NAT to what is in registers.
    Nat {
        /// Source or destination.
        kind: NatType,
        /// Address family, as `NFPROTO_*`.
        family: u32,
        /// Lowest and highest address.
        addr_min: Option<Register>,
        /// Highest address.
        addr_max: Option<Register>,
        /// Lowest port.
        proto_min: Option<Register>,
        /// Highest port.
        proto_max: Option<Register>,
        /// `NF_NAT_RANGE_*`.
        flags: Option<u32>,
    },
    /// Source NAT to the address of the outgoing interface.
    Masq {
        /// `NF_NAT_RANGE_*`.
        flags: Option<u32>,
        /// Lowest port.
        proto_min: Option<Register>,
        /// Highest port.
        proto_max: Option<Register>,
    },
    /// Destination NAT to this host.
    Redir {
        /// `NF_NAT_RANGE_*`.
        flags: Option<u32>,
        /// Lowest port.
        proto_min: Option<Register>,
        /// Highest port.
        proto_max: Option<Register>,
    },
    /// Answers with an ICMP error or a TCP reset.
    Reject {
        /// With what.
        kind: RejectType,
        /// ICMP code.
        code: Option<u8>,
    },
    /// Goes on while under a rate.
    Limit {
        /// Packets or bytes per `unit`.
        rate: u64,
        /// Seconds.
        unit: u64,
        /// Burst.
        burst: Option<u32>,
        /// Packets or bytes.
        kind: LimitType,
        /// `NFT_LIMIT_F_INV`.
        flags: Option<u32>,
    },
    /// Counts up or draws at random: `offset` up to `offset + modulus - 1`.
    Numgen {
        /// Destination.
        dreg: Register,
        /// Modulus.
        modulus: u32,
        /// Counting or random.
        kind: NumgenType,
        /// Offset.
        offset: u32,
    },
    /// Hashes bytes of a register (`jhash`): `offset` up to `offset + modulus - 1`.
    Hash {
        /// Source.
        sreg: Register,
        /// Destination.
        dreg: Register,
        /// Bytes.
        len: u32,
        /// Modulus.
        modulus: u32,
        /// The seed; without one the kernel draws one and tells nobody.
        seed: Option<u32>,
        /// Offset.
        offset: u32,
    },
    /// Writes to the kernel log or to a listener.
    Log {
        /// `nfnetlink_log` group; then no kernel log.
        group: Option<u16>,
        /// Text before the packet.
        prefix: Option<&'a str>,
        /// Bytes of the packet for the listener.
        snaplen: Option<u32>,
        /// Packets to gather for the listener.
        threshold: Option<u16>,
        /// Syslog level.
        level: Option<u32>,
        /// `NF_LOG_*`.
        flags: Option<u32>,
    },
    /// A match of xtables: see [`crate::xt::Match`].
    XtMatch {
        /// Name, such as `comment`.
        name: &'a str,
        /// Revision of its structure.
        revision: u32,
        /// Its structure, padded to 8 bytes.
        info: &'a [u8],
    },
    /// A target of xtables: see [`crate::xt::Target`].
    XtTarget {
        /// Name, such as `DNAT`.
        name: &'a str,
        /// Revision of its structure.
        revision: u32,
        /// Its structure, padded to 8 bytes.
        info: &'a [u8],
    },
    /// Anything else, kept as it came.
    Other {
        /// The expression's name.
        name: &'a str,
        /// The payload of its `NFTA_EXPR_DATA`.
        raw: &'a [u8],
    },
}

impl<'a> Expr<'a> {
    /// An expression that ends the rule with a verdict.
    pub const fn verdict(verdict: Verdict<'a>) -> Self {
        Self::Immediate {
            dreg: Register::VERDICT,
            value: Value::Verdict(verdict),
        }
    }

    /// The verdict, if this expression decides.
    pub const fn as_verdict(&self) -> Option<Verdict<'a>> {
        match self {
            Self::Immediate {
                value: Value::Verdict(verdict),
                ..
            } => Some(*verdict),
            _ => None,
        }
    }
}

/// Reads the list of a rule's expressions.
pub(super) fn read_list(attrs: Attrs<'_>) -> Result<Vec<Expr<'_>>, DecodeError> {
    attrs
        .filter(|attr| attr.as_ref().map_or(true, |attr| attr.kind == uapi::LIST_ELEM))
        .map(|attr| read(attr?))
        .collect()
}

fn read(element: Attr<'_>) -> Result<Expr<'_>, DecodeError> {
    read_one(element.nest("expression"))
}

/// Reads one expression out of its nest.
pub(super) fn read_one(attrs: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    use uapi::expr as at;
    let offset = attrs.offset();
    let fields = Fields::<{ at::COUNT }>::read(attrs)?;
    let name = fields.need(at::NAME, fields.text(at::NAME)?)?;
    let raw = fields.bytes(at::DATA).unwrap_or_default();
    let data = Attrs::new(raw, "expression data", offset);
    Ok(super::expr_read::known(name, data).unwrap_or(Expr::Other { name, raw }))
}
