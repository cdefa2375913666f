//! Reading one object's fields, with a note for each that cannot be used.

use super::field::{Field, Shape};
use super::raw;
use crate::note::Subject;
use crate::{Note, NoteKind, Severity};
use std::fmt::{Arguments, Display};
use std::sync::Arc;

/// Longest piece of somebody's input that a note repeats, in characters.
const QUOTE: usize = 80;

/// One object being read.
pub(super) struct Reading {
    subject: Subject,
    notes: Vec<Note>,
}

impl Reading {
    /// Starts reading. `namespace` and `name` may be anything: what is no name is printed escaped and shortened.
    pub(super) fn new(kind: &'static str, namespace: &str, name: &str) -> Self {
        Reading {
            subject: Subject {
                kind,
                namespace: Arc::from(printable(namespace)),
                name: Arc::from(printable(name)),
            },
            notes: Vec::new(),
        }
    }

    /// The notes made.
    pub(super) fn finish(self) -> Vec<Note> {
        self.notes
    }

    /// A value of the field at `path`; a wrong type makes a note and counts as absent.
    pub(super) fn take<'f, T: Shape>(&mut self, field: &'f Field<T>, path: Arguments<'_>) -> Option<&'f T> {
        match field {
            Field::Given(value) => Some(value),
            Field::Absent => None,
            Field::Wrong(found) => {
                self.bad(path, found, format_args!("must be {}", T::EXPECTED));
                None
            }
        }
    }

    /// The good items of the list at `path`, with their indexes.
    pub(super) fn items<'f, T: Shape>(&mut self, list: &'f raw::List<T>, path: &str) -> Vec<(usize, &'f T)> {
        let Some(items) = self.take(list, format_args!("{path}")) else {
            return Vec::new();
        };
        let mut good = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match item {
                // A list may hold null; it says nothing.
                Field::Absent => {}
                _ => good.extend(self.take(item, format_args!("{path}[{i}]")).map(|item| (i, item))),
            }
        }
        good
    }

    /// Notes a part of the object that is left out.
    pub(super) fn bad(&mut self, path: Arguments<'_>, value: impl Display, reason: impl Display) {
        self.note(Severity::Warning, path, value, reason);
    }

    /// Notes that the whole object is left out.
    pub(super) fn useless(&mut self, path: Arguments<'_>, value: impl Display, reason: impl Display) {
        self.note(Severity::Error, path, value, reason);
    }

    fn note(&mut self, severity: Severity, path: Arguments<'_>, value: impl Display, reason: impl Display) {
        self.notes.push(Note {
            severity,
            subject: self.subject.clone(),
            kind: NoteKind::BadField {
                field: path.to_string(),
                value: shortened(&value.to_string()),
                reason: reason.to_string(),
            },
        });
    }
}

/// A text that is safe on a terminal and in a log line.
fn printable(text: &str) -> String {
    shortened(text).escape_debug().to_string()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTE) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Whether a text is a DNS label (RFC 1123): what namespaces, Services and ports may be called.
///
/// Names go into rules and comments, so nothing else gets past here.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|b| inner(*b) || *b == b'-')
        && bytes.first().is_some_and(|b| inner(*b))
        && bytes.last().is_some_and(|b| inner(*b))
}

/// Whether a text is a DNS subdomain (RFC 1123): what other objects may be called. Its labels may be long.
pub(super) fn is_subdomain(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |part: &str| {
        let bytes = part.as_bytes();
        bytes.iter().all(|b| inner(*b) || *b == b'-')
            && bytes.first().is_some_and(|b| inner(*b))
            && bytes.last().is_some_and(|b| inner(*b))
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_what_the_api_server_calls_labels() {
        let long = "a".repeat(63);
        for good in ["a", "0", "a-b", "7up", &long] {
            assert!(is_label(good), "{good}");
        }
        let longer = "a".repeat(64);
        for bad in ["", "-a", "a-", "A", "a.b", "a b", "a\n", "a\"", "ä", &longer] {
            assert!(!is_label(bad), "{bad:?}");
        }
    }

    #[test]
    fn subdomains_have_dots_between_labels() {
        assert!(is_subdomain("node-a.example.com"));
        assert!(is_subdomain(&"a".repeat(253)));
        for bad in ["", ".", "a..b", "a.", "a/b", "Node", "a.-b"] {
            assert!(!is_subdomain(bad), "{bad:?}");
        }
        assert!(!is_subdomain(&"a".repeat(254)));
    }

    #[test]
    fn what_notes_repeat_is_short_and_printable() {
        assert_eq!(printable("a\nb\u{1b}"), "a\\nb\\u{1b}");
        assert_eq!(shortened(&"ä".repeat(100)).chars().count(), QUOTE + 3);
    }
}
