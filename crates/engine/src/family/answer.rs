//! What the kernel's side answered.

use super::{FamilyLoop, Need, Outstanding, Work};
use crate::event::{About, Answer, Cause, Failure, Report, RunKind};
use crate::failures::Retry;
use crate::fault::Fault;
use crate::queue::{Item, Rank};
use crate::world::World;
use iptables::diff::compact::ChainId;
use iptables::diff::harm::{Checked, Harm};
use iptables::diff::have::Surprises;
use iptables::diff::observe::Observation;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

static NO_SUSPECTS: &BTreeSet<ChainId> = &BTreeSet::new();

impl FamilyLoop {
    /// Takes in the answer to the effect that was given out last.
    pub(crate) fn answer(&mut self, world: &World, answer: Answer, now: Duration) {
        let out = self.out.take();
        match (out, answer) {
            (Some(Outstanding::Commit(work)), Answer::Committed) => self.committed(work),
            (Some(Outstanding::Commit(work)), Answer::CommitFailed(failure)) => {
                self.commit_failed(work, failure, now);
            }
            (
                Some(Outstanding::Reading(need)),
                Answer::Observed {
                    generation,
                    observation,
                },
            ) => {
                self.generation = generation;
                self.read(now);
                self.observed(world, need, *observation, now);
            }
            (Some(Outstanding::Reading(_)), Answer::Unchanged) => self.read(now),
            (Some(Outstanding::Reading(_)), Answer::ObserveFailed(failure)) => {
                if let Some(verifying) = self.verifying.take() {
                    self.disturbed.give_back(verifying, now);
                }
                self.failed(failure, About::Reading, now);
            }
            (out, answer) => {
                debug_assert!(false, "{answer:?} answers nothing that was asked");
                self.out = out;
            }
        }
    }

    fn committed(&mut self, work: Box<Work>) {
        if work.then.is_some() {
            self.follow_up = Some(work);
            return;
        }
        let services = work.batch.services().cloned().collect();
        if work.batch.abandons_chains() {
            self.runs.queue.push(Rank::Sweep, Item::Sweep);
        }
        self.have.remember(work.batch);
        if self.seeded.has(Fault::ChangeDuringCommitLost) {
            self.runs.drop_changes();
        }
        self.step_limit = (self.step_limit * 2).min(self.step_most);
        for item in &work.items {
            self.no_trouble(item);
            if *item == Item::Sweep && self.have.leftovers() > 0 {
                self.runs.queue.push(Rank::Sweep, Item::Sweep);
            }
        }
        self.reports.extend(self.failures.step_worked());
        self.reports.push(Report::Applied {
            family: self.family,
            services,
            size: work.size,
        });
    }

    pub(super) fn no_trouble(&mut self, item: &Item) {
        if self.failures.settled(item) {
            // It may have been settled without a step: what failed is there all the same.
            self.reports.extend(self.failures.step_worked());
        }
        if self.failures.has_no_trouble() && std::mem::take(&mut self.sweep_waits) {
            self.runs.queue.push(Rank::Sweep, Item::Sweep);
        }
    }

    /// Nothing is lost: what the step was about is queued again, and read before it is written again.
    fn commit_failed(&mut self, work: Box<Work>, failure: Failure, now: Duration) {
        if !self.trusts_failed_steps() {
            self.have.doubt(&work.batch);
            self.need = self.need.max(Need::Doubted);
        }
        let alone = work.items.len() == 1 && !matches!(failure.cause, Cause::Host | Cause::Busy);
        if !alone {
            self.step_limit = (work.items.len() / 2).max(1);
            if failure.cause == Cause::Size {
                self.step_most = self.step_limit;
            }
            if !self.seeded.has(Fault::FailedStepForgotten) {
                for item in work.items {
                    self.runs.queue.push(item.rank(), item);
                }
            }
            self.failed(failure, About::Step, now);
            return;
        }
        let item = work
            .items
            .into_iter()
            .next()
            .expect("invariant: there is one item");
        if item == Item::Sweep && work.batch.swept_chains().count() == 1 {
            self.stuck(&work.batch, failure, now);
            return;
        }
        let about = match &item {
            Item::Service(name) => About::Service(name.clone()),
            Item::Node | Item::Sweep => About::Step,
        };
        if self.seeded.has(Fault::RefusedBlocksAll) {
            self.runs.queue.push(Rank::Node, item);
            self.failures.block(now + self.config.sync_period);
        } else if !self.seeded.has(Fault::FailedStepForgotten) {
            self.trouble(item, now);
        }
        self.failed(failure, about, now);
    }

