//! From the kernel's expressions back to rules of our kind.
//!
//! What is not exactly what [`super::encode`] writes is nobody's rule that we know, and `None`.

use super::encode::length_of;
use super::expressions::{
    FIB_DESTINATION, FIB_SOURCE, FULLY_RANDOM, RTN_LOCAL, STATE_NEW, STATUS_DNAT, load, register,
};
use ipnet::IpNet;
use model::{Family, Mark, balance};
use netlink::nft::{
    BitwiseOp, CmpOp, CtKey, DynsetOp, Expr, FibResult, MetaKey, NumgenType, Register, Value as Datum,
    Verdict,
};
use nftables::ast::{Action, InterfaceName, Match, Name, Part, Rule};
use nftables::names;
use nftables::wire;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The chains that the sides of dice lead to, by the name of the map that holds them.
pub(super) type Dice = BTreeMap<String, Vec<Name>>;

/// Reads a rule.
pub(super) fn rule(of: Family, mut rest: &[Expr<'_>], userdata: &[u8], dice: &Dice) -> Option<Rule> {
    let mut rule = Rule {
        matches: Vec::new(),
        actions: Vec::new(),
        comment: if userdata.is_empty() {
            None
        } else {
            Some(comment(userdata)?)
        },
    };
    while !rest.is_empty() {
        let (part, later) = piece(of, rest, dice)?;
        match part {
            Piece::Match(part) if rule.actions.is_empty() => rule.matches.push(part),
            Piece::Match(_) => return None,
            Piece::Action(action) => rule.actions.push(action),
        }
        rest = later;
    }
    Some(rule)
}

/// Comments of rules are a few fixed texts; no other rule is of our kind.
fn comment(userdata: &[u8]) -> Option<&'static str> {
    let known = nftables::build::RULE_COMMENTS;
    let mut fitting = known
        .iter()
        .filter(|text| super::encode::comment(0, text) == userdata);
    fitting.next().copied()
}

enum Piece {
    Match(Match),
    Action(Action),
}

type Parsed<'a, 'e> = Option<(Piece, &'a [Expr<'e>])>;

fn piece<'a, 'e>(of: Family, all: &'a [Expr<'e>], dice: &Dice) -> Parsed<'a, 'e> {
    acted(all, dice)
        .or_else(|| hashed(of, all, dice))
        .or_else(|| of_packet(all))
        .or_else(|| of_connection(all))
        .or_else(|| keyed(of, all))
}

fn acted<'a, 'e>(all: &'a [Expr<'e>], dice: &Dice) -> Parsed<'a, 'e> {
    match all {
        [
            Expr::Immediate {
                value: Datum::Verdict(verdict),
                ..
            },
            rest @ ..,
        ] => {
            let action = match verdict {
                Verdict::Jump(chain) => Action::Jump(Name::new(*chain)),
                Verdict::Goto(chain) => Action::Goto(Name::new(*chain)),
                Verdict::Drop => Action::Drop,
                _ => return None,
            };
            Some((Piece::Action(action), rest))
        }
        [
            Expr::Masq {
                flags: Some(FULLY_RANDOM),
                ..
            },
            rest @ ..,
        ] => Some((Piece::Action(Action::Masquerade), rest)),
        [Expr::Reject { .. }, rest @ ..] => Some((Piece::Action(Action::Reject), rest)),
        [
            Expr::Numgen {
                kind: NumgenType::Random,
                offset: 0,
                modulus,
                ..
            },
            Expr::Lookup {
                set,
                dreg: Some(Register::VERDICT),
                ..
            },
            rest @ ..,
        ] => {
            let chains = dice.get(*set)?;
            let whole = usize::try_from(*modulus).ok() == Some(chains.len());
            whole.then(|| (Piece::Action(Action::JumpRandom(chains.clone())), rest))
        }
        _ => None,
    }
}

fn hashed<'a, 'e>(of: Family, all: &'a [Expr<'e>], dice: &Dice) -> Parsed<'a, 'e> {
    let [
        address,
        Expr::Hash {
            len,
            modulus,
            seed: Some(balance::SEED),
            offset: 0,
            ..
        },
        Expr::Lookup {
            set,
            dreg: Some(Register::VERDICT),
            ..
        },
        rest @ ..,
    ] = all
    else {
        return None;
    };
    let chains = dice.get(*set)?;
    let whole = same_load(&load(Part::Source, of, Register::R2), address)
        && *len == length_of(Part::Source, of)
        && usize::try_from(*modulus).ok() == Some(chains.len());
    whole.then(|| (Piece::Action(Action::JumpHashed(chains.clone())), rest))
}

