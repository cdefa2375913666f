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
    /// For new lists: a server that says 410 is up, so its long outage before must not delay the list.
    lists: Backoff,
    told: Told,
    first: Option<Instant>,
    failures: u32,
    error: String,
    /// How far into the outage it is said again.
    say_at: Duration,
    say_first: Duration,
}

impl Outage {
    /// No failures yet. The waits go from the first to the second duration. An outage is said when it begins, once
    /// it has lasted for `remind`, and then for each doubling of that time.
    pub(crate) fn new(waits: (Duration, Duration), remind: Duration) -> Self {
        Outage {
            backoff: Backoff::new(waits.0, waits.1),
            lists: Backoff::new(waits.0, waits.1),
            told: Told::Nothing,
            first: None,
            failures: 0,
            error: String::new(),
            say_at: remind,
            say_first: remind,
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
        self.lists.reset();
        self.first = None;
        self.failures = 0;
        self.error.clear();
        self.say_at = self.say_first;
    }

    /// The wait before a new list that the server asked for. It grows when one list leads to the next.
    pub(crate) fn before_list(&mut self) -> Duration {
        self.lists.fail()
    }

    /// Counts one failure: how long to wait, and what to say, if anything.
    pub(crate) fn fail(&mut self, error: String, now: Instant) -> (Duration, Option<Health>) {
        let first = *self.first.get_or_insert(now);
        self.failures = self.failures.saturating_add(1);
        let since = now.saturating_duration_since(first);
        let news = error != self.error || since >= self.say_at;
        while since >= self.say_at && !self.say_at.is_zero() {
            self.say_at *= 2;
        }
        self.error.clone_from(&error);
        let health = news.then(|| {
            self.told = Told::Failing;
            Health::Failing {
                error,
                failures: self.failures,
                since,
            }
        });
        (self.backoff.fail(), health)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(2));

    #[test]
    fn a_long_outage_is_a_few_lines() {
        let mut outage = Outage::new(WAITS, Duration::from_secs(10));
        let begun = Instant::now();
        let said: Vec<u64> = (0..3600)
            .filter_map(|second| {
                let now = begun + Duration::from_secs(second);
                match outage.fail("connection refused".to_owned(), now).1 {
                    Some(Health::Failing { since, .. }) => Some(since.as_secs()),
                    _ => None,
                }
            })
            .collect();
        assert_eq!(said, [0, 10, 20, 40, 80, 160, 320, 640, 1280, 2560]);
    }

    #[test]
    fn a_new_reason_is_said_at_once() {
        let mut outage = Outage::new(WAITS, Duration::from_secs(10));
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

    #[test]
    fn a_long_outage_does_not_delay_the_list_after_it() {
        let mut outage = Outage::new(
            (Duration::from_millis(1), Duration::from_secs(30)),
            Duration::from_secs(10),
        );
        for _ in 0..100 {
            outage.fail("connection refused".to_owned(), Instant::now());
        }
        assert!(outage.before_list() <= Duration::from_millis(1));
    }
}
