//! The answer as a drawing: the ways with what they have in common drawn once, forks with their conditions and chances.
//!
//! [`stops`] makes a row of stops of each way; [`tree`] finds what rows have in common; [`Drawing`] is the result:
//! cards (a stretch of a chain, a routing decision, an end) and arrows. [`mermaid`], [`dot`] and [`svg`] write it.

mod dot;
mod layout;
mod mermaid;
mod stops;
mod svg;
mod tree;

#[cfg(test)]
mod tests;

use super::args::TraceArgs;
use super::describe;
use path::{Answer, Host};
use std::collections::BTreeMap;
use std::io::{self, Write};
use stops::{EndKind, Line, Stop, What};
use traced::Hook;
use tree::Branch;

/// How many ways a drawing has at most: with more nobody finds one in it.
const MOST_WAYS: usize = 200;

/// How a drawing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// A flow chart for Mermaid, which many pages draw by themselves.
    Mermaid,
    /// A graph for Graphviz.
    Dot,
    /// A picture for a browser, light or dark as it is set.
    Svg,
}

/// Writes the answer as a drawing.
pub(super) fn write(
    out: &mut dyn Write,
    language: Language,
    (host, answer): (&Host, &Answer),
    args: &TraceArgs,
) -> io::Result<()> {
    let drawing = Drawing::new(host, answer, args.full());
    match language {
        Language::Mermaid => mermaid::write(out, &drawing),
        Language::Dot => dot::write(out, &drawing),
        Language::Svg => svg::write(out, &drawing),
    }
}

/// What is drawn.
#[derive(Debug, Default)]
struct Drawing {
    /// Lines above it: the packet, what becomes of it, what is left out.
    heading: Vec<String>,
    cards: Vec<Card>,
    arrows: Vec<Arrow>,
    /// The same cards as branches that part and may come together again.
    shape: Shape,
}

/// Something a packet comes by.
#[derive(Debug)]
struct Card {
    /// Which part of the way it is of: hooks and routing decisions follow each other.
    stage: usize,
    /// The hook that it is of, if any.
    hook: Option<Hook>,
    kind: CardKind,
    /// Table and chain, or what else it is.
    title: String,
    lines: Vec<Line>,
}

/// What a card stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CardKind {
    Packet,
    Chain,
    Routing,
    End(EndKind),
}

/// From one card to the next.
#[derive(Debug, PartialEq)]
struct Arrow {
    from: usize,
    to: usize,
    /// Conditions and chances.
    labels: Vec<String>,
    /// The branch without a card of its own that it stands for.
    lane: Option<usize>,
}

/// Cards in a row, then branches, then what all branches come together to.
#[derive(Debug, Default)]
struct Shape {
    cards: Vec<usize>,
    branches: Vec<Shape>,
    then: Option<Box<Shape>>,
    /// Its number among branches without cards.
    lane: Option<usize>,
}

/// Where an arrow begins that has no end yet.
#[derive(Clone, Debug)]
struct Loose {
    from: usize,
    labels: Vec<String>,
    lane: Option<usize>,
}

impl Card {
    fn new(kind: CardKind, title: String) -> Card {
        Card {
            stage: 0,
            hook: None,
            kind,
            title,
            lines: Vec::new(),
        }
    }

    fn of(what: &What) -> Card {
        match what {
            What::Rule {
                hook,
                table,
                chain,
                line,
            } => Card {
                hook: Some(*hook),
                lines: vec![line.clone()],
                ..Card::new(CardKind::Chain, format!("{table} {chain}"))
            },
            What::Routing(to) => Card::new(CardKind::Routing, format!("routing: {to}")),
            What::End(kind, text) => Card::new(CardKind::End(*kind), text.clone()),
        }
    }
}

/// What the languages that name nodes call them: a card is one, and a chain's lines are one each.
impl Drawing {
    /// Where arrows to a card end.
    fn first_node(&self, number: usize) -> String {
        match self.cards[number].kind {
            CardKind::Chain => format!("c{number}r0"),
            _ => format!("c{number}"),
        }
    }

    /// Where arrows from a card begin.
    fn last_node(&self, number: usize) -> String {
        let card = &self.cards[number];
        match card.kind {
            CardKind::Chain => format!("c{number}r{}", card.lines.len().saturating_sub(1)),
            _ => format!("c{number}"),
        }
    }
}

