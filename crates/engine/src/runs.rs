//! What waits, and the run that is under way: changes wait until a run takes them, and a run ends when all is done.

use crate::EngineConfig;
use crate::event::{Report, RunKind};
use crate::pace::Pace;
use crate::queue::{Item, Queue, Rank};
use crate::world::World;
use model::Family;
use std::collections::BTreeMap;
use std::time::Duration;

/// One family's changes and run.
#[derive(Debug)]
pub(crate) struct Runs {
    family: Family,
    /// What the run has still to do.
    pub(crate) queue: Queue,
    /// Changes that no run has taken yet, each with its place among the others.
    changed: BTreeMap<Item, Rank>,
    /// When the oldest of them came.
    changed_since: Option<Duration>,
    run: Option<Run>,
    /// Whether it has written anything.
    wrote: bool,
    pace: Pace,
    full_sync: Duration,
    /// When the last full sync ended.
    last_full: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    since: Duration,
    kind: RunKind,
}

impl Runs {
    pub(crate) fn new(family: Family, config: &EngineConfig) -> Runs {
        Runs {
            family,
            queue: Queue::default(),
            changed: BTreeMap::new(),
            changed_since: None,
            run: None,
            wrote: false,
            pace: Pace::new(config.min_sync),
            full_sync: config.full_sync,
            last_full: None,
        }
    }

    /// Adds an item to what waits for the next run, or moves it forward there.
    pub(crate) fn change(&mut self, rank: Rank, item: Item, now: Duration) {
        let known = self.changed.entry(item).or_insert(rank);
        *known = rank.min(*known);
        self.changed_since.get_or_insert(now);
    }

    /// Takes what changed into a run, in one piece, when the least time since the last one is over.
    pub(crate) fn take_changes(&mut self, now: Duration) {
        if now < self.pace.earliest() {
            return;
        }
        let Some(since) = self.changed_since.take() else {
            return;
        };
        for (item, rank) in std::mem::take(&mut self.changed) {
            self.queue.push(rank, item);
        }
        if self.run.is_some() {
            // No more of them join the run that is under way for a while.
            self.pace.ended(now);
        }
        self.begin(since, RunKind::Changes);
    }

    /// The run under way writes something, so that the next one has to wait. A run that finds nothing to write delays none:
    /// the slice of a Service that comes just before it, say.
    pub(crate) fn writes(&mut self) {
        self.wrote = true;
    }

    /// Begins a run, or has the one that is under way be of this kind as well.
    pub(crate) fn begin(&mut self, since: Duration, kind: RunKind) {
        self.run = Some(match self.run {
            Some(run) => Run {
                since: run.since.min(since),
                kind: run.kind.max(kind),
            },
            None => Run { since, kind },
        });
    }

    /// Begins a run that settles everything.
    pub(crate) fn begin_full(&mut self, world: &World, now: Duration) {
        let mut since = now;
        if self.last_full.is_none() {
            // All that came before the first sync is in it, and none of it comes before the rest.
            since = self.drop_changes().unwrap_or(now);
        }
        self.begin(since, RunKind::Full);
        self.queue.push(Rank::Node, Item::Node);
        for name in world.services() {
            self.queue.push(world.rank(name), Item::Service(name.clone()));
        }
        self.queue.push(Rank::Sweep, Item::Sweep);
    }

    /// Forgets the changes that no run has taken; says since when there were some.
    pub(crate) fn drop_changes(&mut self) -> Option<Duration> {
        self.changed.clear();
        self.changed_since.take()
    }

    /// Ends the run that is under way once nothing is left of it. Says what is to be told if nothing is in trouble.
    pub(crate) fn end(&mut self, now: Duration) -> Option<Report> {
        if !self.queue.is_empty() {
            return None;
        }
        let run = self.run.take()?;
        if std::mem::take(&mut self.wrote) {
            self.pace.ended(now);
        }
        if run.kind == RunKind::Full {
            self.last_full = Some(now);
        }
        Some(Report::InSync {
            family: self.family,
            since: run.since,
            run: run.kind,
        })
    }

    /// Whether something is left to do at once.
    pub(crate) fn is_busy(&self) -> bool {
        !self.queue.is_empty() || self.run.is_some()
    }

    /// When the run under way had its first reason.
    pub(crate) fn since(&self) -> Option<Duration> {
        self.run.map(|run| run.since)
    }

    /// When the oldest change came that is not in the kernel.
    pub(crate) fn pending_since(&self) -> Option<Duration> {
        self.changed_since.into_iter().chain(self.since()).min()
    }

    /// How many items wait or are left to do.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len() + self.changed.len()
    }

    /// When the next run may take what changed; `None` when nothing did.
    pub(crate) fn changes_due(&self) -> Option<Duration> {
        self.changed_since.map(|_| self.pace.earliest())
    }

    /// When the last full sync ended; `None` before the first.
    pub(crate) fn last_full(&self) -> Option<Duration> {
        self.last_full
    }

    /// When the next full sync is due; `None` before the first.
    pub(crate) fn full_at(&self) -> Option<Duration> {
        self.last_full.map(|last| last + self.full_sync)
    }

    /// Whether a full sync is due that is not under way.
    pub(crate) fn is_full_due(&self, now: Duration) -> bool {
        let under_way = self.run.is_some_and(|run| run.kind == RunKind::Full);
        self.full_at().is_some_and(|at| at <= now) && !under_way
    }
}
