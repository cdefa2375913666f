//! Many services were harmed at once, by a flushed set or a deleted table: what we know that they had is put back first, and
//! only then are they compared anew. To resolve every service of a large cluster takes seconds; to write what is known
//! takes as long as the kernel takes.
//!
//! Invariant: nothing else is written meanwhile, since the kernel is on its way to what is held. If a step fails, that is not
//! relied on any more: everything is read, and every service settled.

use super::stepping::MOST_COMPARED;
use super::{Foreign, Need, NftLoop, TakingOver, Work};
use crate::event::{About, Effect, Failure, RunKind};
use crate::fault::Fault;
use crate::world::World;
use iptables::diff::harm::Harm;
use model::ServiceName;
use nftables::ast::{Element, ElementKey, Name};
use nftables::build::{self, Shapes};
use nftables::diff::Operation;
use nftables::held::Harmed;
use nftables::pool::Pool;
use nftables::step::{Held as HeldFrame, Seen, SeenFrame};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is being put back.
#[derive(Debug)]
pub(super) struct PuttingBack {
    harmed: Harmed,
    /// Shapes that there were chains for, where these went too.
    shapes: Shapes,
}

/// Whether what is held may be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reliance {
    /// It is what the kernel had.
    Relied,
    /// A step that was made of it has failed.
    Failed,
}

impl NftLoop {
    /// More services were harmed than one step settles: what they had is put back. Gives what was told otherwise.
    pub(super) fn put_back_told(&mut self, world: &World, foreign: Foreign, now: Duration) -> Foreign {
        let is_busy = self.putting_back.is_some() || self.taking_over == TakingOver::Filling;
        let most = self.config.step_services;
        if is_busy || self.frame.is_none() || foreign.elements.len() <= most {
            return foreign;
        }
        let harmed = self.held.harmed(|key, held| {
            let told = foreign.elements.get(key);
            told.is_none_or(|now| now.as_ref().is_some_and(|now| now.endpoint == held.endpoint))
        });
        if harmed <= most {
            return foreign;
        }
        let (of_services, elements): (BTreeMap<_, _>, _) = foreign
            .elements
            .into_iter()
            .partition(|(key, _)| self.held.is_of_services(key));
        let what = harm_of(&of_services);
        let harmed_ones = Harmed::told(of_services, self.held_by_rank(world));
        self.putting_back = Some(PuttingBack {
            harmed: harmed_ones,
            shapes: Shapes::new(),
        });
        self.runs.begin(now, RunKind::Changes);
        self.damaged(harmed, what, foreign.by.clone(), now);
        Foreign { elements, ..foreign }
    }

    /// Everything was read, after it was read once. Where only elements are other than they were, or the table is gone,
    /// what is held is put back; otherwise gives back what was read, which is the truth then.
    pub(super) fn put_back_read(&mut self, world: &World, seen: Option<Seen>) -> Result<(), Option<Seen>> {
        self.putting_back = None;
        let relied = std::mem::replace(&mut self.reliance, Reliance::Relied) == Reliance::Relied;
        let is_known = self.runs.last_full().is_some() && self.frame.is_some();
        if !relied || !is_known || self.taking_over == TakingOver::Filling {
            return Err(seen);
        }
        let (there, shapes) = match seen {
            Some(seen) if self.is_whole(world, &seen.frame) => {
                self.frame = Some(HeldFrame::seen(&seen.frame));
                (seen.elements, Shapes::new())
            }
            None => {
                self.frame = None;
                self.in_the_way = false;
                self.taking_over = TakingOver::Nothing;
                (Pool::default(), std::mem::take(&mut self.shapes))
            }
            seen => return Err(seen),
        };
        self.held.correct_node(&there);
        let harmed = Harmed::read(there, self.held_by_rank(world));
        self.putting_back = Some(PuttingBack { harmed, shapes });
        Ok(())
    }

    /// Whether chains and sets are all there, and packets go through them.
    fn is_whole(&self, world: &World, seen: &SeenFrame) -> bool {
        let change = HeldFrame::seen(seen).change_to(&self.frame_made(world));
        seen.is_ours() && change.steps.is_empty()
    }

    /// What everything else needs comes first here too.
    fn held_by_rank(&self, world: &World) -> Vec<ServiceName> {
        let mut services: Vec<ServiceName> = self.held.services().cloned().collect();
        services.sort_by_key(|name| world.rank(name));
        services
    }

    /// The next step that puts something back; `None` when nothing was found to write so far.
    pub(super) fn put_back(&mut self, world: &World) -> Option<Effect> {
        let mut putting = self.putting_back.take()?;
        let mut work = Work {
            shapes: std::mem::take(&mut putting.shapes),
            ..Work::default()
        };
        for _ in 0..MOST_COMPARED {
            let is_full = work.put_back.len() >= self.step_limit
                || work.step.elements.len() >= self.config.step_elements;
            if is_full {
                break;
            }
            let Some(name) = putting.harmed.next_service() else {
                self.all_put_back(putting.harmed);
                return self.send_put_back(world, work);
            };
            let mut operations = self.held.put_back(&name, &mut putting.harmed);
            add_comments(world, &name, &mut operations);
            if !operations.is_empty() && !self.seeded.has(Fault::NftPutBackForgotten) {
                work.step.elements.extend(operations);
                work.put_back.push(name);
            }
        }
        self.putting_back = Some(putting);
        self.send_put_back(world, work)
    }

    fn send_put_back(&mut self, world: &World, mut work: Work) -> Option<Effect> {
        if work.put_back.is_empty() {
            // Chains for shapes that went come with the first who needs them.
            if let Some(putting) = &mut self.putting_back {
                putting.shapes = work.shapes;
            }
            return None;
        }
        self.finish(world, &mut work);
        Some(self.send(work))
    }

    fn all_put_back(&mut self, harmed: Harmed) {
        let rest = self.held.all_put_back(harmed);
        self.believe(rest.iter().map(|(key, now)| (key, now.as_ref())));
    }

    /// A step that puts something back failed.
    pub(super) fn not_put_back(&mut self, failure: Failure, now: Duration) {
        self.putting_back = None;
        self.reliance = Reliance::Failed;
        match self.disturbed.at().filter(|_| self.gone.is_some()) {
            // The table went again, and that has its turn.
            Some(at) => self.failures.block(at),
            None => self.need = Need::Everything,
        }
        self.failed(failure, About::Step, now);
    }
}

/// Who lists the table reads there whose an element is.
fn add_comments(world: &World, name: &ServiceName, operations: &mut [Operation]) {
    let Some(service) = world.snapshot().service(name) else {
        return;
    };
    for operation in operations {
        if let Operation::Add(key, element) | Operation::Replace(key, _, element) = operation {
            element.comment = build::comment_of(key, service);
        }
    }
}

/// Told set by set: somebody who harms so many does not do it one by one.
fn harm_of(told: &BTreeMap<ElementKey, Option<Element>>) -> Harm {
    let mut of_sets: BTreeMap<&Name, usize> = BTreeMap::new();
    for key in told.keys() {
        *of_sets.entry(&key.set).or_default() += 1;
    }
    let mut harm = Harm::default();
    for (set, count) in of_sets {
        harm.add(|| format!("{count} elements of {set} missing or changed"));
    }
    harm
}