impl Drawing {
    /// Draws so many ways at most; 0 for all.
    fn new(host: &Host, answer: &Answer, limit: usize) -> Drawing {
        let all = answer.ways.len();
        let wanted = if limit == 0 { all } else { limit };
        let drawn = wanted.min(all).min(MOST_WAYS);
        let rows: Vec<Vec<Stop>> = answer.ways[..drawn]
            .iter()
            .map(|way| stops::of(host, answer, way))
            .collect();
        let mut heading = vec![answer.packet.to_string(), describe::outcome(answer)];
        if drawn < all {
            heading.push(format!(
                "{} more ways are not drawn; --full N draws up to {MOST_WAYS}, --output json --full 0 has them all",
                all - drawn
            ));
        }
        let mut drawing = Drawing {
            heading,
            ..Drawing::default()
        };
        let start = drawing.add(Card::new(CardKind::Packet, answer.packet.to_string()), &[]);
        let rows: Vec<&[Stop]> = rows.iter().map(Vec::as_slice).collect();
        let mut loose = vec![Loose {
            from: start,
            labels: Vec::new(),
            lane: None,
        }];
        let mut lanes = 0;
        let mut shape = drawing.lay(&tree::branch(&rows), &mut loose, &mut lanes);
        shape.cards.insert(0, start);
        drawing.shape = shape;
        drawing
    }

    /// Adds a branch behind the loose ends, which then are its own.
    fn lay(&mut self, branch: &Branch<'_>, loose: &mut Vec<Loose>, lanes: &mut usize) -> Shape {
        let mut shape = Shape {
            cards: self.lay_row(branch.row, loose),
            ..Shape::default()
        };
        if !branch.forks.is_empty() {
            let mut ends = Vec::new();
            for fork in &branch.forks {
                let mut own = loose.clone();
                let mut below = self.lay(fork, &mut own, lanes);
                if fork.is_empty() {
                    for end in &mut own {
                        end.lane = Some(*lanes);
                    }
                    below.lane = Some(*lanes);
                    *lanes += 1;
                }
                ends.extend(own);
                shape.branches.push(below);
            }
            *loose = ends;
        }
        if let Some(then) = &branch.then {
            shape.then = Some(Box::new(self.lay(then, loose, lanes)));
        }
        shape
    }

    /// Stops in a row; those in one chain are one card.
    fn lay_row(&mut self, row: &[Stop], loose: &mut Vec<Loose>) -> Vec<usize> {
        let mut cards: Vec<usize> = Vec::new();
        let mut last: Option<&What> = None;
        for stop in row {
            let goes_on = stop.labels.is_empty() && last.is_some_and(|last| last.is_of_one_chain(&stop.what));
            last = Some(&stop.what);
            if let (true, Some(card), What::Rule { line, .. }) = (goes_on, cards.last(), &stop.what) {
                self.cards[*card].lines.push(line.clone());
                continue;
            }
            for end in loose.iter_mut() {
                end.labels.extend(stop.labels.iter().cloned());
            }
            let card = self.add(Card::of(&stop.what), loose);
            *loose = vec![Loose {
                from: card,
                labels: Vec::new(),
                lane: None,
            }];
            cards.push(card);
        }
        cards
    }

    /// Adds a card behind the loose ends.
    fn add(&mut self, mut card: Card, loose: &[Loose]) -> usize {
        let number = self.cards.len();
        let after = |end: &Loose| {
            let before = &self.cards[end.from];
            before.stage + usize::from(before.hook != card.hook || card.hook.is_none())
        };
        card.stage = loose.iter().map(after).max().unwrap_or_default();
        self.cards.push(card);
        self.arrows.extend(loose.iter().cloned().map(|end| Arrow {
            from: end.from,
            to: number,
            labels: end.labels,
            lane: end.lane,
        }));
        number
    }

    /// The cards of each hook that hang together, as the packet comes to it.
    fn hooks(&self) -> Vec<(Hook, Vec<usize>)> {
        let mut group: Vec<usize> = (0..self.cards.len()).collect();
        let of = |group: &[usize], mut card: usize| {
            while group[card] != card {
                card = group[card];
            }
            card
        };
        for Arrow { from, to, .. } in &self.arrows {
            let (one, other) = (&self.cards[*from], &self.cards[*to]);
            if one.hook.is_some() && (one.hook, one.stage) == (other.hook, other.stage) {
                let (one, other) = (of(&group, *from), of(&group, *to));
                group[one.max(other)] = one.min(other);
            }
        }
        let mut found: BTreeMap<usize, (Hook, Vec<usize>)> = BTreeMap::new();
        for (number, card) in self.cards.iter().enumerate() {
            if let Some(hook) = card.hook {
                let (_, cards) = found
                    .entry(of(&group, number))
                    .or_insert_with(|| (hook, Vec::new()));
                cards.push(number);
            }
        }
        found.into_values().collect()
    }
}

/// Text of others without what could steer a terminal, a page or a reader: control characters, and those that turn the
/// direction of reading.
fn plain(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let one = |c: char| match c {
        c if c.is_control() || turns(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => '\u{fffd}',
        c => c,
    };
    text.chars().map(one).collect()
}
