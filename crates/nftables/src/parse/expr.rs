//! Expressions as text.

use super::json::duration;
use super::rule::verdict;
use super::token::{Token, Tokens};
use crate::listed::{BinaryOp, Element, Expr, NumberMode, Value};
use std::sync::Arc;

/// How deep expressions may lie in one another.
const DEPTH: u32 = 16;

/// Protocols whose headers have fields.
const HEADERS: [&str; 19] = [
    "ether", "vlan", "arp", "ip", "icmp", "igmp", "ip6", "icmpv6", "tcp", "udp", "udplite", "dccp", "sctp",
    "th", "ah", "esp", "comp", "gre", "geneve",
];

/// Fields that stand for themselves.
const ALONE: [&str; 19] = [
    "iif",
    "iifname",
    "iiftype",
    "iifgroup",
    "oif",
    "oifname",
    "oiftype",
    "oifgroup",
    "skuid",
    "skgid",
    "pkttype",
    "cpu",
    "nftrace",
    "rtclassid",
    "cgroup",
    "ibriport",
    "ibrname",
    "obriport",
    "obrname",
];

/// An expression that may ask about the packet.
pub(super) fn expr(tokens: &mut Tokens<'_>) -> Option<Expr> {
    Reader { depth: DEPTH }.expr(tokens)
}

/// A constant: a value, a range, flags, a set, the name of one.
pub(super) fn constant(tokens: &mut Tokens<'_>) -> Option<Expr> {
    Reader { depth: DEPTH }.constant(tokens)
}

/// `{ A, B : C }`
pub(super) fn elements(tokens: &mut Tokens<'_>) -> Option<Vec<Element>> {
    Reader { depth: DEPTH }.elements(tokens, |_, tokens| key(tokens))
}

/// The element of a statement that changes a set.
pub(super) fn element(tokens: &mut Tokens<'_>) -> Option<Element> {
    let mut reader = Reader { depth: DEPTH };
    tokens.eat_sign('{').then_some(())?;
    let element = reader.element(tokens, Reader::expr)?;
    tokens.eat_sign('}').then_some(element)
}

/// The words of a map, named or written out.
pub(super) fn map(tokens: &mut Tokens<'_>) -> Option<Expr> {
    Reader { depth: DEPTH }.map(tokens)
}

struct Reader {
    depth: u32,
}

type Key = fn(&mut Reader, &mut Tokens<'_>) -> Option<Expr>;

impl Reader {
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Reader) -> Option<T>) -> Option<T> {
        self.depth = self.depth.checked_sub(1)?;
        let found = read(self);
        self.depth += 1;
        found
    }

    fn expr(&mut self, tokens: &mut Tokens<'_>) -> Option<Expr> {
        self.deeper(|reader| {
            let mut parts = vec![reader.sum(tokens)?];
            while tokens.eat(".") {
                parts.push(reader.sum(tokens)?);
            }
            let key = Expr::concat(parts);
            if tokens.eat("map") {
                return Some(Expr::Map(Box::new((key, reader.map(tokens)?))));
            }
            Some(key)
        })
    }

    /// `A & B | C`, from left to right as `nft` prints it.
    fn sum(&mut self, tokens: &mut Tokens<'_>) -> Option<Expr> {
        let mut left = self.primary(tokens)?;
        while let Some(op) = operator(tokens) {
            let right = self.primary(tokens)?;
            left = Expr::Binary(op, Box::new((left, right)));
        }
        Some(left)
    }

    fn map(&mut self, tokens: &mut Tokens<'_>) -> Option<Expr> {
        match tokens.word().and_then(|word| word.strip_prefix('@')) {
            Some(name) => {
                tokens.next();
                Some(Expr::Named(name.into()))
            }
            None => self.elements(tokens, |_, tokens| key(tokens)).map(Expr::Set),
        }
    }

    fn primary(&mut self, tokens: &mut Tokens<'_>) -> Option<Expr> {
        if tokens.eat_sign('(') {
            let inner = self.expr(tokens)?;
            return tokens.eat_sign(')').then_some(inner);
        }
        if let Some(Token::Quoted(word)) = tokens.peek() {
            let value = Value::Quoted((*word).into());
            tokens.next();
            return Some(Expr::Value(value));
        }
        if let Some(field) = field(tokens) {
            return Some(field);
        }
        match tokens.word()? {
            "numgen" => number(tokens),
            "jhash" => {
                tokens.next();
                let of = self.expr(tokens)?;
                hash(tokens, Some(Box::new(of)))
            }
            "symhash" => {
                tokens.next();
                hash(tokens, None)
            }
            word if word.starts_with('@') => None,
            _ => value(tokens),
        }
    }

    /// A constant, flags in a row included.
    fn constant(&mut self, tokens: &mut Tokens<'_>) -> Option<Expr> {
        if tokens.peek() == Some(&Token::Sign('{')) {
            return self.elements(tokens, |_, tokens| key(tokens)).map(Expr::Set);
        }
        if let Some(name) = tokens.word().and_then(|word| word.strip_prefix('@')) {
            tokens.next();
            return Some(Expr::Named(name.into()));
        }
        if tokens.peek() == Some(&Token::Sign('(')) {
            return self.deeper(|reader| reader.sum(tokens));
        }
        let first = key(tokens)?;
        let flags = flags(tokens, first)?;
        if tokens.eat("/") {
            let first = key(tokens)?;
            let mask = self::flags(tokens, first)?;
            return Some(Expr::Masked(Box::new((flags, mask))));
        }
        let mut left = flags;
        while let Some(op) = operator(tokens) {
            let right = value(tokens)?;
            left = Expr::Binary(op, Box::new((left, right)));
        }
        Some(left)
    }

    fn elements(&mut self, tokens: &mut Tokens<'_>, read: Key) -> Option<Vec<Element>> {
        tokens.eat_sign('{').then_some(())?;
        let mut all = Vec::new();
        loop {
            tokens.skip_ends();
            if tokens.eat_sign('}') {
                return Some(all);
            }
            all.push(self.element(tokens, read)?);
            tokens.skip_ends();
            if !tokens.eat_sign(',') {
                return tokens.eat_sign('}').then_some(all);
            }
        }
    }

    fn element(&mut self, tokens: &mut Tokens<'_>, read: Key) -> Option<Element> {
        let mut element = Element::of(read(self, tokens)?);
        let from = tokens.place();
        loop {
            tokens.skip_ends();
            match tokens.peek() {
                Some(Token::Word("comment")) => {
                    words_from(tokens, from, &mut element);
                    tokens.next();
                    element.comment = Some(tokens.text()?.into());
                }
                Some(Token::Word(":")) => {
                    words_from(tokens, from, &mut element);
                    tokens.next();
                    element.data = Some(data(tokens)?);
                }
                Some(Token::Word(_)) if element.data.is_none() => drop(tokens.next()),
                _ => {
                    words_from(tokens, from, &mut element);
                    return Some(element);
                }
            }
        }
    }
}

