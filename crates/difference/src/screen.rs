//! Differences and changes as text for people: what matters most first, fitted into a terminal.
//!
//! Styles are ANSI sequences; whoever prints to something else than a terminal strips them (`anstream` does).

use crate::drift::{Difference, Drift, Kind, Line, Owner, Sign, What};
use crate::traffic::{Change, Changes};
use anstyle::{AnsiColor, Style};
use explain::page::{harmless, wrapped};
use model::Family;
use std::fmt::Write as _;

/// How much of it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So much that a person reads it.
    Some,
    /// All of it.
    Everything,
}

/// Differences that are printed unless all are asked for.
const DIFFERENCES: usize = 20;
/// Lines of one difference that are printed unless all are asked for.
const LINES: usize = 8;
/// Changes that are printed unless all are asked for.
const CHANGES: usize = 30;

/// The differences of all families under one heading. `about` says what was compared with what.
pub fn drift(drifts: &[Drift], about: &str, width: usize, extent: Extent) -> String {
    let mut page = Page::new(width, extent);
    let count: usize = drifts.iter().map(|drift| drift.differences.len()).sum();
    page.headline(&headline(drifts, count), count == 0);
    page.wrapped(0, about, Style::new());
    if count > 0 {
        page.wrapped(
            0,
            "- should be there and is not, + is there and should not be",
            DIM,
        );
    }
    let mut left = match extent {
        Extent::Some => DIFFERENCES,
        Extent::Everything => usize::MAX,
    };
    for drift in drifts.iter().filter(|drift| !drift.is_none()) {
        page.family(drift, &mut left);
    }
    let shown = if extent == Extent::Some {
        DIFFERENCES
    } else {
        usize::MAX
    };
    if count > shown {
        page.blank();
        page.line(
            0,
            &format!("... and {} more; --all prints them", count - shown),
            Style::new(),
        );
    }
    page.notes(drifts.iter().flat_map(|drift| &drift.remarks));
    page.out
}

fn headline(drifts: &[Drift], count: usize) -> String {
    if count == 0 {
        return "SAME: the rules are what they should be".to_owned();
    }
    let families: Vec<&str> = drifts
        .iter()
        .filter(|drift| !drift.is_none())
        .map(|drift| family(drift.family))
        .collect();
    let mut owners: Vec<&Owner> = drifts
        .iter()
        .flat_map(|drift| drift.differences.iter().map(|difference| &difference.owner))
        .collect();
    owners.sort_unstable();
    owners.dedup();
    let ports = owners
        .iter()
        .filter(|owner| matches!(owner, Owner::Port(_)))
        .count();
    let mut of = Vec::new();
    if owners.contains(&&Owner::Node) {
        of.push("the part of all Services".to_owned());
    }
    match ports {
        0 => {}
        1 => of.push("1 service port".to_owned()),
        many => of.push(format!("{many} service ports")),
    }
    if owners.contains(&&Owner::Nobody) {
        of.push("what no Service owns".to_owned());
    }
    let word = if count == 1 { "difference" } else { "differences" };
    format!(
        "DIFFERS: {count} {word} in {} ({})",
        listed(&of),
        families.join(", ")
    )
}

/// `a`, `a and b`, `a, b and c`.
fn listed(words: &[String]) -> String {
    match words {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => words.concat(),
    }
}

