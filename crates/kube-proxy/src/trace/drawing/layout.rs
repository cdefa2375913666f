//! Where cards and arrows of a drawing are, in pixels: hooks below each other, branches beside each other.

use super::stops::Line;
use super::{Arrow, Card, CardKind, Drawing, Shape, plain};
use traced::Hook;

/// A letter of the font for rules, which has letters of one width.
pub(super) const LETTER: f64 = 7.25;
/// From line to line.
pub(super) const LINE: f64 = 16.0;
/// Letters in a line of a card.
const LETTERS: usize = 46;
/// Letters in a line of what is no chain.
const TITLE_LETTERS: usize = 64;
/// Letters in a line on an arrow.
const LABEL_LETTERS: usize = 40;
/// Lines of one rule.
const MOST_LINES: usize = 6;
/// From a card's edge to its words.
pub(super) const PAD: f64 = 10.0;
/// For the number of a rule.
pub(super) const GUTTER: f64 = 30.0;
/// Between rules.
pub(super) const BETWEEN_RULES: f64 = 6.0;
/// The height of a chain's name above its rules.
pub(super) const TITLE: f64 = 24.0;
/// Between cards below each other.
pub(super) const GAP: f64 = 28.0;
/// Between cards beside each other.
const BESIDE: f64 = 36.0;
/// From a hook's edge to its cards.
const HOOK_PAD: f64 = 14.0;
/// The height of a hook's name.
const HOOK_TITLE: f64 = 22.0;
/// Around it all.
pub(super) const MARGIN: f64 = 24.0;

/// A row of text of a card.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    pub(super) kind: TextKind,
    pub(super) words: String,
}

/// What a row of text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    Words,
    Comment,
    Note,
    Change,
}

/// A card with its place.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// Its middle.
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    /// The rows of each rule; of other cards, one row for each line of the title.
    pub(super) rules: Vec<(Option<u32>, Vec<Text>)>,
}

/// A way from card to card: it leaves the first, goes down in its lane, and comes to the second.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) from: (f64, f64),
    pub(super) lane: f64,
    pub(super) to: (f64, f64),
    pub(super) labels: Vec<String>,
}

/// A hook's frame.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) hook: Hook,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Everything with its place.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) heading: Vec<String>,
    pub(super) cards: Vec<Placed>,
    pub(super) lines: Vec<Course>,
    pub(super) frames: Vec<Frame>,
}

/// Finds a place for everything.
pub(super) fn of(drawing: &Drawing) -> Layout {
    let mut cards: Vec<Placed> = drawing.cards.iter().map(sized).collect();
    let mut lanes = vec![0.0; drawing.arrows.len() + 1];
    let labels = labels_at(drawing);
    let inner = width(&drawing.shape, &cards, &labels);
    let heading: Vec<String> = drawing
        .heading
        .iter()
        .flat_map(|line| wrapped(line, 110, MOST_LINES))
        .collect();
    let heading_width = heading.iter().map(|line| text_width(line)).fold(0.0, f64::max);
    let total = (inner + 2.0 * HOOK_PAD).max(heading_width) + 2.0 * MARGIN;
    beside(&drawing.shape, total / 2.0, (&mut cards, &mut lanes), &labels);
    let top = MARGIN + count(heading.len()) * (LINE + 4.0) + GAP;
    below(drawing, &mut cards, top);
    let frames: Vec<Frame> = drawing
        .hooks()
        .into_iter()
        .map(|(hook, inside)| frame(hook, &inside, &cards))
        .collect();
    let lowest = cards.iter().map(|card| card.y + card.height).fold(top, f64::max);
    Layout {
        width: total,
        height: lowest + HOOK_PAD + MARGIN,
        heading,
        lines: drawing
            .arrows
            .iter()
            .map(|arrow| line(arrow, drawing, &cards, &lanes))
            .collect(),
        cards,
        frames,
    }
}

