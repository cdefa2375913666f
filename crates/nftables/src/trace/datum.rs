//! What a field of the packet, its connection or the host is, as far as it is known.

use crate::listed::{BinaryOp, Expr, Value};
use model::Protocol;
use std::net::IpAddr;
use std::sync::Arc;
use traced::{Bits, Interface, Nat, Site, State, Track};

/// The value of a part of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Datum {
    /// An address.
    Address(IpAddr),
    /// The source, translated to an address of this host that nobody told us.
    UnknownSource,
    /// The source port, translated to one that is not known.
    UnknownSourcePort,
    /// A number: a port.
    Number(u64),
    /// A transport protocol.
    Protocol(Protocol),
    /// A word: a network protocol, a direction.
    Word(&'static str),
    /// A mark.
    Bits(Bits),
    /// An interface.
    Interface(Side),
    /// What kind of address this is for the host; `None` for the translated source, which is one of its own.
    TypeOf(Option<IpAddr>),
    /// Flags.
    Flags(Flags),
    /// The packet has no such thing: the rule ends.
    Absent,
    /// Nobody knows.
    Open,
}

/// Which interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Where it came in.
    In,
    /// Where it leaves.
    Out,
}

impl Side {
    /// The interface on this side.
    pub(super) fn at<'a>(self, site: &'a Site<'_>) -> &'a Interface {
        match self {
            Side::In => &site.in_interface,
            Side::Out => &site.out_interface,
        }
    }
}

/// Flags of which each may be set or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flags {
    /// What conntrack thinks: always one.
    State(Track),
    /// What became of the connection.
    Status {
        /// Whether its destination was translated, if known.
        dnat: Option<bool>,
        /// Whether its source was.
        snat: Option<bool>,
    },
    /// Those of a first TCP packet: SYN alone.
    Syn,
}

impl Flags {
    /// Whether a flag is set; `None` when that is not known.
    pub(super) fn has(self, word: &str) -> Option<bool> {
        match self {
            Flags::State(track) => Some(word == state_word(track)),
            Flags::Status { dnat, .. } if word == "dnat" => dnat,
            Flags::Status { snat, .. } if word == "snat" => snat,
            Flags::Status { .. } => None,
            Flags::Syn => Some(word == "syn"),
        }
    }
}

/// Without a connection the kernel calls a packet invalid (`nft_ct_get_eval`).
fn state_word(track: Track) -> &'static str {
    match track {
        Track::Unseen | Track::Invalid => "invalid",
        Track::New => "new",
        Track::Established => "established",
        Track::Untracked => "untracked",
    }
}

/// The words of a field.
pub(super) fn words(field: &[Arc<str>]) -> Vec<&str> {
    field.iter().map(|word| &**word).collect()
}

/// The values of a key's parts. Random numbers and hashes are open here: the caller knows them.
pub(super) fn parts(expr: &Expr, state: &State) -> Vec<Datum> {
    match expr {
        Expr::Concat(parts) => parts.iter().map(|part| datum(part, state)).collect(),
        one => vec![datum(one, state)],
    }
}

fn datum(expr: &Expr, state: &State) -> Datum {
    match expr {
        Expr::Field(field) => of_field(&words(field), state),
        Expr::Binary(..) => bits(expr, state).map_or(Datum::Open, Datum::Bits),
        _ => Datum::Open,
    }
}

/// A mark that an expression makes of marks and constants; `None` when it is made of something else.
pub(super) fn bits(expr: &Expr, state: &State) -> Option<Bits> {
    match expr {
        Expr::Field(field) => match words(field)[..] {
            ["meta", "mark"] => Some(state.mark),
            ["ct", "mark"] => Some(if has_connection(state) {
                state.connection.mark
            } else {
                Bits::unknown()
            }),
            _ => None,
        },
        Expr::Value(value) => number(value)
            .and_then(|number| u32::try_from(number).ok())
            .map(Bits::known),
        Expr::Binary(op, both) => {
            let left = bits(&both.0, state)?;
            let right = bits(&both.1, state)?;
            if !right.is_known() {
                return None;
            }
            let right = right.value();
            Some(match op {
                BinaryOp::And => left.set_xmark(0, !right),
                BinaryOp::Or => left.set_xmark(right, right),
                BinaryOp::Xor => left.set_xmark(right, 0),
                BinaryOp::Left | BinaryOp::Right if !left.is_known() => return None,
                BinaryOp::Left => Bits::known(left.value().checked_shl(right).unwrap_or(0)),
                BinaryOp::Right => Bits::known(left.value().checked_shr(right).unwrap_or(0)),
            })
        }
        _ => None,
    }
}

