//! Translations as text.

use super::expr;
use super::token::Tokens;
use crate::listed::{Expr, Nat, NatKind, Value};
use std::sync::Arc;

const FLAGS: [&str; 3] = ["random", "fully-random", "persistent"];

/// Reads what stands behind `dnat` and its like.
pub(super) fn nat(kind: NatKind, tokens: &mut Tokens<'_>) -> Option<Nat> {
    let mut nat = Nat {
        kind,
        family: Vec::new(),
        to: None,
        port: None,
        flags: Vec::new(),
    };
    while let Some(word) = tokens.word() {
        if !["ip", "ip6", "addr", ".", "port", "interval", "prefix"].contains(&word) {
            break;
        }
        tokens.next();
        nat.family.push(word.into());
    }
    if tokens.eat("to") {
        target(tokens, &mut nat)?;
    }
    while let Some(word) = tokens.word().filter(|word| FLAGS.contains(word)) {
        tokens.next();
        nat.flags.push(Arc::from(word));
        tokens.eat_sign(',');
    }
    Some(nat)
}

fn target(tokens: &mut Tokens<'_>, nat: &mut Nat) -> Option<()> {
    let word = tokens.word()?;
    let (address, port) = match word.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (address, port.strip_prefix(':'))
        }
        None => match word.split_once(':') {
            // More than one colon: an address of IPv6.
            Some((address, port)) if !port.contains(':') => (address, Some(port)),
            _ => (word, None),
        },
    };
    let value = |word: &str| {
        let range = expr::range(word);
        range.or_else(|| match Value::of_word(word) {
            Value::Word(_) => None,
            value => Some(Expr::Value(value)),
        })
    };
    let Some(port) = port else {
        nat.to = Some(expr::expr(tokens)?);
        return Some(());
    };
    nat.port = Some(value(port)?);
    if !address.is_empty() {
        nat.to = Some(value(address)?);
    }
    tokens.next();
    Some(())
}
