//! Writing expressions.

use super::expr::{Expr, Register, Value};
use super::names::BitwiseOp;
use super::uapi::{self, data};
use crate::attr::Attrs;
use crate::write::MessageWriter;

/// Writes the list of a rule's expressions.
pub(super) fn write_list(writer: &mut MessageWriter<'_>, expressions: &[Expr<'_>]) {
    writer.nest(uapi::rule::EXPRESSIONS, |writer| {
        for expression in expressions {
            writer.nest(uapi::LIST_ELEM, |writer| write(writer, expression));
        }
    });
}

/// Writes one expression into a nest that is open.
pub(super) fn write(writer: &mut MessageWriter<'_>, expression: &Expr<'_>) {
    writer.text(uapi::expr::NAME, name(expression));
    match *expression {
        // Without its nest: the bytes are one already.
        Expr::Other { raw, .. } if Attrs::new(raw, "expression data", 0).all(|attr| attr.is_ok()) => {
            writer.bytes(uapi::expr::DATA | crate::attr::NESTED, raw);
        }
        Expr::Other { raw, .. } => writer.bytes(uapi::expr::DATA, raw),
        _ => writer.nest(uapi::expr::DATA, |writer| write_data(writer, expression)),
    }
}

const fn name<'a>(expression: &Expr<'a>) -> &'a str {
    match expression {
        Expr::Immediate { .. } => "immediate",
        Expr::Cmp { .. } => "cmp",
        Expr::Range { .. } => "range",
        Expr::Bitwise { .. } => "bitwise",
        Expr::Payload { .. } => "payload",
        Expr::Meta { .. } | Expr::MetaSet { .. } => "meta",
        Expr::Ct { .. } | Expr::CtSet { .. } => "ct",
        Expr::Counter(_) => "counter",
        Expr::Lookup { .. } | Expr::LookupNew { .. } => "lookup",
        Expr::Dynset { .. } => "dynset",
        Expr::Fib { .. } => "fib",
        Expr::Nat { .. } => "nat",
        Expr::Masq { .. } => "masq",
        Expr::Redir { .. } => "redir",
        Expr::Reject { .. } => "reject",
        Expr::Limit { .. } => "limit",
        Expr::Numgen { .. } => "numgen",
        Expr::Hash { .. } => "hash",
        Expr::Log { .. } => "log",
        Expr::XtMatch { .. } => "match",
        Expr::XtTarget { .. } => "target",
        Expr::Other { name, .. } => name,
    }
}

/// Splits the work in two by size alone; each half passes on what it does not know.
fn write_data(writer: &mut MessageWriter<'_>, expression: &Expr<'_>) {
    match *expression {
        Expr::Immediate { dreg, value } => {
            writer.u32(1, dreg.0);
            writer.nest(2, |writer| write_value(writer, value));
        }
        Expr::Cmp { sreg, op, data } => {
            writer.u32(1, sreg.0);
            writer.u32(2, op.code());
            write_bytes(writer, 3, data);
        }
        Expr::Range { sreg, op, from, to } => {
            writer.u32(1, sreg.0);
            writer.u32(2, op.code());
            write_bytes(writer, 3, from);
            write_bytes(writer, 4, to);
        }
        Expr::Bitwise { sreg, dreg, len, op } => write_bitwise(writer, [sreg, dreg], len, op),
        Expr::Payload {
            dreg,
            base,
            offset,
            len,
        } => {
            write_numbers(writer, &[(1, dreg.0), (2, base.code()), (3, offset), (4, len)]);
        }
        Expr::Meta { dreg, key } => write_numbers(writer, &[(2, key.code()), (1, dreg.0)]),
        Expr::MetaSet { sreg, key } => write_numbers(writer, &[(2, key.code()), (3, sreg.0)]),
        Expr::Ct { dreg, key, direction } => {
            write_numbers(writer, &[(1, dreg.0), (2, key.code())]);
            if let Some(direction) = direction {
                writer.u8(3, direction.code());
            }
        }
        Expr::CtSet { sreg, key, direction } => {
            writer.u32(2, key.code());
            if let Some(direction) = direction {
                writer.u8(3, direction.code());
            }
            writer.u32(4, sreg.0);
        }
        Expr::Counter(counters) => {
            writer.u64(1, counters.bytes);
            writer.u64(2, counters.packets);
        }
        Expr::XtMatch { name, revision, info } | Expr::XtTarget { name, revision, info } => {
            writer.text(1, name);
            writer.u32(2, revision);
            writer.bytes(3, info);
        }
        _ => write_more(writer, expression),
    }
}

fn write_more(writer: &mut MessageWriter<'_>, expression: &Expr<'_>) {
    match *expression {
        Expr::Lookup {
            set,
            sreg,
            dreg,
            inverted,
        } => {
            writer.text(1, set);
            writer.u32(2, sreg.0);
            maybe(writer, 3, dreg.map(|register| register.0));
            writer.u32(5, u32::from(inverted));
        }
        Expr::Fib { dreg, result, flags } => {
            write_numbers(writer, &[(1, dreg.0), (2, result.code()), (3, flags)]);
        }
        Expr::Reject { kind, code } => {
            writer.u32(1, kind.code());
            if let Some(code) = code {
                writer.u8(2, code);
            }
        }
        Expr::Limit {
            rate,
            unit,
            burst,
            kind,
            flags,
        } => {
            writer.u64(1, rate);
            writer.u64(2, unit);
            maybe(writer, 3, burst);
            writer.u32(4, kind.code());
            maybe(writer, 5, flags);
        }
        Expr::Numgen { .. } | Expr::Hash { .. } => write_made_number(writer, expression),
        Expr::Log { .. } => write_log(writer, expression),
        Expr::LookupNew { .. } | Expr::Dynset { .. } => write_of_set(writer, expression),
        _ => write_nat(writer, expression),
    }
}

