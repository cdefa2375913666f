//! Bytes as they come, cut into lines.

/// Keeps the beginning of a line until its end has come.
#[derive(Default)]
pub(crate) struct LineSplitter {
    rest: Vec<u8>,
}

impl LineSplitter {
    /// Takes bytes and hands over each line that they complete, without its end.
    pub(crate) fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(&str)) {
        let mut bytes = bytes;
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, after) = (&bytes[..at], &bytes[at + 1..]);
            if self.rest.is_empty() {
                each(&String::from_utf8_lossy(line));
            } else {
                self.rest.extend_from_slice(line);
                each(&String::from_utf8_lossy(&self.rest));
                self.rest.clear();
            }
            bytes = after;
        }
        self.rest.extend_from_slice(bytes);
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
}
