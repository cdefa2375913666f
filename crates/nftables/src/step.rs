//! What the kernel is asked to do in one batch, and what it says when it is asked what there is.

use crate::ast::{Action, Base, Chain, Element, ElementKey, Frame, Match, Name, Rule};
use crate::build::{Choice, Shape, Shapes};
use crate::diff::Operation;
use crate::names::{self, Bound, Role};
use crate::pool::Pool;
use std::collections::{BTreeMap, BTreeSet};

/// What is carried out together: all of it or nothing, unless it is longer than the kernel takes at once
/// ([`parts_of`](crate::parts::parts_of)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Chains and sets, before elements.
    pub frame: Vec<FrameStep>,
    /// Elements.
    pub elements: Vec<Operation>,
}

impl Step {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.frame.is_empty() && self.elements.is_empty()
    }
}

/// Something to do to chains and sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameStep {
    /// Makes the table with these sets and chains. Refused when there is a table of the name: somebody else has just
    /// made it, and it may serve.
    Make(Frame),
    /// The same, and a table of the name that is there goes in the same batch.
    MakeAnew(Frame),
    /// Makes what is not there yet. Rules of a chain that is there come behind its own; a chain below lists
    /// ([`names::is_below_lists`]) has its rules in place of what is there.
    Extend(Frame),
    /// Puts rules behind those that a chain has. Only parts of a step do so ([`crate::parts`]): no difference asks for it.
    Append(Chain),
    /// Gives chains these rules in place of theirs.
    Rewrite(Vec<Chain>),
    /// Deletes chains, which nothing leads to but each other.
    DeleteChains(Vec<Name>),
    /// Deletes sets, which no rule uses.
    DeleteSets(Vec<Name>),
}

/// What to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// All of it.
    Everything,
    /// Sets and chains with their rules, without elements.
    Frame,
    /// These elements.
    Elements(Vec<ElementKey>),
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The answer to [`Reading::Everything`]; `None` without a table.
    Everything(Option<Seen>),
    /// The answer to [`Reading::Frame`]; `None` without a table.
    Frame(Option<SeenFrame>),
    /// The answer to [`Reading::Elements`].
    Elements(Vec<(ElementKey, Option<Element>)>),
}

/// A whole table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Sets and chains.
    pub frame: SeenFrame,
    /// The elements of sets that are ours by name.
    pub elements: Pool,
}

/// Sets and chains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenFrame {
    /// Sets with a name.
    pub sets: BTreeMap<Name, SeenSet>,
    /// Chains.
    pub chains: BTreeMap<Name, SeenChain>,
}

/// Whether a set is what its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenSet {
    /// It is one of ours, by name and type.
    Ours,
    /// It is somebody else's.
    Strange,
}

/// A chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenChain {
    /// Where packets enter it.
    pub base: Option<Base>,
    /// Its rules; `None` for one that is not of our kind.
    pub rules: Vec<Option<Rule>>,
}

impl SeenFrame {
    /// The shapes that packets are looked up for. A step that was carried out in part has left sets of others.
    pub fn shapes_in_use(&self) -> Shapes {
        let lists = names::Kind::ALL.map(|kind| self.chains.get(&kind.endpoints()));
        let rules = lists
            .into_iter()
            .flatten()
            .flat_map(|chain| chain.rules.iter().flatten());
        let looked_into: BTreeSet<&Name> = rules
            .flat_map(|rule| &rule.matches)
            .filter_map(|part| match part {
                Match::In(_, set) => Some(set),
                _ => None,
            })
            .collect();
        self.shapes_of(|name| looked_into.contains(name))
    }

    /// The shapes that there are sets for.
    pub fn shapes(&self) -> Shapes {
        self.shapes_of(|_| true)
    }

    fn shapes_of(&self, has: impl Fn(&Name) -> bool) -> Shapes {
        let ours = self
            .sets
            .iter()
            .filter(|(name, seen)| **seen == SeenSet::Ours && has(name));
        ours.filter_map(|(name, _)| shape_of(name))
            .filter(|shape| self.has_slots_for(*shape))
            .collect()
    }