/// A constant as a number, in whatever form it is printed.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Mark(mark) => Some(u64::from(*mark)),
        Value::Word(word) => u64::from_str_radix(word.strip_prefix("0x")?, 16).ok(),
        _ => None,
    }
}

/// Whether conntrack has a connection for the packet.
pub(super) fn has_connection(state: &State) -> bool {
    matches!(state.connection.track, Track::New | Track::Established)
}

fn of_field(field: &[&str], state: &State) -> Datum {
    let v4 = state.dst.is_ipv4();
    match field {
        ["ip", ..] if !v4 => Datum::Absent,
        ["ip6", ..] if v4 => Datum::Absent,
        ["ip" | "ip6", "saddr"] => state.src.map_or(Datum::UnknownSource, Datum::Address),
        ["ip" | "ip6", "daddr"] => Datum::Address(state.dst.ip()),
        ["ip", "version"] => Datum::Number(4),
        ["ip", "protocol"] | ["ip6", "nexthdr"] | ["meta", "l4proto"] => Datum::Protocol(state.protocol),
        ["meta", "nfproto"] => Datum::Word(if v4 { "ipv4" } else { "ipv6" }),
        ["meta", "protocol"] => Datum::Word(if v4 { "ip" } else { "ip6" }),
        ["meta", "mark"] => Datum::Bits(state.mark),
        ["meta", "iifname"] | ["iifname" | "iif"] => Datum::Interface(Side::In),
        ["meta", "oifname"] | ["oifname" | "oif"] => Datum::Interface(Side::Out),
        ["ct", rest @ ..] => of_connection(rest, state),
        ["fib", "saddr", "type"] => Datum::TypeOf(state.src),
        ["fib", "daddr", "type"] => Datum::TypeOf(Some(state.dst.ip())),
        [header @ ("tcp" | "udp" | "sctp"), ..] if *header != state.protocol.as_lower() => Datum::Absent,
        ["th" | "tcp" | "udp" | "sctp", "dport"] | ["@th,16,16"] => {
            Datum::Number(u64::from(state.dst.port()))
        }
        ["th" | "tcp" | "udp" | "sctp", "sport"] | ["@th,0,16"] => state
            .src_port
            .map_or(Datum::UnknownSourcePort, |port| Datum::Number(u64::from(port))),
        ["tcp", "flags"] if state.connection.track == Track::New => Datum::Flags(Flags::Syn),
        [
            "icmp" | "icmpv6" | "igmp" | "ah" | "esp" | "comp" | "dccp" | "udplite" | "gre" | "arp",
            ..,
        ] => Datum::Absent,
        _ => Datum::Open,
    }
}

fn of_connection(key: &[&str], state: &State) -> Datum {
    let connection = &state.connection;
    let new = connection.track == Track::New;
    match key {
        ["state"] => Datum::Flags(Flags::State(connection.track)),
        // Without a connection there is nothing to ask: the rule ends (`nft_ct_get_eval`).
        _ if !has_connection(state) => Datum::Absent,
        ["status"] => Datum::Flags(Flags::Status {
            dnat: new.then_some(connection.dnat == Nat::Changed),
            snat: new.then_some(connection.snat == Nat::Changed),
        }),
        ["mark"] => Datum::Bits(connection.mark),
        ["direction"] if new => Datum::Word("original"),
        ["protocol"] => Datum::Protocol(state.protocol),
        ["l3proto"] => Datum::Word(if state.dst.is_ipv4() { "ipv4" } else { "ipv6" }),
        // Which connection another packet belongs to is not known.
        ["original", ..] if !new => Datum::Open,
        ["original", "ip", ..] if state.dst.is_ipv6() => Datum::Absent,
        ["original", "ip6", ..] if state.dst.is_ipv4() => Datum::Absent,
        ["original", .., "saddr"] => Datum::Address(connection.original_src.ip()),
        ["original", .., "daddr"] => Datum::Address(connection.original_dst.ip()),
        ["original", "proto-src"] => Datum::Number(u64::from(connection.original_src.port())),
        ["original", "proto-dst"] => Datum::Number(u64::from(connection.original_dst.port())),
        _ => Datum::Open,
    }
}
