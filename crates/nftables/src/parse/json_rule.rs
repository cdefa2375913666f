//! Statements as JSON.

use super::json_expr::{Context, element, expr, map_of, text, within};
use super::rule::is_always_true;
use super::token::Tokens;
use crate::listed::{BinaryOp, Expr, Nat, NatKind, Op, Statement, TableFamily, Update, UpdateOp, Verdict};
use serde_json::Value as Json;
use std::sync::Arc;

/// One statement. What is not known here stays as JSON, in the words that are read again as itself.
pub(super) fn statement(found: &Json, family: TableFamily) -> Statement {
    let inner = found.as_object().and_then(|object| object.iter().next());
    let known = inner.and_then(|(kind, body)| known(kind, body, family));
    known.unwrap_or_else(|| Statement::Unknown(Tokens::of(&found.to_string()).line_text()))
}

fn known(kind: &str, body: &Json, family: TableFamily) -> Option<Statement> {
    if let Some(verdict) = verdict(kind, body) {
        return Some(Statement::Verdict(verdict));
    }
    if let Some(nat_kind) = NatKind::ALL.into_iter().find(|known| known.as_str() == kind) {
        return nat(nat_kind, body).map(Statement::Nat);
    }
    Some(match kind {
        "match" => matched(body)?,
        "vmap" => {
            let key = expr(body.get("key")?);
            let map = map_of(&key, body.get("data")?);
            Statement::VerdictMap { key, map }
        }
        "mangle" => {
            let to = expr(body.get("key")?);
            let value = within(body.get("value")?, Context::of(&to));
            Statement::Assign { to, value }
        }
        "reject" => reject(body, family),
        "set" | "map" => update(body, body.get("data"))?,
        "notrack" => Statement::NoTrack,
        "counter" => counter(body),
        "log" => log(body),
        "limit" => limit(body)?,
        "quota" => quota(body)?,
        "ct count" => {
            let over = if body.get("inv") == Some(&Json::Bool(true)) {
                "over "
            } else {
                ""
            };
            Statement::Open(format!("ct count {over}{}", text(body.get("val")?)).into())
        }
        "xt" => {
            let (kind, name) = (body.get("type").and_then(Json::as_str)?, text(body.get("name")?));
            let words = format!("xt {kind} \"{name}\"").into();
            match (kind, &*name) {
                ("match", module) if is_always_true(module) => Statement::Inert(words),
                ("match", _) => Statement::Open(words),
                _ => Statement::Unknown(words),
            }
        }
        "flow" => Statement::Inert(format!("flow add {}", text(body.get("flowtable")?)).into()),
        _ => return None,
    })
}

/// A verdict, if this kind is one.
pub(super) fn verdict(kind: &str, body: &Json) -> Option<Verdict> {
    let target = || body.get("target").and_then(Json::as_str).map(Arc::from);
    Some(match kind {
        "accept" => Verdict::Accept,
        "drop" => Verdict::Drop,
        "continue" => Verdict::Continue,
        "return" => Verdict::Return,
        "jump" => Verdict::Jump(target()?),
        "goto" => Verdict::Goto(target()?),
        "queue" => {
            let mut words = vec!["queue".to_owned()];
            if let Some(flags) = body.get("flags") {
                let flags = match flags {
                    Json::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(","),
                    one => text(one),
                };
                words.push(format!("flags {flags}"));
            }
            if let Some(number) = body.get("num") {
                words.push(format!("to {}", expr(number)));
            }
            Verdict::Queue(words.join(" ").into())
        }
        _ => return None,
    })
}

fn matched(body: &Json) -> Option<Statement> {
    let left = expr(body.get("left")?);
    let right = within(body.get("right")?, Context::of(&left));
    let op = match body.get("op").and_then(Json::as_str)? {
        "==" if matches!(left, Expr::Binary(..)) || is_flags(&left, &right) => Op::Equal,
        "in" | "==" => Op::Is,
        word => Op::WRITTEN
            .iter()
            .find(|(_, known)| *known == word)
            .map(|(op, _)| *op)?,
    };
    Some(of_flags_under_mask(left, op, right))
}

/// `A & B,C == D`, where the text form has `A D / B,C`.
fn of_flags_under_mask(left: Expr, op: Op, right: Expr) -> Statement {
    let op_of_text = match op {
        Op::Equal => Op::Is,
        op => op,
    };
    match left {
        Expr::Binary(BinaryOp::And, both)
            if matches!(both.1, Expr::List(_)) && matches!(op, Op::Equal | Op::Not) =>
        {
            let (field, mask) = *both;
            Statement::Match {
                left: field,
                op: op_of_text,
                right: Expr::Masked(Box::new((right, mask))),
            }
        }
        left => Statement::Match { left, op, right },
    }
}

/// Whether one value beside `==` means all flags and no other: then the text form writes the sign.
fn is_flags(left: &Expr, right: &Expr) -> bool {
    let Expr::Field(words) = left else {
        return false;
    };
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    matches!(words[..], ["ct", "state" | "status"] | ["tcp", "flags"])
        && !matches!(right, Expr::Set(_) | Expr::Named(_))
}