/// A card's rows and size.
fn sized(card: &Card) -> Placed {
    let rules: Vec<(Option<u32>, Vec<Text>)> = if card.kind == CardKind::Chain {
        card.lines.iter().map(|line| (line.number, rows(line))).collect()
    } else {
        let text = |words| Text {
            kind: TextKind::Words,
            words,
        };
        let rows = wrapped(&card.title, TITLE_LETTERS, MOST_LINES)
            .into_iter()
            .map(text);
        vec![(None, rows.collect())]
    };
    let longest = |rows: &Vec<Text>| rows.iter().map(|row| text_width(&row.words)).fold(0.0, f64::max);
    let widest = rules.iter().map(|(_, rows)| longest(rows)).fold(0.0, f64::max);
    let rows: usize = rules.iter().map(|(_, rows)| rows.len()).sum();
    let words = count(rows) * LINE + 2.0 * PAD;
    let (width, height) = match card.kind {
        CardKind::Chain => (
            (widest + GUTTER).max(text_width(&card.title)) + 2.0 * PAD,
            words + TITLE + count(rules.len().saturating_sub(1)) * BETWEEN_RULES,
        ),
        _ => (widest + 4.0 * PAD, words),
    };
    Placed {
        width,
        height,
        rules,
        ..Placed::default()
    }
}

fn rows(line: &Line) -> Vec<Text> {
    let mut rows = Vec::new();
    let mut add = |kind: TextKind, words: &str| {
        let text = |words| Text { kind, words };
        rows.extend(wrapped(words, LETTERS, MOST_LINES).into_iter().map(text));
    };
    add(TextKind::Words, &line.words);
    line.comment
        .iter()
        .for_each(|comment| add(TextKind::Comment, comment));
    line.notes
        .iter()
        .for_each(|note| add(TextKind::Note, &format!("[{note}]")));
    line.changes
        .iter()
        .for_each(|change| add(TextKind::Change, change));
    rows
}

/// The widths of what is written on arrows: by the card they lead to, and by lane.
struct Labels {
    cards: Vec<f64>,
    lanes: Vec<f64>,
}

fn labels_at(drawing: &Drawing) -> Labels {
    let mut labels = Labels {
        cards: vec![0.0; drawing.cards.len()],
        lanes: vec![0.0; drawing.arrows.len() + 1],
    };
    for arrow in &drawing.arrows {
        let lines = label_lines(arrow);
        let widest = lines.iter().map(|line| text_width(line)).fold(0.0, f64::max) + PAD;
        let at = match arrow.lane {
            Some(lane) => &mut labels.lanes[lane],
            None => &mut labels.cards[arrow.to],
        };
        *at = at.max(widest);
    }
    labels
}

/// The width of a shape with all its branches.
fn width(shape: &Shape, cards: &[Placed], labels: &Labels) -> f64 {
    let own = shape
        .cards
        .iter()
        .map(|card| cards[*card].width.max(labels.cards[*card]));
    let lane = shape.lane.map_or(0.0, |lane| labels.lanes[lane]);
    let then = shape.then.as_ref().map_or(0.0, |then| width(then, cards, labels));
    own.fold(branches_width(shape, cards, labels).max(lane).max(then), f64::max)
}

fn branches_width(shape: &Shape, cards: &[Placed], labels: &Labels) -> f64 {
    let all = shape.branches.iter().map(|branch| width(branch, cards, labels));
    all.sum::<f64>() + BESIDE * count(shape.branches.len().saturating_sub(1))
}

/// Puts branches beside each other, and what they come together to below their middle.
fn beside(shape: &Shape, middle: f64, (cards, lanes): (&mut [Placed], &mut [f64]), labels: &Labels) {
    shape.cards.iter().for_each(|card| cards[*card].x = middle);
    if let Some(lane) = shape.lane {
        lanes[lane] = middle;
    }
    let mut left = middle - branches_width(shape, cards, labels) / 2.0;
    for branch in &shape.branches {
        let own = width(branch, cards, labels);
        beside(branch, left + own / 2.0, (&mut *cards, &mut *lanes), labels);
        left += own + BESIDE;
    }
    if let Some(then) = &shape.then {
        beside(then, middle, (cards, lanes), labels);
    }
}

