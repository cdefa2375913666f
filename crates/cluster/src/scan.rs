//! Takes the items out of a JSON list while its bytes arrive, one at a time.
//!
//! A list of 10,000 objects is tens of megabytes; nobody here holds it whole. What is not an item (the list's own
//! `kind`, `metadata`, ...) is kept and handed over at the end. The scanner finds the ends of items and does not judge
//! what is in them, so one garbled item does not spoil the next.

use thiserror::Error;

/// Longest item that is taken, in bytes. etcd refuses objects over 1.5 MiB; YAML or indentation can double that.
pub(crate) const MAX_ITEM: usize = 16 << 20;
/// Longest text outside items that is taken, in bytes. Real ones have some hundred.
const MAX_ENVELOPE: usize = 1 << 20;

/// Why the bytes are not a list.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ScanError {
    /// The bytes end before the list does.
    #[error("the list is cut off after {items} items")]
    CutOff {
        /// Items seen before.
        items: usize,
    },
    /// A closing bracket without an opening one.
    #[error("brackets do not match after {items} items")]
    Unbalanced {
        /// Items seen before.
        items: usize,
    },
    /// Something is larger than any real object.
    #[error("item {items} or the list's own text is larger than any API object")]
    TooLarge {
        /// Items seen before.
        items: usize,
    },
}

/// Where in the text the scanner is, apart from nesting and strings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Envelope,
    Items,
}

/// Inside or outside a JSON string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    Outside,
    Inside,
    /// Inside, right behind a backslash.
    Escaped,
}

/// The scanner. Feed it with [`ItemScanner::push`], then ask [`ItemScanner::finish`] for the rest.
pub(crate) struct ItemScanner {
    place: Place,
    quote: Quote,
    depth: usize,
    item: Vec<u8>,
    envelope: Vec<u8>,
    items: usize,
}

impl ItemScanner {
    /// A scanner at the start of a document.
    pub(crate) fn new() -> Self {
        ItemScanner {
            place: Place::Envelope,
            quote: Quote::Outside,
            depth: 0,
            item: Vec::new(),
            envelope: Vec::new(),
            items: 0,
        }
    }

    /// Takes the next bytes. Items that end in them are added to `done`.
    pub(crate) fn push(&mut self, bytes: &[u8], done: &mut Vec<Vec<u8>>) -> Result<(), ScanError> {
        for &byte in bytes {
            self.step(byte, done)?;
        }
        if self.item.len() > MAX_ITEM || self.envelope.len() > MAX_ENVELOPE {
            return Err(ScanError::TooLarge { items: self.items });
        }
        Ok(())
    }

    /// Everything but the items, as JSON with an empty `items`.
    pub(crate) fn finish(self) -> Result<Vec<u8>, ScanError> {
        let begun = self.envelope.iter().any(|byte| !byte.is_ascii_whitespace());
        if self.depth == 0 && self.quote == Quote::Outside && begun {
            Ok(self.envelope)
        } else {
            Err(ScanError::CutOff { items: self.items })
        }
    }

    fn step(&mut self, byte: u8, done: &mut Vec<Vec<u8>>) -> Result<(), ScanError> {
        if self.quote != Quote::Outside {
            self.quote = match (self.quote, byte) {
                (Quote::Inside, b'\\') => Quote::Escaped,
                (Quote::Inside, b'"') => Quote::Outside,
                _ => Quote::Inside,
            };
            self.keep(byte);
            return Ok(());
        }
        match byte {
            b'"' => self.quote = Quote::Inside,
            b'{' | b'[' => {
                self.open(byte);
                return Ok(());
            }
            b'}' | b']' => return self.close(byte, done),
            b',' if self.between_items() => {
                self.end_item(done);
                return Ok(());
            }
            _ if self.between_items() && self.item.is_empty() && byte.is_ascii_whitespace() => return Ok(()),
            _ => {}
        }
        self.keep(byte);
        Ok(())
    }