fn texts(found: Option<&Json>) -> Vec<Arc<str>> {
    match found {
        Some(Json::Array(all)) => all.iter().map(|one| text(one).into()).collect(),
        Some(one) => vec![text(one).into()],
        None => Vec::new(),
    }
}

fn nat(kind: NatKind, body: &Json) -> Option<Nat> {
    let known = ["addr", "family", "port", "flags", "type_flags"];
    let foreign = body
        .as_object()
        .is_some_and(|body| body.keys().any(|name| !known.contains(&name.as_str())));
    (!foreign).then_some(())?;
    let mut family = texts(body.get("family"));
    family.extend(texts(body.get("type_flags")));
    Some(Nat {
        kind,
        family,
        to: body.get("addr").map(expr),
        port: body.get("port").map(expr),
        flags: texts(body.get("flags")),
    })
}

fn reject(body: &Json, family: TableFamily) -> Statement {
    let usual = match family {
        TableFamily::Ip => "icmp",
        TableFamily::Ip6 => "icmpv6",
        _ => "icmpx",
    };
    let kind = body.get("type").map(text);
    let with = match (kind, body.get("expr").map(text)) {
        // The usual answer, which the text form does not write.
        (Some(kind), Some(code)) if kind == usual && code == "port-unreachable" => String::new(),
        (Some(kind), Some(code)) => format!("{kind} {code}"),
        (Some(kind), None) => kind,
        (None, _) => String::new(),
    };
    Statement::Reject(with.into())
}

fn update(body: &Json, data: Option<&Json>) -> Option<Statement> {
    let word = body.get("op").and_then(Json::as_str)?;
    let op = UpdateOp::ALL.into_iter().find(|op| op.as_str() == word)?;
    let set = body
        .get("set")
        .or_else(|| body.get("map"))
        .and_then(Json::as_str)?;
    let mut element = element(body.get("elem")?);
    for one in body.get("stmt").and_then(Json::as_array).into_iter().flatten() {
        element.words.push(asked_of_each(one)?);
    }
    element.data = data.map(expr);
    Some(Statement::Update(Update {
        op,
        set: set.strip_prefix('@').unwrap_or(set).into(),
        element,
    }))
}

/// What is counted or limited for each element: `{ KEY limit rate over 10/second }`.
fn asked_of_each(found: &Json) -> Option<Arc<str>> {
    let (kind, body) = found.as_object()?.iter().next()?;
    match known(kind, body, TableFamily::Inet)? {
        Statement::Open(words) | Statement::Inert(words) => Some(words),
        _ => None,
    }
}

fn counter(body: &Json) -> Statement {
    let words = match (body.get("packets"), body.get("bytes")) {
        (Some(packets), Some(bytes)) => format!("counter packets {} bytes {}", text(packets), text(bytes)),
        _ if body.is_string() => format!("counter name \"{}\"", text(body)),
        _ => "counter".to_owned(),
    };
    Statement::Inert(words.into())
}

fn log(body: &Json) -> Statement {
    let mut words = vec!["log".to_owned()];
    for name in ["prefix", "group", "snaplen", "queue-threshold", "level", "flags"] {
        match (name, body.get(name)) {
            (_, None) => {}
            ("prefix", Some(prefix)) => words.push(format!("prefix \"{}\"", text(prefix))),
            (name, Some(Json::Array(all))) => {
                let all: Vec<String> = all.iter().map(text).collect();
                words.push(format!("{name} {}", all.join(",")));
            }
            (name, Some(value)) => words.push(format!("{name} {}", text(value))),
        }
    }
    Statement::Inert(words.join(" ").into())
}

fn limit(body: &Json) -> Option<Statement> {
    if body.is_string() {
        return Some(Statement::Open(format!("limit name \"{}\"", text(body)).into()));
    }
    let get = |name: &str| body.get(name).map(text);
    let over = if body.get("inv") == Some(&Json::Bool(true)) {
        "over "
    } else {
        ""
    };
    let unit = get("rate_unit").map_or_else(String::new, |unit| format!(" {unit}"));
    let mut words = vec![format!("limit rate {over}{}{unit}/{}", get("rate")?, get("per")?)];
    if let Some(burst) = get("burst") {
        let unit = get("burst_unit").unwrap_or_else(|| "packets".to_owned());
        words.push(format!("burst {burst} {unit}"));
    }
    Some(Statement::Open(words.join(" ").into()))
}

fn quota(body: &Json) -> Option<Statement> {
    if body.is_string() {
        return Some(Statement::Open(format!("quota name \"{}\"", text(body)).into()));
    }
    let over = if body.get("inv") == Some(&Json::Bool(true)) {
        "over "
    } else {
        ""
    };
    let (amount, unit) = (text(body.get("val")?), text(body.get("val_unit")?));
    let mut words = vec![format!("quota {over}{amount} {unit}")];
    let used = body.get("used").and_then(Json::as_u64).filter(|used| *used > 0);
    if let (Some(used), Some(unit)) = (used, body.get("used_unit")) {
        words.push(format!("used {used} {}", text(unit)));
    }
    Some(Statement::Open(words.join(" ").into()))
}
