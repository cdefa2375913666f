//! Failures in a row: how long to wait, and which of them are worth saying.

use super::pace::Backoff;
use crate::Health;
use std::time::Duration;
use tokio::time::Instant;

/// Whether the listener believes that the watch works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Connected,
    Failing,
}

/// The failures of one watch since it last worked.
#[derive(Debug)]
pub(crate) struct Outage {
    backoff: Backoff,
    told: Told,
    first: Option<Instant>,
    failures: u32,
    error: String,
}

impl Outage {
    /// No failures yet. The waits go from the first to the second duration.
    pub(crate) fn new(waits: (Duration, Duration)) -> Self {
        Outage {
            backoff: Backoff::new(waits.0, waits.1),
            told: Told::Nothing,
            first: None,
            failures: 0,
            error: String::new(),
        }
    }

    /// The watch is open. Whether the listener does not know that yet.
    pub(crate) fn connected(&mut self) -> bool {
        let news = self.told != Told::Connected;
        self.told = Told::Connected;
        news
    }

    /// The watch has worked for a good while.
    pub(crate) fn over(&mut self) {
        self.backoff.reset();
        self.first = None;
        self.failures = 0;
        self.error.clear();
    }

    /// The wait after something that is no failure, but should not be repeated at once either.
    pub(crate) fn pause(&mut self) -> Duration {
        self.backoff.fail()
    }

    /// Counts one failure: how long to wait, and what to say, if anything.
    pub(crate) fn fail(&mut self, error: String, now: Instant) -> (Duration, Option<Health>) {
        let first = *self.first.get_or_insert(now);
        self.failures = self.failures.saturating_add(1);
        let news = error != self.error || self.failures.is_power_of_two();
        self.error.clone_from(&error);
        let health = news.then(|| {
            self.told = Told::Failing;
            Health::Failing {
                error,
                failures: self.failures,
                since: now.saturating_duration_since(first),
            }
        });
        (self.backoff.fail(), health)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_outage_is_a_few_lines() {
        let mut outage = Outage::new((Duration::from_millis(1), Duration::from_millis(2)));
        let now = Instant::now();
        let said: Vec<u32> = (0..1000)
            .filter_map(|_| match outage.fail("connection refused".to_owned(), now).1 {
                Some(Health::Failing { failures, .. }) => Some(failures),
                _ => None,
            })
            .collect();
        assert_eq!(said, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
    }

    #[test]
    fn a_new_reason_is_said_at_once() {
        let mut outage = Outage::new((Duration::from_millis(1), Duration::from_millis(2)));
        let now = Instant::now();
        for _ in 0..3 {
            outage.fail("connection refused".to_owned(), now);
        }
        assert!(
            outage
                .fail("503 starting".to_owned(), now)
                .1
                .is_some_and(|health| matches!(health, Health::Failing { failures: 4, .. }))
        );
        assert!(outage.connected());
        assert!(!outage.connected());
        outage.over();
        assert!(matches!(
            outage.fail("503 starting".to_owned(), now).1,
            Some(Health::Failing { failures: 1, .. })
        ));
    }
}
