//! Whether the ways of an answer of `trace` part exactly where rules throw dice, and with the chances that these have.
//!
//! Answers are taken as users get them (`--output json`), and expectations from the words of rules alone: the shares of
//! `-m statistic` in a chain, and the sides of a `numgen` die, which nftables mode throws up to 16 times until an endpoint
//! comes up (ADR 50).

#[cfg(test)]
mod tests;

use serde_json::Value;

/// How exactly chances are told.
const EXACT: f64 = 1e-9;
/// Throws of nftables mode's die before the lowest slot that has an endpoint is taken.
const THROWS: i32 = 16;

/// The forks of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forks {
    /// By chance.
    pub random: usize,
    /// By whether a list of clients knows the client, which only the kernel can say (session affinity).
    pub remembered: usize,
}

/// One step of a way, as far as it can part from others.
#[derive(Clone, Debug, PartialEq)]
enum Mark {
    /// A rule that was met: where, its number, its words, and what it made of the packet.
    Met {
        chain: String,
        number: u64,
        text: String,
        after: String,
    },
    /// A condition.
    Claim { text: String, holds: bool },
}

struct Way {
    chance: f64,
    marks: Vec<Mark>,
}

/// Looks at an answer.
///
/// # Errors
/// With the first fork that is none of a random choice or has other chances, the first choice that is no fork, or the
/// chances that do not sum to one.
pub fn forks(answer: &Value) -> Result<Forks, String> {
    let ways = answer["ways"].as_array().ok_or("there are no ways")?;
    let ways: Vec<Way> = ways.iter().map(way).collect::<Result<_, _>>()?;
    let mut found = Forks::default();
    let all: Vec<&Way> = ways.iter().collect();
    let sum = walk(&all, 0, &mut found)?;
    if (sum - 1.0).abs() > EXACT {
        return Err(format!("the chances sum to {sum}"));
    }
    Ok(found)
}

fn way(value: &Value) -> Result<Way, String> {
    let word = |step: &Value, name: &str| step[name].as_str().unwrap_or_default().to_owned();
    let mut marks: Vec<Mark> = vec![];
    for step in value["steps"].as_array().ok_or("a way has no steps")? {
        match step["step"].as_str() {
            Some("rule") => marks.push(Mark::Met {
                chain: format!("{} {}", word(step, "table"), word(step, "chain")),
                number: step["number"].as_u64().unwrap_or_default(),
                text: word(step, "text"),
                after: word(step, "after"),
            }),
            Some("condition") => {
                let others = step["others"].as_u64().unwrap_or_default();
                let claim = Mark::Claim {
                    text: word(step, "condition"),
                    holds: step["holds"].as_bool().ok_or("a condition has no answer")?,
                };
                // Lists in a row that do not know the client are told in one step.
                marks.extend((0..=others).map(|_| claim.clone()));
            }
            Some("perhaps") => {
                for condition in step["conditions"].as_array().into_iter().flatten() {
                    is_of_clients(&word(condition, "condition"))?;
                }
            }
            _ => {}
        }
    }
    let chance = value["probability"].as_f64().ok_or("a way has no chance")?;
    Ok(Way { chance, marks })
}

/// What is undecided beside dice: whether a list remembers the client.
fn is_of_clients(text: &str) -> Result<(), String> {
    if text.contains(" was seen in list KUBE-SEP-") || text.contains("-clients-") {
        Ok(())
    } else {
        Err(format!("undecided: {text}"))
    }
}

/// The chance of ways that have everything before `depth` in common.
fn walk(ways: &[&Way], depth: usize, found: &mut Forks) -> Result<f64, String> {
    let mut groups: Vec<(Option<&Mark>, Vec<&Way>)> = vec![];
    for way in ways {
        let mark = way.marks.get(depth);
        match groups.iter_mut().find(|(known, _)| is_same_step(*known, mark)) {
            Some((_, group)) => group.push(way),
            None => groups.push((mark, vec![way])),
        }
    }
    let before = depth.checked_sub(1).and_then(|last| ways[0].marks.get(last));
    let marks: Vec<Option<&Mark>> = groups.iter().map(|(mark, _)| *mark).collect();
    let shares = shares(before, &marks)?;
    let mut chances = vec![];
    for (mark, group) in &groups {
        let is_end = mark.is_none();
        if is_end && group.len() > 1 {
            return Err(format!("{} ways have the same steps", group.len()));
        }
        chances.push(if is_end {
            group[0].chance
        } else {
            walk(group, depth + 1, found)?
        });
    }
    match shares {
        Shares::One => Ok(chances[0]),
        Shares::Either => {
            found.remembered += 1;
            if (chances[0] - chances[1]).abs() > EXACT {
                return Err(format!("a condition has chances: {chances:?} at {marks:?}"));
            }
            Ok(chances[0])
        }
        Shares::Random(expected) => {
            found.random += 1;
            let sum: f64 = chances.iter().sum();
            for ((chance, share), mark) in chances.iter().zip(&expected).zip(&marks) {
                if (chance - sum * share).abs() > EXACT {
                    return Err(format!("{chance} of {sum}, not {share} of it, at {mark:?}"));
                }
            }
            Ok(sum)
        }
    }
}

