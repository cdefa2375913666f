//! Reading the expressions this crate knows. An error means "not exactly what is known": the caller keeps the bytes.

use super::expr::{Expr, Register, Value};
use super::names::{
    BitwiseOp, CmpOp, CtDirection, CtKey, DynsetOp, FibResult, LimitType, MetaKey, NatType, NumgenType,
    PayloadBase, RangeOp, RejectType,
};
use super::objects::Counters;
use super::uapi;
use super::verdict::Verdict;
use crate::attr::{Attrs, Fields};
use crate::error::{DecodeError, DecodeErrorKind};

/// Reads the data of an expression by name.
pub(super) fn known<'a>(name: &str, data: Attrs<'a>) -> Result<Expr<'a>, DecodeError> {
    match name {
        "immediate" => immediate(data),
        "cmp" => cmp(data),
        "range" => range(data),
        "bitwise" => bitwise(data),
        "payload" => payload(data),
        "meta" => meta(data),
        "ct" => ct(data),
        "counter" => counter(data),
        "lookup" => lookup(data),
        "dynset" => dynset(data),
        "fib" => fib(data),
        "nat" => nat(data),
        "masq" => masq(data),
        "redir" => redir(data),
        "reject" => reject(data),
        "limit" => limit(data),
        "numgen" => numgen(data),
        "hash" => hash(data),
        "log" => log(data),
        "match" => {
            let (name, revision, info) = xt(data)?;
            Ok(Expr::XtMatch { name, revision, info })
        }
        "target" => {
            let (name, revision, info) = xt(data)?;
            Ok(Expr::XtTarget { name, revision, info })
        }
        _ => Err(DecodeError::new(
            "expression of an unknown name",
            0,
            DecodeErrorKind::Stranger(uapi::expr::NAME),
        )),
    }
}

/// What the readers need beside plain look-ups.
trait Typed<'a> {
    fn number(&self, kind: u16) -> Result<u32, DecodeError>;
    fn register(&self, kind: u16) -> Result<Register, DecodeError>;
    fn maybe_register(&self, kind: u16) -> Result<Option<Register>, DecodeError>;
    fn code<T>(&self, kind: u16, from_code: fn(u32) -> Option<T>) -> Result<T, DecodeError>;
    fn value(&self, kind: u16) -> Result<&'a [u8], DecodeError>;
}

impl<'a, const N: usize> Typed<'a> for Fields<'a, N> {
    fn number(&self, kind: u16) -> Result<u32, DecodeError> {
        self.need(kind, self.u32(kind)?)
    }

    fn register(&self, kind: u16) -> Result<Register, DecodeError> {
        self.number(kind).map(Register)
    }

    fn maybe_register(&self, kind: u16) -> Result<Option<Register>, DecodeError> {
        Ok(self.u32(kind)?.map(Register))
    }

    fn code<T>(&self, kind: u16, from_code: fn(u32) -> Option<T>) -> Result<T, DecodeError> {
        let code = self.number(kind)?;
        from_code(code).ok_or_else(|| self.unknown(kind, code))
    }

    /// The bytes of an `NFTA_DATA_VALUE` nest.
    fn value(&self, kind: u16) -> Result<&'a [u8], DecodeError> {
        let nest = self.need(kind, self.nest(kind, "expression value"))?;
        let inside = Fields::<{ uapi::data::VERDICT as usize }>::exact(nest)?;
        inside.need(uapi::data::VALUE, inside.bytes(uapi::data::VALUE))
    }
}

fn immediate(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    use uapi::data as at;
    let fields = Fields::<3>::exact(data)?;
    let inside = Fields::<{ at::COUNT }>::exact(fields.need(2, fields.nest(2, "immediate data"))?)?;
    let value = match inside.nest(at::VERDICT, "verdict") {
        Some(_) if inside.has(at::VALUE) => return Err(inside.unknown(at::VALUE, 0_u8)),
        Some(verdict) => Value::Verdict(Verdict::read_exact(verdict)?),
        None => Value::Data(inside.need(at::VALUE, inside.bytes(at::VALUE))?),
    };
    Ok(Expr::Immediate {
        dreg: fields.register(1)?,
        value,
    })
}

