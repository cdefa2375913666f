//! When to look through the table.

use crate::Urgency;
use std::time::Duration;

/// Says when the next sweep is due. All times are since any fixed moment, the same for all calls.
///
/// A sweep comes at once after a change, but not sooner than `gap` after the one before; `period` after a good one
/// without any change; and after one that failed, or read an interrupted dump, `gap` doubled with each failure, up to
/// `period`.
#[derive(Clone, Debug)]
pub struct Pace {
    period: Duration,
    gap: Duration,
    ended: Option<Duration>,
    failures: u32,
    wanted: Option<Duration>,
}

impl Pace {
    /// The first sweep is due at once.
    pub fn new(period: Duration, gap: Duration) -> Self {
        Pace {
            period: period.max(gap),
            gap,
            ended: None,
            failures: 0,
            wanted: Some(Duration::ZERO),
        }
    }

    /// Something changed.
    pub fn changed(&mut self, urgency: Urgency, now: Duration) {
        if urgency == Urgency::Sweep {
            self.wanted.get_or_insert(now);
        }
    }

    /// When the next sweep is due.
    pub fn due_at(&self) -> Duration {
        let Some(ended) = self.ended else {
            return self.wanted.unwrap_or(self.period);
        };
        if self.failures > 0 {
            let doubled = self.gap.saturating_mul(1 << self.failures.min(16));
            return ended + doubled.min(self.period);
        }
        match self.wanted {
            Some(wanted) => wanted.max(ended + self.gap),
            None => ended + self.period,
        }
    }

    /// A sweep begins: it serves every change so far.
    pub fn began(&mut self) {
        self.wanted = None;
    }

    /// It went through the whole table.
    pub fn completed(&mut self, now: Duration) {
        self.failures = 0;
        self.ended = Some(now);
    }

    /// It did not.
    pub fn failed(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.ended = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn begun() -> Pace {
        let mut pace = Pace::new(secs(60), secs(1));
        assert_eq!(pace.due_at(), secs(0));
        pace.began();
        pace
    }

    #[test]
    fn without_changes_sweeps_are_a_period_apart() {
        let mut pace = begun();
        pace.completed(secs(5));
        pace.changed(Urgency::None, secs(6));
        assert_eq!(pace.due_at(), secs(65));
    }

    #[test]
    fn a_change_is_swept_for_at_once_but_many_are_swept_for_together() {
        let mut pace = begun();
        pace.completed(secs(5));
        pace.changed(Urgency::Sweep, secs(20));
        assert_eq!(pace.due_at(), secs(20));
        pace.began();
        pace.changed(Urgency::Sweep, secs(21));
        pace.changed(Urgency::Sweep, secs(22));
        pace.completed(secs(23));
        assert_eq!(pace.due_at(), secs(24));
    }

    #[test]
    fn a_failed_sweep_is_tried_again_ever_later_and_never_forgotten() {
        let mut pace = begun();
        let mut waits = Vec::new();
        for _ in 0..7 {
            pace.failed(secs(100));
            waits.push(pace.due_at().as_secs() - 100);
            pace.began();
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60]);
        pace.completed(secs(200));
        assert_eq!(pace.due_at(), secs(260));
    }
}
