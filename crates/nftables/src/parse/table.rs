//! Tables, sets and chains as text.

use super::token::{Token, Tokens};
use super::{HOOKS, KINDS, ParseError, expr, rule};
use crate::listed::{
    Base, Chain, Contents, Element, Object, Policy, Ruleset, Set, Table, TableFamily, Type, priority_named,
};
use std::sync::Arc;

/// Reads a list, or commands that build tables.
pub(super) fn ruleset(text: &str) -> Result<Ruleset, ParseError> {
    let mut tokens = Tokens::of(text);
    let mut ruleset = Ruleset::default();
    loop {
        tokens.skip_ends();
        match tokens.word() {
            None if tokens.peek().is_none() => return Ok(ruleset),
            Some("table") => {
                tokens.next();
                table(&mut tokens, &mut ruleset)?;
            }
            Some("add" | "create") => {
                tokens.next();
                add(&mut tokens, &mut ruleset)?;
            }
            Some("delete" | "destroy" | "flush") => {
                let command = tokens.next();
                take_away(&mut tokens, &mut ruleset, command == Some(Token::Word("flush")))?;
            }
            _ => return Err(tokens.error("a table, or a command that adds something")),
        }
    }
}

fn family(tokens: &mut Tokens<'_>) -> TableFamily {
    let word = tokens.word();
    let named = TableFamily::ALL
        .into_iter()
        .find(|family| Some(family.as_str()) == word);
    if named.is_some() {
        tokens.next();
    }
    named.unwrap_or(TableFamily::Ip)
}

fn name(tokens: &mut Tokens<'_>, of: &str) -> Result<Arc<str>, ParseError> {
    match tokens.text() {
        Some(name) => Ok(name.into()),
        None => Err(tokens.error(&format!("the name of a {of}"))),
    }
}

/// The table of these words, made if it is not there.
fn table_named<'r>(tokens: &mut Tokens<'_>, ruleset: &'r mut Ruleset) -> Result<&'r mut Table, ParseError> {
    let family = family(tokens);
    let name = name(tokens, "table")?;
    Ok(ruleset.table_made(family, &name))
}

fn table(tokens: &mut Tokens<'_>, ruleset: &mut Ruleset) -> Result<(), ParseError> {
    let table = table_named(tokens, ruleset)?;
    if tokens.at_end() {
        return Ok(());
    }
    open(tokens)?;
    while !closed(tokens)? {
        match tokens.word() {
            Some("comment") => table.comment = comment(tokens),
            Some("flags") => table.flags = flags(tokens),
            Some("set") => {
                tokens.next();
                let set = set(tokens, None)?;
                table.sets.push(set);
            }
            Some("map") => {
                tokens.next();
                let map = set(tokens, Some(Type::Named(Vec::new())))?;
                table.sets.push(map);
            }
            Some("chain") => {
                tokens.next();
                let chain = chain(tokens, table.family)?;
                put_chain(table, chain);
            }
            Some(_) => {
                let object = object(tokens)?;
                table.objects.push(object);
            }
            None => return Err(tokens.error("a set, a map, a chain or another object")),
        }
    }
    Ok(())
}

fn open(tokens: &mut Tokens<'_>) -> Result<(), ParseError> {
    if tokens.eat_sign('{') {
        Ok(())
    } else {
        Err(tokens.error("{"))
    }
}

/// Whether the block ends here; takes its brace.
fn closed(tokens: &mut Tokens<'_>) -> Result<bool, ParseError> {
    tokens.skip_ends();
    match tokens.peek() {
        None => Err(tokens.error("}, which ends what was begun before; the rest of the text is missing")),
        Some(_) => Ok(tokens.eat_sign('}')),
    }
}

fn comment(tokens: &mut Tokens<'_>) -> Option<Arc<str>> {
    tokens.next();
    tokens.text().map(Arc::from)
}

/// `flags A,B` or `flags A, B`.
fn flags(tokens: &mut Tokens<'_>) -> Vec<Arc<str>> {
    tokens.next();
    let mut all = Vec::new();
    while let Some(word) = tokens.text() {
        all.push(Arc::from(word));
        tokens.eat_sign(',');
    }
    all
}

