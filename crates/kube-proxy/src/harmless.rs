//! A way out for text of others: rules, names and comments that somebody mailed steer no terminal.

use std::io::{self, Write};

/// What stands for a control character: U+FFFD.
const INSTEAD: &[u8] = "\u{fffd}".as_bytes();
/// The first byte of U+0080 to U+00BF in UTF-8. Control characters are those to U+009F.
const UPPER: u8 = 0xc2;

/// Writes UTF-8 without control characters other than ends of lines.
pub(crate) struct Harmless<W> {
    out: W,
    /// Whether a first byte was kept back, since the next one tells what it is.
    is_upper: bool,
}

impl<W> Harmless<W> {
    pub(crate) fn new(out: W) -> Harmless<W> {
        Harmless { out, is_upper: false }
    }
}

impl<W: Write> Write for Harmless<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            let is_upper = std::mem::take(&mut self.is_upper);
            match byte {
                0x80..=0x9f if is_upper => text.extend(INSTEAD),
                UPPER => self.is_upper = true,
                _ if is_upper => text.extend([UPPER, byte]),
                b'\n' => text.push(byte),
                _ if byte.is_ascii_control() => text.extend(INSTEAD),
                _ => text.push(byte),
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
        let text = "a \u{1b}]0;x\u{7}\r\tb\u{7f}\u{9b}31m \u{a0}é → \u{fffd}ß\n\n";
        let expected = "a \u{fffd}]0;x\u{fffd}\u{fffd}\u{fffd}b\u{fffd}\u{fffd}31m \u{a0}é → \u{fffd}ß\n\n";
        for size in 1..=text.len() {
            let mut out = Harmless::new(Vec::new());
            for piece in text.as_bytes().chunks(size) {
                out.write_all(piece).unwrap();
            }
            assert_eq!(String::from_utf8(out.out).unwrap(), expected, "{size}");
        }
    }
}
