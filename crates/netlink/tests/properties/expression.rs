//! Expressions of every kind, made of arbitrary parts.

use netlink::nft::{
    BitwiseOp, CmpOp, Counters, CtDirection, CtKey, Expr, FibResult, LimitType, MetaKey, NatType, NumgenType,
    PayloadBase, RangeOp, Register, RejectType, Value, Verdict,
};
use proptest::prelude::*;

/// What an expression borrows from.
#[derive(Debug, Clone)]
pub struct Parts {
    numbers: [u32; 6],
    wide: [u64; 2],
    name: String,
    bytes: [Vec<u8>; 2],
    options: [bool; 4],
    pick: usize,
}

pub fn parts() -> impl Strategy<Value = Parts> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..64);
    (
        any::<[u32; 6]>(),
        any::<[u64; 2]>(),
        "[a-zA-Z0-9._-]{1,31}",
        [bytes(), bytes()],
        any::<[bool; 4]>(),
        0..25_usize,
    )
        .prop_map(|(numbers, wide, name, bytes, options, pick)| Parts {
            numbers,
            wide,
            name,
            bytes,
            options,
            pick,
        })
}

fn pick<T: Copy>(all: &[T], number: u32) -> T {
    all[usize::try_from(number).unwrap() % all.len()]
}

fn verdict(parts: &Parts) -> Verdict<'_> {
    let name = parts.name.as_str();
    match parts.numbers[1] % 8 {
        0 => Verdict::Accept,
        1 => Verdict::Drop,
        2 => Verdict::Continue,
        3 => Verdict::Break,
        4 => Verdict::Jump(name),
        5 => Verdict::Goto(name),
        6 => Verdict::Return,
        _ => Verdict::Other(3),
    }
}

pub fn expression(parts: &Parts) -> Expr<'_> {
    let [a, b, c, d, ..] = parts.numbers;
    let (dreg, sreg) = (Register(a), Register(b));
    let [data, more] = [parts.bytes[0].as_slice(), parts.bytes[1].as_slice()];
    match parts.pick {
        0 => Expr::Immediate {
            dreg,
            value: Value::Data(data),
        },
        1 => Expr::Immediate {
            dreg,
            value: Value::Verdict(verdict(parts)),
        },
        2 => Expr::Cmp {
            sreg,
            op: pick(CmpOp::ALL, c),
            data,
        },
        3 => Expr::Range {
            sreg,
            op: pick(RangeOp::ALL, c),
            from: data,
            to: more,
        },
        4 => Expr::Bitwise {
            sreg,
            dreg,
            len: c,
            op: BitwiseOp::MaskXor {
                mask: data,
                xor: more,
            },
        },
        5 => Expr::Bitwise {
            sreg,
            dreg,
            len: c,
            op: BitwiseOp::ShiftLeft(data),
        },
        6 => Expr::Bitwise {
            sreg,
            dreg,
            len: c,
            op: BitwiseOp::ShiftRight(data),
        },
        7 => Expr::Payload {
            dreg,
            base: pick(PayloadBase::ALL, c),
            offset: d,
            len: b,
        },
        _ => keyed_expression(parts),
    }
}

fn keyed_expression(parts: &Parts) -> Expr<'_> {
    let [a, b, c, d, ..] = parts.numbers;
    let (dreg, sreg) = (Register(a), Register(b));
    let direction = parts.options[0].then(|| pick(CtDirection::ALL, c));
    match parts.pick {
        8 => Expr::Meta {
            dreg,
            key: pick(MetaKey::ALL, c),
        },
        9 => Expr::MetaSet {
            sreg,
            key: pick(MetaKey::ALL, c),
        },
        10 => Expr::Ct {
            dreg,
            key: pick(CtKey::ALL, d),
            direction,
        },
        11 => Expr::CtSet {
            sreg,
            key: pick(CtKey::ALL, d),
            direction,
        },
        12 => Expr::Counter(Counters {
            packets: parts.wide[0],
            bytes: parts.wide[1],
        }),
        13 => Expr::Fib {
            dreg,
            result: pick(FibResult::ALL, c),
            flags: d,
        },
        14 => Expr::Numgen {
            dreg,
            modulus: b,
            kind: pick(NumgenType::ALL, c),
            offset: d,
        },
        _ => more_expressions(parts),
    }
}

fn more_expressions(parts: &Parts) -> Expr<'_> {
    let [a, b, c, ..] = parts.numbers;
    let [first, second, third, fourth] = parts.options;
    let registers = parts.numbers.map(Register);
    let name = parts.name.as_str();
    match parts.pick {
        15 => Expr::Lookup {
            set: name,
            sreg: Register(a),
            dreg: first.then_some(Register(b)),
            inverted: second,
        },
        16 => Expr::Nat {
            kind: pick(NatType::ALL, a),
            family: b,
            addr_min: first.then_some(Register(c)),
            addr_max: second.then_some(registers[3]),
            proto_min: third.then_some(registers[4]),
            proto_max: fourth.then_some(registers[5]),
            flags: first.then_some(a),
        },
        17 => Expr::Masq {
            flags: first.then_some(a),
            proto_min: second.then_some(Register(b)),
            proto_max: third.then_some(Register(c)),
        },
        18 => Expr::Redir {
            flags: first.then_some(a),
            proto_min: second.then_some(Register(b)),
            proto_max: third.then_some(Register(c)),
        },
        _ => last_expressions(parts),
    }
}

fn last_expressions(parts: &Parts) -> Expr<'_> {
    let [a, b, c, ..] = parts.numbers;
    let [first, second, third, fourth] = parts.options;
    let (name, info) = (parts.name.as_str(), parts.bytes[0].as_slice());
    let short = |number: u32| u16::try_from(number & 0xffff).unwrap();
    match parts.pick {
        19 => Expr::Reject {
            kind: pick(RejectType::ALL, a),
            code: first.then(|| b.to_be_bytes()[3]),
        },
        20 => Expr::Limit {
            rate: parts.wide[0],
            unit: parts.wide[1],
            burst: first.then_some(a),
            kind: pick(LimitType::ALL, b),
            flags: second.then_some(c),
        },
        21 => Expr::Log {
            group: first.then(|| short(a)),
            prefix: second.then_some(name),
            snaplen: third.then_some(b),
            threshold: fourth.then(|| short(c)),
            level: first.then_some(a),
            flags: second.then_some(b),
        },
        22 => Expr::XtMatch {
            name,
            revision: a,
            info,
        },
        23 => Expr::Hash {
            sreg: Register(a),
            dreg: Register(b),
            len: c,
            modulus: parts.numbers[3],
            seed: first.then_some(parts.numbers[4]),
            offset: parts.numbers[5],
        },
        _ => Expr::XtTarget {
            name,
            revision: a,
            info,
        },
    }
}
