//! Fields under headings, fitted into a terminal: what screens are made of.
//!
//! Styles are ANSI sequences; whoever prints to something else than a terminal strips them (`anstream` does).

use crate::finding::Finding;
use anstyle::Style;
use std::fmt::Write as _;

/// Width of the headings' column.
pub(crate) const MARGIN: usize = 8;

/// A page of text that grows.
pub(crate) struct Page {
    pub(crate) out: String,
    pub(crate) width: usize,
}

impl Page {
    /// An empty one of so many columns, 40 at least.
    pub(crate) fn new(width: usize) -> Page {
        Page {
            out: String::new(),
            width: width.max(40),
        }
    }

    /// Why it is so, and what to do: each thing with the field to change.
    pub(crate) fn reasons(&mut self, finding: &Finding) {
        if !finding.why.is_empty() {
            self.field("why", &finding.why);
        }
        for (choice, advice) in finding.advice.iter().enumerate() {
            let name = if choice == 0 { "do" } else { "or" };
            let field = match (&advice.object, &advice.field) {
                (Some(object), Some(field)) => format!("{object}, {field}: {}", advice.action),
                (None, Some(field)) if !advice.action.contains(field.as_str()) => {
                    format!("{field}: {}", advice.action)
                }
                _ => advice.to_string(),
            };
            self.field(name, &field);
        }
    }

    /// Good to know.
    pub(crate) fn remark(&mut self, finding: &Finding) {
        let words = match finding.why.as_str() {
            "" => finding.what.clone(),
            why => format!("{}. {why}", finding.what),
        };
        self.field("note", &words);
    }

    pub(crate) fn field(&mut self, name: &str, words: &str) {
        self.styled_field(name, words, Style::new());
    }

    pub(crate) fn styled_field(&mut self, name: &str, words: &str, style: Style) {
        let bold = Style::new().bold();
        for (number, line) in wrapped(words, self.width - MARGIN).iter().enumerate() {
            let name = if number == 0 { name } else { "" };
            let pad = MARGIN.saturating_sub(name.len());
            let _ = write!(self.out, "{bold}{name}{bold:#}{:pad$}", "");
            self.styled(line, style);
        }
    }

    pub(crate) fn styled(&mut self, line: &str, style: Style) {
        let line = harmless(line);
        let _ = writeln!(self.out, "{style}{}{style:#}", line.trim_end());
    }
}

/// Text of others has no control characters when it is printed, and none that changes the order in which it is read: comments of
/// rules may hold anything.
pub fn harmless(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let plain = |c: char| if c.is_control() || turns(c) { '\u{fffd}' } else { c };
    text.chars().map(plain).collect()
}

pub(crate) fn shortened(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some(_) => {
            let kept: String = text.chars().take(width.saturating_sub(3)).collect();
            format!("{kept}...")
        }
        None => text.to_owned(),
    }
}

/// Lines of at most so many characters, broken between words. A word that is longer has a line of its own: commands are
/// copied from there. Ends of lines in what others said are between words, too.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split([' ', '\n']) {
        let long = line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && long > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_steers_no_terminal_and_no_reader() {
        assert_eq!(
            harmless("a\u{1b}[2J\u{9b}b\u{202e}c\u{2069}\u{2028}é–…"),
            "a\u{fffd}[2J\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}é–…"
        );
    }

    #[test]
    fn lines_are_broken_between_words_and_long_words_are_left_whole() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("error\n  at line 3", 20), ["error   at line 3"]);
        assert_eq!(
            wrapped("a kube-proxy/very/long/word b", 8),
            ["a", "kube-proxy/very/long/word", "b"]
        );
    }

    #[test]
    fn what_others_wrote_cannot_steer_a_terminal() {
        assert_eq!(harmless("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
    }
}
