//! Rules as text, statement by statement.

use super::token::Tokens;
use super::{expr, nat};
use crate::listed::{Expr, NatKind, Op, Rule, Statement, Update, UpdateOp, Verdict};
use std::sync::Arc;

/// Reads a rule up to the end of its line. Behind a statement that is not understood nobody knows where the next begins,
/// so the rest of the rule stays word by word.
pub(super) fn rule(tokens: &mut Tokens<'_>) -> Rule {
    let mut rule = Rule::default();
    while !tokens.at_end() {
        let from = tokens.place();
        if tokens.eat("comment") {
            if let Some(comment) = tokens.text() {
                rule.comment = Some(comment.into());
                continue;
            }
            tokens.go_back(from);
        }
        if let Some(statement) = statement(tokens) {
            rule.statements.push(statement);
            continue;
        }
        tokens.go_back(from);
        let rest = tokens.line_text();
        rule.statements
            .extend((!rest.is_empty()).then_some(Statement::Unknown(rest)));
        break;
    }
    rule
}

fn statement(tokens: &mut Tokens<'_>) -> Option<Statement> {
    if let Some(verdict) = verdict(tokens) {
        return Some(Statement::Verdict(verdict));
    }
    let word = tokens.word();
    if let Some(kind) = NatKind::ALL.into_iter().find(|kind| Some(kind.as_str()) == word) {
        tokens.next();
        return nat::nat(kind, tokens).map(Statement::Nat);
    }
    match word {
        Some("counter") => inert(tokens, &["packets", "bytes", "name"]),
        Some("log") => inert(
            tokens,
            &["prefix", "level", "group", "snaplen", "queue-threshold", "flags"],
        ),
        Some("notrack") => {
            tokens.next();
            Some(Statement::NoTrack)
        }
        Some("limit") => limit(tokens),
        Some("quota") => quota(tokens),
        Some("reject") => reject(tokens),
        Some("add" | "update" | "delete") => update(tokens),
        Some("flow") => flow(tokens),
        Some("xt") => module(tokens),
        Some("#") => module_behind_a_sign(tokens),
        Some("meter") => meter(tokens),
        _ => asked(tokens),
    }
}

/// A verdict. Takes nothing if it is none.
pub(super) fn verdict(tokens: &mut Tokens<'_>) -> Option<Verdict> {
    let simple = match tokens.word()? {
        "accept" => Verdict::Accept,
        "drop" => Verdict::Drop,
        "continue" => Verdict::Continue,
        "return" => Verdict::Return,
        "jump" | "goto" => {
            let from = tokens.place();
            let jump = tokens.eat("jump") || !tokens.eat("goto");
            let Some(chain) = tokens.text() else {
                tokens.go_back(from);
                return None;
            };
            return Some(if jump {
                Verdict::Jump(chain.into())
            } else {
                Verdict::Goto(chain.into())
            });
        }
        "queue" => return Some(Verdict::Queue(tokens.line_text())),
        _ => return None,
    };
    tokens.next();
    Some(simple)
}

/// A word, and options with a value each; `counter "name"` has a name at once.
fn inert(tokens: &mut Tokens<'_>, options: &[&str]) -> Option<Statement> {
    let from = tokens.place();
    let counter = tokens.eat("counter") || !tokens.eat("log");
    if counter && matches!(tokens.peek(), Some(super::token::Token::Quoted(_))) {
        tokens.next();
    }
    while tokens.word().is_some_and(|word| options.contains(&word)) {
        tokens.next();
        tokens.text()?;
        while tokens.eat_sign(',') {
            tokens.text()?;
        }
        // `flags tcp sequence`, `flags ip options`
        while tokens
            .word()
            .is_some_and(|word| ["sequence", "options"].contains(&word))
        {
            tokens.next();
            while tokens.eat_sign(',') {
                tokens.text()?;
            }
        }
    }
    Some(Statement::Inert(tokens.text_from(from)))
}

/// `limit rate [over] N/second [burst N packets]`, `limit rate N kbytes/second [burst N kbytes]`, `limit name "X"`
fn limit(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let from = tokens.place();
    tokens.next();
    if tokens.eat("name") {
        tokens.text()?;
        return Some(Statement::Open(tokens.text_from(from)));
    }
    tokens.eat("rate").then_some(())?;
    tokens.eat("over");
    let rate = tokens.text()?;
    if !rate.contains('/') {
        tokens.text()?;
    }
    if tokens.eat("burst") {
        tokens.text()?;
        tokens.text()?;
    }
    Some(Statement::Open(tokens.text_from(from)))
}

