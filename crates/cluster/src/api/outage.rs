//! Failures in a row: how long to wait, and which of them are worth saying.

use super::pace::Backoff;
use crate::Health;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// Whether the listener believes that the watch works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Connected,
    Failing,
}

/// So many reasons of one outage are said at once.
const REASONS: usize = 8;

/// Failures in a row of one thing, and when to speak of them: at the first, at every reason not said before, once it
/// has lasted for a while, and then for each doubling of that time.
#[derive(Clone, Debug)]
pub(crate) struct Saying {
    first: Option<Instant>,
    failures: u32,
    /// Reasons said. A server behind a proxy fails in two or three ways by turns.
    said: Vec<String>,
    /// How far into the outage it is said again.
    say_at: Duration,
    say_first: Duration,
}

impl Saying {
    /// No failures yet.
    pub(crate) fn new(remind: Duration) -> Self {
        Saying {
            first: None,
            failures: 0,
            said: Vec::new(),
            say_at: remind,
            say_first: remind,
        }
    }

    /// Counts one failure: what to say, if anything.
    fn fail(&mut self, error: String, now: Instant) -> Option<Health> {
        let first = *self.first.get_or_insert(now);
        self.failures = self.failures.saturating_add(1);
        let since = now.saturating_duration_since(first);
        let is_new = !self.said.contains(&error) && self.said.len() < REASONS;
        let news = is_new || since >= self.say_at;
        while since >= self.say_at && !self.say_at.is_zero() {
            self.say_at *= 2;
        }
        if is_new {
            self.said.push(error.clone());
        }
        news.then_some(Health::Failing {
            error,
            failures: self.failures,
            since,
        })
    }

    /// It has worked.
    fn over(&mut self) {
        *self = Saying::new(self.say_first);
    }

    /// A watch that began at `live_since` has worked for a good while: failures before it are over, and younger ones
    /// are not, since the watches of one server end at different times.
    pub(crate) fn over_before(&mut self, live_since: Instant) {
        if self.first.is_some_and(|first| first <= live_since) {
            self.over();
        }
    }
}

/// The failures of one watch since it last worked.
#[derive(Debug)]
pub(crate) struct Outage {
    backoff: Backoff,
    /// For new lists: a server that says 410 is up, so its long outage before must not delay the list.
    lists: Backoff,
    told: Told,
    own: Saying,
    woken: bool,
    /// Held by the one watch of a server that looks out for it.
    lookout: Option<OwnedMutexGuard<()>>,
}

impl Outage {
    /// No failures yet. The waits go from the first to the second duration. An outage is said when it begins, once
    /// it has lasted for `remind`, and then for each doubling of that time.
    pub(crate) fn new(waits: (Duration, Duration), remind: Duration) -> Self {
        Outage {
            backoff: Backoff::new(waits.0, waits.1),
            lists: Backoff::new(waits.0, waits.1),
            told: Told::Nothing,
            own: Saying::new(remind),
            woken: false,
            lookout: None,
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
        self.own.over();
        self.woken = false;
    }

    /// The wait before a new list that the server asked for. It grows when one list leads to the next.
    pub(crate) fn before_list(&mut self) -> Duration {
        self.lists.fail()
    }

    /// Counts one failure of this watch alone: how long to wait, and what to say, if anything.
    pub(crate) fn fail(&mut self, error: String, now: Instant) -> (Duration, Option<Health>) {
        let health = self.own.fail(error, now);
        self.after(health)
    }

    /// Counts one failure of the server that all its watches share: it is said once and not by each of them.
    pub(crate) fn fail_with_all(
        &mut self,
        all: &mut Saying,
        error: String,
        now: Instant,
    ) -> (Duration, Option<Health>) {
        let health = all.fail(error, now);
        self.after(health)
    }

    fn after(&mut self, health: Option<Health>) -> (Duration, Option<Health>) {
        if health.is_some() {
            self.told = Told::Failing;
        }
        (self.backoff.fail(), health)
    }

    /// Whether the wait may end early because another watch got through. Once an outage: watches of a server that
    /// cuts every connection would wake each other without end.
    pub(crate) fn may_be_woken(&self) -> bool {
        !self.woken
    }

    /// The wait ended early. What is in the way now is not what was: the waits begin anew.
    pub(crate) fn woken(&mut self) {
        self.woken = true;
        self.backoff.reset();
    }

    /// This watch looks out for the server, for as long as it holds the guard.
    pub(crate) fn look_out(&mut self, guard: OwnedMutexGuard<()>) {
        self.lookout = Some(guard);
    }

    /// Whether this watch looks out for the server.
    pub(crate) fn looks_out(&self) -> bool {
        self.lookout.is_some()
    }

    /// The server is there again, be it with an error: nobody needs to look out. Whether this watch did. Its waits
    /// begin anew, since a server that has just come up says no for seconds and not for minutes.
    pub(crate) fn seen(&mut self) -> bool {
        let did = self.lookout.take().is_some();
        if did {
            self.backoff.reset();
        }
        did
    }

    /// How long the lookout waits: always as after a first failure.
    pub(crate) fn soon(&self) -> Duration {
        self.backoff.shortest()
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

    #[test]
    fn reasons_by_turns_are_said_once_each() {
        let mut outage = Outage::new(WAITS, Duration::from_secs(10));
        let now = Instant::now();
        let said = (0..20)
            .filter(|turn| outage.fail(format!("reason {}", turn % 2), now).1.is_some())
            .count();
        assert_eq!(said, 2);
    }

    #[test]
    fn what_all_watches_share_is_said_by_one_of_them() {
        let mut all = Saying::new(Duration::from_secs(10));
        let mut outages: Vec<Outage> = (0..4)
            .map(|_| Outage::new(WAITS, Duration::from_secs(10)))
            .collect();
        let begun = Instant::now();
        let mut said = Vec::new();
        for second in 0..15 {
            for (watch, outage) in outages.iter_mut().enumerate() {
                let now = begun + Duration::from_secs(second);
                let (_, health) = outage.fail_with_all(&mut all, "refused".to_owned(), now);
                said.extend(health.map(|_| (second, watch)));
            }
        }
        assert_eq!(said, [(0, 0), (10, 0)]);
        assert!(
            outages[0].connected(),
            "who said that it fails says that it works"
        );
    }

    #[test]
    fn an_outage_is_over_only_for_a_watch_that_began_after_it() {
        let (mut all, mut outage) = (
            Saying::new(Duration::from_secs(10)),
            Outage::new(WAITS, Duration::from_secs(10)),
        );
        let begun = Instant::now();
        let mut said = |all: &mut Saying, second| {
            let now = begun + Duration::from_secs(second);
            outage.fail_with_all(all, "refused".to_owned(), now).1.is_some()
        };
        assert!(said(&mut all, 1));
        all.over_before(begun);
        assert!(!said(&mut all, 2));
        all.over_before(begun + Duration::from_secs(3));
        assert!(said(&mut all, 4));
    }

    #[test]
    fn a_wait_ends_early_once_an_outage() {
        let mut outage = Outage::new(WAITS, Duration::from_secs(10));
        assert!(outage.may_be_woken());
        outage.woken();
        assert!(!outage.may_be_woken());
        outage.over();
        assert!(outage.may_be_woken());
    }
}