/// What an element of a map holds.
fn data(tokens: &mut Tokens<'_>) -> Option<Expr> {
    match verdict(tokens) {
        Some(verdict) => Some(Expr::Verdict(verdict)),
        None => key(tokens),
    }
}

/// A key: a concatenation of values.
fn key(tokens: &mut Tokens<'_>) -> Option<Expr> {
    let mut parts = vec![value(tokens)?];
    while tokens.eat(".") {
        parts.push(value(tokens)?);
    }
    Some(Expr::concat(parts))
}

/// Once: the words between an element's key and its comment or data.
fn words_from(tokens: &Tokens<'_>, from: usize, element: &mut Element) {
    let untouched = element.words.is_empty() && element.comment.is_none() && element.data.is_none();
    if untouched && tokens.place() > from {
        let words = tokens.text_from(from);
        element
            .words
            .extend((!words.is_empty()).then(|| with_times_as_printed(words)));
    }
}

/// A time that somebody wrote in seconds alone, as in a file for `nft -f`, in the words of a list: `3h` for `10800s`.
fn with_times_as_printed(words: Arc<str>) -> Arc<str> {
    if !words.contains("timeout ") && !words.contains("expires ") {
        return words;
    }
    let mut before = "";
    let as_printed = words.split(' ').map(|word| {
        let is_time = ["timeout", "expires"].contains(&std::mem::replace(&mut before, word));
        let seconds = word.strip_suffix('s').filter(|_| is_time);
        match seconds.and_then(|seconds| seconds.parse().ok()) {
            Some(seconds) => duration(seconds),
            None => word.to_owned(),
        }
    });
    as_printed.collect::<Vec<_>>().join(" ").into()
}

/// `,B,C` behind a flag.
fn flags(tokens: &mut Tokens<'_>, first: Expr) -> Option<Expr> {
    let mut flags = vec![first];
    while tokens.eat_sign(',') {
        flags.push(value(tokens)?);
    }
    Some(match flags.len() {
        1 => flags.remove(0),
        _ => Expr::List(flags),
    })
}

fn operator(tokens: &mut Tokens<'_>) -> Option<BinaryOp> {
    let word = tokens.word()?;
    let all = BinaryOp::ALL.into_iter();
    let op = all
        .filter(|(_, sign, name)| [*sign, *name].contains(&word))
        .map(|(op, ..)| op)
        .next()?;
    tokens.next();
    Some(op)
}

/// One value, or a range of two.
fn value(tokens: &mut Tokens<'_>) -> Option<Expr> {
    let value = match tokens.next()? {
        Token::Quoted(word) => {
            let first = Value::Quoted(word.into());
            if !tokens.eat("-") {
                return Some(Expr::Value(first));
            }
            // `"10:00:00"-"23:59:59"`
            let last = Value::Quoted(tokens.text()?.into());
            return Some(Expr::Range(Box::new((Expr::Value(first), Expr::Value(last)))));
        }
        Token::Word(word) if !word.starts_with('@') => {
            if let Some(range) = range(word) {
                return Some(range);
            }
            Value::of_word(word)
        }
        _ => return None,
    };
    Some(Expr::Value(value))
}

