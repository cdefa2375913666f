//! What the kernel's side answered.

use super::{Need, NftLoop, Outstanding, TakingOver, Work};
use crate::event::{About, Answer, Cause, Failure, Report, RunKind};
use crate::failures::Retry;
use crate::fault::Fault;
use crate::queue::{Item, Rank};
use crate::world::World;
use iptables::diff::harm::Harm;
use model::ServiceName;
use nftables::ast::{Element, ElementKey};
use nftables::build::Shapes;
use nftables::diff::Operation;
use nftables::held::Settling;
use nftables::step::{FrameStep, Held as HeldFrame, Observation, Seen, SeenFrame, SeenSet};
use std::time::Duration;

/// After so many failures in a row, what was read by key does not explain them.
const FAILURES_BEFORE_READING_ALL: u32 = 3;

impl NftLoop {
    /// Takes in the answer to the effect that was given out last.
    pub(crate) fn answer(&mut self, world: &World, answer: Answer, now: Duration) {
        let out = self.out.take();
        // What was given out before the table went proves nothing about now.
        let is_after = self
            .gone
            .as_mut()
            .is_none_or(|gone| !std::mem::take(&mut gone.while_out));
        match (out, answer) {
            (Some(Outstanding::Commit(work)), Answer::Committed) => {
                if is_after {
                    self.gone = None;
                }
                self.committed(*work);
            }
            (Some(Outstanding::Commit(work)), Answer::CommitFailed(failure)) => {
                self.commit_failed(*work, failure, None, now);
            }
            (Some(Outstanding::Commit(work)), Answer::NftRefused(failure, element)) => {
                self.commit_failed(*work, failure, Some(&element), now);
            }
            (Some(Outstanding::Reading), Answer::NftObserved(observation)) => {
                self.need = Need::Nothing;
                if std::mem::take(&mut self.looking) {
                    self.disturbed.looked(now);
                }
                self.reports.extend(self.failures.reading_worked());
                let since = self.gone.map_or(now, |gone| gone.since);
                let is_all = matches!(*observation, Observation::Everything(_));
                self.observed(world, *observation, now);
                if is_all && is_after {
                    self.gone = None;
                    // It waits from when it went, not from when that was read.
                    self.runs.begin(since, RunKind::Full);
                }
            }
            (Some(Outstanding::Reading), Answer::ObserveFailed(failure)) => {
                self.failed(failure, About::Reading, now);
            }
            (out, answer) => {
                debug_assert!(false, "{answer:?} answers nothing that was asked");
                self.out = out;
            }
        }
    }

    fn committed(&mut self, work: Work) {
        let mut services = Vec::new();
        for name in work.put_back {
            // It may want something else by now: it is told of when that is in.
            self.runs.queue.push(Rank::Rest, Item::Service(name));
        }
        for settling in work.settlings {
            self.held.remember(&settling);
            self.taken_out(&settling);
            services.push(settling.name);
        }
        if let Some(elements) = work.node {
            self.held.remember_node(elements);
        }
        if let Some(frame) = work.frame {
            self.frame = Some(frame);
        }
        self.shapes.extend(work.shapes);
        self.held.forget_leftovers(&work.leftovers);
        if !work.leftovers.is_empty() && !self.seeded.has(Fault::NftNeverSweeps) {
            self.runs.queue.push(Rank::Sweep, Item::Sweep);
        }
        if let Some(takeover) = work.takeover {
            self.taking_over = takeover;
            self.runs.queue.push(Rank::Sweep, Item::Sweep);
        }
        self.step_limit = (self.step_limit * 2).min(self.config.step_services.max(1));
        for (_, item) in &work.items {
            self.no_trouble(item);
        }
        self.reports.extend(self.failures.step_worked());
        self.reports.push(Report::Applied {
            family: self.family,
            services,
            size: work.size,
        });
    }

    /// What a step has taken out waits for nothing any more.
    fn taken_out(&mut self, settling: &Settling) {
        if let Some(waiting) = self.retiring.get_mut(&settling.name) {
            for operation in &settling.change.now {
                if let Operation::Delete(key, _) = operation {
                    waiting.remove(key);
                }
            }
            if waiting.is_empty() {
                self.retiring.remove(&settling.name);
            }
        }
    }

    pub(super) fn no_trouble(&mut self, item: &Item) {
        if self.failures.settled(item) {
            // It may have been settled without a step: what failed is there all the same.
            self.reports.extend(self.failures.step_worked());
        }
    }

