//! A table of another kind becomes ours without a moment in which nobody serves: ours is filled in beside what is there,
//! then the chains that packets enter by change in one commit, then what was there goes.

use super::{NftLoop, TakingOver, Work};
use crate::event::Effect;
use crate::world::World;
use nftables::ast::{Chain, Frame, Name};
use nftables::build;
use nftables::step::{FrameStep, Held as HeldFrame, Step};

/// How many chains or sets of another go with one step: a large cluster has as many as services, and a socket takes a
/// megabyte or a few.
const MOST_CLEARED: usize = 1000;

impl NftLoop {
    /// The next step of taking over, when nothing else is left to do.
    pub(super) fn take_over(&mut self, world: &World) -> Option<Effect> {
        let all_settled = self.runs.queue.is_empty() && self.failures.has_no_trouble();
        match self.taking_over.clone() {
            TakingOver::Filling if all_settled => Some(self.switch(world)),
            TakingOver::Tidying if all_settled => {
                self.taking_over = self.left_of_another(&self.frame_made(world));
                self.clear()
            }
            TakingOver::Nothing | TakingOver::Filling | TakingOver::Tidying => None,
            TakingOver::Clearing { .. } => self.clear(),
        }
    }

    pub(super) fn switch(&mut self, world: &World) -> Effect {
        let want = self.frame_made(world);
        let change = self.held_frame().change_to(&want);
        self.send(Work {
            frame: Some(change.then),
            takeover: Some(TakingOver::Tidying),
            step: frame_step(change.steps),
            ..Work::default()
        })
    }

    /// The frame for the shapes that there are chains for.
    pub(super) fn frame_made(&self, world: &World) -> Frame {
        let node = world.desired_node(self.family);
        build::frame(&node, &self.shapes, &world.service_cidrs())
    }

    /// What is there and not in our frame: all of the table is the proxy's.
    fn left_of_another(&self, want: &Frame) -> TakingOver {
        let frame = self.held_frame();
        let is_wanted_set = |name: &Name| want.sets.iter().any(|set| set.name == *name);
        let is_wanted_chain = |name: &Name| want.chains.iter().any(|chain| chain.name == *name);
        let chains = frame.chains.keys().filter(|name| !is_wanted_chain(name));
        let chains: Vec<Name> = chains.cloned().collect();
        let has_rules = |name: &&Name| frame.chains[*name].as_ref().is_none_or(|rules| !rules.is_empty());
        let sets = frame.sets.iter().filter(|name| !is_wanted_set(name));
        TakingOver::Clearing {
            rules: chains.iter().filter(has_rules).cloned().collect(),
            sets: sets.cloned().collect(),
            chains,
        }
    }

    /// Rules go first, since they hold on to sets and chains; then sets, since a map of verdicts holds on to the chains
    /// that it leads to; then chains.
    fn clear(&mut self) -> Option<Effect> {
        let TakingOver::Clearing {
            mut rules,
            mut sets,
            mut chains,
        } = self.taking_over.clone()
        else {
            return None;
        };
        let mut frame = self.held_frame();
        let step = if !rules.is_empty() {
            let now = some_of(&mut rules);
            for name in &now {
                frame.chains.insert(name.clone(), Some(Vec::new()));
            }
            FrameStep::Rewrite(now.into_iter().map(empty).collect())
        } else if !sets.is_empty() {
            let now = some_of(&mut sets);
            frame.sets.retain(|name| !now.contains(name));
            FrameStep::DeleteSets(now)
        } else if !chains.is_empty() {
            let now = some_of(&mut chains);
            frame.chains.retain(|name, _| !now.contains(name));
            FrameStep::DeleteChains(now)
        } else {
            self.taking_over = TakingOver::Nothing;
            return None;
        };
        Some(self.send(Work {
            frame: Some(frame),
            takeover: Some(TakingOver::Clearing { rules, sets, chains }),
            step: frame_step(vec![step]),
            ..Work::default()
        }))
    }

    fn held_frame(&self) -> HeldFrame {
        self.frame.clone().expect("invariant: there is a table")
    }
}

fn some_of(names: &mut Vec<Name>) -> Vec<Name> {
    names.drain(..names.len().min(MOST_CLEARED)).collect()
}

fn empty(name: Name) -> Chain {
    Chain {
        name,
        base: None,
        rules: Vec::new(),
    }
}

fn frame_step(frame: Vec<FrameStep>) -> Step {
    Step {
        frame,
        elements: Vec::new(),
    }
}