/// A set, or a map when `data` is given.
fn set(tokens: &mut Tokens<'_>, data: Option<Type>) -> Result<Set, ParseError> {
    let mut set = Set {
        name: name(tokens, "set")?,
        key: Type::Named(Vec::new()),
        data,
        flags: Vec::new(),
        words: Vec::new(),
        comment: None,
        elements: Contents::Listed(Vec::new()),
    };
    open(tokens)?;
    while !closed(tokens)? {
        match tokens.word() {
            Some("type" | "typeof") => types(tokens, &mut set),
            Some("flags") => set.flags = flags(tokens),
            Some("comment") => set.comment = comment(tokens),
            Some("elements") => {
                tokens.next();
                tokens.eat("=");
                set.elements = Contents::Listed(elements(tokens)?);
            }
            _ => {
                let words = tokens.line_text();
                if words.is_empty() {
                    return Err(tokens.error("something that a set says of itself"));
                }
                set.words.push(words);
            }
        }
    }
    Ok(set)
}

/// `type A . B : C`, or `typeof` expressions.
fn types(tokens: &mut Tokens<'_>, set: &mut Set) {
    let like = tokens.next() == Some(Token::Word("typeof"));
    let words = tokens.line_text();
    let of = |words: &str| {
        if like {
            Type::Like(words.into())
        } else {
            Type::Named(words.split(" . ").map(Arc::from).collect())
        }
    };
    match words.split_once(" : ") {
        Some((key, data)) => (set.key, set.data) = (of(key), Some(of(data))),
        None => set.key = of(&words),
    }
}

/// `{ A, B : C }`
fn elements(tokens: &mut Tokens<'_>) -> Result<Vec<Element>, ParseError> {
    let from = tokens.place();
    if let Some(elements) = expr::elements(tokens) {
        Ok(elements)
    } else {
        tokens.go_back(from.max(tokens.place()));
        Err(tokens.error("an element of a set"))
    }
}

fn chain(tokens: &mut Tokens<'_>, family: TableFamily) -> Result<Chain, ParseError> {
    let mut chain = Chain {
        name: name(tokens, "chain")?,
        base: None,
        comment: None,
        rules: Vec::new(),
    };
    if tokens.at_end() {
        return Ok(chain);
    }
    open(tokens)?;
    while !closed(tokens)? {
        match tokens.word() {
            Some("type") => chain.base = Some(base(tokens, family)?),
            Some("policy") => {
                let policy = policy(tokens)?;
                match &mut chain.base {
                    Some(base) => base.policy = policy,
                    None => return Err(tokens.error("type, hook and priority before a policy")),
                }
            }
            Some("comment") => chain.comment = comment(tokens),
            _ => {
                let rule = rule::rule(tokens);
                if rule.statements.is_empty() && rule.comment.is_none() {
                    return Err(tokens.error("a rule"));
                }
                chain.rules.push(rule);
            }
        }
    }
    Ok(chain)
}

fn policy(tokens: &mut Tokens<'_>) -> Result<Policy, ParseError> {
    tokens.next();
    match tokens.text() {
        Some("accept") => Ok(Policy::Accept),
        Some("drop") => Ok(Policy::Drop),
        _ => Err(tokens.error("accept or drop for a policy")),
    }
}

/// One of these words: a chain whose hook is not known cannot be left out.
fn one_of(tokens: &mut Tokens<'_>, words: &[&str]) -> Result<Arc<str>, ParseError> {
    let wrong = tokens.error(&format!("one of {}", words.join(", ")));
    let found = words.iter().find(|word| tokens.eat(word));
    found.map(|word| Arc::from(*word)).ok_or(wrong)
}

/// `type T hook H [device D] priority P`
fn base(tokens: &mut Tokens<'_>, family: TableFamily) -> Result<Base, ParseError> {
    tokens.next();
    let kind = one_of(tokens, &KINDS)?;
    if !tokens.eat("hook") {
        return Err(tokens.error("hook"));
    }
    let hook = one_of(tokens, &HOOKS)?;
    let mut devices = Vec::new();
    while let Some("device" | "devices") = tokens.word() {
        tokens.next();
        tokens.eat("=");
        let many = tokens.eat_sign('{');
        while let Some(device) = tokens.text() {
            devices.push(Arc::from(device));
            if !many || !tokens.eat_sign(',') {
                break;
            }
        }
        if many && !tokens.eat_sign('}') {
            return Err(tokens.error("} behind the devices"));
        }
    }
    if !tokens.eat("priority") {
        return Err(tokens.error("priority"));
    }
    let priority = priority(tokens, family)?;
    Ok(Base {
        kind,
        hook,
        devices,
        priority,
        policy: Policy::Accept,
    })
}

