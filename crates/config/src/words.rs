//! Command-line words to flags and values, the way kube-proxy's flag library splits them (pflag).

use crate::flags::FlagKind;
use std::fmt;

/// A flag that was given: its name with dashes, and its value.
pub type Given = (String, String);

/// Words that cannot be split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WordError {
    /// A flag that does not exist.
    Unknown(String),
    /// A short flag that does not exist: the letter, and the word it is in.
    UnknownShort(char, String),
    /// Nothing follows a flag that needs a value; holds it as it was written.
    NoValue(String),
    /// A short flag without a value: the letter, and the word it is in.
    NoShortValue(char, String),
    /// Dashes without a name.
    Malformed(String),
    /// Words that belong to no flag.
    Positional(Vec<String>),
}

impl fmt::Display for WordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WordError::Unknown(name) => write!(f, "unknown flag: --{name}"),
            WordError::UnknownShort(letter, word) => {
                write!(f, "unknown shorthand flag: '{letter}' in {word}")
            }
            WordError::NoValue(word) => write!(f, "flag needs an argument: {word}"),
            WordError::NoShortValue(letter, word) => {
                write!(f, "flag needs an argument: '{letter}' in {word}")
            }
            WordError::Malformed(word) => write!(f, "bad flag syntax: {word}"),
            WordError::Positional(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                write!(
                    f,
                    "\"kube-proxy\" does not take any arguments, got [{}]",
                    words.join(" ")
                )
            }
        }
    }
}

impl std::error::Error for WordError {}

/// Hands every flag and its value to `take`, in order, and stops at the first that is refused.
///
/// `kind` says what a flag's value looks like, by its name; `None` is a flag that does not exist.
///
/// # Errors
/// The first thing that is wrong, in upstream's words.
pub fn split<E: From<WordError>>(
    words: &[String],
    kind: impl Fn(&str) -> Option<FlagKind>,
    mut take: impl FnMut(Given) -> Result<(), E>,
) -> Result<(), E> {
    let mut positional = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            positional.extend(words.by_ref().cloned());
        } else if let Some(flag) = word.strip_prefix("--") {
            take(long(word, flag, &kind, &mut words)?)?;
        } else if word.len() > 1 && word.starts_with('-') {
            take(short(word, &mut words)?)?;
        } else {
            positional.push(word.clone());
        }
    }
    // Upstream lets empty words pass.
    if positional.iter().any(|word| !word.is_empty()) {
        return Err(WordError::Positional(positional).into());
    }
    Ok(())
}

fn long<'a>(
    word: &str,
    flag: &str,
    kind: &impl Fn(&str) -> Option<FlagKind>,
    words: &mut impl Iterator<Item = &'a String>,
) -> Result<Given, WordError> {
    if flag.starts_with(['-', '=']) {
        return Err(WordError::Malformed(word.to_owned()));
    }
    let (name, value) = match flag.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (flag, None),
    };
    let dashed = name.replace('_', "-");
    let kind = kind(&dashed).ok_or_else(|| WordError::Unknown(name.to_owned()))?;
    let value = match (value, kind) {
        (Some(value), _) => value,
        (None, FlagKind::Bool) => "true".to_owned(),
        (None, _) => words
            .next()
            .cloned()
            .ok_or_else(|| WordError::NoValue(word.to_owned()))?,
    };
    Ok((dashed, value))
}

/// `-v 3`, `-v3`, `-v=3`: the one short flag with a value; `-h` is dealt with before.
fn short<'a>(word: &str, words: &mut impl Iterator<Item = &'a String>) -> Result<Given, WordError> {
    let mut letters = word.chars().skip(1);
    let letter = letters.next().unwrap_or('-');
    if letter != 'v' {
        return Err(WordError::UnknownShort(letter, word.to_owned()));
    }
    let rest: String = letters.collect();
    let value = match rest.strip_prefix('=') {
        Some(value) => value.to_owned(),
        None if !rest.is_empty() => rest,
        None => words
            .next()
            .cloned()
            .ok_or_else(|| WordError::NoShortValue(letter, word.to_owned()))?,
    };
    Ok(("v".to_owned(), value))
}
