//! What statements ask and do, but for translations.

use super::ask::{self, open};
use super::datum::{Datum, Flags, bits, parts, words};
use super::indexed::Indexed;
use super::lookup::{self, Asked};
use super::walk::{Branch, Step};
use crate::listed::{BinaryOp, Expr, Op, Statement, Update, UpdateOp, Value};
use std::sync::Arc;
use traced::{Bits, Condition, Did, Lasts, Site, State, Truth, Verdict};

/// Whether `left op right` is true of the packet. What a set's element said goes into `found`.
pub(super) fn matched(
    (left, op, right): (&Expr, Op, &Expr),
    branch: &mut Branch,
    site: &Site<'_>,
    indexed: &Indexed<'_>,
) -> Truth {
    let text = || -> Arc<str> {
        let op = match op {
            Op::Is | Op::Not | Op::NoneOf => String::new(),
            op => format!("{} ", op.as_str()),
        };
        format!("{left} {op}{right}").into()
    };
    if let Some(truth) = of_random(left, op, right) {
        return truth;
    }
    let state = &branch.state;
    if let Some(truth) = of_masked_flags(left, op, right, state) {
        return truth;
    }
    let key = parts(left, state);
    // The packet has no such thing, and so neither is nor is not.
    if key.contains(&Datum::Absent) {
        return Truth::Known(false);
    }
    let plain = match (op, right, key.as_slice()) {
        (Op::Is | Op::Equal | Op::Not, Expr::Set(_) | Expr::Named(_), _) => {
            in_set((left, right), &key, branch, site, indexed)
        }
        (Op::Equal | Op::Not, _, [Datum::Flags(Flags::Status { .. })]) => open(text()),
        (Op::NoneOf, right, [flags @ Datum::Flags(_)]) => ask::is(flags, right, site, &text),
        (Op::Is | Op::Equal | Op::Not, right, [one]) => {
            marked(left, right, one, state).unwrap_or_else(|| ask::is(one, right, site, &text))
        }
        (Op::Is | Op::Equal | Op::Not, right, _) => lookup::matches(&key, right, site),
        (op, right, [one]) => ask::compared(one, op, right).map_or_else(|| open(text()), Truth::Known),
        _ => open(text()),
    };
    match op {
        Op::Not | Op::NoneOf => !plain,
        _ => plain,
    }
}

/// `numgen random mod 10 < 3`
fn of_random(left: &Expr, op: Op, right: &Expr) -> Option<Truth> {
    let Expr::Number {
        mode: crate::listed::NumberMode::Random,
        modulus,
        offset,
    } = left
    else {
        return None;
    };
    let (first, count) = (u64::from(*offset), u64::from(*modulus));
    if count > 1 << 16 {
        return None;
    }
    let constants: Vec<&Expr> = match right {
        Expr::Set(elements) => elements.iter().map(|element| &element.key).collect(),
        one => vec![one],
    };
    let holds = |number: u64| -> Option<bool> {
        let datum = Datum::Number(number);
        let mut any = false;
        for constant in &constants {
            any |= match op {
                Op::Is | Op::Equal | Op::Not => ask::number_is(number, constant)?,
                op => ask::compared(&datum, op, constant)?,
            };
        }
        Some(any != (op == Op::Not))
    };
    let mut true_ones = 0_u32;
    for number in first..first + count {
        true_ones += u32::from(holds(number)?);
    }
    Some(match true_ones {
        0 => Truth::Known(false),
        all if all == *modulus => Truth::Known(true),
        some => Truth::Random(f64::from(some) / f64::from(*modulus)),
    })
}

/// `ct status & dnat == dnat`, `tcp flags & (fin | syn) == syn`
fn of_masked_flags(left: &Expr, op: Op, right: &Expr, state: &State) -> Option<Truth> {
    let Expr::Binary(BinaryOp::And, both) = left else {
        return None;
    };
    let flags = match parts(&both.0, state).as_slice() {
        [Datum::Flags(flags)] => *flags,
        [Datum::Absent] => return Some(Truth::Known(false)),
        _ => return None,
    };
    let masked = ask::masked(flags, right, &both.1)?;
    match op {
        Op::Is | Op::Equal => Some(Truth::Known(masked)),
        Op::Not => Some(Truth::Known(!masked)),
        _ => None,
    }
}

/// A mark under a mask, so that the question is the one that rules of iptables ask.
fn marked(left: &Expr, right: &Expr, datum: &Datum, state: &State) -> Option<Truth> {
    let (field, mask) = match left {
        Expr::Binary(BinaryOp::And, both) => (&both.0, bits(&both.1, state)?.value()),
        field => (field, u32::MAX),
    };
    let Expr::Field(field) = field else {
        return None;
    };
    let Datum::Bits(has) = datum else {
        return None;
    };
    let Expr::Value(value) = right else {
        return None;
    };
    let value = u32::try_from(super::datum::number(value)?).ok()?;
    if let Some(is) = has.equals(value, u32::MAX) {
        return Some(Truth::Known(is));
    }
    match words(field)[..] {
        ["meta", "mark"] => Some(Truth::Hangs(Condition::Mark { value, mask }, true)),
        ["ct", "mark"] => Some(Truth::Hangs(Condition::ConnectionMark { value, mask }, true)),
        _ => None,
    }
}

