//! Tables, sets and chains as JSON (`libnftables-json(5)`).
//!
//! `nft` 1.0.6 leaves out of JSON what it prints as text: comments of tables and sets, `dynamic`, a chain's devices. What
//! is decided by those is a fork when a packet is traced over JSON.

use super::json_expr::{data, element, text, word};
use super::json_rule::statement;
use super::{HOOKS, ParseError};
use crate::listed::{Base, Chain, Contents, Object, Policy, Rule, Ruleset, Set, Table, TableFamily, Type};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// Reads `{"nftables": [...]}`.
pub(super) fn ruleset(text: &str) -> Result<Ruleset, ParseError> {
    let whole: Json = serde_json::from_str(text).map_err(|error| ParseError {
        line: u32::try_from(error.line()).unwrap_or(u32::MAX),
        what: format!("no JSON: {error}"),
    })?;
    let objects = whole.get("nftables").and_then(Json::as_array);
    let objects = objects.ok_or_else(|| wrong("an object with a list \"nftables\"", &whole))?;
    let mut ruleset = Ruleset::default();
    for object in objects {
        let object = object.get("add").unwrap_or(object);
        let inner = object.as_object().and_then(|object| object.iter().next());
        let (kind, body) = inner.ok_or_else(|| wrong("an object with one field", object))?;
        if kind == "metainfo" {
            continue;
        }
        let body = body.as_object().ok_or_else(|| wrong("an object", object))?;
        add(kind, body, &mut ruleset)?;
    }
    Ok(ruleset)
}

fn wrong(expected: &str, found: &Json) -> ParseError {
    let mut found = found.to_string();
    if let Some((end, _)) = found.char_indices().nth(120) {
        found.truncate(end);
        found.push_str("...");
    }
    ParseError {
        line: 0,
        what: format!("expected {expected}, found {found}"),
    }
}

type Body = Map<String, Json>;

fn field<'a>(body: &'a Body, name: &str) -> Result<&'a str, ParseError> {
    let found = body.get(name).and_then(Json::as_str);
    found.ok_or_else(|| wrong(&format!("a field {name:?}"), &Json::Object(body.clone())))
}

fn optional(body: &Body, name: &str) -> Option<Arc<str>> {
    body.get(name).and_then(Json::as_str).map(Arc::from)
}

/// One text, or a list of them.
fn texts(found: Option<&Json>) -> Vec<Arc<str>> {
    match found {
        Some(Json::Array(all)) => all.iter().map(|one| text(one).into()).collect(),
        Some(one) => vec![text(one).into()],
        None => Vec::new(),
    }
}

fn add(kind: &str, body: &Body, ruleset: &mut Ruleset) -> Result<(), ParseError> {
    let family = field(body, "family")?;
    let family = TableFamily::ALL
        .into_iter()
        .find(|known| known.as_str() == family)
        .ok_or_else(|| wrong("the family of a table", &Json::Object(body.clone())))?;
    if kind == "table" {
        let mut table = Table::new(family, field(body, "name")?);
        table.flags = texts(body.get("flags"));
        table.comment = optional(body, "comment");
        ruleset.tables.push(table);
        return Ok(());
    }
    let name = field(body, "table")?;
    // Lists of single chains or sets (`nft -j list sets`) have no object for their table.
    let table = ruleset.table_made(family, name);
    match kind {
        "set" | "map" => table.sets.push(set(body)?),
        "chain" => table.chains.push(chain(body)?),
        "rule" => {
            let chain = field(body, "chain")?;
            let mut chains = table.chains.iter_mut();
            let chain = chains.find(|known| &*known.name == chain);
            let chain =
                chain.ok_or_else(|| wrong("the chain before its rules", &Json::Object(body.clone())))?;
            chain.rules.push(rule(body, family));
        }
        "element" => {
            let name = field(body, "name")?;
            let known = table.sets.iter_mut().find(|set| &*set.name == name);
            if let (Some(Contents::Listed(all)), Some(Json::Array(more))) =
                (known.map(|set| &mut set.elements), body.get("elem"))
            {
                all.extend(more.iter().map(element));
            }
        }
        _ => table.objects.push(object(kind, body)?),
    }
    Ok(())
}

