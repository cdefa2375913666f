//! From the queue to a step.

use super::{NftLoop, ON_THE_WAY, Outstanding, TakingOver, Work};
use crate::event::{Effect, Report, StepSize};
use crate::fault::Fault;
use crate::queue::{Item, Rank};
use crate::world::World;
use model::crossing::ClaimKey;
use model::{DesiredNode, DesiredService, Family, FrontendKind, ServiceName};
use nftables::ast::{Frame, Value};
use nftables::build::{self, Shapes};
use nftables::diff::{Change, Operation};
use nftables::held::{Frontend, Settling};
use nftables::names::{self, Kind};
use nftables::step::{FrameStep, Held as HeldFrame, Step};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many services are compared in one go when nothing is to be written for them.
pub(super) const MOST_COMPARED: usize = 500;

/// How many leftovers a step deletes.
const MOST_LEFTOVERS: usize = 10_000;

impl NftLoop {
    /// The next step of the run; `None` when nothing was found to write so far.
    pub(super) fn step(&mut self, world: &World, now: Duration) -> Option<Effect> {
        if self.frame.is_none() {
            return Some(self.make_table(world));
        }
        if self.taking_over == TakingOver::Filling && self.seeded.has(Fault::NftTakenOverEmpty) {
            return Some(self.switch(world));
        }
        if self.putting_back.is_some() {
            return self.put_back(world);
        }
        let mut work = Work::default();
        let mut compared = 0;
        let mut written = 0;
        let mut as_it_is = Vec::new();
        while let Some(item) = self.runs.queue.first() {
            let alone = self.failures.is_troubled(item) || *item == Item::Sweep;
            let room = work.items.len() < self.step_limit
                && written < self.config.step_elements
                && compared < MOST_COMPARED;
            if !room || (alone && !work.items.is_empty()) {
                break;
            }
            let (rank, item) = self
                .runs
                .queue
                .pop()
                .expect("invariant: the first item was just seen");
            if self.crosses(world, &item, &work) {
                // What one takes from the other has to be settled first.
                self.runs.queue.push(rank, item);
                break;
            }
            compared += 1;
            let before = work.items.len();
            written += self.settle(world, (rank, &item), &mut work, now);
            if let (true, Item::Service(name)) = (work.items.len() == before, &item) {
                as_it_is.push(name.clone());
            }
            if alone && !work.items.is_empty() {
                break;
            }
        }
        if !as_it_is.is_empty() {
            self.reports.push(Report::AsItIs {
                family: self.family,
                services: as_it_is,
            });
        }
        if work.items.is_empty() {
            return self.take_over(world);
        }
        self.finish(world, &mut work);
        Some(self.send(work))
    }

    /// Whether a service takes a frontend from one of the batch, or loses one to it.
    fn crosses(&self, world: &World, item: &Item, work: &Work) -> bool {
        let Item::Service(name) = item else {
            return false;
        };
        if self.seeded.has(Fault::NftCrossedTogether) {
            return false;
        }
        let loses = |settling: &Settling| settling.takes_from().any(|from| from == name);
        if work.settlings.iter().any(loses) {
            return true;
        }
        if work.settlings.is_empty() {
            return false;
        }
        let want = world.desired(self.family, name);
        want.is_some_and(|want| {
            let mut from = self.held.losers(name, &want);
            from.any(|loser| work.settlings.iter().any(|other| other.name == *loser))
        })
    }

    /// The frontends that a service gives up and that another wants, and who: they change hands in one commit, the other's.
    fn spared(
        &self,
        world: &World,
        name: &ServiceName,
        want: Option<&DesiredService>,
    ) -> BTreeMap<Frontend, ServiceName> {
        let given_up = self.held.given_up(name, want).into_iter();
        let spared = given_up.filter_map(|frontend| {
            let heir = heir_of(world, self.family, &frontend).filter(|heir| heir != name)?;
            let want = world.desired(self.family, &heir)?;
            build::frontends(&want)
                .contains(&frontend)
                .then_some((frontend, heir))
        });
        spared.collect()
    }

