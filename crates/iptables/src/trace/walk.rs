//! The walk itself: rules in order, chains on a stack, branches on a worklist.

use super::criteria::{Answer, Open, ask};
use super::target::{self, Flow};
use crate::ast::{Chain, ChainName, Policy, Rule, Table};
use traced::{Condition, Criterion, Detail, Event, History, Limits, Place, Site, State, Verdict, too_much};

/// How many chains may lead to one another. Far above what nftables allows (`NFT_JUMP_STACK_SIZE`, 16): old tables
/// have other bounds, but every waiting branch holds the chains that led to it.
const DEPTH: usize = 128;

/// Follows a packet from a built-in chain of a table to the table's verdicts, one for each branch.
///
/// A table without that chain has nothing to say and accepts. Branches come in the order of the rules they take first.
pub fn walk(
    table: &Table,
    start: State,
    site: &Site<'_>,
    limits: Limits,
    history: &mut History,
) -> Vec<(State, Verdict)> {
    let Ok(base) = ChainName::new(site.hook.as_str()) else {
        return vec![(start, Verdict::Accept)];
    };
    let Some((name, chain)) = table.chains.get_key_value(&base) else {
        return vec![(start, Verdict::Accept)];
    };
    let frames = vec![Frame {
        name,
        chain,
        next: 0,
        depth: 1,
    }];
    let first = Walker {
        state: start,
        frames,
        trail: vec![name],
    };
    let mut walk = Walk {
        table,
        site,
        limits,
        history,
        waiting: vec![first],
        done: Vec::new(),
    };
    while let Some(walker) = walk.waiting.pop() {
        walk.follow(walker);
    }
    walk.done
}

/// A chain that is being walked.
#[derive(Clone)]
struct Frame<'a> {
    name: &'a ChainName,
    chain: &'a Chain,
    /// Index of the rule to look at next.
    next: usize,
    /// How long the trail was with this chain in it.
    depth: usize,
}

/// A branch.
#[derive(Clone)]
struct Walker<'a> {
    state: State,
    frames: Vec<Frame<'a>>,
    /// The chains that led here, those left by goto included: none may come twice, since the kernel refuses loops.
    trail: Vec<&'a ChainName>,
}

struct Walk<'a, 'w> {
    table: &'a Table,
    site: &'w Site<'w>,
    limits: Limits,
    history: &'w mut History,
    waiting: Vec<Walker<'a>>,
    done: Vec<(State, Verdict)>,
}

