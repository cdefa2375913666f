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
pub(crate) mod disturbed;

use crate::disturbance::{Disturbance, Extent};
use crate::event::{Effect, Report, RunKind, StepSize};
use crate::failures::Failures;
use crate::fault::{Fault, Seeded};
use crate::queue::{Item, Rank};
use crate::runs::Runs;
use crate::world::World;
use crate::{Backend, EngineConfig, Status};
use disturbed::Disturbed;
use iptables::diff::batch::Batch;
use iptables::diff::have::Have;
use iptables::diff::observe::Reading;
use iptables::plan::Step;
use model::{Family, ServiceName};
use std::time::Duration;

/// The loop of one family.
#[derive(Debug)]
pub(crate) struct FamilyLoop {
    family: Family,
    config: EngineConfig,
    have: Have,
    /// What must be read before anything is written.
    need: Need,
    runs: Runs,
    failures: Failures,
    /// A sweep waits until no item is troubled: what nobody wants is only known then.
    sweep_waits: bool,
    out: Option<Outstanding>,
    /// The rest of a batch that takes two steps.
    follow_up: Option<Box<Work>>,
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
        let need = if seeded.has(Fault::NothingAdopted) {
            Need::Nothing
        } else {
            Need::Everything
        };
        FamilyLoop {
            family,
            have: Have::new(family),
            need,
            runs: Runs::new(family, config),
            failures: Failures::new(family, config),
            sweep_waits: false,
            out: None,
            follow_up: None,
            step_limit: config.step_services.max(1),
            step_most: config.step_services.max(1),
            next_look: Duration::ZERO,
            disturbed: Disturbed::new(config.seed),
            verifying: None,
            generation: None,
            reports: Vec::new(),
            config: config.clone(),
            seeded,
        }
    }

    /// Something changed, and waits for the next run.
    pub(crate) fn change(&mut self, items: impl IntoIterator<Item = Item>, now: Duration) {
        for item in items {
            self.runs.change(item.rank(), item, now);
        }
    }

    /// Services may be concerned by what is not theirs, such as the node's zone. They wait like others, and are settled
    /// behind those that changed themselves.
    pub(crate) fn reconsider(&mut self, services: impl Iterator<Item = (Rank, ServiceName)>, now: Duration) {
        for (rank, name) in services {
            self.runs.change(rank, Item::Service(name), now);
        }
    }

    /// What the kernel refuses by itself.
    pub(crate) fn refused(&self) -> impl Iterator<Item = &Item> {
        self.failures.troubled()
    }

    /// Somebody else wrote into our tables.
    pub(crate) fn disturb(&mut self, disturbance: Disturbance, now: Duration) {
        self.disturbed.note(disturbance, now, self.config.sync_period);
    }

    /// What is to be done now, if anything. Nothing while an answer is awaited.
    pub(crate) fn next(&mut self, world: &World, now: Duration) -> Option<Effect> {
        if self.out.is_some() || now < self.failures.blocked_until() {
            return None;
        }
        if let Some(effect) = self.follow_up() {
            return Some(effect);
        }
        self.ask_for_readings(now);
        if let Some(effect) = self.observe() {
            return Some(effect);
        }
        self.runs.take_changes(now);
        self.retry_troubled(now);
        let effect = self.commit(world);
        if effect.is_none() {
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
        if self.need != Need::Nothing || self.runs.is_busy() || self.follow_up.is_some() {
            return Some(self.failures.blocked_until());
        }
        let times = [
            self.runs.changes_due(),
            self.failures.retry_at(),
            Some(self.next_look),
            self.disturbed.at(),
            self.runs.full_at(),
        ];
        let first = times.into_iter().flatten().min()?;
        Some(first.max(self.failures.blocked_until()))
    }

    pub(crate) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    pub(crate) fn status(&self) -> Status {
        let pending = self.runs.pending_since().into_iter();
        Status {
            pending_since: pending.chain(self.failures.troubled_since()).min(),
            failures_in_a_row: self.failures.in_a_row(),
            last_full_sync: self.runs.last_full(),
            queued: self.runs.queued(),
            refused: self.failures.troubled().len(),
            rules: self.have.rules(),
        }
    }

    fn follow_up(&mut self) -> Option<Effect> {
        let mut work = self.follow_up.take()?;
        let step = work.then.take()?;
        self.out = Some(Outstanding::Commit(work));
        Some(Effect::Commit(step))
    }

    /// Looks and full syncs that are due.
    fn ask_for_readings(&mut self, now: Duration) {
        if self.runs.is_full_due(now) {
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
        if self.disturbed.extent() == Extent::Everything && self.runs.since().is_some() {
            // A reading of everything begins its run anew.
            return;
        }
        let disturbance = self.disturbed.take(now);
        if self.need == Need::Everything && self.runs.last_full().is_none() {
            // Nothing is known yet that could have been harmed.
            return;
        }
        self.need = self.need.max(match disturbance.extent {
            Extent::Suspects | Extent::Look => Need::Verify,
            Extent::Everything => Need::Everything,
        });
        self.verifying = Some(disturbance);
    }

    fn observe(&mut self) -> Option<Effect> {
        let (reading, unless) = match self.need {
            Need::Nothing => return None,
            // All of a table is read there in any case, and nothing else tells of a rule that is lost in it.
            Need::Look | Need::Verify | Need::Doubted if self.is_legacy() => {
                (Reading::look_and(self.have.all_chains()), None)
            }
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

    fn retry_troubled(&mut self, now: Duration) {
        for (item, _) in self.failures.due(now) {
            self.runs.queue.push(Rank::Changed, item.clone());
        }
        if !self.runs.queue.is_empty() {
            let since = self.failures.troubled_since();
            self.runs.begin(since.unwrap_or(now), RunKind::Changes);
        }
    }

    fn end_run(&mut self, now: Duration) {
        let Some(in_sync) = self.runs.end(now) else {
            return;
        };
        if self.failures.has_no_trouble() {
            // What a failed step was about has been read since, and needs no step any more.
            self.reports.extend(self.failures.step_worked());
            self.reports.push(in_sync);
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
