//! What the kernel is asked to do in one batch, and what it says when it is asked what there is.

use crate::ast::{Action, Base, Chain, Element, ElementKey, Frame, Name, Rule};
use crate::build::{Choice, Shape, Shapes};
use crate::diff::Operation;
use crate::names::{self, Role};
use crate::pool::Pool;
use std::collections::{BTreeMap, BTreeSet};

/// One batch: the kernel carries out all of it or nothing, but for sets and leaves ([`is_leaf`]) of a long one.
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
    /// Makes what is not there yet. Rules of a chain that is there come behind its own; a leaf ([`is_leaf`]) has its rules
    /// in place of what is there.
    Extend(Frame),
    /// Gives chains these rules in place of theirs.
    Rewrite(Vec<Chain>),
    /// Deletes chains, which nothing leads to but each other.
    DeleteChains(Vec<Name>),
    /// Deletes sets, which no rule uses.
    DeleteSets(Vec<Name>),
}

/// Whether a chain is one of ours alone that leads to no other: nothing that packets meet changes when it is made before
/// anything leads to it, once or twice.
pub fn is_leaf(chain: &Chain) -> bool {
    let leads_on = |action: &Action| {
        matches!(
            action,
            Action::Jump(_) | Action::Goto(_) | Action::JumpRandom(_) | Action::JumpHashed(_)
        )
    };
    names::is_ours_alone(&chain.name) && !chain.rules.iter().flat_map(|rule| &rule.actions).any(leads_on)
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
    /// The shapes that there are sets for.
    pub fn shapes(&self) -> Shapes {
        let ours = self.sets.iter().filter(|(_, seen)| **seen == SeenSet::Ours);
        ours.filter_map(|(name, _)| {
            let form = names::form_of(name.as_str())?;
            let choice = match form.role {
                Role::Within(bound, None) => Choice::Random(bound),
                Role::Within(bound, Some(timeout)) => Choice::Sticky(bound, timeout),
                Role::Hashed => Choice::Hashed,
                _ => return None,
            };
            let kind = form.kind?;
            Some(Shape { kind, choice })
        })
        .collect()
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

/// How a frame comes to be another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameChange {
    /// What to do, in one step.
    pub steps: Vec<FrameStep>,
    /// What is there then.
    pub then: Held,
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
/// into a set of its own, so the order does not matter.
fn missing(have: &[Rule], want: &Chain) -> Option<Vec<Rule>> {
    if have == want.rules {
        return Some(Vec::new());
    }
    let lists = names::Kind::ALL.map(names::Kind::endpoints);
    if !lists.contains(&want.name) || !have.iter().all(|rule| want.rules.contains(rule)) {
        return None;
    }
    let twice = (0..have.len()).any(|at| have[..at].contains(&have[at]));
    let missing = want.rules.iter().filter(|rule| !have.contains(rule));
    (!twice).then(|| missing.cloned().collect())
}
