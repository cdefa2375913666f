//! Reads what `nft list ruleset` (or `list table`) and `nft -j list ruleset` print, and files of `add` commands for `nft -f`.
//!
//! A statement that is not known stays word by word ([`Statement::Unknown`](crate::listed::Statement)), so that what is
//! printed back is what was read; what does not even have the form of a list is an error.

mod expr;
mod json;
mod json_expr;
mod json_rule;
mod nat;
mod rule;
mod table;
mod token;

#[cfg(test)]
mod tests;

use crate::listed::Ruleset;
pub(crate) use json::duration;
use std::fmt;

/// Why a text is no list of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1; of JSON 0 when an object is meant.
    pub line: u32,
    /// What was expected, and what was found.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for ParseError {}

/// The kinds of base chains.
const KINDS: [&str; 3] = ["filter", "nat", "route"];

/// The hooks of all families.
const HOOKS: [&str; 7] = [
    "prerouting",
    "input",
    "forward",
    "output",
    "postrouting",
    "ingress",
    "egress",
];

/// What a dump of rules is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `nft list ruleset`, or a file for `nft -f`.
    Text,
    /// `nft -j list ruleset`.
    Json,
}

/// The form of a text of nftables, by its beginning; `None` when it is neither.
pub fn form_of(text: &str) -> Option<Form> {
    if text.trim_start().starts_with('{') {
        return Some(Form::Json);
    }
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let begins = ["table ", "add ", "create ", "flush ", "delete ", "destroy "];
    begins
        .iter()
        .any(|word| first.starts_with(word))
        .then_some(Form::Text)
}

/// Reads all tables of a text in either form.
///
/// # Errors
/// Says where the text is not what `nft` prints.
pub fn ruleset(text: &str) -> Result<Ruleset, ParseError> {
    match form_of(text) {
        Some(Form::Json) => json::ruleset(text),
        _ => table::ruleset(text),
    }
}

/// Reads one rule's statements, as `nft` prints them in a line.
pub fn rule(text: &str) -> crate::listed::Rule {
    rule::rule(&mut token::Tokens::of(text))
}