impl<'a> Walk<'a, '_> {
    /// Follows one branch to its verdict, leaving other branches to wait.
    fn follow(&mut self, mut walker: Walker<'a>) {
        while let Some(frame) = walker.frames.last_mut() {
            let Some(rule) = frame.chain.rules.get(frame.next) else {
                if let Some(verdict) = self.end_of_chain(&mut walker) {
                    self.done.push((walker.state, verdict));
                    return;
                }
                continue;
            };
            frame.next += 1;
            if let Some(verdict) = self.rule(rule, &mut walker) {
                self.done.push((walker.state, verdict));
                return;
            }
        }
    }

    /// Evaluates the rule before the frame's next one; a verdict ends the branch.
    fn rule(&mut self, rule: &'a Rule, walker: &mut Walker<'a>) -> Option<Verdict> {
        let open = match ask(rule, &walker.state, self.site, self.history) {
            Answer::No(criterion) => {
                self.passed(walker, criterion);
                return self.history.exhausted().then(too_much);
            }
            Answer::If(open) => open,
        };
        if self.history.exhausted() {
            return Some(too_much());
        }
        let certain = open.conditions.is_empty() && open.probability >= 1.0;
        if !certain && target::is_inert(&rule.target) {
            let event = Event::MayHaveMet {
                place: self.place(walker)?,
                conditions: open.conditions,
            };
            self.record(walker, event);
            return None;
        }
        if !certain {
            if self.waiting.len() + self.done.len() + open.conditions.len() + 1 >= self.limits.branches {
                return Some(self.limits.exceeded());
            }
            self.fork(walker, open);
        }
        self.meet(rule, walker)
    }

    /// Leaves to wait what does not match, and makes `walker` the branch that does.
    fn fork(&mut self, walker: &mut Walker<'a>, open: Open) {
        // Branches wait on a stack: the one left first is followed last.
        let mut others = Vec::new();
        for (condition, when) in open.conditions {
            others.push(self.assume(walker, condition, when));
        }
        if open.probability < 1.0 {
            let mut other = walker.clone();
            self.chance(&mut other, 1.0 - open.probability);
            self.passed(&mut other, Criterion::Branch);
            self.history.forked(other.state.last);
            others.push(other);
            self.chance(walker, open.probability);
        }
        self.waiting.extend(others);
    }

    /// Makes `walker` stand on the condition's answer, and returns the branch that stands on the opposite.
    fn assume(&mut self, walker: &mut Walker<'a>, condition: Condition, when: bool) -> Walker<'a> {
        let mut other = walker.clone();
        let opposite = Event::Assumed {
            condition: condition.clone(),
            holds: !when,
        };
        self.record(&mut other, opposite);
        self.passed(&mut other, Criterion::Branch);
        self.history.forked(other.state.last);
        self.record(
            walker,
            Event::Assumed {
                condition,
                holds: when,
            },
        );
        other
    }

    fn chance(&mut self, walker: &mut Walker<'a>, probability: f64) {
        walker.state.chance *= probability;
        self.record(walker, Event::Chance { probability });
    }

    /// The rule matches: does what it says.
    fn meet(&mut self, rule: &'a Rule, walker: &mut Walker<'a>) -> Option<Verdict> {
        let place = self.place(walker)?;
        let (did, flow) = target::act(&rule.target, &mut walker.state, self.site);
        self.record(walker, Event::Met { place, did });
        match flow {
            Flow::Next => None,
            Flow::Done(verdict) => Some(verdict),
            Flow::Return => self.return_from(walker),
            Flow::Jump(to) => self.enter(walker, &to),
            Flow::Goto(to) => {
                // A built-in chain stays at the bottom, at its end: its policy decides what comes back.
                match walker.frames.len() {
                    1 => walker.frames[0].next = usize::MAX,
                    _ => drop(walker.frames.pop()),
                }
                self.enter(walker, &to)
            }
            Flow::Unless {
                condition,
                then,
                otherwise,
            } => {
                let other = self.assume(walker, condition, true);
                self.done.push((other.state, otherwise));
                then
            }
        }
    }

    fn enter(&mut self, walker: &mut Walker<'a>, to: &ChainName) -> Option<Verdict> {
        let Some((name, chain)) = self.table.chains.get_key_value(to) else {
            return Some(Verdict::Undecided(
                format!(
                    "chain {to} of table {} is not among the rules given",
                    self.site.table
                )
                .into(),
            ));
        };
        if walker.trail.contains(&name) {
            return Some(Verdict::Undecided(
                format!("chain {to} leads to itself; the kernel refuses such rules").into(),
            ));
        }
        if walker.trail.len() >= DEPTH {
            return Some(Verdict::Undecided(
                format!("more than {DEPTH} chains lead to chain {to}: it is not followed").into(),
            ));
        }
        walker.trail.push(name);
        let depth = walker.trail.len();
        walker.frames.push(Frame {
            name,
            chain,
            next: 0,
            depth,
        });
        None
    }

    /// The end of a chain, or RETURN: back to the caller, or the policy.
    fn return_from(&mut self, walker: &mut Walker<'a>) -> Option<Verdict> {
        if walker.frames.len() > 1 {
            walker.frames.pop();
            let depth = walker.frames.last().map_or(0, |frame| frame.depth);
            walker.trail.truncate(depth);
            return None;
        }
        let frame = walker.frames.first()?;
        let policy = frame.chain.policy.unwrap_or(Policy::Accept);
        let event = Event::Policy {
            hook: self.site.hook,
            table: self.site.table.clone(),
            chain: frame.name.as_str().into(),
            policy,
        };
        self.record(walker, event);
        Some(match policy {
            Policy::Accept => Verdict::Accept,
            Policy::Drop => Verdict::Drop,
        })
    }

    fn end_of_chain(&mut self, walker: &mut Walker<'a>) -> Option<Verdict> {
        self.return_from(walker)
    }

    /// The place of the rule before the frame's next one.
    fn place(&self, walker: &Walker<'a>) -> Option<Place> {
        let frame = walker.frames.last()?;
        Some(Place {
            hook: self.site.hook,
            table: self.site.table.clone(),
            chain: frame.name.as_str().into(),
            rule: u32::try_from(frame.next).unwrap_or(u32::MAX),
        })
    }

    fn passed(&mut self, walker: &mut Walker<'a>, failed: Criterion) {
        if self.history.detail() == Detail::Everything
            && let Some(place) = self.place(walker)
        {
            self.record(walker, Event::Passed { place, failed });
        }
    }

    fn record(&mut self, walker: &mut Walker<'a>, event: Event) {
        walker.state.last = Some(self.history.push(walker.state.last, event));
    }
}