    /// Adds what an item needs; says how many elements that writes.
    fn settle(
        &mut self,
        world: &World,
        (rank, item): (Rank, &Item),
        work: &mut Work,
        now: Duration,
    ) -> usize {
        let before = (
            work.settlings.len(),
            work.step.elements.len(),
            work.step.frame.len(),
        );
        match item {
            Item::Node => self.add_node(world, work),
            Item::Service(name) => self.add_service(world, name, work, now),
            // What another's rules still use goes once packets do not meet them any more.
            Item::Sweep if self.taking_over == TakingOver::Filling => {}
            Item::Sweep if self.seeded.has(Fault::NftNeverSweeps) => {}
            Item::Sweep => {
                let most = self.config.step_elements.min(MOST_LEFTOVERS);
                work.leftovers = self.held.leftovers(most);
                work.step.elements.extend(work.leftovers.iter().cloned());
            }
        }
        if before
            == (
                work.settlings.len(),
                work.step.elements.len(),
                work.step.frame.len(),
            )
        {
            self.no_trouble(item);
            return 0;
        }
        work.items.push((rank, item.clone()));
        let settled = work.settlings.last().filter(|_| work.settlings.len() > before.0);
        settled.map_or(0, |settling| settling.change.now.len()) + work.step.elements.len() - before.1
    }

    fn add_node(&mut self, world: &World, work: &mut Work) {
        let node = world.desired_node(self.family);
        let elements = build::node_elements(&node);
        let operations = if self.seeded.has(Fault::NftNodeForgotten) {
            Vec::new()
        } else {
            self.held.settle_node(&elements)
        };
        if operations.is_empty() {
            self.held.remember_node(elements);
        } else {
            work.step.elements.extend(operations);
            work.node = Some(elements);
        }
        let frame = self.frame.as_ref().expect("invariant: there is a table");
        let change = frame.change_to(&self.frame_wanted(world, &node, &self.shapes));
        work.step.frame.extend(change.steps);
        work.frame = Some(change.then);
    }

    fn add_service(&mut self, world: &World, name: &ServiceName, work: &mut Work, now: Duration) {
        let want = world.desired(self.family, name);
        let spared = self.spared(world, name, want.as_deref());
        self.look_at_keepers(name);
        for heir in spared.values() {
            let keepers = self.keepers.entry(heir.clone()).or_default();
            keepers.insert(name.clone());
        }
        let spared: Vec<Frontend> = spared.into_keys().collect();
        let waiting = self.retiring.get(name).into_iter().flatten();
        let waited = waiting.filter(|(_, at)| **at <= now);
        let waited = waited.map(|(key, _)| key.clone()).collect();
        let mut settling = self.held.settle(name, want.as_deref(), &waited, &spared);
        if self.seeded.has(Fault::NftRetiredAtOnce) {
            let Change { now, later, last } = &mut settling.change;
            now.append(later);
            now.append(last);
        }
        self.wait(name, &settling.change, now);
        let new_shapes = settling.shapes.iter().any(|shape| !self.shapes.contains(shape));
        if !new_shapes && self.held.needs_no_write(&settling) {
            self.held.remember(&settling);
            return;
        }
        work.shapes.extend(settling.shapes.iter().copied());
        work.settlings.push(settling);
    }

    /// Who kept something for a service looks whether it was taken: the service may not want it any more.
    fn look_at_keepers(&mut self, heir: &ServiceName) {
        for keeper in self.keepers.remove(heir).into_iter().flatten() {
            self.runs.queue.push(Rank::Rest, Item::Service(keeper));
        }
    }

    /// Says when what a service no longer needs may go. What waits for a set to go first begins to wait when that goes.
    fn wait(&mut self, name: &ServiceName, change: &Change, now: Duration) {
        let before = self.retiring.remove(name).unwrap_or_default();
        let going = change
            .now
            .iter()
            .filter_map(|operation| before.get_key_value(operation.key()));
        let going = going.map(|(key, at)| (key, *at));
        let later = change.later.iter().map(Operation::key);
        let later = later.map(|key| (key, before.get(key).copied().unwrap_or(now + ON_THE_WAY)));
        let last = change
            .last
            .iter()
            .map(|operation| (operation.key(), now + ON_THE_WAY));
        let all = going.chain(later).chain(last);
        let waiting: BTreeMap<_, _> = all.map(|(key, at)| (key.clone(), at)).collect();
        if !waiting.is_empty() {
            self.retiring.insert(name.clone(), waiting);
        }
    }