fn write_made_number(writer: &mut MessageWriter<'_>, expression: &Expr<'_>) {
    match *expression {
        Expr::Numgen {
            dreg,
            modulus,
            kind,
            offset,
        } => {
            write_numbers(
                writer,
                &[(1, dreg.0), (2, modulus), (3, kind.code()), (4, offset)],
            );
        }
        Expr::Hash {
            sreg,
            dreg,
            len,
            modulus,
            seed,
            offset,
        } => {
            write_numbers(writer, &[(1, sreg.0), (2, dreg.0), (3, len), (4, modulus)]);
            maybe(writer, 5, seed);
            write_numbers(writer, &[(6, offset), (7, 0)]);
        }
        _ => write_nat(writer, expression),
    }
}

fn write_of_set(writer: &mut MessageWriter<'_>, expression: &Expr<'_>) {
    match *expression {
        Expr::LookupNew { set, id, sreg, dreg } => {
            writer.text(1, set);
            write_numbers(writer, &[(2, sreg.0), (3, dreg.0), (4, id)]);
        }
        Expr::Dynset {
            set,
            op,
            sreg,
            timeout,
        } => {
            writer.text(1, set);
            write_numbers(writer, &[(3, op.code()), (4, sreg.0)]);
            if let Some(timeout) = timeout {
                writer.u64(6, timeout);
            }
        }
        _ => {}
    }
}

fn write_nat(writer: &mut MessageWriter<'_>, expression: &Expr<'_>) {
    match *expression {
        Expr::Nat {
            kind,
            family,
            addr_min,
            addr_max,
            proto_min,
            proto_max,
            flags,
        } => {
            write_numbers(writer, &[(1, kind.code()), (2, family)]);
            registers(
                writer,
                &[(3, addr_min), (4, addr_max), (5, proto_min), (6, proto_max)],
            );
            maybe(writer, 7, flags);
        }
        Expr::Masq {
            flags,
            proto_min,
            proto_max,
        } => {
            maybe(writer, 1, flags);
            registers(writer, &[(2, proto_min), (3, proto_max)]);
        }
        Expr::Redir {
            flags,
            proto_min,
            proto_max,
        } => {
            registers(writer, &[(1, proto_min), (2, proto_max)]);
            maybe(writer, 3, flags);
        }
        _ => {}
    }
}

fn write_log(writer: &mut MessageWriter<'_>, expression: &Expr<'_>) {
    let Expr::Log {
        group,
        prefix,
        snaplen,
        threshold,
        level,
        flags,
    } = *expression
    else {
        return;
    };
    if let Some(group) = group {
        writer.u16(1, group);
    }
    if let Some(prefix) = prefix {
        writer.text(2, prefix);
    }
    maybe(writer, 3, snaplen);
    if let Some(threshold) = threshold {
        writer.u16(4, threshold);
    }
    maybe(writer, 5, level);
    maybe(writer, 6, flags);
}

fn write_value(writer: &mut MessageWriter<'_>, value: Value<'_>) {
    match value {
        Value::Data(bytes) => writer.bytes(data::VALUE, bytes),
        Value::Verdict(verdict) => writer.nest(data::VERDICT, |writer| verdict.write(writer)),
    }
}

fn write_bitwise(writer: &mut MessageWriter<'_>, [sreg, dreg]: [Register; 2], len: u32, op: BitwiseOp<'_>) {
    let code = match op {
        BitwiseOp::MaskXor { .. } => 0,
        BitwiseOp::ShiftLeft(_) => 1,
        BitwiseOp::ShiftRight(_) => 2,
    };
    write_numbers(writer, &[(1, sreg.0), (2, dreg.0), (3, len), (6, code)]);
    match op {
        BitwiseOp::MaskXor { mask, xor } => {
            write_bytes(writer, 4, mask);
            write_bytes(writer, 5, xor);
        }
        BitwiseOp::ShiftLeft(by) | BitwiseOp::ShiftRight(by) => write_bytes(writer, 7, by),
    }
}

fn write_bytes(writer: &mut MessageWriter<'_>, kind: u16, bytes: &[u8]) {
    writer.nest(kind, |writer| writer.bytes(data::VALUE, bytes));
}

fn write_numbers(writer: &mut MessageWriter<'_>, numbers: &[(u16, u32)]) {
    for (kind, number) in numbers {
        writer.u32(*kind, *number);
    }
}

fn registers(writer: &mut MessageWriter<'_>, registers: &[(u16, Option<Register>)]) {
    for (kind, register) in registers {
        maybe(writer, *kind, register.map(|register| register.0));
    }
}

fn maybe(writer: &mut MessageWriter<'_>, kind: u16, number: Option<u32>) {
    if let Some(number) = number {
        writer.u32(kind, number);
    }
}