    /// What the step was about is read, queued again, and tried in smaller steps, or without what the kernel named.
    fn commit_failed(
        &mut self,
        work: Work,
        mut failure: Failure,
        refused: Option<&ElementKey>,
        now: Duration,
    ) {
        if !work.put_back.is_empty() {
            return self.not_put_back(failure, now);
        }
        for settling in &work.settlings {
            let waiting = self.retiring.get(&settling.name);
            let goes = |key| waiting.is_some_and(|waiting| waiting.contains_key(key));
            if !settling.change.now.iter().map(Operation::key).all(goes) {
                // What was to come in place of what waits is not there yet.
                self.retiring.remove(&settling.name);
            }
        }
        if self.gone.is_some() && failure.cause == Cause::Content {
            return self.went_in_between(work, failure, now);
        }
        let alone = work.items.len() == 1 && matches!(failure.cause, Cause::Content | Cause::Size);
        let named = refused.and_then(|key| named(&work, key));
        if let Some(name) = &named {
            failure.text = format!("{}, an element of {name}", failure.text);
        }
        self.doubt(&work, alone, failure.cause);
        let since = self.runs.since().unwrap_or(now);
        let mut about = About::Step;
        let again = alone && work.items.iter().any(|(_, item)| self.failures.is_troubled(item));
        if self.seeded.has(Fault::NftFailedStepForgotten) {
        } else if alone {
            for (_, item) in work.items {
                if let Item::Service(name) = &item {
                    about = About::Service(name.clone());
                }
                self.failures.trouble(item, since, Retry::AfterAWait, now);
            }
        } else {
            if named.is_none() {
                self.step_limit = (work.items.len() / 2).max(1);
            }
            for (rank, item) in work.items {
                if item.service() == named.as_ref() && named.is_some() {
                    self.failures.trouble(item, since, Retry::AtOnce, now);
                } else {
                    self.runs.queue.push(rank, item);
                }
            }
        }
        self.failed(failure, about, now);
        if again {
            // Whatever is refused again by itself waits by itself: the node's part too, which is no service.
            self.failures.block(now);
        }
    }

    /// The table went, which explains the refusal: nothing goes through before it is looked at, and that has its turn.
    fn went_in_between(&mut self, work: Work, failure: Failure, now: Duration) {
        for (rank, item) in work.items {
            self.runs.queue.push(rank, item);
        }
        match self.disturbed.at() {
            Some(at) => self.failures.block(at),
            None => self.need = Need::Everything,
        }
        self.failed(failure, About::Step, now);
    }

    /// Has read what a failed step leaves in doubt: a refused one has changed nothing that packets meet, and shows that something is not
    /// as it was believed; of one without an answer nobody knows whether it was carried out.
    fn doubt(&mut self, work: &Work, alone: bool, cause: Cause) {
        let trusted = match cause {
            Cause::Content => Fault::NftFailedStepTrusted,
            Cause::Host => Fault::NftNoAnswerTrusted,
            Cause::Busy | Cause::Size => return,
        };
        if self.seeded.has(trusted) {
            return;
        }
        let unexplained = !alone && self.failures.steps() >= FAILURES_BEFORE_READING_ALL;
        let blind = work.keys.is_empty() || self.frame.is_none();
        let in_doubt = cause == Cause::Host && work.frame.is_some();
        self.need = if unexplained || blind || in_doubt {
            Need::Everything
        } else {
            Need::Elements(work.keys.clone())
        };
    }

    pub(super) fn failed(&mut self, failure: Failure, about: About, now: Duration) {
        let report = self.failures.failed(failure, about, now);
        self.reports.push(report);
    }

    fn observed(&mut self, world: &World, observation: Observation, now: Duration) {
        match observation {
            Observation::Everything(seen) => self.adopt(world, seen, now),
            Observation::Frame(seen) => {
                self.next_look = now + self.config.sync_period;
                self.sweep_strays(now);
                self.check_frame(world, seen.as_ref(), now);
            }
            Observation::Elements(read) => {
                self.believe(read.iter().map(|(key, element)| (key, element.as_ref())));
            }
        }
    }

