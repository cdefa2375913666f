//! Bytes as they come, cut into lines.

/// Longest line that is handed over, in bytes. No rule is a tenth of it.
const LONGEST: usize = 1 << 20;

/// Keeps the beginning of a line until its end has come. What is longer than any rule is no line of a tool's, and left out.
#[derive(Default)]
pub(crate) struct LineSplitter {
    rest: Vec<u8>,
    is_too_long: bool,
}

impl LineSplitter {
    /// Takes bytes and hands over each line that they complete, without its end.
    pub(crate) fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(&str)) {
        let mut bytes = bytes;
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, after) = (&bytes[..at], &bytes[at + 1..]);
            if self.rest.is_empty() && !self.is_too_long {
                each(&String::from_utf8_lossy(line));
            } else {
                self.keep(line);
                if !self.is_too_long {
                    each(&String::from_utf8_lossy(&self.rest));
                }
                self.rest.clear();
                self.is_too_long = false;
            }
            bytes = after;
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.is_too_long |= self.rest.len() + bytes.len() > LONGEST;
        if self.is_too_long {
            self.rest = Vec::new();
        } else {
            self.rest.extend_from_slice(bytes);
        }
    }

    /// Hands over the last line if it had no end.
    pub(crate) fn end(self, each: &mut dyn FnMut(&str)) {
        if !self.rest.is_empty() {
            each(&String::from_utf8_lossy(&self.rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_the_bytes_are_cut() {
        let text = "*nat\n:A - [0:0]\n\n-A A -m comment --comment \"\u{e9}\"\nCOMMIT";
        let want: Vec<&str> = text.lines().collect();
        for size in 1..text.len() {
            let mut lines = Vec::new();
            let mut splitter = LineSplitter::default();
            for piece in text.as_bytes().chunks(size) {
                splitter.feed(piece, &mut |line| lines.push(line.to_owned()));
            }
            splitter.end(&mut |line| lines.push(line.to_owned()));
            assert_eq!(lines, want);
        }
    }

    #[test]
    fn a_line_without_end_is_neither_kept_nor_handed_over() {
        let mut lines = Vec::new();
        let mut splitter = LineSplitter::default();
        let piece = vec![b'x'; 64 * 1024];
        splitter.feed(b"first\n-A ", &mut |line| lines.push(line.to_owned()));
        for _ in 0..64 {
            splitter.feed(&piece, &mut |line| lines.push(line.to_owned()));
            assert!(splitter.rest.capacity() <= 2 * LONGEST);
        }
        splitter.feed(b"x\nsecond\nthird", &mut |line| lines.push(line.to_owned()));
        splitter.end(&mut |line| lines.push(line.to_owned()));
        assert_eq!(lines, ["first", "second", "third"]);
    }
}