fn family(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// What becomes otherwise of traffic. `about` says between what.
pub fn changes(all: &[Changes], about: &str, width: usize, extent: Extent) -> String {
    let mut page = Page::new(width, extent);
    let count: usize = all.iter().map(|changes| changes.changes.len()).sum();
    let headline = match count {
        0 => "SAME: nothing becomes otherwise for traffic".to_owned(),
        1 => "DIFFERS: traffic changes in 1 place".to_owned(),
        many => format!("DIFFERS: traffic changes in {many} places"),
    };
    page.headline(&headline, count == 0);
    page.wrapped(0, about, Style::new());
    let mut left = match extent {
        Extent::Some => CHANGES,
        Extent::Everything => usize::MAX,
    };
    let both = all.iter().filter(|changes| !changes.changes.is_empty()).count() > 1;
    for changes in all {
        for change in changes.changes.iter().take(left) {
            page.change(change, both.then(|| family(changes.family)));
        }
        left = left.saturating_sub(changes.changes.len());
    }
    if extent == Extent::Some && count > CHANGES {
        page.blank();
        page.line(
            0,
            &format!("... and {} more; --all prints them", count - CHANGES),
            Style::new(),
        );
    }
    page.notes(all.iter().flat_map(|changes| &changes.remarks));
    page.out
}

/// Rules line by line, from one state to the other.
pub fn rules(differences: &[Difference], width: usize, extent: Extent) -> String {
    let mut page = Page::new(width, extent);
    page.blank();
    if differences.is_empty() {
        page.line(0, "rules: no difference", BOLD);
        return page.out;
    }
    page.wrapped(0, "rules: - was there and is not any more, + is new", BOLD);
    let shown = match extent {
        Extent::Some => DIFFERENCES,
        Extent::Everything => differences.len(),
    };
    for difference in differences.iter().take(shown) {
        let what = match difference.what {
            What::Missing => "is gone",
            What::Extra => "is new",
            What::Changed => "changed",
        };
        page.object(difference, what);
    }
    if differences.len() > shown {
        page.line(
            0,
            &format!("... and {} more; --all prints them", differences.len() - shown),
            Style::new(),
        );
    }
    page.out
}

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();

struct Page {
    out: String,
    width: usize,
    extent: Extent,
}

impl Page {
    fn new(width: usize, extent: Extent) -> Page {
        Page {
            out: String::new(),
            width: width.max(40),
            extent,
        }
    }

    fn headline(&mut self, words: &str, is_good: bool) {
        let colour = if is_good { AnsiColor::Green } else { AnsiColor::Red };
        self.wrapped(0, words, BOLD.fg_color(Some(colour.into())));
    }

    fn family(&mut self, drift: &Drift, left: &mut usize) {
        let mut owner = None;
        for difference in drift.differences.iter().take(*left) {
            if owner != Some(&difference.owner) {
                self.blank();
                let words = match &difference.owner {
                    Owner::Node => "all Services".to_owned(),
                    Owner::Port(name) => name.clone(),
                    Owner::Nobody => "no Service".to_owned(),
                };
                self.line(0, &format!("{words} ({})", family(drift.family)), BOLD);
                owner = Some(&difference.owner);
            }
            self.difference(difference);
        }
        *left = left.saturating_sub(drift.differences.len());
    }

    fn difference(&mut self, difference: &Difference) {
        let what = match difference.what {
            What::Extra => "should not be there",
            what => what.as_str(),
        };
        self.object(difference, what);
    }

    fn object(&mut self, difference: &Difference, what: &str) {
        let Difference {
            table,
            kind,
            name,
            about,
            lines,
            ..
        } = difference;
        let object = match kind {
            Kind::Table => format!("table {table}"),
            kind => format!("{table} {} {name}", kind.as_str()),
        };
        let about = if about.is_empty() {
            String::new()
        } else {
            format!(" ({about})")
        };
        self.wrapped(2, &format!("{object} {what}{about}"), Style::new());
        let shown = match self.extent {
            Extent::Some if lines.len() > LINES + 1 => LINES,
            _ => lines.len(),
        };
        for line in &lines[..shown] {
            self.rule(line);
        }
        if shown < lines.len() {
            self.line(
                4,
                &format!("... and {} more of it; --all prints them", lines.len() - shown),
                DIM,
            );
        }
    }

    fn rule(&mut self, line: &Line) {
        let (sign, colour) = match line.sign {
            Sign::Missing => ("-", AnsiColor::Red),
            Sign::Extra => ("+", AnsiColor::Yellow),
            Sign::Moved => ("~", AnsiColor::Yellow),
        };
        let number = line.number.filter(|_| line.sign != Sign::Missing);
        let number = number.map_or_else(String::new, |number| format!("rule {number}: "));
        let moved = if line.sign == Sign::Moved {
            " (in the wrong place)"
        } else {
            ""
        };
        let words = format!("{sign} {number}{}{moved}", line.text);
        self.hanging(4, 6, &words, Style::new().fg_color(Some(colour.into())));
    }

    fn change(&mut self, change: &Change, family: Option<&str>) {
        self.blank();
        let family = family.map_or_else(String::new, |family| format!(" ({family})"));
        self.line(0, &format!("{}{family}", change.owner), BOLD);
        for sentence in &change.sentences {
            self.hanging(2, 4, sentence, Style::new());
        }
    }

    fn notes<'a>(&mut self, notes: impl Iterator<Item = &'a String>) {
        let mut notes: Vec<&String> = notes.collect();
        notes.dedup();
        for note in notes {
            self.blank();
            self.hanging(0, 6, &format!("note: {note}"), Style::new());
        }
    }

    fn wrapped(&mut self, indent: usize, words: &str, style: Style) {
        self.hanging(indent, indent, words, style);
    }

    fn hanging(&mut self, first: usize, rest: usize, words: &str, style: Style) {
        for (number, line) in wrapped(words, self.width - rest).iter().enumerate() {
            self.line(if number == 0 { first } else { rest }, line, style);
        }
    }

    fn line(&mut self, indent: usize, words: &str, style: Style) {
        let words = harmless(words);
        let _ = writeln!(self.out, "{:indent$}{style}{}{style:#}", "", words.trim_end());
    }

    fn blank(&mut self) {
        self.out.push('\n');
    }
}