    /// What was read of a failed step's elements holds, whatever we believed.
    pub(super) fn believe<'a>(
        &mut self,
        read: impl IntoIterator<Item = (&'a ElementKey, Option<&'a Element>)>,
    ) {
        let corrected = self.held.correct(read);
        for name in corrected.services.into_keys() {
            self.runs.queue.push(Rank::Changed, Item::Service(name));
        }
        if corrected.strays > 0 {
            // It was carried out after all, and whoever wanted it may not want it any more.
            self.runs.queue.push(Rank::Sweep, Item::Sweep);
        }
    }

    /// What nobody wants goes once it has been there for a while: another of ours may have heard of a service first.
    fn sweep_strays(&mut self, now: Duration) {
        let over = |since: Duration| now.saturating_sub(since) >= self.config.sync_period;
        if self.strays_since.is_some_and(over) {
            self.strays_since = None;
            self.runs.queue.push(Rank::Sweep, Item::Sweep);
        }
    }

    /// Everything was read: it is the truth from now on.
    fn adopt(&mut self, world: &World, seen: Option<Seen>, now: Duration) {
        self.next_look = now + self.config.sync_period;
        let known = self.runs.last_full().is_some();
        if known {
            self.name_harm(world, seen.as_ref(), now);
        }
        let seen = match self.put_back_read(world, seen) {
            Ok(()) => return self.runs.begin_full(world, now),
            Err(seen) => seen,
        };
        self.in_the_way = seen.is_some();
        let usable = seen.filter(|seen| !mixed_up(&seen.frame));
        self.taking_over = TakingOver::Nothing;
        self.keepers.clear();
        match usable {
            None => {
                self.frame = None;
                self.shapes = Shapes::new();
                self.held.adopt(nftables::pool::Pool::default());
            }
            Some(seen) => {
                self.taking_over = if seen.frame.is_ours() {
                    // A process that ended before all of another's was gone may have left some.
                    TakingOver::Tidying
                } else {
                    TakingOver::Filling
                };
                self.frame = Some(HeldFrame::seen(&seen.frame));
                self.shapes = seen.frame.shapes_in_use();
                self.held.adopt(if self.seeded.has(Fault::NftNothingAdopted) {
                    nftables::pool::Pool::default()
                } else {
                    seen.elements
                });
            }
        }
        self.runs.begin_full(world, now);
    }

    /// A whole reading after the first: what is other than it was left is somebody else's doing.
    fn name_harm(&mut self, world: &World, seen: Option<&Seen>, now: Duration) {
        let by = self.suspect.take();
        let Some(seen) = seen else {
            let what = Harm {
                named: vec!["the table missing".to_owned()],
                more: 0,
            };
            self.damaged(self.held.services().count(), what, by, now);
            return;
        };
        let harmed = self.held.harmed(|key, element| seen.elements.holds(key, element));
        if harmed > 0 {
            let what = Harm {
                named: vec![format!("elements of {harmed} services missing or changed")],
                more: 0,
            };
            self.damaged(harmed, what, by, now);
            return;
        }
        self.suspect = by;
        self.check_frame(world, Some(&seen.frame), now);
    }

    /// Chains and sets were read: what is missing there is put back.
    fn check_frame(&mut self, world: &World, seen: Option<&SeenFrame>, now: Duration) {
        let Some(seen) = seen.filter(|seen| !mixed_up(seen)) else {
            self.need = Need::Everything;
            return;
        };
        if self.taking_over == TakingOver::Filling {
            self.frame = Some(HeldFrame::seen(seen));
            return;
        }
        let lost_sets = self
            .frame
            .as_ref()
            .is_some_and(|frame| frame.sets.iter().any(|name| !seen.sets.contains_key(name)));
        // Another of ours may have made chains for lists that we have not heard of yet.
        self.shapes.extend(seen.shapes_in_use());
        let want = self.frame_made(world);
        let frame = HeldFrame::seen(seen);
        let change = frame.change_to(&want);
        // A step that was refused may have been carried out in part: then less is missing than was believed.
        let as_believed = self
            .frame
            .as_ref()
            .is_some_and(|known| change.is_part_of(&known.change_to(&want)));
        self.frame = Some(frame);
        if change.steps.is_empty() || as_believed {
            self.suspect = None;
            return;
        }
        let by = self.suspect.take();
        self.damaged(0, harm_of(&change.steps), by, now);
        self.runs.begin(now, RunKind::Changes);
        self.runs.queue.push(Rank::Node, Item::Node);
        if lost_sets {
            // Their elements went with them.
            self.need = Need::Everything;
        }
    }
}

/// The service that wanted an element of a step.
fn named(work: &Work, key: &ElementKey) -> Option<ServiceName> {
    let has = |settling: &&Settling| settling.change.now.iter().any(|operation| operation.key() == key);
    work.settlings
        .iter()
        .find(has)
        .map(|settling| settling.name.clone())
}

/// Whether a set or a base chain has one of our names and is something else, which no batch can change.
fn mixed_up(frame: &SeenFrame) -> bool {
    frame
        .sets
        .iter()
        .any(|(name, seen)| *seen == SeenSet::Strange && nftables::names::form_of(name.as_str()).is_some())
}

fn harm_of(steps: &[FrameStep]) -> Harm {
    let mut harm = Harm::default();
    for step in steps {
        match step {
            FrameStep::Make(frame) | FrameStep::MakeAnew(frame) | FrameStep::Extend(frame) => {
                for set in &frame.sets {
                    harm.add(|| format!("set {} missing", set.name));
                }
                for chain in &frame.chains {
                    harm.add(|| format!("rules of chain {} missing", chain.name));
                }
            }
            FrameStep::Rewrite(chains) => {
                for chain in chains {
                    harm.add(|| format!("chain {} changed", chain.name));
                }
            }
            FrameStep::Append(_) | FrameStep::DeleteChains(_) | FrameStep::DeleteSets(_) => {}
        }
    }
    harm
}
