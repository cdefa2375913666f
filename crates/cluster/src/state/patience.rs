//! How long the API server is waited for at start.
//!
//! A refused connection says at once that nobody is there; a silent network says nothing, and a slow server is still
//! better than the file. After that the file is looked for, and looked for again while it is of no use.

use super::StateTiming;
use crate::{Health, SourceEvent};
use std::time::Duration;
use tokio::time::Instant;

/// When to look for the file.
#[derive(Debug)]
pub(super) struct Patience {
    timing: StateTiming,
    due: Instant,
    longest: Instant,
    again: Duration,
    failed: bool,
}

impl Patience {
    pub(super) fn new(timing: StateTiming, start: Instant) -> Patience {
        Patience {
            due: start + timing.silent.min(timing.slow),
            longest: start + timing.slow,
            again: timing.look_again.0,
            timing,
            failed: false,
        }
    }

    /// The source said something. `is_list`: a part of a list that is still waited for.
    pub(super) fn heard(&mut self, event: &SourceEvent, is_list: bool, now: Instant) {
        match event {
            SourceEvent::Health(_, Health::Failing { .. }) if !self.failed => {
                self.failed = true;
                self.due = self.due.min(now + self.timing.after_failure);
            }
            SourceEvent::Change(_) | SourceEvent::Synced(_) if is_list => {
                self.due = self.due.max(now + self.timing.silent).min(self.longest);
            }
            _ => {}
        }
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// The file was of no use. To look costs reading rules, so it is done less and less often.
    pub(super) fn look_again(&mut self, now: Instant) {
        self.due = now + self.again;
        self.longest = self.due;
        self.again = (self.again * 2).min(self.timing.look_again.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::object::{Kind, ObjectRef};
    use model::snapshot::Change;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn failing() -> SourceEvent {
        let health = Health::Failing {
            error: "connection refused".to_owned(),
            failures: 1,
            since: Duration::ZERO,
        };
        SourceEvent::Health(Kind::Service, health)
    }

    fn object() -> SourceEvent {
        SourceEvent::Change(Change::Delete(ObjectRef::Node("n".into())))
    }

    #[test]
    fn a_server_that_refuses_is_given_up_sooner_than_a_silent_one() {
        let start = Instant::now();
        let mut patience = Patience::new(StateTiming::default(), start);
        assert_eq!(patience.due(), start + secs(10));
        patience.heard(&failing(), false, start + secs(1));
        assert_eq!(patience.due(), start + secs(4));
        patience.heard(&failing(), false, start + secs(2));
        assert_eq!(patience.due(), start + secs(4), "only the first failure counts");
    }

    #[test]
    fn a_server_that_sends_objects_is_waited_for_but_not_for_ever() {
        let start = Instant::now();
        let mut patience = Patience::new(StateTiming::default(), start);
        patience.heard(&object(), true, start + secs(9));
        assert_eq!(patience.due(), start + secs(19));
        patience.heard(&object(), false, start + secs(18));
        assert_eq!(
            patience.due(),
            start + secs(19),
            "a list that is known already is no sign"
        );
        patience.heard(&object(), true, start + secs(25));
        assert_eq!(patience.due(), start + secs(30));
    }

    #[test]
    fn a_file_of_no_use_is_looked_for_again_whatever_the_server_says() {
        let start = Instant::now();
        let mut patience = Patience::new(StateTiming::default(), start);
        patience.look_again(start + secs(30));
        assert_eq!(patience.due(), start + secs(40));
        patience.heard(&object(), true, start + secs(39));
        assert_eq!(patience.due(), start + secs(40));
        patience.look_again(start + secs(40));
        assert_eq!(patience.due(), start + secs(60), "less and less often");
        for _ in 0..10 {
            patience.look_again(start + secs(100));
        }
        assert_eq!(patience.due(), start + secs(160));
    }
}
