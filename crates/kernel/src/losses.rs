//! What a socket could not hold of what the kernel tells, and what has gaps for it.

use crate::socket::SocketError;

/// The losses of a socket that the kernel fills by itself.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    count: u64,
    last: Heard,
}

/// How much of what the kernel told was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) enum Heard {
    /// All of it.
    #[default]
    All,
    /// Something was lost: whatever is not at its end yet may have gaps.
    WithGaps,
}

impl Losses {
    /// Takes what came of a reading. The kernel tells of a loss (`ENOBUFS`) before it hands over what the socket still holds,
    /// so what the next reading gives may have gaps, too.
    pub(crate) fn heard<T>(&mut self, read: Result<T, SocketError>) -> Result<Heard, SocketError> {
        let before = std::mem::take(&mut self.last);
        match read {
            Ok(_) => Ok(before),
            Err(SocketError::Lost) => {
                self.count += 1;
                self.last = Heard::WithGaps;
                Ok(Heard::WithGaps)
            }
            Err(error) => Err(error),
        }
    }

    /// How often something was lost.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_next_after_a_loss_may_have_gaps_too() {
        let mut losses = Losses::default();
        let mut heard = |read| losses.heard(read).unwrap();
        let (all, lost) = (|| Ok(()), || Err(SocketError::Lost));
        let told = [heard(all()), heard(lost()), heard(all()), heard(all())];
        assert_eq!(told, [Heard::All, Heard::WithGaps, Heard::WithGaps, Heard::All]);
        let told = [heard(lost()), heard(lost()), heard(all()), heard(all())];
        assert_eq!(told[1..], [Heard::WithGaps, Heard::WithGaps, Heard::All]);
        assert_eq!(losses.count(), 3);
    }
}