fn cmp(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<4>::exact(data)?;
    let op = fields.code(2, CmpOp::from_code)?;
    Ok(Expr::Cmp {
        sreg: fields.register(1)?,
        op,
        data: fields.value(3)?,
    })
}

fn range(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<5>::exact(data)?;
    let op = fields.code(2, RangeOp::from_code)?;
    Ok(Expr::Range {
        sreg: fields.register(1)?,
        op,
        from: fields.value(3)?,
        to: fields.value(4)?,
    })
}

fn bitwise(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    const OP: u16 = 6;
    let fields = Fields::<8>::exact(data)?;
    let (has_masks, has_shift) = (fields.has(4) || fields.has(5), fields.has(7));
    // Kernels before 5.6 do not say the operation: there is only one.
    let op = match (fields.u32(OP)?.unwrap_or_default(), has_masks, has_shift) {
        (0, true, false) => BitwiseOp::MaskXor {
            mask: fields.value(4)?,
            xor: fields.value(5)?,
        },
        (1, false, true) => BitwiseOp::ShiftLeft(fields.value(7)?),
        (2, false, true) => BitwiseOp::ShiftRight(fields.value(7)?),
        (op, ..) => return Err(fields.unknown(OP, op)),
    };
    Ok(Expr::Bitwise {
        sreg: fields.register(1)?,
        dreg: fields.register(2)?,
        len: fields.number(3)?,
        op,
    })
}

fn payload(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    // Types 5 and up make it a write into the packet, which is kept as `Other`.
    let fields = Fields::<5>::exact(data)?;
    Ok(Expr::Payload {
        dreg: fields.register(1)?,
        base: fields.code(2, PayloadBase::from_code)?,
        offset: fields.number(3)?,
        len: fields.number(4)?,
    })
}

fn meta(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<4>::exact(data)?;
    let key = fields.code(2, MetaKey::from_code)?;
    match (fields.maybe_register(1)?, fields.maybe_register(3)?) {
        (Some(dreg), None) => Ok(Expr::Meta { dreg, key }),
        (None, Some(sreg)) => Ok(Expr::MetaSet { sreg, key }),
        _ => Err(fields.unknown(1, 0_u8)),
    }
}

fn ct(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<5>::exact(data)?;
    let key = fields.code(2, CtKey::from_code)?;
    let direction = match fields.u8(3)? {
        Some(code) => Some(CtDirection::from_code(code).ok_or_else(|| fields.unknown(3, code))?),
        None => None,
    };
    match (fields.maybe_register(1)?, fields.maybe_register(4)?) {
        (Some(dreg), None) => Ok(Expr::Ct { dreg, key, direction }),
        (None, Some(sreg)) => Ok(Expr::CtSet { sreg, key, direction }),
        _ => Err(fields.unknown(1, 0_u8)),
    }
}

fn counter(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    Fields::<4>::exact(data.clone())?;
    Counters::read(data).map(Expr::Counter)
}

fn lookup(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    const SET_ID: u16 = 4;
    const FLAGS: u16 = 5;
    const INVERTED: u32 = 1;
    let fields = Fields::<6>::exact(data)?;
    let flags = fields.u32(FLAGS)?.unwrap_or_default();
    // A set id is only in requests; more flags than one are unknown.
    if fields.has(SET_ID) || flags & !INVERTED != 0 {
        return Err(fields.unknown(FLAGS, flags));
    }
    Ok(Expr::Lookup {
        set: fields.need(1, fields.text(1)?)?,
        sreg: fields.register(2)?,
        dreg: fields.maybe_register(3)?,
        inverted: flags == INVERTED,
    })
}