/// Puts each card below those that lead to it, and each hook below the one before, on all branches alike.
fn below(drawing: &Drawing, cards: &mut [Placed], top: f64) {
    let stages = drawing
        .cards
        .iter()
        .map(|card| card.stage)
        .max()
        .unwrap_or_default();
    let mut floor = top;
    for stage in 0..=stages {
        let mut lowest = floor;
        let mut pad = 0.0;
        let of_stage = drawing
            .cards
            .iter()
            .enumerate()
            .filter(|(_, card)| card.stage == stage);
        for (number, card) in of_stage {
            let frame = if card.hook.is_some() {
                HOOK_TITLE + HOOK_PAD
            } else {
                0.0
            };
            let behind = |arrow: &&Arrow| arrow.to == number;
            let under = |arrow: &Arrow| {
                let before = &cards[arrow.from];
                let frame = if drawing.cards[arrow.from].stage == stage {
                    0.0
                } else {
                    frame
                };
                before.y + before.height + GAP + labels_height(arrow) + frame
            };
            let arrows = drawing.arrows.iter().filter(behind);
            let y = arrows.map(under).fold(floor + frame, f64::max);
            cards[number].y = y;
            lowest = lowest.max(y + cards[number].height);
            pad = if card.hook.is_some() { HOOK_PAD } else { pad };
        }
        floor = lowest + GAP + pad;
    }
}

fn label_lines(arrow: &Arrow) -> Vec<String> {
    let lines = arrow.labels.iter();
    lines
        .flat_map(|label| wrapped(label, LABEL_LETTERS, MOST_LINES))
        .collect()
}

/// The height of what is written on an arrow, with room below for its point.
fn labels_height(arrow: &Arrow) -> f64 {
    match label_lines(arrow).len() {
        0 => 0.0,
        rows => count(rows) * LINE + 12.0,
    }
}

fn line(arrow: &Arrow, drawing: &Drawing, cards: &[Placed], lanes: &[f64]) -> Course {
    let (from, to) = (&cards[arrow.from], &cards[arrow.to]);
    let parts = drawing
        .arrows
        .iter()
        .filter(|other| other.from == arrow.from)
        .count()
        > 1;
    let lane = match arrow.lane {
        Some(lane) => lanes[lane],
        None if parts => to.x,
        None => from.x,
    };
    Course {
        from: (from.x, from.y + from.height),
        lane,
        to: (to.x, to.y),
        labels: label_lines(arrow),
    }
}

fn frame(hook: Hook, inside: &[usize], cards: &[Placed]) -> Frame {
    let edge = |of: fn(&Placed) -> f64, pick: fn(f64, f64) -> f64, start: f64| {
        inside.iter().map(|card| of(&cards[*card])).fold(start, pick)
    };
    let left = edge(|card| card.x - card.width / 2.0, f64::min, f64::INFINITY) - HOOK_PAD;
    let right = edge(|card| card.x + card.width / 2.0, f64::max, 0.0) + HOOK_PAD;
    let top = edge(|card| card.y, f64::min, f64::INFINITY) - HOOK_PAD - HOOK_TITLE;
    let bottom = edge(|card| card.y + card.height, f64::max, 0.0) + HOOK_PAD;
    Frame {
        hook,
        x: left,
        y: top,
        width: right - left,
        height: bottom - top,
    }
}

/// How wide a text is: letters beyond the alphabets of Europe and the Near East may take the place of two.
pub(super) fn text_width(text: &str) -> f64 {
    count(text.chars().map(letters).sum()) * LETTER
}

fn letters(c: char) -> usize {
    1 + usize::from(c >= '\u{1100}' && !('\u{2010}'..='\u{22ff}').contains(&c))
}

pub(super) fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// A text in lines of so many letters, broken between words where that can be; what is more than so many lines is left out.
fn wrapped(text: &str, most: usize, lines: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut left = most;
    for word in plain(text).split_inclusive(' ') {
        let own: usize = word.trim_end().chars().map(letters).sum();
        if own > left && own <= most {
            all.push(String::new());
            left = most;
        }
        for c in word.chars() {
            if letters(c) > left && c != ' ' {
                all.push(String::new());
                left = most;
            }
            left = left.saturating_sub(letters(c));
            all.last_mut().expect("invariant: there is a line").push(c);
        }
    }
    if all.len() > lines {
        all.truncate(lines);
        let last = all.last_mut().expect("invariant: there is a line");
        last.push('…');
    }
    all.iter().map(|line| line.trim_end().to_owned()).collect()
}
