//! Who waits after failures: an item that is refused by itself waits by itself, and everything waits when nothing would
//! go through.

use crate::EngineConfig;
use crate::event::{About, Cause, Failure, Report};
use crate::pace::Backoff;
use crate::queue::Item;
use model::Family;
use std::collections::BTreeMap;
use std::time::Duration;

/// After so many failures in a row without a success, something is wrong that smaller steps don't find.
const FAILURES_BEFORE_WAITING: u32 = 8;

/// One family's failures.
#[derive(Debug)]
pub(crate) struct Failures {
    family: Family,
    /// Steps that failed, none of them after a success.
    steps: u32,
    /// Readings that failed, none of them after a success.
    readings: u32,
    /// Since the last time that nothing was wrong.
    unrecovered: u32,
    blocked_until: Duration,
    /// Items whose own step was refused, each of which waits by itself.
    troubled: BTreeMap<Item, Trouble>,
    backoff: Backoff,
}

#[derive(Clone, Copy, Debug)]
struct Trouble {
    failures: u32,
    retry_at: Duration,
    since: Duration,
}

/// When an item in trouble is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// As another step than the one that was refused.
    AtOnce,
    /// Later each time.
    AfterAWait,
}

impl Failures {
    pub(crate) fn new(family: Family, config: &EngineConfig) -> Failures {
        let first_wait = config.min_sync.max(Duration::from_secs(1));
        Failures {
            family,
            steps: 0,
            readings: 0,
            unrecovered: 0,
            blocked_until: Duration::ZERO,
            troubled: BTreeMap::new(),
            backoff: Backoff::new(first_wait, config.sync_period.max(config.min_sync), config.seed),
        }
    }

    /// Steps that failed in a row.
    pub(crate) fn steps(&self) -> u32 {
        self.steps
    }

    /// Steps and readings that failed in a row.
    pub(crate) fn in_a_row(&self) -> u32 {
        self.steps + self.readings
    }

    /// Until when nothing is tried at all.
    pub(crate) fn blocked_until(&self) -> Duration {
        self.blocked_until
    }

    /// Has nothing be tried before this time.
    pub(crate) fn block(&mut self, until: Duration) {
        self.blocked_until = until;
    }

    /// What is in trouble.
    pub(crate) fn troubled(&self) -> impl ExactSizeIterator<Item = &Item> {
        self.troubled.keys()
    }

    /// Whether nothing is in trouble.
    pub(crate) fn has_no_trouble(&self) -> bool {
        self.troubled.is_empty()
    }

    /// Whether this item is in trouble.
    pub(crate) fn is_troubled(&self, item: &Item) -> bool {
        self.troubled.contains_key(item)
    }

    /// Whether this item is in trouble and its time has not come.
    pub(crate) fn is_waiting(&self, item: &Item, now: Duration) -> bool {
        self.troubled
            .get(item)
            .is_some_and(|trouble| trouble.retry_at > now)
    }

    /// The items in trouble whose time has come, and since when each of them waits for the kernel.
    pub(crate) fn due(&self, now: Duration) -> impl Iterator<Item = (&Item, Duration)> {
        let due = self
            .troubled
            .iter()
            .filter(move |(_, trouble)| trouble.retry_at <= now);
        due.map(|(item, trouble)| (item, trouble.since))
    }

    /// When the first item in trouble is tried again.
    pub(crate) fn retry_at(&self) -> Option<Duration> {
        self.troubled.values().map(|trouble| trouble.retry_at).min()
    }

    /// Since when the oldest of the items in trouble waits for the kernel.
    pub(crate) fn troubled_since(&self) -> Option<Duration> {
        self.troubled.values().map(|trouble| trouble.since).min()
    }

    /// An item was refused by itself. `since`: when it came, if it was in no trouble before.
    pub(crate) fn trouble(&mut self, item: Item, since: Duration, retry: Retry, now: Duration) {
        let before = self.troubled.get(&item);
        let failures = before.map_or(0, |trouble| trouble.failures) + 1;
        let since = before.map_or(since, |trouble| trouble.since);
        let retry_at = match retry {
            Retry::AtOnce => now,
            Retry::AfterAWait => now + self.backoff.wait(failures),
        };
        let trouble = Trouble {
            failures,
            retry_at,
            since,
        };
        self.troubled.insert(item, trouble);
    }

    /// An item is as it is wanted. Says whether it was the last one in trouble.
    pub(crate) fn settled(&mut self, item: &Item) -> bool {
        self.troubled.remove(item).is_some() && self.troubled.is_empty()
    }

    /// Counts a failure, and decides who waits for how long. What is in trouble for it has to be known by then.
    pub(crate) fn failed(&mut self, failure: Failure, about: About, now: Duration) -> Report {
        self.unrecovered += 1;
        let count = if about == About::Reading {
            &mut self.readings
        } else {
            &mut self.steps
        };
        *count += 1;
        let waits = match failure.cause {
            // The tools wait for the lock by themselves, and longer waits here would only come after its end.
            Cause::Busy => 1,
            Cause::Content | Cause::Size if about != About::Reading => {
                count.saturating_sub(FAILURES_BEFORE_WAITING)
            }
            Cause::Host | Cause::Content | Cause::Size => *count,
        };
        let trouble = match &about {
            About::Service(name) => self.troubled.get(&Item::Service(name.clone())).copied(),
            About::Reading | About::Step => None,
        };
        // A service that is refused again waits by itself, and is no sign that anything else would fail.
        let again = trouble.is_some_and(|trouble| trouble.failures > 1);
        if waits > 0 && !again {
            self.blocked_until = self.blocked_until.max(now + self.backoff.wait(waits));
        }
        let retry_at = match &about {
            About::Service(_) => trouble.map_or(now, |trouble| trouble.retry_at),
            About::Reading | About::Step => self.blocked_until.max(now),
        };
        Report::Failed {
            family: self.family,
            failure,
            in_a_row: self.in_a_row(),
            about,
            retry_at,
        }
    }

    /// The kernel took a step, or what failed steps were about needs none any more.
    pub(crate) fn step_worked(&mut self) -> Option<Report> {
        self.steps = 0;
        self.recovered()
    }

    /// A reading came.
    pub(crate) fn reading_worked(&mut self) -> Option<Report> {
        self.readings = 0;
        self.recovered()
    }

    /// A success: no trace of failures is left, except with items that are still in trouble.
    fn recovered(&mut self) -> Option<Report> {
        let nothing_wrong = self.in_a_row() == 0 && self.troubled.is_empty();
        (nothing_wrong && self.unrecovered > 0).then(|| Report::Recovered {
            family: self.family,
            after: std::mem::take(&mut self.unrecovered),
        })
    }
}
