//! Looking up keys in sets and maps.

use super::ask::{self, open};
use super::datum::{Datum, Flags, number, parts};
use super::indexed::Indexed;
use crate::listed::{Contents, Element, Expr, NumberMode, Value};
use model::balance;
use std::sync::Arc;
use traced::{Condition, Site, State, Truth};

/// A set or map that is asked.
pub(super) struct Asked<'a> {
    /// Its name, when it has one.
    pub name: Option<&'a Arc<str>>,
    /// Its elements; `None` when nobody knows them.
    pub elements: Option<&'a [Element]>,
    /// Whether packets or time change it, so that what was not listed may be there by now.
    pub moves: bool,
}

impl<'a> Asked<'a> {
    /// The set that an expression names or writes out; `None` when the table has no such set.
    pub(super) fn of(set: &'a Expr, indexed: &Indexed<'a>) -> Option<Asked<'a>> {
        match set {
            Expr::Set(elements) => Some(Asked {
                name: None,
                elements: Some(elements),
                moves: false,
            }),
            Expr::Named(name) => {
                let set = indexed.set(name)?;
                let elements = match &set.elements {
                    Contents::Listed(elements) => Some(elements.as_slice()),
                    Contents::NotListed => None,
                };
                Some(Asked {
                    name: Some(&set.name),
                    elements,
                    moves: set.moves() || indexed.is_updated(name),
                })
            }
            _ => None,
        }
    }
}

/// Whether a key is in a set, and the element that says so.
pub(super) struct Member<'a> {
    /// Whether it is.
    pub truth: Truth,
    /// The element, when it is known to be there.
    pub element: Option<&'a Element>,
}

/// Asks whether the key is in the set.
pub(super) fn member<'a>(
    key: &[Datum],
    asked: &Asked<'a>,
    site: &Site<'_>,
    title: &dyn Fn() -> Condition,
) -> Member<'a> {
    let not_there = || match (asked.elements, asked.moves) {
        (Some(_), false) => Truth::Known(false),
        _ => Truth::Hangs(title(), true),
    };
    let mut hangs = Vec::new();
    for element in asked.elements.unwrap_or_default() {
        match matches(key, &element.key, site) {
            Truth::Known(true) => {
                return Member {
                    truth: Truth::Known(true),
                    element: Some(element),
                };
            }
            Truth::Known(false) => {}
            other => hangs.push(other),
        }
    }
    let truth = match hangs.as_slice() {
        [] => not_there(),
        // What hangs on an element as it is printed is asked of the whole set: `ssh` alone says nothing.
        [Truth::Hangs(Condition::Holds { .. }, _)] if !asked.moves => Truth::Hangs(title(), true),
        [one] if !asked.moves => one.clone(),
        _ => Truth::Hangs(title(), true),
    };
    Member { truth, element: None }
}

/// Whether a key is what an element has for a key. Its parts must all be.
pub(super) fn matches(key: &[Datum], of_element: &Expr, site: &Site<'_>) -> Truth {
    if matches!(of_element, Expr::Value(Value::Word(word)) if &**word == "*") {
        return Truth::Known(true);
    }
    let parts = match of_element {
        Expr::Concat(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    if parts.len() != key.len() {
        return Truth::Known(false);
    }
    let text = || of_element.to_string().into();
    let mut open_parts = Vec::new();
    for (datum, constant) in key.iter().zip(parts) {
        match part_is(datum, constant, site, &text) {
            Truth::Known(true) => {}
            Truth::Known(false) => return Truth::Known(false),
            other => open_parts.push(other),
        }
    }
    match open_parts.len() {
        0 => Truth::Known(true),
        1 => open_parts.remove(0),
        _ => open(text()),
    }
}

/// In a set flags are one number: only where one flag excludes the others is it known from one of them.
fn part_is(datum: &Datum, constant: &Expr, site: &Site<'_>, text: &dyn Fn() -> Arc<str>) -> Truth {
    match datum {
        Datum::Flags(Flags::Status { .. } | Flags::Syn) => open(text()),
        datum => ask::is(datum, constant, site, text),
    }
}

/// One answer of a map.
pub(super) struct Choice<'a> {
    /// What it stands on.
    pub when: When,
    /// The element; `None` when there is none for the key.
    pub element: Option<&'a Element>,
}

/// What an answer stands on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum When {
    /// Nothing: it is the only one.
    Always,
    /// Chance.
    Chance(f64),
    /// The answers are tried one after another: this one is given if that is so.
    If(Condition, bool),
}

/// How many elements may be in question before nobody can follow them.
const QUESTIONS: usize = 256;

/// Every answer that a map may give for a key; `None` when its elements are not known or too many are in question.
pub(super) fn answers<'a>(
    key: &'a Expr,
    asked: &Asked<'a>,
    state: &State,
    site: &Site<'_>,
) -> Option<Vec<Choice<'a>>> {
    let elements = asked.elements?;
    match key {
        Expr::Number {
            mode,
            modulus,
            offset,
        } => {
            let sides = sides(elements, *modulus, *offset)?;
            Some(match mode {
                NumberMode::Random => by_chance(sides, *modulus),
                NumberMode::Increment => by_value(sides, key),
            })
        }
        Expr::Hash { modulus, offset, .. } => Some(match hash(key, state) {
            Some(number) => vec![Choice {
                when: When::Always,
                element: with_number(elements, number),
            }],
            None => by_value(sides(elements, *modulus, *offset)?, key),
        }),
        Expr::Concat(all) if all.iter().any(is_random) => thrown(all, elements, state, site),
        key => by_key(&parts(key, state), key, asked, elements, site),
    }
}

