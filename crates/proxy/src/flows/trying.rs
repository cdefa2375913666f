//! A thread that cannot be had now: it is tried again, since to end would help nobody whose rules are in.

use model::Family;
use std::error::Error;
use std::time::Duration;

/// Between two attempts.
const AGAIN: Duration = Duration::from_mins(1);

/// How the attempts to start a thread went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trying {
    #[default]
    NotYet,
    /// The last attempt failed then.
    Failed(Duration),
    Runs,
}

impl Trying {
    /// Tries when it is time to. The first failure is told, and that it is over.
    pub(super) fn look<E: Error + 'static>(
        &mut self,
        now: Duration,
        family: Family,
        start: impl FnOnce() -> Result<(), E>,
    ) {
        let is_due = match *self {
            Trying::NotYet => true,
            Trying::Failed(at) => now >= at + AGAIN,
            Trying::Runs => false,
        };
        if !is_due {
            return;
        }
        match (start(), *self) {
            (Ok(()), before) => {
                *self = Trying::Runs;
                if before != Trying::NotYet {
                    tracing::info!(%family, "the connection table can be gone through now");
                }
            }
            (Err(error), before) => {
                *self = Trying::Failed(now);
                if before == Trying::NotYet {
                    let error = cluster::chain(&error);
                    tracing::warn!(%family, %error, "stale connections stay; it is tried again every minute");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_thread_that_cannot_be_had_is_tried_again_after_a_minute_until_it_runs() {
        let mut trying = Trying::default();
        let mut tried = Vec::new();
        for second in 0..300 {
            trying.look(Duration::from_secs(second), Family::V4, || {
                tried.push(second);
                if second < 150 {
                    Err(io::Error::from(io::ErrorKind::WouldBlock))
                } else {
                    Ok(())
                }
            });
        }
        assert_eq!(tried, [0, 60, 120, 180]);
        assert_eq!(trying, Trying::Runs);
    }
}