/// `-110`, `filter`, `dstnat - 10`
fn priority(tokens: &mut Tokens<'_>, family: TableFamily) -> Result<i32, ParseError> {
    let wrong = |tokens: &Tokens<'_>| tokens.error("a priority");
    let word = tokens.text().ok_or_else(|| wrong(tokens))?;
    if let Ok(number) = word.parse() {
        return Ok(number);
    }
    let named = priority_named(family, word);
    let at = named.ok_or_else(|| wrong(tokens))?;
    let sign = match tokens.word() {
        Some("+") => 1,
        Some("-") => -1,
        _ => return Ok(at),
    };
    tokens.next();
    let offset: i32 = tokens
        .text()
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| wrong(tokens))?;
    offset
        .checked_mul(sign)
        .and_then(|offset| at.checked_add(offset))
        .ok_or_else(|| wrong(tokens))
}

fn object(tokens: &mut Tokens<'_>) -> Result<Object, ParseError> {
    let from = tokens.place();
    while tokens.text().is_some() {}
    let head = tokens.text_from(from);
    open(tokens)?;
    let mut body = Vec::new();
    while !closed(tokens)? {
        let line = tokens.line_text();
        if line.is_empty() {
            return Err(tokens.error("something that an object says of itself"));
        }
        body.push(line);
    }
    Ok(Object { head, body })
}

/// A chain that is there already gets what the other one has more.
fn put_chain(table: &mut Table, chain: Chain) {
    match table.chains.iter_mut().find(|known| known.name == chain.name) {
        Some(known) => {
            known.base = chain.base.or(known.base.take());
            known.comment = chain.comment.or(known.comment.take());
            known.rules.extend(chain.rules);
        }
        None => table.chains.push(chain),
    }
}

/// `add table|chain|set|map|rule|element`
fn add(tokens: &mut Tokens<'_>, ruleset: &mut Ruleset) -> Result<(), ParseError> {
    let Some(Token::Word(what)) = tokens.next() else {
        return Err(tokens.error("what is added"));
    };
    if what == "table" {
        return table(tokens, ruleset);
    }
    let table = table_named(tokens, ruleset)?;
    match what {
        "chain" => {
            let chain = chain(tokens, table.family)?;
            put_chain(table, chain);
        }
        "set" => table.sets.push(set(tokens, None)?),
        "map" => table.sets.push(set(tokens, Some(Type::Named(Vec::new())))?),
        "rule" => {
            let chain = name(tokens, "chain")?;
            let Some(chain) = table.chains.iter_mut().find(|known| known.name == chain) else {
                return Err(tokens.error(&format!("a chain that was added before: {chain} was not")));
            };
            chain.rules.push(rule::rule(tokens));
        }
        "element" => {
            let set = name(tokens, "set")?;
            let added = elements(tokens)?;
            match table.sets.iter_mut().find(|known| known.name == set) {
                Some(Set {
                    elements: Contents::Listed(all),
                    ..
                }) => all.extend(added),
                _ => return Err(tokens.error(&format!("a set that was added before: {set} was not"))),
            }
        }
        _ => {
            let from = tokens.place();
            tokens.go_back(from);
            return Err(tokens.error("a table, chain, set, map, rule or element to add"));
        }
    }
    Ok(())
}

/// `delete table` and `flush ruleset`, which begin files of commands.
fn take_away(tokens: &mut Tokens<'_>, ruleset: &mut Ruleset, flush: bool) -> Result<(), ParseError> {
    match (tokens.word(), flush) {
        (Some("ruleset"), true) => {
            tokens.next();
            ruleset.tables.clear();
            Ok(())
        }
        (Some("table"), false) => {
            tokens.next();
            let family = family(tokens);
            let name = name(tokens, "table")?;
            ruleset
                .tables
                .retain(|table| table.family != family || table.name != name);
            Ok(())
        }
        _ => {
            Err(tokens
                .error("a whole table, or the ruleset: what else is taken away cannot be told from here"))
        }
    }
}