    fn open(&mut self, byte: u8) {
        if byte == b'[' && self.depth == 1 && self.place == Place::Envelope && self.behind_items_key() {
            self.envelope.push(byte);
            self.place = Place::Items;
        } else {
            self.keep(byte);
        }
        self.depth += 1;
    }

    fn close(&mut self, byte: u8, done: &mut Vec<Vec<u8>>) -> Result<(), ScanError> {
        if self.between_items() {
            self.end_item(done);
            self.place = Place::Envelope;
        }
        self.keep(byte);
        self.depth = self
            .depth
            .checked_sub(1)
            .ok_or(ScanError::Unbalanced { items: self.items })?;
        Ok(())
    }

    /// Directly inside the brackets of `items`: no item is open, or a bare value is.
    fn between_items(&self) -> bool {
        self.place == Place::Items && self.depth == 2
    }

    fn keep(&mut self, byte: u8) {
        match self.place {
            Place::Envelope => self.envelope.push(byte),
            Place::Items => self.item.push(byte),
        }
    }

    fn end_item(&mut self, done: &mut Vec<Vec<u8>>) {
        if !self.item.is_empty() {
            self.items += 1;
            done.push(std::mem::take(&mut self.item));
        }
    }

    /// Whether what was read last is the key `items` and a colon.
    fn behind_items_key(&self) -> bool {
        let key = self
            .envelope
            .trim_ascii_end()
            .strip_suffix(b":")
            .map(<[u8]>::trim_ascii_end)
            .and_then(|text| text.strip_suffix(b"\"items\""));
        key.is_some_and(|before| !before.ends_with(b"\\"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str, chunk: usize) -> (Vec<String>, Result<String, ScanError>) {
        let mut scanner = ItemScanner::new();
        let mut done = Vec::new();
        for part in text.as_bytes().chunks(chunk) {
            if let Err(error) = scanner.push(part, &mut done) {
                return (Vec::new(), Err(error));
            }
        }
        let items = done
            .into_iter()
            .map(|item| String::from_utf8(item).unwrap())
            .collect();
        (
            items,
            scanner.finish().map(|rest| String::from_utf8(rest).unwrap()),
        )
    }

    #[test]
    fn items_come_out_whole_wherever_the_bytes_are_cut() {
        let text = "{\"kind\":\"L\", \"items\" : [ {\"a\":[1,{\"items\":[2]}]} ,\n{\"s\":\"]}\\\"{,\"}, null],\"metadata\":{\"x\":[1]}}\n";
        for chunk in 1..text.len() {
            let (items, rest) = scan(text, chunk);
            assert_eq!(
                items,
                ["{\"a\":[1,{\"items\":[2]}]} ", "{\"s\":\"]}\\\"{,\"}", "null"],
                "chunks of {chunk}"
            );
            assert_eq!(
                rest.unwrap().trim(),
                "{\"kind\":\"L\", \"items\" : [],\"metadata\":{\"x\":[1]}}"
            );
        }
    }

    #[test]
    fn only_the_lists_own_items_count() {
        let (items, rest) = scan("{\"metadata\":{\"items\":[1]},\"items\":[]}", 5);
        assert_eq!(items, Vec::<String>::new());
        assert_eq!(rest.unwrap(), "{\"metadata\":{\"items\":[1]},\"items\":[]}");
    }

    #[test]
    fn a_list_without_its_end_is_cut_off() {
        let whole = "{\"items\":[{\"a\":1},{\"b\":2}]}";
        for end in 0..whole.len() {
            let (_, rest) = scan(&whole[..end], 3);
            assert!(
                matches!(rest, Err(ScanError::CutOff { .. })),
                "{:?} gave {rest:?}",
                &whole[..end]
            );
        }
        assert!(scan(whole, 3).1.is_ok());
    }

    #[test]
    fn a_stray_bracket_is_an_error() {
        assert_eq!(scan("{}}", 1).1, Err(ScanError::Unbalanced { items: 0 }));
    }
}
