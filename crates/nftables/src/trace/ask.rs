//! Whether something known is what a constant says.

use super::datum::{Datum, Flags, Side, number};
use crate::listed::{Expr, Op, Value};
use model::Protocol;
use std::net::IpAddr;
use std::sync::Arc;
use traced::{Condition, Hook, Interface, Lasts, LocalAddresses, Site, Truth};

fn known(answer: Option<bool>, text: &dyn Fn() -> Arc<str>) -> Truth {
    answer.map_or_else(|| open(text()), Truth::Known)
}

/// What hangs on an expression as it is printed.
pub(super) fn open(text: Arc<str>) -> Truth {
    // What a packet says of itself stays; rates, clocks and counters do not.
    let fickle = [
        "limit",
        "quota",
        "numgen",
        "meta time",
        "meta hour",
        "meta day",
        "ct count",
        "ct bytes",
        "xt ",
        "# xt_",
        "meter ",
    ];
    let lasts = if fickle.iter().any(|word| text.starts_with(word)) {
        Lasts::Once
    } else {
        Lasts::UntilRewritten
    };
    Truth::Hangs(Condition::Holds { text, lasts }, true)
}

/// Whether one part of a key is a constant. `text` is the question, for when nobody knows.
pub(super) fn is(datum: &Datum, constant: &Expr, site: &Site<'_>, text: &dyn Fn() -> Arc<str>) -> Truth {
    match (datum, constant) {
        (Datum::Absent, _) => Truth::Known(false),
        (Datum::Address(ip), constant) => known(address_is(*ip, constant), text),
        (Datum::UnknownSource, constant) => source_is(constant, site, text),
        (Datum::Number(has), constant) => known(number_is(*has, constant), text),
        (Datum::UnknownSourcePort, constant) => {
            Truth::Hangs(Condition::SourcePort(constant.to_string().into()), true)
        }
        (Datum::Protocol(protocol), Expr::Value(value)) => Truth::Known(protocol_is(*protocol, value)),
        (Datum::Word(word), Expr::Value(Value::Word(asked))) => Truth::Known(**asked == **word),
        (Datum::Bits(bits), Expr::Value(value)) => match number(value).map(u32::try_from) {
            Some(Ok(value)) => match bits.equals(value, u32::MAX) {
                Some(is) => Truth::Known(is),
                None => open(text()),
            },
            _ => open(text()),
        },
        (Datum::Bits(bits), Expr::Range(_)) if bits.is_known() => {
            known(number_is(u64::from(bits.value()), constant), text)
        }
        (Datum::Interface(of), Expr::Value(Value::Quoted(name) | Value::Word(name))) => {
            is_interface(*of, name, site)
        }
        (Datum::TypeOf(ip), Expr::Value(Value::Word(kind))) => type_is(*ip, kind, site),
        (Datum::Flags(flags), Expr::Value(Value::Word(word))) => known(flags.has(word), text),
        (Datum::Flags(flags), Expr::List(words)) => known(any(*flags, words), text),
        (Datum::Flags(flags), Expr::Masked(both)) => known(masked(*flags, &both.0, &both.1), text),
        _ => open(text()),
    }
}

fn any(flags: Flags, words: &[Expr]) -> Option<bool> {
    let has: Vec<Option<bool>> = words
        .iter()
        .map(|word| match word {
            Expr::Value(Value::Word(word)) => flags.has(word),
            _ => None,
        })
        .collect();
    if has.contains(&Some(true)) {
        Some(true)
    } else {
        (!has.contains(&None)).then_some(false)
    }
}

/// The words of flags: `fin,syn`, `fin | syn`, `syn`.
fn flag_words(expr: &Expr) -> Option<Vec<&str>> {
    match expr {
        Expr::Value(Value::Word(word)) => Some(vec![word]),
        Expr::List(all) => {
            let words: Option<Vec<Vec<&str>>> = all.iter().map(flag_words).collect();
            words.map(|words| words.concat())
        }
        Expr::Binary(crate::listed::BinaryOp::Or, both) => {
            Some([flag_words(&both.0)?, flag_words(&both.1)?].concat())
        }
        _ => None,
    }
}

/// Whether of the flags in the mask these are set and no others.
pub(super) fn masked(flags: Flags, value: &Expr, mask: &Expr) -> Option<bool> {
    let wanted = match value {
        Expr::Value(zero) if number(zero) == Some(0) => Vec::new(),
        value => flag_words(value)?,
    };
    let mut all = Some(true);
    for word in flag_words(mask)? {
        match flags.has(word) {
            Some(has) if has != wanted.contains(&word) => return Some(false),
            Some(_) => {}
            None => all = None,
        }
    }
    all
}