fn dynset(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    const FLAGS: u16 = 9;
    let fields = Fields::<10>::exact(data)?;
    // Data for maps, nested expressions and a set's number are unknown here.
    let strange = [2, 5, 7].into_iter().find(|kind| fields.has(*kind));
    let flags = fields.u32(FLAGS)?.unwrap_or_default();
    if let Some(kind) = strange.or((flags != 0).then_some(FLAGS)) {
        return Err(fields.unknown(kind, flags));
    }
    Ok(Expr::Dynset {
        set: fields.need(1, fields.text(1)?)?,
        op: fields.code(3, DynsetOp::from_code)?,
        sreg: fields.register(4)?,
        timeout: fields.u64(6)?,
    })
}

fn fib(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<4>::exact(data)?;
    let result = fields.code(2, FibResult::from_code)?;
    Ok(Expr::Fib {
        dreg: fields.register(1)?,
        result,
        flags: fields.number(3)?,
    })
}

fn nat(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<8>::exact(data)?;
    Ok(Expr::Nat {
        kind: fields.code(1, NatType::from_code)?,
        family: fields.number(2)?,
        addr_min: fields.maybe_register(3)?,
        addr_max: fields.maybe_register(4)?,
        proto_min: fields.maybe_register(5)?,
        proto_max: fields.maybe_register(6)?,
        flags: fields.u32(7)?,
    })
}

fn masq(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<4>::exact(data)?;
    let flags = fields.u32(1)?;
    Ok(Expr::Masq {
        flags,
        proto_min: fields.maybe_register(2)?,
        proto_max: fields.maybe_register(3)?,
    })
}

fn redir(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<4>::exact(data)?;
    let flags = fields.u32(3)?;
    Ok(Expr::Redir {
        flags,
        proto_min: fields.maybe_register(1)?,
        proto_max: fields.maybe_register(2)?,
    })
}

fn reject(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<3>::exact(data)?;
    Ok(Expr::Reject {
        kind: fields.code(1, RejectType::from_code)?,
        code: fields.u8(2)?,
    })
}

fn limit(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<7>::exact(data)?;
    Ok(Expr::Limit {
        rate: fields.need(1, fields.u64(1)?)?,
        unit: fields.need(2, fields.u64(2)?)?,
        burst: fields.u32(3)?,
        kind: fields.code(4, LimitType::from_code)?,
        flags: fields.u32(5)?,
    })
}

fn numgen(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<5>::exact(data)?;
    Ok(Expr::Numgen {
        dreg: fields.register(1)?,
        modulus: fields.number(2)?,
        kind: fields.code(3, NumgenType::from_code)?,
        offset: fields.u32(4)?.unwrap_or_default(),
    })
}

fn hash(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    const TYPE: u16 = 7;
    let fields = Fields::<8>::exact(data)?;
    // `NFT_HASH_JENKINS`; the other kind hashes no register.
    let kind = fields.u32(TYPE)?.unwrap_or_default();
    if kind != 0 {
        return Err(fields.unknown(TYPE, kind));
    }
    Ok(Expr::Hash {
        sreg: fields.register(1)?,
        dreg: fields.register(2)?,
        len: fields.number(3)?,
        modulus: fields.number(4)?,
        seed: fields.u32(5)?,
        offset: fields.u32(6)?.unwrap_or_default(),
    })
}

fn log(data: Attrs<'_>) -> Result<Expr<'_>, DecodeError> {
    let fields = Fields::<7>::exact(data)?;
    Ok(Expr::Log {
        group: fields.u16(1)?,
        prefix: fields.text(2)?,
        snaplen: fields.u32(3)?,
        threshold: fields.u16(4)?,
        level: fields.u32(5)?,
        flags: fields.u32(6)?,
    })
}

/// Matches and targets number their attributes alike: name, revision, structure.
fn xt(data: Attrs<'_>) -> Result<(&str, u32, &[u8]), DecodeError> {
    let fields = Fields::<4>::exact(data)?;
    Ok((
        fields.need(1, fields.text(1)?)?,
        fields.number(2)?,
        fields.need(3, fields.bytes(3))?,
    ))
}
