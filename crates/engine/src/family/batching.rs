//! From the queue to a step.

use super::{FamilyLoop, Outstanding, Work};
use crate::event::Effect;
use crate::fault::Fault;
use crate::queue::Item;
use crate::world::World;
use iptables::diff::batch::{Batch, StepOrder};
use iptables::diff::node::NodeDifference;
use iptables::diff::service::{Difference, GoneChains};
use iptables::diff::sweep::sweep;
use model::ServiceName;
use std::time::Duration;

/// How many services are compared in one go when nothing is to be written for them.
const MOST_COMPARED: usize = 500;

/// How many chains a step writes before it is full, however few services they belong to.
const MOST_CHAINS: usize = 2_500;

/// How many leftover chains one step deletes.
const MOST_SWEPT: usize = 1_000;

impl FamilyLoop {
    /// The next step of the run; `None` when nothing was found to write so far.
    pub(super) fn commit(&mut self, world: &World, now: Duration) -> Option<Effect> {
        let mut batch = Batch::new();
        let mut items = Vec::new();
        let mut compared = 0;
        while let Some(item) = self.queue.first() {
            let alone = self.troubled.contains_key(item) || *item == Item::Sweep;
            let room = self.has_room(&batch, items.len()) && (compared < MOST_COMPARED || self.is_legacy());
            if !room || (alone && !items.is_empty()) {
                break;
            }
            let item = self.queue.pop().expect("invariant: the first item was just seen");
            compared += 1;
            if self.add(world, &mut batch, &item) {
                items.push(item);
            } else {
                self.no_trouble(&item);
            }
            if alone && !items.is_empty() {
                break;
            }
        }
        let _ = now;
        (!items.is_empty()).then(|| self.send(batch, items))
    }

    /// Whether a batch may grow. A first load on legacy goes in one step: each step costs the whole table there.
    fn has_room(&self, batch: &Batch, items: usize) -> bool {
        if self.failures.in_a_row == 0 && self.is_legacy() {
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
        let gone_chains = match self.troubled.get(&Item::Service(name.clone())) {
            Some(_) => GoneChains::Left,
            None => GoneChains::Deleted,
        };
        let want = world.service_rules(self.family, name);
        let difference = Difference::new(name.clone(), want, &self.have, gone_chains);
        if difference.is_empty() {
            let (name, holding) = difference.into_settled();
            self.have.settle(name, holding);
            return false;
        }
        batch.add(difference);
        true
    }

    fn add_sweep(&mut self, batch: &mut Batch) -> bool {
        if self.seeded.has(Fault::NeverSweeps) {
            return false;
        }
        if !self.troubled.keys().all(|item| *item == Item::Sweep) {
            self.sweep_waits = true;
            return false;
        }
        let limit = if self.troubled.contains_key(&Item::Sweep) {
            1
        } else {
            MOST_SWEPT
        };
        *batch = sweep(&self.have, limit);
        !batch.is_empty()
    }

    pub(super) fn send(&mut self, mut batch: Batch, items: Vec<Item>) -> Effect {
        if self.seeded.has(Fault::StaleChainsKept) {
            batch.forget_gone_chains();
        }
        let order = if self.is_legacy() {
            StepOrder::FilterDeletionsApart
        } else {
            StepOrder::AtOnce
        };
        let (step, then) = batch.take_steps(order);
        self.out = Some(Outstanding::Commit(Work { batch, items, then }));
        Effect::Commit(step)
    }
}