fn of_packet<'a, 'e>(all: &'a [Expr<'e>]) -> Parsed<'a, 'e> {
    match all {
        [
            Expr::Fib {
                result: FibResult::AddrType,
                flags,
                ..
            },
            Expr::Cmp {
                op: CmpOp::Eq, data, ..
            },
            rest @ ..,
        ] => {
            let part = match *flags {
                FIB_SOURCE => Match::SourceIsLocal,
                FIB_DESTINATION => Match::DestinationIsLocal,
                _ => return None,
            };
            (**data == RTN_LOCAL.to_ne_bytes()).then_some((Piece::Match(part), rest))
        }
        [
            Expr::Meta {
                key: MetaKey::IifName,
                ..
            },
            Expr::Cmp { op, data, .. },
            rest @ ..,
        ] => {
            let name = interface(data)?;
            let part = match op {
                CmpOp::Eq => Match::Interface(name),
                CmpOp::Neq => Match::NotInterface(name),
                _ => return None,
            };
            Some((Piece::Match(part), rest))
        }
        _ => None,
    }
}

fn of_connection<'a, 'e>(all: &'a [Expr<'e>]) -> Parsed<'a, 'e> {
    match all {
        [
            Expr::Ct {
                key, direction: None, ..
            },
            Expr::Bitwise { op, .. },
            Expr::Cmp {
                op: CmpOp::Neq, data, ..
            },
            rest @ ..,
        ] => {
            let part = match (key, bits(op)?) {
                (CtKey::State, STATE_NEW) => Match::StateNew,
                (CtKey::Status, STATUS_DNAT) => Match::StatusDnat,
                _ => return None,
            };
            (**data == [0; 4]).then_some((Piece::Match(part), rest))
        }
        [
            Expr::Meta {
                key: MetaKey::Mark, ..
            },
            Expr::Bitwise { op, .. },
            rest @ ..,
        ] => mark(op, rest),
        _ => None,
    }
}

/// A mask with nothing flipped.
fn bits(op: &BitwiseOp<'_>) -> Option<u32> {
    match op {
        BitwiseOp::MaskXor { mask, xor } if **xor == [0; 4] => {
            Some(u32::from_ne_bytes((*mask).try_into().ok()?))
        }
        _ => None,
    }
}

fn mark<'a, 'e>(op: &BitwiseOp<'_>, rest: &'a [Expr<'e>]) -> Parsed<'a, 'e> {
    let BitwiseOp::MaskXor { mask, xor } = op else {
        return None;
    };
    let mask = u32::from_ne_bytes((*mask).try_into().ok()?);
    let xor = u32::from_ne_bytes((*xor).try_into().ok()?);
    let of = |bit: u32| {
        bit.is_power_of_two()
            .then(|| Mark::from_bit(bit.trailing_zeros()))?
    };
    match rest {
        [
            Expr::Cmp {
                op: CmpOp::Neq, data, ..
            },
            rest @ ..,
        ] if xor == 0 && **data == [0; 4] => Some((Piece::Match(Match::Marked(of(mask)?)), rest)),
        [
            Expr::MetaSet {
                key: MetaKey::Mark, ..
            },
            rest @ ..,
        ] if mask == !xor => Some((Piece::Action(Action::SetMark(of(xor)?)), rest)),
        [
            Expr::MetaSet {
                key: MetaKey::Mark, ..
            },
            rest @ ..,
        ] if mask == u32::MAX => Some((Piece::Action(Action::FlipMark(of(xor)?)), rest)),
        _ => None,
    }
}

/// 16 bytes are a whole name, fewer its beginning.
fn interface(data: &[u8]) -> Option<InterfaceName> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    if data.len() == 16 {
        let end = data.iter().position(|byte| *byte == 0)?;
        return Some(InterfaceName::Is(text(&data[..end])?.into()));
    }
    Some(InterfaceName::BeginsWith(text(data)?.into()))
}

/// The keys that our rules load.
const KEYS: [&[Part]; 5] = [
    names::SERVICE_CLIENT_KEY,
    names::NODEPORT_CLIENT_KEY,
    names::SERVICE_KEY,
    names::NODEPORT_KEY,
    &[Part::Destination],
];

fn keyed<'a, 'e>(of: Family, all: &'a [Expr<'e>]) -> Parsed<'a, 'e> {
    for key in KEYS {
        if let Some(rest) = loads(of, key, all)
            && let Some(parsed) = with_key(key, rest)
        {
            return Some(parsed);
        }
    }
    address(of, all)
}

