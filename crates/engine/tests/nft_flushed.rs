//! The whole table is flushed again and again in nftables mode, in the middle of our own steps too.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use engine::{Event, Foreign, ForeignExtent, Report};
use kernel::fake::FakeTables;
use model::Family;
use std::time::Duration;
use support::cluster::Cluster;
use support::own_table::OwnTableRig;

const MS: Duration = Duration::from_millis(1);

/// Enough for a rebuild that takes longer than from one flush to the next.
fn many_services() -> Cluster {
    let mut cluster = Cluster::new(7);
    while cluster.services.len() < 80 {
        cluster.add_service();
        cluster.add_slice();
    }
    cluster
}

/// Somebody flushes IPv4, of which the kernel tells a little later.
struct Flusher {
    rig: OwnTableRig,
    /// When the kernel tells of flushes that it has not told of.
    untold: Vec<Duration>,
}

impl Flusher {
    fn flush(&mut self, told_after: Duration) {
        if self.rig.tables.table_mut(Family::V4).take().is_some() {
            self.untold.push(self.rig.now + told_after);
        }
    }

    /// Lets the time go by, looking after each effect.
    fn go_on(&mut self, until: Duration) {
        while self.rig.now < until {
            while self.untold.first().is_some_and(|at| *at <= self.rig.now) {
                self.untold.remove(0);
                let gone = Foreign {
                    extent: ForeignExtent::Gone,
                    ..Foreign::default()
                };
                let event = Event::NftDisturbed(Family::V4, gone);
                self.rig.engine.handle(event, self.rig.now);
            }
            if self.rig.effects(1) == 0 {
                self.rig.now += 10 * MS;
            }
            self.look();
        }
    }

    /// A table that is known to be missing is pending, and nothing says that all is well.
    fn look(&mut self) {
        let is_missing = self.rig.tables.table(Family::V4).is_none();
        let reports = std::mem::take(&mut self.rig.reports);
        if !is_missing || !self.untold.is_empty() {
            return;
        }
        let status = self.rig.engine.status(Family::V4).unwrap();
        assert!(status.pending_since.is_some(), "at {:?}", self.rig.now);
        let in_sync = |report: &Report| {
            matches!(
                report,
                Report::InSync {
                    family: Family::V4,
                    ..
                }
            )
        };
        assert!(!reports.iter().any(in_sync), "at {:?}", self.rig.now);
    }
}

#[test]
fn a_table_that_is_flushed_all_the_time_is_pending_and_is_back_seconds_after_the_last_flush() {
    for (apart, told_after) in [(70, 0), (70, 45), (100, 60), (130, 60), (200, 90), (70, 300)] {
        let (apart, told_after) = (apart * MS, told_after * MS);
        let cluster = many_services();
        let mut rig = OwnTableRig::new(FakeTables::default(), &cluster);
        rig.settle().unwrap();
        let begun = rig.now;
        rig.reports.clear();
        let mut flusher = Flusher {
            rig,
            untold: Vec::new(),
        };
        for n in 1..=5_000 / u32::try_from(apart.as_millis()).unwrap() {
            flusher.flush(told_after);
            flusher.go_on(begun + apart * n);
        }
        // Five repairs within a second, then waits of 1, 2 and 4 s: the last is over 8 s after the first flush.
        flusher.go_on(begun + Duration::from_secs(11));
        flusher
            .rig
            .compare(&cluster)
            .unwrap_or_else(|error| panic!("{apart:?} apart, told after {told_after:?}: {error}"));
    }
}