fn is_same_step(one: Option<&Mark>, other: Option<&Mark>) -> bool {
    match (one, other) {
        // Rows of lists are told by the first one's name.
        (Some(Mark::Claim { holds: one, .. }), Some(Mark::Claim { holds: other, .. })) => one == other,
        _ => one == other,
    }
}

/// What parts ways that had everything in common.
enum Shares {
    /// Nothing.
    One,
    /// A condition.
    Either,
    /// A choice, with these shares.
    Random(Vec<f64>),
}

fn shares(before: Option<&Mark>, marks: &[Option<&Mark>]) -> Result<Shares, String> {
    let sides = before.and_then(sides).filter(|sides| *sides > 1);
    if let Some(sides) = sides {
        return die(sides, marks);
    }
    match marks {
        [Some(Mark::Claim { text, .. }), Some(Mark::Claim { .. })] => {
            is_of_clients(text)?;
            Ok(Shares::Either)
        }
        [Some(Mark::Claim { text, .. })] => Err(format!("no way for the opposite of {text}")),
        [one] if one.is_none_or(|mark| probability(mark).is_none()) => Ok(Shares::One),
        several => statistic(several),
    }
}

/// Rules of one chain, of which each takes its share of what those before have left.
fn statistic(marks: &[Option<&Mark>]) -> Result<Shares, String> {
    let mut rules: Vec<(u64, usize, Option<f64>)> = vec![];
    let mut chains: Vec<&str> = vec![];
    for (index, mark) in marks.iter().enumerate() {
        let Some(Mark::Met { chain, number, .. }) = mark else {
            return Err(format!("ways part at {marks:?}"));
        };
        chains.push(chain);
        rules.push((*number, index, mark.and_then(probability)));
    }
    rules.sort_by_key(|(number, ..)| *number);
    chains.dedup();
    let is_last_certain = rules
        .last()
        .is_some_and(|(.., probability)| probability.is_none());
    if chains.len() > 1 || !is_last_certain {
        return Err(format!(
            "ways part, and not in one chain to its end, at {marks:?}"
        ));
    }
    let mut shares = vec![0.0; marks.len()];
    let mut left = 1.0;
    for (place, (_, index, probability)) in rules.iter().enumerate() {
        let share = match probability {
            Some(probability) => *probability,
            None if place + 1 == rules.len() => 1.0,
            None => return Err(format!("ways part at a rule without chance: {marks:?}")),
        };
        shares[*index] = left * share;
        left *= 1.0 - share;
    }
    Ok(Shares::Random(shares))
}

/// The sides of a die that come up with an endpoint share evenly what is thrown in time; the lowest slot has the rest.
fn die(sides: i32, marks: &[Option<&Mark>]) -> Result<Shares, String> {
    let mut slots = vec![];
    for mark in marks {
        let Some(Mark::Met { chain, .. }) = mark else {
            return Err(format!("behind a die come {marks:?}"));
        };
        // `service/to/3`, or under session affinity `service/to/3/sticky/600s`.
        let behind = chain.split_once("/to/").map(|(_, behind)| behind);
        let slot = behind.and_then(|behind| behind.split('/').next()?.parse::<i32>().ok());
        slots.push(
            slot.filter(|slot| *slot < sides)
                .ok_or(format!("no slot of {sides}: {chain}"))?,
        );
    }
    let taken = f64::from(i32::try_from(slots.len()).expect("few slots"));
    let rest = (1.0 - taken / f64::from(sides)).powi(THROWS);
    let lowest = slots.iter().copied().min();
    let share = |slot: &i32| (1.0 - rest) / taken + if Some(*slot) == lowest { rest } else { 0.0 };
    Ok(Shares::Random(slots.iter().map(share).collect()))
}

/// The probability that a rule of iptables asks for.
fn probability(mark: &Mark) -> Option<f64> {
    let Mark::Met { text, .. } = mark else { return None };
    let (_, behind) = text.split_once("-m statistic --mode random --probability ")?;
    behind.split(' ').next()?.parse().ok()
}

/// The sides of the die that a rule of nftables throws.
fn sides(mark: &Mark) -> Option<i32> {
    let Mark::Met { text, .. } = mark else { return None };
    let (_, behind) = text.split_once("numgen random mod ")?;
    behind.split(' ').next()?.parse().ok()
}