/// `quota [over|until] N mbytes [used N bytes]`, `quota name "X"`
fn quota(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let from = tokens.place();
    tokens.next();
    if tokens.eat("name") {
        tokens.text()?;
        return Some(Statement::Open(tokens.text_from(from)));
    }
    let _ = tokens.eat("over") || tokens.eat("until");
    tokens.text()?;
    tokens.text()?;
    if tokens.eat("used") {
        tokens.text()?;
        tokens.text()?;
    }
    Some(Statement::Open(tokens.text_from(from)))
}

/// `reject [with tcp reset | with icmp [type] X]`
fn reject(tokens: &mut Tokens<'_>) -> Option<Statement> {
    tokens.next();
    if !tokens.eat("with") {
        return Some(Statement::Reject("".into()));
    }
    let from = tokens.place();
    tokens.text()?;
    tokens.eat("type");
    tokens.text()?;
    Some(Statement::Reject(tokens.text_from(from)))
}

/// `update @SET { KEY timeout T : DATA }`
fn update(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let word = tokens.text()?;
    let op = UpdateOp::ALL.into_iter().find(|op| op.as_str() == word)?;
    let set: Arc<str> = tokens.text()?.strip_prefix('@')?.into();
    let element = expr::element(tokens)?;
    Some(Statement::Update(Update { op, set, element }))
}

/// `flow add @TABLE`: later packets of the connection take a shorter way.
fn flow(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let from = tokens.place();
    for _ in 0..3 {
        tokens.text()?;
    }
    Some(Statement::Inert(tokens.text_from(from)))
}

/// Whether a module of xtables asks nothing.
pub(super) fn is_always_true(module: &str) -> bool {
    module == "comment"
}

/// `xt match "X"`: what a module of xtables asks is not printed.
fn module(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let from = tokens.place();
    tokens.next();
    tokens.eat("match").then_some(())?;
    let name = tokens.text()?;
    let words = tokens.text_from(from);
    Some(if is_always_true(name) {
        Statement::Inert(words)
    } else {
        Statement::Open(words)
    })
}

/// `# xt_tcp`, as versions of `nft` before 1.0.3 print it. Targets have names in capitals: what they do is not known.
fn module_behind_a_sign(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let from = tokens.place();
    tokens.next();
    let name = tokens.text()?.strip_prefix("xt_")?;
    let is_target = name.starts_with(|c: char| c.is_ascii_uppercase());
    let words = tokens.text_from(from);
    match name {
        _ if is_target => None,
        name if is_always_true(name) => Some(Statement::Inert(words)),
        _ => Some(Statement::Open(words)),
    }
}

/// `meter NAME [size N] { KEY limit rate R }`: a rate for each key.
fn meter(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let from = tokens.place();
    tokens.next();
    tokens.text()?;
    if tokens.eat("size") {
        tokens.text()?;
    }
    expr::element(tokens)?;
    Some(Statement::Open(tokens.text_from(from)))
}

/// A statement that begins with an expression.
fn asked(tokens: &mut Tokens<'_>) -> Option<Statement> {
    let from = tokens.place();
    if tokens.eat("ct") && tokens.eat("count") {
        tokens.eat("over");
        tokens.text()?;
        return Some(Statement::Open(tokens.text_from(from)));
    }
    tokens.go_back(from);
    let left = expr::expr(tokens)?;
    if tokens.eat("set") {
        let value = expr::expr(tokens)?;
        return Some(Statement::Assign { to: left, value });
    }
    if tokens.eat("vmap") {
        let map = expr::map(tokens)?;
        return Some(Statement::VerdictMap { key: left, map });
    }
    let word = tokens.word();
    let written = Op::WRITTEN.iter().find(|(_, name)| Some(*name) == word);
    let op = written.map_or(Op::Is, |(op, _)| *op);
    if op != Op::Is {
        tokens.next();
    }
    let right = expr::constant(tokens)?;
    let about = matches!(left, Expr::Value(_));
    // A constant asks nothing.
    (!about).then_some(Statement::Match { left, op, right })
}