fn address_is(ip: IpAddr, constant: &Expr) -> Option<bool> {
    Some(match constant {
        Expr::Value(Value::Address(asked)) => ip == *asked,
        Expr::Value(Value::Network(net)) => net.contains(&ip),
        Expr::Range(ends) => match (&ends.0, &ends.1) {
            (Expr::Value(Value::Address(from)), Expr::Value(Value::Address(to))) => {
                (*from..=*to).contains(&ip)
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// A translated source is one of the host's addresses.
fn source_is(constant: &Expr, site: &Site<'_>, text: &dyn Fn() -> Arc<str>) -> Truth {
    if let LocalAddresses::Known(all) = site.local {
        let is: Vec<Option<bool>> = all.iter().map(|ip| address_is(*ip, constant)).collect();
        if is.iter().all(|is| *is == Some(false)) {
            return Truth::Known(false);
        }
    }
    match constant {
        Expr::Value(Value::Network(net)) => Truth::Hangs(Condition::SourceIn(*net), true),
        Expr::Value(Value::Address(ip)) => Truth::Hangs(Condition::SourceIn((*ip).into()), true),
        _ => open(text()),
    }
}

pub(super) fn number_is(has: u64, constant: &Expr) -> Option<bool> {
    let value = |expr: &Expr| match expr {
        Expr::Value(value) => number(value),
        _ => None,
    };
    match constant {
        Expr::Range(ends) => Some((value(&ends.0)?..=value(&ends.1)?).contains(&has)),
        one => Some(value(one)? == has),
    }
}

fn protocol_is(protocol: Protocol, value: &Value) -> bool {
    match value {
        Value::Number(number) => *number == u64::from(protocol.number()),
        Value::Word(word) => &**word == protocol.as_lower(),
        _ => false,
    }
}

/// `eth0`, or `cali*`.
fn is_interface(of: Side, pattern: &Arc<str>, site: &Site<'_>) -> Truth {
    let begins = pattern.strip_suffix('*');
    match of.at(site) {
        _ if &**pattern == "*" => Truth::Known(true),
        Interface::Absent => Truth::Known(false),
        Interface::Named(has) => Truth::Known(match begins {
            Some(start) => has.starts_with(start),
            None => has == pattern,
        }),
        Interface::Unknown => {
            // The pattern in the words of iptables, so that tables of both kinds ask the same question.
            let wanted: Arc<str> = begins.map_or_else(|| pattern.clone(), |start| format!("{start}+").into());
            let condition = match of {
                Side::In => Condition::InInterface(wanted),
                Side::Out => Condition::OutInterface {
                    pattern: wanted,
                    hook: match site.hook {
                        Hook::Output => Hook::Output,
                        _ => Hook::Postrouting,
                    },
                },
            };
            Truth::Hangs(condition, true)
        }
    }
}

fn type_is(ip: Option<IpAddr>, kind: &Arc<str>, site: &Site<'_>) -> Truth {
    let Some(ip) = ip else {
        return Truth::Known(&**kind == "local");
    };
    let local = match site.local.has(ip) {
        Some(local) => Truth::Known(local),
        None => Truth::Hangs(Condition::Local(ip), true),
    };
    match (&**kind, site.is_broadcast(ip)) {
        ("local", _) => local,
        ("multicast", _) => Truth::Known(ip.is_multicast()),
        ("unspec", _) => Truth::Known(ip.is_unspecified()),
        ("broadcast", Some(is)) => Truth::Known(is),
        ("unicast", Some(true)) => Truth::Known(false),
        ("unicast", _) if ip.is_multicast() || ip.is_unspecified() => Truth::Known(false),
        ("unicast", Some(false)) => !local,
        ("unicast", None) if local == Truth::Known(true) => Truth::Known(false),
        _ => Truth::Hangs(
            Condition::AddressType {
                ip,
                kind: kind.to_uppercase().into(),
            },
            true,
        ),
    }
}

/// Whether a number stands in an order to a constant.
pub(super) fn compared(datum: &Datum, op: Op, constant: &Expr) -> Option<bool> {
    let has = match datum {
        Datum::Number(number) => *number,
        Datum::Bits(bits) if bits.is_known() => u64::from(bits.value()),
        _ => return None,
    };
    let Expr::Value(value) = constant else {
        return None;
    };
    let asked = number(value)?;
    match op {
        Op::Less => Some(has < asked),
        Op::AtMost => Some(has <= asked),
        Op::More => Some(has > asked),
        Op::AtLeast => Some(has >= asked),
        Op::Is | Op::Equal | Op::Not | Op::NoneOf => None,
    }
}
