//! A step in parts, for one that is longer than the kernel takes at once.
//!
//! Each part is carried out whole or not at all. After each of them every frontend is served as before the step or as
//! after it: what comes first is what packets are not led to yet (sets, and the chains below a new list), then chains
//! below a list that are mended, then endpoints one by one, and in one part, the heart, all that leads packets somewhere
//! else. What nobody needs any more comes last.

use crate::ast::{Chain, ElementKey, Frame};
use crate::diff::Operation;
use crate::names::{self, Role};
use crate::step::{FrameStep, Step};
use model::Family;

/// Rules of a chain that are one part: some 100 kB, which every socket has room for.
const MOST_RULES: usize = 256;
/// Elements that are one part.
const MOST_ELEMENTS: usize = 256;

/// The parts of a step, in the order in which they have to be carried out. A step that makes the table has one.
pub fn parts_of(step: &Step) -> Vec<Step> {
    let makes = |part: &FrameStep| matches!(part, FrameStep::Make(_) | FrameStep::MakeAnew(_));
    if step.frame.iter().any(makes) {
        return vec![step.clone()];
    }
    let mut parts = Vec::new();
    let mut heart = Step::default();
    for part in &step.frame {
        match part {
            FrameStep::Extend(frame) => heart.frame.extend(before_what_is_met(frame, &mut parts)),
            FrameStep::Rewrite(chains) => heart.frame.extend(mended(chains, &mut parts)),
            other => heart.frame.push(other.clone()),
        }
    }
    let (gone, there): (Vec<_>, Vec<_>) =
        step.elements.iter().cloned().partition(|operation| {
            is_endpoint(operation.key()) && matches!(operation, Operation::Delete(..))
        });
    let (endpoints, others): (Vec<_>, Vec<_>) = there
        .into_iter()
        .partition(|operation| is_endpoint(operation.key()));
    heart.elements = others;
    parts.extend(in_some(&endpoints));
    if !heart.is_empty() {
        parts.push(heart);
    }
    parts.extend(in_some(&gone));
    parts
}

fn is_endpoint(key: &ElementKey) -> bool {
    let form = names::form_of(key.set.as_str());
    form.is_some_and(|form| matches!(form.role, Role::Slot(_) | Role::Bucket(_)))
}

fn in_some(elements: &[Operation]) -> impl Iterator<Item = Step> {
    elements.chunks(MOST_ELEMENTS).map(|some| Step {
        frame: Vec::new(),
        elements: some.to_vec(),
    })
}

/// Makes sets, and chains that nothing leads to yet; says what else of the frame there is.
fn before_what_is_met(frame: &Frame, parts: &mut Vec<Step>) -> Option<FrameStep> {
    let of_frame = |sets, chains| {
        FrameStep::Extend(Frame {
            family: frame.family,
            sets,
            chains,
        })
    };
    for set in &frame.sets {
        parts.push(of_step(vec![of_frame(vec![set.clone()], Vec::new())]));
    }
    let (below, rest): (Vec<&Chain>, Vec<&Chain>) = frame
        .chains
        .iter()
        .partition(|chain| names::is_below_lists(&chain.name));
    for chain in below {
        match chain.rules.len() {
            0..=MOST_RULES => parts.push(of_step(vec![of_frame(Vec::new(), vec![chain.clone()])])),
            _ => parts.extend(by_and_by(frame.family, chain)),
        }
    }
    let rest: Vec<Chain> = rest.into_iter().cloned().collect();
    (!rest.is_empty()).then(|| of_frame(Vec::new(), rest))
}

/// Makes a long chain. If it is there and something leads to it, that is refused: packets would meet half of it.
fn by_and_by(family: Family, chain: &Chain) -> Vec<Step> {
    let with = |rules| Chain {
        rules,
        ..chain.clone()
    };
    let made = |rules| {
        FrameStep::Extend(Frame {
            family,
            sets: Vec::new(),
            chains: vec![with(rules)],
        })
    };
    let mut some = chain.rules.chunks(MOST_RULES).map(<[_]>::to_vec);
    let first = vec![
        made(Vec::new()),
        FrameStep::DeleteChains(vec![chain.name.clone()]),
        made(some.next().unwrap_or_default()),
    ];
    let others = some.map(|rules| of_step(vec![FrameStep::Append(with(rules))]));
    std::iter::once(of_step(first)).chain(others).collect()
}

/// Mends chains below lists one by one; says what else there is to mend.
fn mended(chains: &[Chain], parts: &mut Vec<Step>) -> Option<FrameStep> {
    let (below, rest): (Vec<Chain>, Vec<Chain>) = chains
        .iter()
        .cloned()
        .partition(|chain| names::is_below_lists(&chain.name));
    let one = |chain| of_step(vec![FrameStep::Rewrite(vec![chain])]);
    parts.extend(below.into_iter().map(one));
    (!rest.is_empty()).then_some(FrameStep::Rewrite(rest))
}

fn of_step(frame: Vec<FrameStep>) -> Step {
    Step {
        frame,
        elements: Vec::new(),
    }
}

/// How much a step has: sets, chains, rules and elements.
pub fn size_of(step: &Step) -> usize {
    let of_chains = |chains: &[Chain]| chains.iter().map(|chain| 1 + chain.rules.len()).sum::<usize>();
    let of_part = |part: &FrameStep| match part {
        FrameStep::Make(frame) | FrameStep::MakeAnew(frame) | FrameStep::Extend(frame) => {
            frame.sets.len() + of_chains(&frame.chains)
        }
        FrameStep::Rewrite(chains) => of_chains(chains),
        FrameStep::Append(chain) => chain.rules.len(),
        FrameStep::DeleteChains(names) | FrameStep::DeleteSets(names) => names.len(),
    };
    step.frame.iter().map(of_part).sum::<usize>() + step.elements.len()
}