/// The hash of one address that is known, when its seed is: without one the kernel takes a random one for each rule.
fn hash(hash: &Expr, state: &State) -> Option<u64> {
    let Expr::Hash {
        of: Some(of),
        modulus,
        seed: Some(seed),
        offset,
    } = hash
    else {
        return None;
    };
    let [Datum::Address(ip)] = parts(of, state)[..] else {
        return None;
    };
    Some(u64::from(balance::hashed(ip, *seed, *modulus)) + u64::from(*offset))
}

fn with_number(elements: &[Element], number: u64) -> Option<&Element> {
    elements.iter().find(|element| {
        let numbers = numbers(&element.key);
        numbers.is_some_and(|(from, to)| (from..=to).contains(&number))
    })
}

fn is_random(part: &Expr) -> bool {
    matches!(
        part,
        Expr::Number {
            mode: NumberMode::Random,
            ..
        }
    )
}

fn by_key<'a>(
    key: &[Datum],
    printed: &Expr,
    asked: &Asked<'a>,
    elements: &'a [Element],
    site: &Site<'_>,
) -> Option<Vec<Choice<'a>>> {
    let mut choices = Vec::new();
    for element in elements {
        let when = match matches(key, &element.key, site) {
            Truth::Known(true) => {
                choices.push(Choice {
                    when: When::Always,
                    element: Some(element),
                });
                return Some(choices);
            }
            Truth::Known(false) => continue,
            Truth::Hangs(condition, when) => match condition {
                Condition::Holds { .. } => When::If(value_is(printed, &element.key.to_string()), true),
                condition => When::If(condition, when),
            },
            Truth::Random(probability) => When::Chance(probability),
        };
        choices.push(Choice {
            when,
            element: Some(element),
        });
        if choices.len() > QUESTIONS {
            return None;
        }
    }
    if asked.moves {
        // What packets put in has data that is not written anywhere.
        return None;
    }
    choices.push(Choice {
        when: When::Always,
        element: None,
    });
    Some(choices)
}

fn value_is(what: &Expr, value: &str) -> Condition {
    Condition::Is {
        what: what.to_string().into(),
        value: value.into(),
    }
}

/// How many of the numbers each element has, elements with the same data together, and last those that none has.
type Sides<'a> = Vec<(Option<&'a Element>, u32)>;

fn sides(elements: &[Element], modulus: u32, offset: u32) -> Option<Sides<'_>> {
    let (first, end) = (u64::from(offset), u64::from(offset) + u64::from(modulus));
    let mut sides: Sides<'_> = Vec::new();
    let mut left = modulus;
    for element in elements {
        let (from, to) = numbers(&element.key)?;
        let count = to.saturating_add(1).min(end).saturating_sub(from.max(first));
        let count = u32::try_from(count).ok()?.min(left);
        if count == 0 {
            continue;
        }
        left -= count;
        match sides
            .iter_mut()
            .find(|(known, _)| known.is_some_and(|known| known.data == element.data))
        {
            Some((_, known)) => *known += count,
            None => sides.push((Some(element), count)),
        }
    }
    if left > 0 {
        sides.push((None, left));
    }
    Some(sides)
}

/// The numbers that a key is: one, or a range.
fn numbers(key: &Expr) -> Option<(u64, u64)> {
    let value = |expr: &Expr| match expr {
        Expr::Value(value) => number(value),
        _ => None,
    };
    match key {
        Expr::Range(ends) => Some((value(&ends.0)?, value(&ends.1)?)),
        one => value(one).map(|number| (number, number)),
    }
}

fn by_chance(sides: Sides<'_>, modulus: u32) -> Vec<Choice<'_>> {
    let only = sides.len() == 1;
    let choice = |(element, count): (_, u32)| Choice {
        when: if only {
            When::Always
        } else {
            When::Chance(f64::from(count) / f64::from(modulus))
        },
        element,
    };
    sides.into_iter().map(choice).collect()
}

/// The values of a hash are asked one after another.
fn by_value<'a>(sides: Sides<'a>, what: &Expr) -> Vec<Choice<'a>> {
    let last = sides.len() - 1;
    let choice = |(index, (element, _)): (usize, (Option<&'a Element>, u32))| Choice {
        when: match (index == last, element) {
            (false, Some(element)) => When::If(value_is(what, &element.key.to_string()), true),
            _ => When::Always,
        },
        element,
    };
    sides.into_iter().enumerate().map(choice).collect()
}

/// A random number as a part of a key.
fn thrown<'a>(
    all: &'a [Expr],
    elements: &'a [Element],
    state: &State,
    site: &Site<'_>,
) -> Option<Vec<Choice<'a>>> {
    let at = all.iter().position(is_random)?;
    let Expr::Number { modulus, offset, .. } = &all[at] else {
        return None;
    };
    let mut key = parts(&Expr::Concat(all.to_vec()), state);
    if all.iter().filter(|part| is_random(part)).count() > 1 || *modulus > 4096 {
        return None;
    }
    let mut sides: Sides<'a> = Vec::new();
    for side in 0..*modulus {
        key[at] = Datum::Number(u64::from(offset.checked_add(side)?));
        let mut found = None;
        for element in elements {
            match matches(&key, &element.key, site) {
                Truth::Known(true) => found = Some(element),
                Truth::Known(false) => {}
                _ => return None,
            }
        }
        let data = |element: Option<&'a Element>| element.map(|element| &element.data);
        match sides.iter_mut().find(|(known, _)| data(*known) == data(found)) {
            Some((_, count)) => *count += 1,
            None => sides.push((found, 1)),
        }
    }
    Some(by_chance(sides, *modulus))
}
