//! Expressions and constants.

use super::{Element, Verdict};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// A constant.
    Value(Value),
    /// Something of the packet, its connection or the host: the words of `ip saddr`, `meta mark`, `fib daddr type`.
    Field(Vec<Arc<str>>),
    /// `A . B`
    Concat(Vec<Expr>),
    /// `A-B`, both included.
    Range(Box<(Expr, Expr)>),
    /// `A,B`: any of these flags.
    List(Vec<Expr>),
    /// `A / B`: these flags among those.
    Masked(Box<(Expr, Expr)>),
    /// `{ A, B }`: a set or map that has no name.
    Set(Vec<Element>),
    /// `@NAME`
    Named(Arc<str>),
    /// `KEY map MAP`
    Map(Box<(Expr, Expr)>),
    /// `A & B` and its like.
    Binary(BinaryOp, Box<(Expr, Expr)>),
    /// `numgen random mod N offset K`, or `numgen inc`.
    Number {
        /// How numbers follow.
        mode: NumberMode,
        /// How many there are.
        modulus: u32,
        /// The first.
        offset: u32,
    },
    /// A hash of the packet.
    Hash {
        /// What is hashed; `None` for `symhash`.
        of: Option<Box<Expr>>,
        /// How many values there are.
        modulus: u32,
        /// The seed of `jhash`; without one the kernel takes a random one for each rule.
        seed: Option<u32>,
        /// The first value.
        offset: u32,
    },
    /// What a map says: a verdict.
    Verdict(Verdict),
}

impl Expr {
    /// A field by its words.
    pub fn field(words: &str) -> Expr {
        Expr::Field(words.split(' ').map(Arc::from).collect())
    }

    /// A concatenation; one part alone is itself.
    pub fn concat(mut parts: Vec<Expr>) -> Expr {
        match parts.len() {
            1 => parts.remove(0),
            _ => Expr::Concat(parts),
        }
    }
}

/// How the numbers of `numgen` follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberMode {
    /// By chance, all alike.
    Random,
    /// Each one more than the last packet's.
    Increment,
}

/// Operators between numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `<<`
    Left,
    /// `>>`
    Right,
}

impl BinaryOp {
    /// All of them with their symbols and, where they have one, their words.
    pub const ALL: [(BinaryOp, &'static str, &'static str); 5] = [
        (BinaryOp::And, "&", "and"),
        (BinaryOp::Or, "|", "or"),
        (BinaryOp::Xor, "^", "xor"),
        (BinaryOp::Left, "<<", "lshift"),
        (BinaryOp::Right, ">>", "rshift"),
    ];

    /// Its symbol.
    pub fn as_str(self) -> &'static str {
        let all = BinaryOp::ALL.iter();
        all.filter(|(op, ..)| *op == self)
            .map(|(_, symbol, _)| *symbol)
            .next()
            .unwrap_or_default()
    }
}

/// A constant, so that printing it gives the text that was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A number in decimals.
    Number(u64),
    /// A mark: eight hexadecimal digits.
    Mark(u32),
    /// An address.
    Address(IpAddr),
    /// A network.
    Network(IpNet),
    /// Any other word.
    Word(Arc<str>),
    /// A word in quotes: the name of an interface, with `*` at its end for all that begin so.
    Quoted(Arc<str>),
}

impl Value {
    /// What a word means.
    pub fn of_word(word: &str) -> Value {
        let parsed = word.parse().map(Value::Number).or_else(|_| {
            let address = word.parse().map(Value::Address);
            address.or_else(|_| word.parse().map(Value::Network))
        });
        let mark = || {
            let digits = word.strip_prefix("0x").filter(|digits| digits.len() == 8)?;
            u32::from_str_radix(digits, 16).ok().map(Value::Mark)
        };
        let value = parsed.ok().or_else(mark);
        // What would not be printed as it was read stays a word.
        let value = value.filter(|value| value.to_string() == word);
        value.unwrap_or_else(|| Value::Word(word.into()))
    }
}