fn set(body: &Body) -> Result<Set, ParseError> {
    let named = |found: &Json| match found {
        Json::String(types) => Type::Named(types.split(" . ").map(Arc::from).collect()),
        Json::Array(_) => Type::Named(texts(Some(found))),
        // `typeof`: nft 1.1 prints the expressions.
        found => Type::Like(
            super::json_expr::expr(found.get("typeof").unwrap_or(found))
                .to_string()
                .into(),
        ),
    };
    let mut words = Vec::new();
    for (name, word) in [("size", "size"), ("policy", "policy")] {
        words.extend(
            body.get(name)
                .map(|value| format!("{word} {}", text(value)).into()),
        );
    }
    for (name, word) in [("timeout", "timeout"), ("gc-interval", "gc-interval")] {
        let seconds = body.get(name).and_then(Json::as_u64);
        words.extend(seconds.map(|seconds| format!("{word} {}", duration(seconds)).into()));
    }
    if body.get("auto-merge") == Some(&Json::Bool(true)) {
        words.push("auto-merge".into());
    }
    let elements = match body.get("elem") {
        Some(Json::Array(all)) => all.iter().map(element).collect(),
        _ => Vec::new(),
    };
    Ok(Set {
        name: field(body, "name")?.into(),
        key: named(body.get("type").unwrap_or(&Json::Null)),
        data: body.get("map").map(named),
        flags: texts(body.get("flags")),
        words,
        comment: optional(body, "comment"),
        elements: Contents::Listed(elements),
    })
}

/// Seconds as `nft` prints them: `1h30m`.
pub(crate) fn duration(seconds: u64) -> String {
    let parts = [
        (seconds / 86_400, 'd'),
        (seconds / 3600 % 24, 'h'),
        (seconds / 60 % 60, 'm'),
        (seconds % 60, 's'),
    ];
    let printed: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    if printed.is_empty() {
        "0s".to_owned()
    } else {
        printed.concat()
    }
}

fn chain(body: &Body) -> Result<Chain, ParseError> {
    let hook = optional(body, "hook");
    let base = hook.map(|hook| -> Result<Base, ParseError> {
        if !HOOKS.contains(&&*hook) {
            return Err(wrong(
                &format!("a \"hook\" of {}", HOOKS.join(", ")),
                &Json::Object(body.clone()),
            ));
        }
        let priority = body.get("prio").and_then(Json::as_i64);
        let priority = priority.and_then(|number| i32::try_from(number).ok());
        Ok(Base {
            kind: field(body, "type")?.into(),
            hook,
            devices: texts(body.get("dev")),
            priority: priority.ok_or_else(|| wrong("a priority \"prio\"", &Json::Object(body.clone())))?,
            policy: match body.get("policy").and_then(Json::as_str) {
                Some("drop") => Policy::Drop,
                _ => Policy::Accept,
            },
        })
    });
    Ok(Chain {
        name: field(body, "name")?.into(),
        base: base.transpose()?,
        comment: optional(body, "comment"),
        rules: Vec::new(),
    })
}

fn rule(body: &Body, family: TableFamily) -> Rule {
    let found = body.get("expr").and_then(Json::as_array);
    let statements = found.into_iter().flatten();
    Rule {
        statements: statements.map(|one| statement(one, family)).collect(),
        comment: optional(body, "comment"),
    }
}

/// What every object has, and what need not be printed again.
const COMMON: [&str; 4] = ["family", "name", "table", "handle"];

fn object(kind: &str, body: &Body) -> Result<Object, ParseError> {
    let lines = body.iter().filter(|(name, _)| !COMMON.contains(&name.as_str()));
    let line = |(name, value): (&String, &Json)| match name.as_str() {
        "comment" => format!("comment \"{}\"", text(value)).into(),
        _ => format!("{name} {}", data(value)).into(),
    };
    Ok(Object {
        head: format!("{} {}", word(kind), field(body, "name")?).into(),
        body: lines.map(line).collect(),
    })
}