/// `A-B`, where both are numbers, marks or addresses.
pub(super) fn range(word: &str) -> Option<Expr> {
    let (from, to) = word.split_once('-')?;
    let end = |word| match Value::of_word(word) {
        Value::Word(_) => None,
        value => Some(Expr::Value(value)),
    };
    Some(Expr::Range(Box::new((end(from)?, end(to)?))))
}

fn words(tokens: &mut Tokens<'_>, count: usize) -> Option<Vec<Arc<str>>> {
    (0..count)
        .map(|_| match tokens.next()? {
            Token::Word(word) => Some(Arc::from(word)),
            _ => None,
        })
        .collect()
}

/// Something of the packet, its connection or the host. Takes nothing if it is none.
fn field(tokens: &mut Tokens<'_>) -> Option<Expr> {
    let from = tokens.place();
    let found = field_words(tokens);
    if found.is_none() {
        tokens.go_back(from);
    }
    found.map(Expr::Field)
}

fn field_words(tokens: &mut Tokens<'_>) -> Option<Vec<Arc<str>>> {
    let first = tokens.word()?;
    match first {
        "meta" | "rt" | "osf" | "exthdr" | "hbh" | "dst" | "frag" | "mh" | "srh" => words(tokens, 2),
        "mark" => {
            tokens.next();
            Some(vec!["meta".into(), "mark".into()])
        }
        "ct" => connection_words(tokens),
        "fib" => fib_words(tokens),
        "socket" => {
            let mut found = words(tokens, 2)?;
            if &*found[1] == "cgroupv2" {
                found.extend(words(tokens, 2)?);
            }
            Some(found)
        }
        _ if ALONE.contains(&first) => words(tokens, 1),
        _ if HEADERS.contains(&first) => {
            let mut found = words(tokens, 2)?;
            if &*found[1] == "option" {
                found.extend(words(tokens, 1)?);
                let more = tokens
                    .word()
                    .filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
                if more.is_some_and(|word| !["set", "exists", "missing"].contains(&word)) {
                    found.extend(words(tokens, 1)?);
                }
            }
            Some(found)
        }
        "@ll" | "@nh" | "@th" | "@ih" => {
            tokens.next();
            let mut text = first.to_owned();
            for _ in 0..2 {
                tokens.eat_sign(',').then_some(())?;
                text.push(',');
                text.push_str(tokens.text()?);
            }
            Some(vec![text.into()])
        }
        _ => None,
    }
}

/// `ct state`, `ct original ip daddr`, `ct original proto-dst`
fn connection_words(tokens: &mut Tokens<'_>) -> Option<Vec<Arc<str>>> {
    let mut found = words(tokens, 2)?;
    if matches!(&*found[1], "original" | "reply") {
        found.extend(words(tokens, 1)?);
        if matches!(found.last().map(|word| &**word), Some("ip" | "ip6")) {
            found.extend(words(tokens, 1)?);
        }
    }
    Some(found)
}

/// `fib daddr . iif type`
fn fib_words(tokens: &mut Tokens<'_>) -> Option<Vec<Arc<str>>> {
    let mut found = words(tokens, 2)?;
    while tokens.word() == Some(".") {
        found.extend(words(tokens, 2)?);
    }
    found.extend(words(tokens, 1)?);
    Some(found)
}

/// `numgen random mod N offset K`
fn number(tokens: &mut Tokens<'_>) -> Option<Expr> {
    tokens.next();
    let mode = match tokens.text()? {
        "random" => NumberMode::Random,
        "inc" => NumberMode::Increment,
        _ => return None,
    };
    let modulus = modulus(tokens)?;
    let offset = offset(tokens)?;
    Some(Expr::Number {
        mode,
        modulus,
        offset,
    })
}

/// `mod N seed S offset K`
fn hash(tokens: &mut Tokens<'_>, of: Option<Box<Expr>>) -> Option<Expr> {
    let modulus = modulus(tokens)?;
    let seed = if tokens.eat("seed") {
        Some(integer(tokens.text()?)?)
    } else {
        None
    };
    let offset = offset(tokens)?;
    Some(Expr::Hash {
        of,
        modulus,
        seed,
        offset,
    })
}

fn modulus(tokens: &mut Tokens<'_>) -> Option<u32> {
    tokens.eat("mod").then_some(())?;
    tokens.text()?.parse().ok().filter(|modulus| *modulus > 0)
}

fn offset(tokens: &mut Tokens<'_>) -> Option<u32> {
    if tokens.eat("offset") {
        tokens.text()?.parse().ok()
    } else {
        Some(0)
    }
}

/// A number in decimals or, behind `0x`, in hexadecimal digits.
fn integer(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}