    /// Whether the slots are there that lists of this shape may have. A set that has such a name, and no slots, is none
    /// of ours: nobody's frame grows beyond what was read because of a number in a name.
    fn has_slots_for(&self, shape: Shape) -> bool {
        let Some(bound) = shape.choice.bound().map(Bound::get) else {
            return true;
        };
        let last = shape.kind.slot(bound - 1);
        usize::try_from(bound).is_ok_and(|bound| bound <= self.sets.len())
            && self.sets.get(&last) == Some(&SeenSet::Ours)
    }

    /// Whether packets go through our chains: one that is not ours alone leads to them. A process that ended while it
    /// took another's table over leaves chains of ours through which nothing goes yet.
    pub fn is_ours(&self) -> bool {
        let ours = Action::Jump(names::Kind::Service.endpoints());
        let leads = |rule: &Rule| rule.actions.contains(&ours);
        let shared = self
            .chains
            .iter()
            .filter(|(name, _)| !name.as_str().contains('/'));
        let mut rules = shared.flat_map(|(_, chain)| chain.rules.iter().flatten());
        rules.any(leads)
    }
}

/// The shape whose frontends are in a set.
fn shape_of(set: &Name) -> Option<Shape> {
    let form = names::form_of(set.as_str())?;
    let choice = match form.role {
        Role::Within(bound, None) => Choice::Random(bound),
        Role::Within(bound, Some(timeout)) => Choice::Sticky(bound, timeout),
        Role::Hashed => Choice::Hashed,
        _ => return None,
    };
    let kind = form.kind?;
    Some(Shape { kind, choice })
}

/// How a frame comes to be another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameChange {
    /// What to do, in one step.
    pub steps: Vec<FrameStep>,
    /// What is there then.
    pub then: Held,
}

impl FrameChange {
    /// Whether all that this makes or mends is made or mended by another as well: no more is missing than there.
    pub fn is_part_of(&self, other: &FrameChange) -> bool {
        let (sets, chains) = other.made();
        let (own_sets, own_chains) = self.made();
        own_sets.is_subset(&sets)
            && own_chains
                .iter()
                .all(|(name, rules)| chains.get(name) == Some(rules))
    }

    fn made(&self) -> (BTreeSet<&Name>, BTreeMap<&Name, &[Rule]>) {
        let mut sets = BTreeSet::new();
        let mut chains = BTreeMap::new();
        for step in &self.steps {
            let written = match step {
                FrameStep::Extend(frame) => {
                    sets.extend(frame.sets.iter().map(|set| &set.name));
                    &frame.chains
                }
                FrameStep::Rewrite(chains) => chains,
                _ => continue,
            };
            chains.extend(written.iter().map(|chain| (&chain.name, chain.rules.as_slice())));
        }
        (sets, chains)
    }
}

/// A frame as the kernel holds it: chains in any order, since only their names matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Names of sets.
    pub sets: BTreeSet<Name>,
    /// Rules by chain; `None` for one that has rules not of our kind.
    pub chains: BTreeMap<Name, Option<Vec<Rule>>>,
}

impl Held {
    /// What was read.
    pub fn seen(seen: &SeenFrame) -> Held {
        let rules = |chain: &SeenChain| chain.rules.iter().cloned().collect::<Option<Vec<Rule>>>();
        Held {
            sets: seen.sets.keys().cloned().collect(),
            chains: seen
                .chains
                .iter()
                .map(|(name, chain)| (name.clone(), rules(chain)))
                .collect(),
        }
    }