fn in_set(
    (left, set): (&Expr, &Expr),
    key: &[Datum],
    branch: &mut Branch,
    site: &Site<'_>,
    indexed: &Indexed<'_>,
) -> Truth {
    let question = || element_question(left, set, key, site);
    let Some(asked) = Asked::of(set, indexed) else {
        return Truth::Hangs(question(), true);
    };
    let member = lookup::member(key, &asked, site, &question);
    if let (Some(element), Some(name)) = (member.element, asked.name) {
        branch.found.push((name.clone(), element.to_string().into()));
    }
    member.truth
}

/// Whether an element is in a set that packets change, or that was not listed.
fn element_question(left: &Expr, set: &Expr, key: &[Datum], site: &Site<'_>) -> Condition {
    let Expr::Named(name) = set else {
        return Condition::Holds {
            text: format!("{left} {set}").into(),
            lasts: Lasts::UntilRewritten,
        };
    };
    Condition::Element {
        set: format!("{} @{name}", site.table).into(),
        key: key_text(left, key),
    }
}

/// A key as an element of it would be printed; a part that is not known as the field it is taken from.
fn key_text(left: &Expr, key: &[Datum]) -> Arc<str> {
    let fields = match left {
        Expr::Concat(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let part = |(datum, field): (&Datum, &Expr)| match datum {
        Datum::Address(ip) => ip.to_string(),
        Datum::Number(number) => number.to_string(),
        Datum::Protocol(protocol) => protocol.as_lower().to_owned(),
        Datum::Word(word) => (*word).to_owned(),
        Datum::Bits(bits) if bits.is_known() => format!("{:#010x}", bits.value()),
        _ => field.to_string(),
    };
    let parts: Vec<String> = key.iter().zip(fields).map(part).collect();
    parts.join(" . ").into()
}

/// Second words of what can be written without any rule or route looking at it.
const INERT: [&str; 14] = [
    "nftrace",
    "priority",
    "secmark",
    "helper",
    "event",
    "timeout",
    "label",
    "dscp",
    "ecn",
    "ttl",
    "hoplimit",
    "flowlabel",
    "option",
    "cpu",
];

/// Writes a mark, or something that nobody here looks at.
pub(super) fn assign(to: &Expr, value: &Expr, branch: &mut Branch) -> Step {
    let Expr::Field(field) = to else {
        return undecided(format!("{to} set {value}"));
    };
    let state = &mut branch.state;
    match words(field)[..] {
        ["meta", "mark"] => {
            let from = state.mark;
            state.mark = bits(value, state).unwrap_or_else(Bits::unknown);
            Step::Did(Did::Marked {
                from: from.value(),
                to: state.mark.value(),
            })
        }
        // Without a connection the rule ends (`nft_ct_set_eval`).
        ["ct", _] if !super::datum::has_connection(state) => Step::Fails,
        ["ct", "mark"] => {
            state.connection.mark = bits(value, state).unwrap_or_else(Bits::unknown);
            Step::Did(Did::Nothing)
        }
        [_, second, ..] if INERT.contains(&second) => Step::Did(Did::Nothing),
        _ => undecided(format!("{to} set {value}")),
    }
}

pub(super) fn undecided(text: String) -> Step {
    Step::Ends(
        Did::HandedOver(text.as_str().into()),
        Verdict::Undecided(text.into()),
    )
}

/// Changes a set. `rest` is what the rule does afterwards, should the set have no room.
pub(super) fn update(update: &Update, rest: &[Statement], branch: &mut Branch, site: &Site<'_>) -> Step {
    let key = parts(&update.element.key, &branch.state);
    if key.contains(&Datum::Absent) {
        return Step::Fails;
    }
    let condition = Condition::Element {
        set: format!("{} @{}", site.table, update.set).into(),
        key: key_text(&update.element.key, &key),
    };
    if update.op == UpdateOp::Delete {
        return Step::Did(Did::Forgot(condition));
    }
    let asks = ["limit", "quota", "ct count"];
    let mut words = update.element.words.iter();
    let counts = words.any(|words| asks.iter().any(|word| words.contains(word)));
    let matters = rest
        .iter()
        .any(|statement| !matches!(statement, Statement::Inert(_)));
    let did = Did::Remembered(condition);
    match (counts, matters) {
        (true, _) => Step::DidIf(did, hangs(format!("{}", Statement::Update(update.clone())))),
        // A full set ends the rule.
        (false, true) => Step::DidIf(did, hangs(format!("{} @{} has room", site.table, update.set))),
        (false, false) => Step::Did(did),
    }
}

fn hangs(text: String) -> Condition {
    Condition::Holds {
        text: text.into(),
        lasts: Lasts::Once,
    }
}

/// The value of a constant address.
pub(super) fn address(expr: &Expr) -> Option<std::net::IpAddr> {
    match expr {
        Expr::Value(Value::Address(ip)) => Some(*ip),
        _ => None,
    }
}
