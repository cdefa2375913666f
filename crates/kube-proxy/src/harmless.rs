//! A way out for text of others: rules, names and comments that somebody mailed steer no terminal.

use std::io::{self, Write};

/// What stands for a control character: U+FFFD.
const INSTEAD: &[u8] = "\u{fffd}".as_bytes();
/// The first byte of U+0080 to U+00BF in UTF-8. Control characters are those to U+009F.
const UPPER: u8 = 0xc2;

/// The first byte of U+2000 to U+2FFF in UTF-8. Among them are those that turn the direction of text around, or break its lines.
const SIGNS: u8 = 0xe2;

/// Writes UTF-8 without control characters other than ends of lines, and without those that change the order of what is read.
pub(crate) struct Harmless<W> {
    out: W,
    /// The beginning of a character, kept back since the next bytes tell what it is.
    begun: Vec<u8>,
}

impl<W> Harmless<W> {
    pub(crate) fn new(out: W) -> Harmless<W> {
        Harmless {
            out,
            begun: Vec::new(),
        }
    }
}

impl<W: Write> Write for Harmless<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            match (self.begun.as_slice(), byte) {
                ([], UPPER | SIGNS) | ([SIGNS], 0x80 | 0x81) => self.begun.push(byte),
                ([], b'\n') => text.push(byte),
                ([], _) if byte.is_ascii_control() => text.extend(INSTEAD),
                // U+0080 to U+009F; U+200E, U+200F and U+2028 to U+202E; U+2066 to U+2069.
                ([UPPER], 0x80..=0x9f)
                | ([SIGNS, 0x80], 0x8e | 0x8f | 0xa8..=0xae)
                | ([SIGNS, 0x81], 0xa6..=0xa9) => {
                    self.begun.clear();
                    text.extend(INSTEAD);
                }
                _ => {
                    text.append(&mut self.begun);
                    text.push(byte);
                }
            }
        }
        self.out.write_all(&text)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_none_and_the_rest_is_as_it_was_however_it_is_cut() {
        let text = "a \u{1b}]0;x\u{7}\r\tb\u{7f}\u{9b}31m \u{a0}é → \u{fffd}ß\n\n\u{202e}c\u{2066}d\u{2028}\u{200f}–…\u{2060}∞";
        let expected = "a \u{fffd}]0;x\u{fffd}\u{fffd}\u{fffd}b\u{fffd}\u{fffd}31m \u{a0}é → \u{fffd}ß\n\n\u{fffd}c\u{fffd}d\u{fffd}\u{fffd}–…\u{2060}∞";
        for size in 1..=text.len() {
            let mut out = Harmless::new(Vec::new());
            for piece in text.as_bytes().chunks(size) {
                out.write_all(piece).unwrap();
            }
            assert_eq!(String::from_utf8(out.out).unwrap(), expected, "{size}");
        }
    }
}
