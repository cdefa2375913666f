//! Expressions as JSON.

use super::json::duration;
use super::json_rule::verdict;
use crate::listed::{BinaryOp, Element, Expr, NumberMode, Value};
use serde_json::Value as Json;
use std::sync::Arc;

/// A scalar without quotes; anything else as JSON.
pub(super) fn text(found: &Json) -> String {
    match found {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A kind of object in the words of the text form.
pub(super) fn word(kind: &str) -> &str {
    match kind {
        "ct helper" | "ct timeout" | "ct expectation" => kind,
        other => other,
    }
}

/// What a constant is compared with, which says how it is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    /// Nothing special.
    Plain,
    /// A mark: numbers are printed with eight hexadecimal digits.
    Mark,
    /// The name of an interface, in quotes.
    Interface,
}

impl Context {
    /// The context that a field gives to constants beside it.
    pub(super) fn of(expr: &Expr) -> Context {
        match expr {
            Expr::Field(words) => match words.iter().map(|word| &**word).collect::<Vec<_>>()[..] {
                [.., "mark"] => Context::Mark,
                ["iifname" | "oifname" | "iif" | "oif"] => Context::Interface,
                _ => Context::Plain,
            },
            Expr::Binary(_, both) => Context::of(&both.0),
            _ => Context::Plain,
        }
    }
}

/// An expression.
pub(super) fn expr(found: &Json) -> Expr {
    within(found, Context::Plain)
}

/// An expression, or a constant of this context.
pub(super) fn within(found: &Json, context: Context) -> Expr {
    match found {
        Json::String(word) => match word.strip_prefix('@') {
            Some(name) => Expr::Named(name.into()),
            None if context == Context::Interface => Expr::Value(Value::Quoted(word.as_str().into())),
            None => Expr::Value(Value::of_word(word)),
        },
        Json::Number(number) => {
            let mark = number.as_u64().and_then(|number| u32::try_from(number).ok());
            match (mark, context) {
                (Some(mark), Context::Mark) => Expr::Value(Value::Mark(mark)),
                _ => Expr::Value(Value::of_word(&number.to_string())),
            }
        }
        Json::Bool(true) => Expr::Value(Value::Word("exists".into())),
        Json::Bool(false) => Expr::Value(Value::Word("missing".into())),
        Json::Array(flags) => Expr::List(flags.iter().map(|flag| within(flag, context)).collect()),
        Json::Object(object) => match object.iter().next() {
            Some((kind, body)) => object_expr(kind, body, context).unwrap_or_else(|| unknown(found)),
            None => unknown(found),
        },
        Json::Null => unknown(found),
    }
}

/// What is not known here is a field by its JSON: it can be asked about, and nobody knows the answer.
fn unknown(found: &Json) -> Expr {
    Expr::Field(vec![found.to_string().into()])
}

fn words(parts: &[&str]) -> Expr {
    let words = parts.iter().flat_map(|part| part.split(' '));
    Expr::Field(words.filter(|word| !word.is_empty()).map(Arc::from).collect())
}

fn object_expr(kind: &str, body: &Json, context: Context) -> Option<Expr> {
    if let Some((op, ..)) = BinaryOp::ALL.into_iter().find(|(_, sign, _)| *sign == kind) {
        return binary(op, body, context);
    }
    if let Some(field) = field(kind, body) {
        return Some(field);
    }
    Some(match kind {
        "numgen" => Expr::Number {
            mode: match body.get("mode").and_then(Json::as_str)? {
                "random" => NumberMode::Random,
                _ => NumberMode::Increment,
            },
            modulus: number(body, "mod")?.filter(|modulus| *modulus > 0)?,
            offset: number(body, "offset")?.unwrap_or(0),
        },
        "jhash" | "symhash" => Expr::Hash {
            of: body.get("expr").map(|of| Box::new(expr(of))),
            modulus: number(body, "mod")?.filter(|modulus| *modulus > 0)?,
            seed: number(body, "seed")?,
            offset: number(body, "offset")?.unwrap_or(0),
        },
        "concat" => {
            let parts = body.as_array()?.iter();
            Expr::Concat(parts.map(|part| within(part, context)).collect())
        }
        "set" => match body {
            Json::Array(all) => Expr::Set(all.iter().map(|one| element_within(one, context)).collect()),
            one => Expr::Set(vec![element_within(one, context)]),
        },
        "range" => {
            let both = body.as_array()?;
            let end = |at: usize| both.get(at).map(|end| within(end, context));
            Expr::Range(Box::new((end(0)?, end(1)?)))
        }
        "prefix" => {
            let text = format!("{}/{}", text(body.get("addr")?), text(body.get("len")?));
            Expr::Value(Value::of_word(&text))
        }
        "map" => {
            let key = expr(body.get("key")?);
            let data = map_of(&key, body.get("data")?);
            Expr::Map(Box::new((key, data)))
        }
        _ => return verdict(kind, body).map(Expr::Verdict),
    })
}

/// `A & B`, or `A | B | C`.
fn binary(op: BinaryOp, body: &Json, context: Context) -> Option<Expr> {
    let mut all = body.as_array()?.iter();
    let left = within(all.next()?, context);
    let beside = match Context::of(&left) {
        Context::Plain => context,
        of_left => of_left,
    };
    let right = within(all.next()?, beside);
    let start = Expr::Binary(op, Box::new((left, right)));
    Some(all.fold(start, |left, right| {
        Expr::Binary(op, Box::new((left, within(right, beside))))
    }))
}

/// Something of the packet, its connection or the host.
fn field(kind: &str, body: &Json) -> Option<Expr> {
    let get = |name: &str| body.get(name).and_then(Json::as_str);
    let found = match kind {
        "payload" => {
            if let Some(protocol) = get("protocol") {
                words(&[protocol, get("field")?])
            } else {
                let number = |name| body.get(name).and_then(Json::as_u64);
                let (base, offset, length) = (get("base")?, number("offset")?, number("len")?);
                words(&[&format!("@{base},{offset},{length}")])
            }
        }
        "meta" => match get("key")? {
            key @ ("iif" | "iifname" | "iifgroup" | "oif" | "oifname" | "oifgroup") => words(&[key]),
            key => words(&["meta", key]),
        },
        "ct" => {
            let optional = |name| get(name).unwrap_or_default();
            words(&["ct", optional("dir"), optional("family"), get("key")?])
        }
        "fib" => {
            let flags = match body.get("flags")? {
                Json::Array(flags) => flags.iter().map(text).collect::<Vec<_>>().join(" . "),
                one => text(one),
            };
            words(&["fib", &flags, get("result")?])
        }
        "rt" => words(&["rt", get("family").unwrap_or_default(), get("key")?]),
        "socket" => words(&["socket", get("key")?]),
        "tcp option" => words(&["tcp option", get("name")?, get("field").unwrap_or_default()]),
        _ => return None,
    };
    Some(found)
}

/// A map beside its key.
pub(super) fn map_of(key: &Expr, data: &Json) -> Expr {
    within(data, Context::of(key))
}

/// A number that may be left out; `None` when what is there is none.
#[expect(clippy::option_option, reason = "left out, and wrong")]
fn number(body: &Json, name: &str) -> Option<Option<u32>> {
    match body.get(name) {
        None | Some(Json::Null) => Some(None),
        Some(found) => Some(Some(u32::try_from(found.as_u64()?).ok()?)),
    }
}

/// What an element of a map holds, or a constant.
pub(super) fn data(found: &Json) -> Expr {
    match found {
        Json::String(word) => Expr::Value(Value::of_word(word)),
        found => expr(found),
    }
}

/// An element of a named set.
pub(super) fn element(found: &Json) -> Element {
    element_within(found, Context::Plain)
}

/// `KEY`, `[KEY, DATA]`, `{"elem": {"val": KEY, "comment": C, ...}}`
pub(super) fn element_within(found: &Json, context: Context) -> Element {
    if let Json::Array(both) = found
        && let [key, held] = both.as_slice()
    {
        return Element {
            data: Some(data(held)),
            ..element_within(key, context)
        };
    }
    let Some(body) = found.get("elem") else {
        return Element::of(within(found, context));
    };
    let mut element = Element::of(
        body.get("val")
            .map_or_else(|| unknown(found), |key| within(key, context)),
    );
    let mut words = Vec::new();
    if let Some(counter) = body.get("counter") {
        let count = |name| counter.get(name).map(text).unwrap_or_default();
        words.push(format!(
            "counter packets {} bytes {}",
            count("packets"),
            count("bytes")
        ));
    }
    for name in ["timeout", "expires"] {
        let seconds = body.get(name).and_then(Json::as_u64);
        words.extend(seconds.map(|seconds| format!("{name} {}", duration(seconds))));
    }
    element
        .words
        .extend((!words.is_empty()).then(|| words.join(" ").into()));
    element.comment = body.get("comment").and_then(Json::as_str).map(Arc::from);
    element
}