    /// Never, unless a fault is seeded.
    fn trusts_failed_steps(&self) -> bool {
        self.seeded.has(Fault::FailedStepTrusted)
            || self.seeded.has(Fault::FailedStepForgotten)
            || self.seeded.has(Fault::RememberedBeforeCommitted)
    }

    /// An item that was refused by itself waits by itself.
    fn trouble(&mut self, item: Item, now: Duration) {
        let retry = match item {
            // A smaller sweep is another thing to try, not the same again.
            Item::Sweep => Retry::AtOnce,
            Item::Node | Item::Service(_) => Retry::AfterAWait,
        };
        let since = self.runs.since().unwrap_or(now);
        self.failures.trouble(item, since, retry, now);
    }

    /// One leftover chain that can't be deleted is let be until everything is read again.
    fn stuck(&mut self, batch: &iptables::diff::batch::Batch, failure: Failure, now: Duration) {
        let chains = batch.swept_chains().collect();
        self.have.excuse(batch);
        self.reports.push(Report::Stuck {
            family: self.family,
            chains,
            failure,
        });
        if self.have.leftovers() > 0 {
            self.trouble(Item::Sweep, now);
        } else {
            self.no_trouble(&Item::Sweep);
        }
    }

    fn failed(&mut self, failure: Failure, about: About, now: Duration) {
        let report = self.failures.failed(failure, about, now);
        self.reports.push(report);
    }

    fn read(&mut self, now: Duration) {
        self.reports.extend(self.failures.reading_worked());
        self.need = Need::Nothing;
        self.next_look = if self.seeded.has(Fault::NeverLooks) {
            Duration::MAX
        } else {
            now + self.config.sync_period
        };
    }

    fn observed(&mut self, world: &World, need: Need, observation: Observation, now: Duration) {
        let verifying = self.verifying.take();
        if verifying.is_some() {
            self.disturbed.looked(now);
        }
        if need == Need::Everything {
            if let Some(verifying) = verifying {
                let harm = self.have.harm(&observation, Checked::All);
                let harmed = self.have.verify(&observation, Checked::All);
                self.damaged(harmed.len(), harm, verifying.by, now);
            }
            self.have.adopt(observation);
            self.settle_everything(world, now);
            return;
        }
        let checked = match &verifying {
            _ if self.is_legacy() => Checked::All,
            None => Checked::These(NO_SUSPECTS),
            Some(verifying) => Checked::These(&verifying.suspects),
        };
        let harm = self.have.harm(&observation, checked);
        let harmed = self.have.verify(&observation, checked);
        let mut surprises = self.have.absorb(observation);
        surprises.services.extend(harmed);
        if surprises.is_empty() {
            return;
        }
        self.runs.begin(now, RunKind::Changes);
        if let Some(verifying) = verifying {
            self.damaged(surprises.services.len(), harm, verifying.by, now);
        } else if need == Need::Look {
            self.need = Need::Everything;
            self.reports.push(Report::Damaged {
                family: self.family,
                services: surprises.services.len(),
                what: harm,
                by: None,
                backing_off: None,
            });
        }
        self.settle_surprises(surprises, now);
    }

    /// Somebody else did harm, which is repaired from now on.
    fn damaged(&mut self, services: usize, what: Harm, by: Option<Arc<str>>, now: Duration) {
        if what.is_none() {
            return;
        }
        let backing_off = self.disturbed.repaired(now, self.config.sync_period);
        self.reports.push(Report::Damaged {
            family: self.family,
            services,
            what,
            by,
            backing_off,
        });
    }

    fn settle_everything(&mut self, world: &World, now: Duration) {
        self.runs.begin_full(world, now);
        for name in self.have.services() {
            self.runs.queue.push(Rank::Rest, Item::Service(name.clone()));
        }
    }

    fn settle_surprises(&mut self, surprises: Surprises, now: Duration) {
        if surprises.node {
            self.runs.queue.push(Rank::Node, Item::Node);
        }
        for name in surprises.services {
            let item = Item::Service(name);
            // One that was refused is read after that, and is no surprise before its time.
            if !self.failures.is_waiting(&item, now) {
                self.runs.queue.push(Rank::Changed, item);
            }
        }
        if surprises.strays {
            self.runs.queue.push(Rank::Sweep, Item::Sweep);
        }
    }
}
