//! From the queue to a step.

use super::{FamilyLoop, Outstanding, Work};
use crate::event::{Effect, Report, StepSize};
use crate::fault::Fault;
use crate::queue::Item;
use crate::world::World;
use iptables::diff::batch::{Batch, StepOrder};
use iptables::diff::node::NodeDifference;
use iptables::diff::service::{Difference, GoneChains};
use iptables::diff::sweep::sweep;
use model::ServiceName;

/// How many services are compared in one go when nothing is to be written for them.
const MOST_COMPARED: usize = 500;

/// How many chains a step writes before it is full, however few services they belong to.
const MOST_CHAINS: usize = 2_500;

/// How many leftover chains one step deletes.
const MOST_SWEPT: usize = 1_000;

impl FamilyLoop {
    /// The next step of the run; `None` when nothing was found to write so far.
    pub(super) fn commit(&mut self, world: &World) -> Option<Effect> {
        let mut batch = Batch::new();
        let mut items = Vec::new();
        let mut as_it_is = Vec::new();
        let mut compared = 0;
        while let Some(item) = self.runs.queue.first() {
            let alone = self.failures.is_troubled(item) || *item == Item::Sweep;
            let room = self.has_room(&batch, items.len()) && (compared < MOST_COMPARED || self.is_legacy());
            if !room || (alone && !items.is_empty()) {
                break;
            }
            let (_, item) = self
                .runs
                .queue
                .pop()
                .expect("invariant: the first item was just seen");
            compared += 1;
            if self.add(world, &mut batch, &item) {
                items.push(item);
            } else {
                self.no_trouble(&item);
                if let Item::Service(name) = item {
                    as_it_is.push(name);
                }
            }
            if alone && !items.is_empty() {
                break;
            }
        }
        if !as_it_is.is_empty() {
            self.reports.push(Report::AsItIs {
                family: self.family,
                services: as_it_is,
            });
        }
        (!items.is_empty()).then(|| self.send(batch, items))
    }

    /// Whether a batch may grow. A first load on legacy goes in one step: each step costs the whole table there.
    fn has_room(&self, batch: &Batch, items: usize) -> bool {
        if self.failures.steps() == 0 && self.is_legacy() {
            return true;
        }
        items < self.step_limit && batch.chains() < MOST_CHAINS
    }

    /// Adds what an item needs to the batch; says whether it needs anything.
    fn add(&mut self, world: &World, batch: &mut Batch, item: &Item) -> bool {
        match item {
            Item::Node => self.add_node(world, batch),
            Item::Service(name) => self.add_service(world, batch, name),
            Item::Sweep => self.add_sweep(batch),
        }
    }

    fn add_node(&mut self, world: &World, batch: &mut Batch) -> bool {
        let difference = NodeDifference::new(world.node_rules(self.family), &self.have);
        let written = !difference.is_empty();
        if written {
            batch.add_node(difference);
        }
        written
    }

    fn add_service(&mut self, world: &World, batch: &mut Batch, name: &ServiceName) -> bool {
        let gone_chains = if self.failures.is_troubled(&Item::Service(name.clone())) {
            GoneChains::Left
        } else {
            GoneChains::Deleted
        };
        let want = world.service_rules(self.family, name);
        let difference = Difference::new(name.clone(), want, &self.have, gone_chains);
        #[cfg(feature = "mutants")]
        let difference = self.seed_rewriting(difference);
        if difference.is_empty() {
            let (name, holding) = difference.into_settled();
            self.have.settle(name, holding);
            return false;
        }
        batch.add(difference);
        true
    }

    #[cfg(feature = "mutants")]
    fn seed_rewriting(&self, mut difference: Difference) -> Difference {
        if self.seeded.has(Fault::DispatchAlwaysRewritten) && !difference.is_empty() {
            difference.rewrite_dispatch();
        }
        difference
    }

    fn add_sweep(&mut self, batch: &mut Batch) -> bool {
        if self.seeded.has(Fault::NeverSweeps) {
            return false;
        }
        if !self.failures.troubled().all(|item| *item == Item::Sweep) {
            self.sweep_waits = true;
            return false;
        }
        let limit = if self.failures.is_troubled(&Item::Sweep) {
            1
        } else {
            MOST_SWEPT
        };
        *batch = sweep(&self.have, limit);
        !batch.is_empty()
    }

    fn send(&mut self, mut batch: Batch, items: Vec<Item>) -> Effect {
        self.seed_faults(&mut batch);
        let size = StepSize::of(&batch.step);
        let (step, then) = batch.take_steps(self.step_order());
        let work = Work {
            batch,
            items,
            size,
            then,
        };
        self.runs.writes();
        self.out = Some(Outstanding::Commit(Box::new(work)));
        Effect::Commit(step)
    }

    fn step_order(&self) -> StepOrder {
        #[cfg(feature = "mutants")]
        if self.seeded.has(Fault::DeletedBeforeReplaced) {
            return StepOrder::DeletionsFirst;
        }
        if self.is_legacy() {
            StepOrder::FilterDeletionsApart
        } else {
            StepOrder::AtOnce
        }
    }

    #[cfg(feature = "mutants")]
    fn seed_faults(&mut self, batch: &mut Batch) {
        if self.seeded.has(Fault::StaleChainsKept) {
            batch.keep_gone_chains();
        }
        if self.seeded.has(Fault::DispatchNotDeleted) {
            batch.keep_gone_rules();
        }
        if self.seeded.has(Fault::RememberedBeforeCommitted) {
            self.have.remember(batch.clone());
        }
    }

    #[cfg(not(feature = "mutants"))]
    #[expect(clippy::unused_self, reason = "it is used where faults can be seeded")]
    fn seed_faults(&mut self, _: &mut Batch) {}
}
