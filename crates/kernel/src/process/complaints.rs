//! What is kept of a tool's complaints.

/// How much of their beginning is kept, and how much of their end, in bytes: the first ones name the cause as a rule, and
/// after many warnings the last ones do.
pub(super) const KEPT: usize = 16 * 1024;

/// Complaints as they come.
#[derive(Default)]
pub(super) struct Complaints {
    head: Vec<u8>,
    /// At most twice what is kept.
    tail: Vec<u8>,
    left_out: usize,
}

impl Complaints {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let (head, more) = bytes.split_at(bytes.len().min(KEPT - self.head.len()));
        self.head.extend_from_slice(head);
        for piece in more.chunks(KEPT) {
            self.tail.extend_from_slice(piece);
            if self.tail.len() > 2 * KEPT {
                self.shorten();
            }
        }
    }

    fn shorten(&mut self) {
        let over = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..over);
        self.left_out += over;
    }

    /// As text, without blanks around it.
    pub(super) fn text(mut self) -> String {
        self.shorten();
        let mut all = self.head;
        if self.left_out > 0 {
            all.extend_from_slice(format!("\n... ({} bytes left out)\n", self.left_out).as_bytes());
        }
        all.extend_from_slice(&self.tail);
        String::from_utf8_lossy(&all).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str, size: usize) -> String {
        let mut complaints = Complaints::default();
        for piece in text.as_bytes().chunks(size) {
            complaints.add(piece);
            assert!(complaints.head.len() <= KEPT && complaints.tail.len() <= 2 * KEPT);
        }
        complaints.text()
    }

    #[test]
    fn what_is_short_is_whole_and_of_what_is_long_the_ends_stay() {
        let filling = "x".repeat(5 * KEPT);
        let long = format!("first\n{filling}\nlast\n");
        let short = &long[5 * KEPT - 2..];
        for size in [1, 999, KEPT, 64 * 1024, long.len()] {
            assert_eq!(kept(short, size), short.trim(), "{size}");
            let text = kept(&long, size);
            assert!(
                text.starts_with("first\nxxx") && text.ends_with("xxx\nlast"),
                "{size}"
            );
            assert!(text.len() < 2 * KEPT + 100);
            let left_out = long.len() - 2 * KEPT;
            assert!(
                text.contains(&format!("\n... ({left_out} bytes left out)\n")),
                "{size}"
            );
        }
    }
}
