//! One family's way from "this changed" to "this is in the kernel". The families share nothing but the objects.
//!
//! ```text
//!            +-- reading needed --> Observe --answer--+
//!            |                                        v
//! changes -> take (paced) -> queue -> batch -> Commit --ok--> remember -> next batch ... in sync
//!                              ^                 |
//!                              +---- failed: doubt, read again, smaller steps, wait
//! ```

mod answer;
mod batching;
mod disturbed;

use crate::disturbance::{Disturbance, Extent};
use crate::event::{Effect, Report, RunKind, StepSize};
use crate::fault::{Fault, Seeded};
use crate::pace::{Backoff, Pace};
use crate::queue::{Item, Queue, Rank};
use crate::world::World;
use crate::{Backend, EngineConfig, Status};
use disturbed::Disturbed;
use iptables::diff::batch::Batch;
use iptables::diff::have::Have;
use iptables::diff::observe::Reading;
use iptables::plan::Step;
use model::Family;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// After so many failures in a row without a success, something is wrong that smaller steps don't find.
const FAILURES_BEFORE_WAITING: u32 = 8;

/// The loop of one family.
#[derive(Debug)]
pub(crate) struct FamilyLoop {
    family: Family,
    config: EngineConfig,
    have: Have,
    /// What must be read before anything is written.
    need: Need,
    /// Changes that no run has taken yet.
    changed: Changes,
    queue: Queue,
    run: Option<Run>,
    /// Items whose own step was refused, each of which waits by itself.
    troubled: BTreeMap<Item, Trouble>,
    /// A sweep waits until no item is troubled: what nobody wants is only known then.
    sweep_waits: bool,
    out: Option<Outstanding>,
    /// The rest of a batch that takes two steps.
    follow_up: Option<Box<Work>>,
    pace: Pace,
    backoff: Backoff,
    failures: Failures,
    /// How many services a step may have now: fewer after a refused step.
    step_limit: usize,
    /// The most it grows to again: fewer after a step was too large.
    step_most: usize,
    next_look: Duration,
    disturbed: Disturbed,
    /// What the reading under way is to verify.
    verifying: Option<Disturbance>,
    /// The generation at the last look.
    generation: Option<u32>,
    /// When the last full sync ended.
    last_full: Option<Duration>,
    reports: Vec<Report>,
    seeded: Seeded,
}

/// What must be read, the most of it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Nothing,
    /// The chains that tell whether somebody was at our rules.
    Look,
    /// The same, and the chains that somebody else touched.
    Verify,
    /// The same, and what a failed step touched.
    Doubted,
    /// All of it.
    Everything,
}

#[derive(Debug, Default)]
struct Changes {
    items: BTreeSet<Item>,
    /// When the oldest of them came.
    since: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    since: Duration,
    kind: RunKind,
}

#[derive(Clone, Copy, Debug)]
struct Trouble {
    failures: u32,
    retry_at: Duration,
    since: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    /// Of steps.
    steps: u32,
    /// Of readings.
    readings: u32,
    /// Since the last time that nothing was wrong.
    unrecovered: u32,
    blocked_until: Duration,
}

impl Failures {
    fn in_a_row(self) -> u32 {
        self.steps + self.readings
    }
}

/// What an answer is awaited for.
#[derive(Debug)]
enum Outstanding {
    Reading(Need),
    Commit(Box<Work>),
}

/// A batch on its way into the kernel.
#[derive(Debug)]
struct Work {
    batch: Batch,
    items: Vec<Item>,
    size: StepSize,
    /// A step that comes after the one that was sent.
    then: Option<Step>,
}

impl FamilyLoop {
    pub(crate) fn new(family: Family, config: &EngineConfig, seeded: Seeded) -> FamilyLoop {
        let first_wait = config.min_sync.max(Duration::from_secs(1));
        let need = if seeded.has(Fault::NothingAdopted) {
            Need::Nothing
        } else {
            Need::Everything
        };
        FamilyLoop {
            family,
            have: Have::new(family),
            need,
            changed: Changes::default(),
            queue: Queue::default(),
            run: None,
            troubled: BTreeMap::new(),
            sweep_waits: false,
            out: None,
            follow_up: None,
            pace: Pace::new(config.min_sync),
            backoff: Backoff::new(first_wait, config.sync_period.max(config.min_sync), config.seed),
            failures: Failures::default(),
            step_limit: config.step_services.max(1),
            step_most: config.step_services.max(1),
            next_look: Duration::ZERO,
            disturbed: Disturbed::default(),
            verifying: None,
            generation: None,
            last_full: None,
            reports: Vec::new(),
            config: config.clone(),
            seeded,
        }
    }

    /// Something changed, and waits for the next run.
    pub(crate) fn change(&mut self, items: impl IntoIterator<Item = Item>, now: Duration) {
        let before = self.changed.items.len();
        self.changed.items.extend(items);
        if self.changed.items.len() > before {
            self.changed.since.get_or_insert(now);
        }
    }

    /// Somebody else wrote into our tables.
    pub(crate) fn disturb(&mut self, disturbance: Disturbance, now: Duration) {
        self.disturbed.note(disturbance, now, self.config.sync_period);
    }

    /// What is to be done now, if anything. Nothing while an answer is awaited.
    pub(crate) fn next(&mut self, world: &World, now: Duration) -> Option<Effect> {
        if self.out.is_some() || now < self.failures.blocked_until {
            return None;
        }
        if let Some(effect) = self.follow_up() {
            return Some(effect);
        }
        self.ask_for_readings(now);
        if let Some(effect) = self.observe() {
            return Some(effect);
        }
        self.take(now);
        self.retry_troubled(now);
        let effect = self.commit(world);
        if effect.is_none() && self.queue.is_empty() {
            self.end_run(now);
        }
        effect
    }