    /// How this becomes a frame. What is there besides is left; base chains are taken to be where they should.
    pub fn change_to(&self, want: &Frame) -> FrameChange {
        let mut then = self.clone();
        let mut new = Frame {
            family: want.family,
            sets: Vec::new(),
            chains: Vec::new(),
        };
        let mut rewrite = Vec::new();
        for set in &want.sets {
            if then.sets.insert(set.name.clone()) {
                new.sets.push(set.clone());
            }
        }
        for chain in &want.chains {
            let Some(have) = self.chains.get(&chain.name) else {
                new.chains.push(chain.clone());
                then.chains.insert(chain.name.clone(), Some(chain.rules.clone()));
                continue;
            };
            match have.as_ref().and_then(|have| missing(have, chain)) {
                Some(missing) if missing.is_empty() => {}
                Some(missing) => {
                    let all = [have.as_deref().unwrap_or_default(), &missing].concat();
                    then.chains.insert(chain.name.clone(), Some(all));
                    new.chains.push(Chain {
                        rules: missing,
                        ..chain.clone()
                    });
                }
                None => {
                    then.chains.insert(chain.name.clone(), Some(chain.rules.clone()));
                    rewrite.push(chain.clone());
                }
            }
        }
        let mut steps = Vec::new();
        if !new.sets.is_empty() || !new.chains.is_empty() {
            steps.push(FrameStep::Extend(new));
        }
        if !rewrite.is_empty() {
            steps.push(FrameStep::Rewrite(rewrite));
        }
        FrameChange { steps, then }
    }

    /// What a whole frame holds.
    pub fn of(frame: &Frame) -> Held {
        Held {
            sets: frame.sets.iter().map(|set| set.name.clone()).collect(),
            chains: frame
                .chains
                .iter()
                .map(|chain| (chain.name.clone(), Some(chain.rules.clone())))
                .collect(),
        }
    }
}

/// The rules that are to come behind those of a chain; `None` when it has to be written anew.
///
/// The chains that look a frontend up grow with each new shape, in the order in which shapes come; each rule there looks
/// into a set of its own. The order matters among the bounds of one choice alone: a list that grows goes from a set to one
/// that is looked into later.
fn missing(have: &[Rule], want: &Chain) -> Option<Vec<Rule>> {
    if have == want.rules {
        return Some(Vec::new());
    }
    let lists = names::Kind::ALL.map(names::Kind::endpoints);
    if !lists.contains(&want.name) || !have.iter().all(|rule| want.rules.contains(rule)) {
        return None;
    }
    let twice = (0..have.len()).any(|at| have[..at].contains(&have[at]));
    let missing: Vec<Rule> = want
        .rules
        .iter()
        .filter(|rule| !have.contains(rule))
        .cloned()
        .collect();
    let ascends = bounds_ascend(have.iter().chain(&missing));
    (!twice && ascends).then_some(missing)
}

/// Whether of two rules for one choice the one with the larger bound comes later.
fn bounds_ascend<'a>(rules: impl Iterator<Item = &'a Rule>) -> bool {
    let mut last = BTreeMap::new();
    let sets = rules
        .flat_map(|rule| &rule.matches)
        .filter_map(|part| match part {
            Match::In(_, set) => names::form_of(set.as_str()),
            _ => None,
        });
    sets.into_iter().all(|form| match form.role {
        Role::Within(bound, sticky) => last
            .insert((form.kind, sticky), bound)
            .is_none_or(|before| before < bound),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_a_name_makes_no_slots() {
        let kind = names::Kind::Service;
        let frame = |bound: usize, slots: &[u32]| {
            let bound = Bound::of(bound).expect("some slots");
            let mut sets: BTreeMap<Name, SeenSet> = slots
                .iter()
                .map(|slot| (kind.slot(*slot), SeenSet::Ours))
                .collect();
            sets.insert(kind.within(bound), SeenSet::Ours);
            let chains = BTreeMap::new();
            let choice = Choice::Random(bound);
            (SeenFrame { sets, chains }.shapes(), Shape { kind, choice })
        };
        let (shapes, shape) = frame(4, &[0, 1, 2, 3]);
        assert!(shapes.iter().eq([&shape]));
        assert!(frame(4, &[0, 1, 2]).0.is_empty());
        assert!(frame(1 << 30, &[]).0.is_empty());
        assert!(frame(1 << 30, &[0, 1, (1 << 30) - 1]).0.is_empty());
    }
}