/// The rest behind the loads of a key.
fn loads<'a, 'e>(of: Family, key: &[Part], all: &'a [Expr<'e>]) -> Option<&'a [Expr<'e>]> {
    let (head, rest) = all.split_at_checked(key.len())?;
    let mut offset = 0;
    for (part, expression) in key.iter().zip(head) {
        let wanted = load(*part, of, register(offset));
        if !same_load(&wanted, expression) {
            return None;
        }
        offset += length_of(*part, of).next_multiple_of(4);
    }
    Some(rest)
}

/// Wide and narrow registers are one space, and the kernel reports the numbers it likes.
fn same_load(one: &Expr<'_>, other: &Expr<'_>) -> bool {
    match (one, other) {
        (
            Expr::Payload {
                dreg,
                base,
                offset,
                len,
            },
            Expr::Payload {
                dreg: other_dreg,
                base: other_base,
                offset: other_offset,
                len: other_len,
            },
        ) => word(*dreg) == word(*other_dreg) && (base, offset, len) == (other_base, other_offset, other_len),
        (
            Expr::Meta { dreg, key },
            Expr::Meta {
                dreg: other_dreg,
                key: other_key,
            },
        ) => word(*dreg) == word(*other_dreg) && key == other_key,
        _ => false,
    }
}

fn word(register: Register) -> u32 {
    match register.0 {
        wide @ 1..=4 => (wide - 1) * 4,
        narrow => narrow.saturating_sub(8),
    }
}

fn with_key<'a, 'e>(key: &'static [Part], rest: &'a [Expr<'e>]) -> Parsed<'a, 'e> {
    match rest {
        [
            Expr::Lookup {
                set,
                dreg: Some(_),
                inverted: false,
                ..
            },
            Expr::Nat { .. },
            rest @ ..,
        ] => Some((Piece::Action(Action::DnatTo(key, Name::new(*set))), rest)),
        [
            Expr::Lookup {
                set,
                dreg: None,
                inverted,
                ..
            },
            rest @ ..,
        ] => {
            let set = Name::new(*set);
            let part = if *inverted {
                Match::NotIn(key, set)
            } else {
                Match::In(key, set)
            };
            Some((Piece::Match(part), rest))
        }
        [Expr::Dynset { set, op, timeout, .. }, rest @ ..] => {
            let set = Name::new(*set);
            let action = match op {
                DynsetOp::Update => Action::Remember {
                    key,
                    set,
                    timeout: u32::try_from(timeout.unwrap_or_default() / 1000).ok()?,
                },
                DynsetOp::Delete => Action::Forget { key, set },
                DynsetOp::Add => return None,
            };
            Some((Piece::Action(action), rest))
        }
        _ => None,
    }
}

/// An address compared with a network.
fn address<'a, 'e>(of: Family, all: &'a [Expr<'e>]) -> Parsed<'a, 'e> {
    let part = [Part::Source, Part::Destination].into_iter().find(|part| {
        all.first()
            .is_some_and(|first| same_load(&load(*part, of, Register::R1), first))
    })?;
    let (prefix, op, data, rest) = match all.get(1..)? {
        [
            Expr::Bitwise {
                op: BitwiseOp::MaskXor { mask, .. },
                ..
            },
            Expr::Cmp { op, data, .. },
            rest @ ..,
        ] => {
            let ones = mask.iter().map(|byte| byte.count_ones()).sum::<u32>();
            (u8::try_from(ones).ok()?, op, data, rest)
        }
        [Expr::Cmp { op, data, .. }, rest @ ..] => {
            let bits = wire::address_length(of) * 8;
            (u8::try_from(bits).ok()?, op, data, rest)
        }
        _ => return None,
    };
    let ip: IpAddr = match of {
        Family::V4 => <[u8; 4]>::try_from(*data).ok()?.into(),
        Family::V6 => <[u8; 16]>::try_from(*data).ok()?.into(),
    };
    let net = IpNet::new(ip, prefix).ok()?;
    let matched = match (part, op) {
        (Part::Source, CmpOp::Eq) => Match::SourceIn(net),
        (Part::Source, CmpOp::Neq) => Match::SourceNotIn(net),
        (Part::Destination, CmpOp::Eq) => Match::DestinationIn(net),
        (Part::Destination, CmpOp::Neq) => Match::DestinationNotIn(net),
        _ => return None,
    };
    Some((Piece::Match(matched), rest))
}