    /// Chains for new shapes come before the elements that need them.
    pub(super) fn finish(&mut self, world: &World, work: &mut Work) {
        work.step.elements.extend(self.held.together(&work.settlings));
        let new = work.shapes.iter().any(|shape| !self.shapes.contains(shape));
        if new && !self.seeded.has(Fault::NftShapesForgotten) {
            let mut shapes = self.shapes.clone();
            shapes.extend(work.shapes.iter().copied());
            let node = world.desired_node(self.family);
            let frame = work.frame.as_ref().or(self.frame.as_ref());
            let frame = frame.expect("invariant: there is a table");
            let change = frame.change_to(&self.frame_wanted(world, &node, &shapes));
            work.step.frame.extend(change.steps);
            work.frame = Some(change.then);
        }
    }

    /// The frame to have now: while another's table is taken over, without what would take its packets.
    fn frame_wanted(&self, world: &World, node: &DesiredNode, shapes: &Shapes) -> Frame {
        let mut frame = build::frame(node, shapes, &world.service_cidrs());
        if self.taking_over == TakingOver::Filling {
            frame.chains.retain(|chain| names::is_ours_alone(&chain.name));
        }
        frame
    }

    fn make_table(&mut self, world: &World) -> Effect {
        let node = world.desired_node(self.family);
        let frame = build::frame(&node, &Shapes::new(), &world.service_cidrs());
        let elements = build::node_elements(&node);
        let step = Step {
            elements: elements
                .iter()
                .map(|(key, element)| Operation::Add(key.clone(), element.clone()))
                .collect(),
            frame: vec![if self.in_the_way {
                FrameStep::MakeAnew(frame.clone())
            } else {
                FrameStep::Make(frame.clone())
            }],
        };
        let work = Work {
            node: Some(elements),
            frame: Some(HeldFrame::of(&frame)),
            step,
            ..Work::default()
        };
        self.send(work)
    }

    pub(super) fn send(&mut self, mut work: Work) -> Effect {
        let step = std::mem::take(&mut work.step);
        work.size = size_of(&step);
        work.keys = step.elements.iter().map(Operation::key).cloned().collect();
        self.runs.writes();
        self.out = Some(Outstanding::Commit(Box::new(work)));
        Effect::NftCommit(step)
    }
}

/// The service that has the better claim to a frontend now.
fn heir_of(world: &World, family: Family, (kind, key): &Frontend) -> Option<ServiceName> {
    let (kind, rest) = match (kind, &**key) {
        (Kind::Service, [Value::Address(ip), rest @ ..]) => (FrontendKind::ExternalIp(*ip), rest),
        (Kind::NodePort, rest) => (FrontendKind::NodePort, rest),
        _ => return None,
    };
    let [Value::Protocol(protocol), Value::Port(port)] = rest else {
        return None;
    };
    world
        .winner(ClaimKey::of(kind, *port, *protocol, family))
        .cloned()
}

fn size_of(step: &Step) -> StepSize {
    let mut size = StepSize::default();
    for part in &step.frame {
        match part {
            FrameStep::Make(frame) | FrameStep::MakeAnew(frame) | FrameStep::Extend(frame) => {
                size.chains += frame.chains.len();
            }
            FrameStep::Rewrite(chains) => size.chains += chains.len(),
            FrameStep::Append(_) => {}
            FrameStep::DeleteChains(names) | FrameStep::DeleteSets(names) => size.removed += names.len(),
        }
    }
    for operation in &step.elements {
        match operation {
            Operation::Add(..) => size.rules += 1,
            Operation::Replace(..) => {
                size.rules += 1;
                size.deleted += 1;
            }
            Operation::Delete(..) => size.deleted += 1,
        }
    }
    size
}