    /// When [`FamilyLoop::next`] may have something without anything happening before; `None` while an answer is
    /// awaited.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        if self.out.is_some() {
            return None;
        }
        let busy = self.need != Need::Nothing || !self.queue.is_empty() || self.follow_up.is_some();
        if busy || self.run.is_some() {
            return Some(self.failures.blocked_until);
        }
        let changed = self.changed.since.map(|_| self.pace.earliest());
        let troubled = self.troubled.values().map(|trouble| trouble.retry_at).min();
        let times = [
            changed,
            troubled,
            Some(self.next_look),
            self.disturbed.at(),
            self.full_at(),
        ];
        let first = times.into_iter().flatten().min()?;
        Some(first.max(self.failures.blocked_until))
    }

    pub(crate) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    pub(crate) fn status(&self) -> Status {
        let troubled = self.troubled.values().map(|trouble| trouble.since).min();
        let run = self.run.map(|run| run.since);
        Status {
            pending_since: [self.changed.since, troubled, run].into_iter().flatten().min(),
            failures_in_a_row: self.failures.in_a_row(),
            last_full_sync: self.last_full,
            queued: self.queue.len() + self.changed.items.len(),
            refused: self.troubled.len(),
        }
    }

    fn full_at(&self) -> Option<Duration> {
        self.last_full.map(|last| last + self.config.full_sync)
    }

    fn follow_up(&mut self) -> Option<Effect> {
        let mut work = self.follow_up.take()?;
        let step = work.then.take()?;
        self.out = Some(Outstanding::Commit(work));
        Some(Effect::Commit(step))
    }

    /// Looks and full syncs that are due.
    fn ask_for_readings(&mut self, now: Duration) {
        if self.full_at().is_some_and(|at| at <= now) && !self.is_full_run() {
            self.need = Need::Everything;
        } else if self.next_look <= now {
            self.need = self.need.max(Need::Look);
        }
        if self.disturbed.at().is_some_and(|at| at <= now) {
            self.verify(now);
        }
    }

    /// What somebody else touched is read with the next reading.
    fn verify(&mut self, now: Duration) {
        if self.disturbed.extent() == Extent::Everything && self.run.is_some() {
            // A reading of everything begins its run anew.
            return;
        }
        let disturbance = self.disturbed.take(now);
        if self.need == Need::Everything && self.last_full.is_none() {
            // Nothing is known yet that could have been harmed.
            return;
        }
        self.need = self.need.max(match disturbance.extent {
            Extent::Suspects | Extent::Look => Need::Verify,
            Extent::Everything => Need::Everything,
        });
        self.verifying = Some(disturbance);
    }

    fn is_full_run(&self) -> bool {
        self.run.is_some_and(|run| run.kind == RunKind::Full)
    }

    fn observe(&mut self) -> Option<Effect> {
        let (reading, unless) = match self.need {
            Need::Nothing => return None,
            // All of a table is read there in any case, and nothing else tells of a rule that is lost in it.
            Need::Look if self.is_legacy() => (Reading::look_and(self.have.all_chains()), None),
            Need::Look => (Reading::look(), self.generation),
            Need::Verify | Need::Doubted => {
                let suspects = self.verifying.iter().flat_map(|verifying| &verifying.suspects);
                let chains = self.have.doubted_chains().chain(suspects.copied());
                (Reading::look_and(chains), None)
            }
            Need::Everything => (Reading::Everything, None),
        };
        self.out = Some(Outstanding::Reading(self.need));
        Some(Effect::Observe { reading, unless })
    }

    /// Takes what changed into a run, in one piece, when the least time since the last one is over.
    fn take(&mut self, now: Duration) {
        let Some(since) = self.changed.since else {
            return;
        };
        if now < self.pace.earliest() {
            return;
        }
        let Changes { items, .. } = std::mem::take(&mut self.changed);
        for item in items {
            let rank = answer::rank_of(&item);
            self.queue.push(rank, item);
        }
        self.begin_run(since, RunKind::Changes);
        self.pace.ended(now);
    }

    fn begin_run(&mut self, since: Duration, kind: RunKind) {
        self.run = Some(match self.run {
            Some(run) => Run {
                since: run.since.min(since),
                kind: run.kind.max(kind),
            },
            None => Run { since, kind },
        });
    }

    fn retry_troubled(&mut self, now: Duration) {
        for (item, trouble) in &self.troubled {
            if trouble.retry_at <= now {
                self.queue.push(Rank::Changed, item.clone());
            }
        }
        if !self.queue.is_empty() {
            let since = self.troubled.values().map(|trouble| trouble.since).min();
            self.begin_run(since.unwrap_or(now), RunKind::Changes);
        }
    }

    fn end_run(&mut self, now: Duration) {
        let Some(run) = self.run.take() else {
            return;
        };
        self.pace.ended(now);
        if run.kind == RunKind::Full {
            self.last_full = Some(now);
        }
        if self.troubled.is_empty() {
            self.reports.push(Report::InSync {
                family: self.family,
                since: run.since,
                run: run.kind,
            });
        }
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn distrust_chains(&mut self) {
        self.have.distrust_chains();
    }

    fn is_legacy(&self) -> bool {
        self.config.backend == Backend::Legacy
    }
}
