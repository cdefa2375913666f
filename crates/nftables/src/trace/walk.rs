//! The walk itself: rules in order, chains in one another, branches side by side.

use super::act::{self, undecided};
use super::ask::open;
use super::indexed::Indexed;
use super::join::Joined;
use super::lookup::{Asked, When, answers};
use super::nat;
use crate::listed::{Chain, Element, Expr, Rule, Statement, Verdict as Listed};
use std::sync::Arc;
use traced::{
    Condition, Criterion, Detail, Did, Event, History, Limits, Name, Place, Site, State, Truth, Verdict,
    too_much,
};

/// Follows a packet from a base chain, which is one of the table, to its verdicts, one for each branch. Branches come in the order of the rules that
/// they take first.
pub fn walk(
    (indexed, base): (&Indexed<'_>, &Chain),
    start: State,
    site: &Site<'_>,
    limits: Limits,
    history: &mut History,
) -> Vec<(State, Verdict)> {
    let mut walk = Walk {
        indexed,
        site,
        limits,
        history,
        branches: 1,
    };
    let exits = walk.chain(base, start, &[]);
    exits
        .into_iter()
        .map(|(state, exit)| walk.verdict(base, state, exit))
        .collect()
}

/// One branch while a rule is evaluated.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    /// The packet.
    pub state: State,
    /// Elements that were found, and are told once the rule does something.
    pub found: Vec<(Arc<str>, Arc<str>)>,
    /// Whether the rule has done something.
    acted: bool,
}

/// What one statement comes to.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The rule goes on.
    On,
    /// It is not true of the packet.
    Fails,
    /// It did this, and the rule goes on.
    Did(Did),
    /// It did this, if that is so; if not, the rule ends.
    DidIf(Did, Condition),
    /// It did this, and the packet's way through the base chain ends.
    Ends(Did, Verdict),
    /// Another chain, a return or the like.
    Goes(Listed),
}

/// How a branch left a chain.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Exit {
    /// At its end, or by return.
    Returned,
    /// For good.
    Done(Verdict),
}

/// How a branch left a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Flow {
    /// The next rule.
    Next,
    /// The chain is left.
    Leaves(Exit),
}

pub(super) struct Walk<'a, 'w> {
    pub(super) indexed: &'w Indexed<'a>,
    pub(super) site: &'w Site<'w>,
    limits: Limits,
    pub(super) history: &'w mut History,
    /// Branches that there are now.
    pub(super) branches: usize,
}

/// The ways through one rule.
struct Ways {
    /// Those that have left it.
    done: Vec<(State, Flow)>,
    /// Those that have not, each at the statement of this index, with what the one before came to. They wait on a stack:
    /// the one pushed last is followed first.
    waiting: Vec<(usize, Branch, Step)>,
}

/// A place in a rule, and where the rule is.
#[derive(Clone, Copy)]
pub(super) struct At<'r> {
    rule: &'r Rule,
    place: &'r Place,
    pub(super) trail: &'r [&'r str],
}

impl Walk<'_, '_> {
    /// Every way through a chain from its first rule.
    pub(super) fn chain(&mut self, chain: &Chain, start: State, trail: &[&str]) -> Vec<(State, Exit)> {
        let trail = [trail, &[&*chain.name]].concat();
        let mut exits = Joined::default();
        let mut here = vec![(start, ())];
        for (index, rule) in chain.rules.iter().enumerate() {
            let place = Place {
                hook: self.site.hook,
                table: self.site.table.clone(),
                chain: Name::from(chain.name.clone()),
                rule: u32::try_from(index + 1).unwrap_or(u32::MAX),
            };
            let at = At {
                rule,
                place: &place,
                trail: &trail,
            };
            let mut behind = Joined::default();
            for (state, ()) in std::mem::take(&mut here) {
                self.history.evaluated();
                let mut next = Joined::default();
                for (state, flow) in self.rule(at, state) {
                    match flow {
                        Flow::Next => self.join(&mut next, state, ()),
                        Flow::Leaves(exit) => self.join(&mut exits, state, exit),
                    }
                }
                let mut next = next.all;
                self.reunite(&mut next);
                for (state, ()) in next {
                    self.join(&mut behind, state, ());
                }
            }
            here = behind.all;
            if here.is_empty() {
                break;
            }
        }
        for (state, ()) in here {
            self.join(&mut exits, state, Exit::Returned);
        }
        exits.all
    }

    fn verdict(&mut self, base: &Chain, mut state: State, exit: Exit) -> (State, Verdict) {
        if let Exit::Done(verdict) = exit {
            return (state, verdict);
        }
        let policy = base
            .base
            .as_ref()
            .map_or(traced::Policy::Accept, |base| base.policy);
        let event = Event::Policy {
            hook: self.site.hook,
            table: self.site.table.clone(),
            chain: Name::from(base.name.clone()),
            policy,
        };
        self.record(&mut state, event);
        let verdict = match policy {
            traced::Policy::Accept => Verdict::Accept,
            traced::Policy::Drop => Verdict::Drop,
        };
        (state, verdict)
    }

    fn record(&mut self, state: &mut State, event: Event) {
        state.last = Some(self.history.push(state.last, event));
    }

    /// Every way through one rule.
    fn rule(&mut self, at: At<'_>, state: State) -> Vec<(State, Flow)> {
        let first = Branch {
            state,
            found: Vec::new(),
            acted: false,
        };
        let mut ways = Ways {
            done: Vec::new(),
            waiting: vec![(0, first, Step::On)],
        };
        while let Some((index, branch, step)) = ways.waiting.pop() {
            if self.history.exhausted() {
                ways.done
                    .push((branch.state, Flow::Leaves(Exit::Done(too_much()))));
                continue;
            }
            let Some(mut branch) = self.take(at, (index, branch, step), &mut ways) else {
                continue;
            };
            if let Some(statement) = at.rule.statements.get(index) {
                let steps = self.statement(at, index, statement, branch);
                let steps = steps.into_iter().map(|(branch, step)| (index + 1, branch, step));
                ways.waiting.extend(steps.rev());
            } else {
                if !branch.acted {
                    self.met(at, &mut branch, Did::Nothing);
                }
                ways.done.push((branch.state, Flow::Next));
            }
        }
        ways.done
    }

    /// Does what the statement before `index` came to; `None` when the branch has left the rule, or forked.
    fn take(
        &mut self,
        at: At<'_>,
        (index, mut branch, step): (usize, Branch, Step),
        ways: &mut Ways,
    ) -> Option<Branch> {
        match step {
            Step::On => return Some(branch),
            Step::Did(did) => {
                self.met(at, &mut branch, did);
                return Some(branch);
            }
            Step::DidIf(did, condition) => {
                let other = self.fork(at, &mut branch, &condition, true);
                ways.waiting.push((index, other, Step::Fails));
                ways.waiting.push((index, branch, Step::Did(did)));
            }
            Step::Fails => {
                let failed = Criterion::Match(index.saturating_sub(1));
                self.passed(at, &mut branch.state, failed);
                ways.done.push((branch.state, Flow::Next));
            }
            Step::Ends(did, verdict) => {
                self.met(at, &mut branch, did);
                ways.done.push((branch.state, Flow::Leaves(Exit::Done(verdict))));
            }
            Step::Goes(verdict) => ways.done.extend(self.go(at, branch, verdict)),
        }
        None
    }

    fn passed(&mut self, at: At<'_>, state: &mut State, failed: Criterion) {
        if self.history.detail() == Detail::Everything {
            let place = at.place.clone();
            self.record(state, Event::Passed { place, failed });
        }
    }

    /// The rule matched and did something.
    pub(super) fn met(&mut self, at: At<'_>, branch: &mut Branch, did: Did) {
        branch.acted = true;
        for (set, element) in std::mem::take(&mut branch.found) {
            let place = at.place.clone();
            self.record(&mut branch.state, Event::Found { place, set, element });
        }
        let place = at.place.clone();
        self.record(&mut branch.state, Event::Met { place, did });
    }

    /// Makes `branch` stand on an answer, and returns the branch that stands on the opposite.
    pub(super) fn fork(
        &mut self,
        at: At<'_>,
        branch: &mut Branch,
        condition: &Condition,
        when: bool,
    ) -> Branch {
        let mut other = branch.clone();
        let assumed = |holds| Event::Assumed {
            condition: condition.clone(),
            holds,
        };
        self.record(&mut other.state, assumed(!when));
        self.passed(at, &mut other.state, Criterion::Branch);
        self.history.forked(other.state.last);
        self.record(&mut branch.state, assumed(when));
        self.branches += 1;
        other
    }

    fn is_too_much(&self, more: usize) -> bool {
        self.branches + more > self.limits.branches
    }

    fn chance(&mut self, state: &mut State, probability: f64) {
        state.chance *= probability;
        self.record(state, Event::Chance { probability });
    }

    /// What a statement comes to, on every branch.
    fn statement(
        &mut self,
        at: At<'_>,
        index: usize,
        statement: &Statement,
        mut branch: Branch,
    ) -> Vec<(Branch, Step)> {
        let rest = &at.rule.statements[index + 1..];
        let step = match statement {
            Statement::Match { left, op, right } => {
                let truth = act::matched((left, *op, right), &mut branch, self.site, self.indexed);
                return self.settle(at, rest, branch, truth);
            }
            Statement::Open(text) => {
                let negated = text.contains(" over ");
                let plain = text.replacen(" over ", " ", 1).into();
                let truth = if negated { !open(plain) } else { open(plain) };
                return self.settle(at, rest, branch, truth);
            }
            Statement::VerdictMap { key, map } => return self.verdict_map(at, key, map, branch),
            Statement::Nat(nat) => {
                let choices = nat::translate(nat, &branch, self.site, self.indexed);
                return self.choose(at, choices);
            }
            Statement::Verdict(verdict) => Step::Goes(verdict.clone()),
            Statement::Assign { to, value } => act::assign(to, value, &mut branch),
            Statement::Update(update) => act::update(update, rest, &mut branch, self.site),
            Statement::Reject(with) => {
                let with: Arc<str> = if with.is_empty() {
                    "port-unreachable".into()
                } else {
                    with.clone()
                };
                Step::Ends(Did::Rejected(with.clone()), Verdict::Reject(with))
            }
            Statement::NoTrack => {
                let unseen = branch.state.connection.track == traced::Track::Unseen;
                if unseen {
                    branch.state.connection.track = traced::Track::Untracked;
                }
                Step::Did(if unseen { Did::Untracked } else { Did::Nothing })
            }
            Statement::Inert(_) => Step::On,
            Statement::Unknown(text) => return self.unknown(at, text, branch),
        };
        vec![(branch, step)]
    }

    /// Goes on where a statement is true, and leaves the rule where it is not.
    fn settle(
        &mut self,
        at: At<'_>,
        rest: &[Statement],
        mut branch: Branch,
        truth: Truth,
    ) -> Vec<(Branch, Step)> {
        let truth = match truth {
            Truth::Hangs(condition, when) => match self.history.answer(branch.state.last, &condition) {
                Some(answer) => Truth::Known(answer == when),
                None => Truth::Hangs(condition, when),
            },
            other => other,
        };
        let inert = |statement: &Statement| {
            matches!(
                statement,
                Statement::Inert(_) | Statement::Match { .. } | Statement::Open(_)
            )
        };
        let nothing_hangs_on_it = !branch.acted && rest.iter().all(inert);
        match truth {
            Truth::Known(true) => vec![(branch, Step::On)],
            Truth::Known(false) => vec![(branch, Step::Fails)],
            Truth::Hangs(..) | Truth::Random(_) if nothing_hangs_on_it => {
                let conditions = match truth {
                    Truth::Hangs(condition, when) => vec![(condition, when)],
                    _ => Vec::new(),
                };
                let place = at.place.clone();
                self.record(&mut branch.state, Event::MayHaveMet { place, conditions });
                vec![(branch, Step::Fails)]
            }
            _ if self.is_too_much(1) => vec![(branch, self.exceeded())],
            Truth::Hangs(condition, when) => {
                let other = self.fork(at, &mut branch, &condition, when);
                vec![(branch, Step::On), (other, Step::Fails)]
            }
            Truth::Random(probability) => {
                let mut other = branch.clone();
                self.branches += 1;
                self.chance(&mut other.state, 1.0 - probability);
                self.chance(&mut branch.state, probability);
                vec![(branch, Step::On), (other, Step::Fails)]
            }
        }
    }

    fn exceeded(&self) -> Step {
        let verdict = self.limits.exceeded();
        Step::Ends(Did::Nothing, verdict)
    }

    /// What an element says, for every element that it may be.
    fn verdict_map(&mut self, at: At<'_>, key: &Expr, map: &Expr, branch: Branch) -> Vec<(Branch, Step)> {
        let asked = Asked::of(map, self.indexed);
        let choices = asked.and_then(|asked| answers(key, &asked, &branch.state, self.site));
        let Some(choices) = choices else {
            let text = format!("{key} vmap {map}");
            return vec![(branch, undecided(text))];
        };
        let says = |element: &Element| match &element.data {
            Some(Expr::Verdict(verdict)) => Step::Goes(verdict.clone()),
            _ => undecided(format!("{key} vmap {map}")),
        };
        let choices = choices.into_iter().map(|choice| {
            let mut branch = branch.clone();
            if let (Expr::Named(name), Some(element)) = (map, choice.element) {
                branch.found.push((name.clone(), element.to_string().into()));
            }
            (choice.when, branch, choice.element.map_or(Step::Fails, says))
        });
        let choices = choices.collect();
        self.choose(at, choices)
    }

    /// Forks into the answers of a map: by chance side by side, by conditions one after another.
    fn choose(&mut self, at: At<'_>, choices: Vec<(When, Branch, Step)>) -> Vec<(Branch, Step)> {
        let mut all = Vec::new();
        if self.is_too_much(choices.len()) {
            let first = choices.into_iter().next();
            return first
                .map(|(_, branch, _)| (branch, self.exceeded()))
                .into_iter()
                .collect();
        }
        // What the answers before were not.
        let mut before = None;
        for (when, mut branch, step) in choices {
            if let Some(last) = before {
                branch.state.last = last;
            }
            match when {
                When::Always => all.push((branch, step)),
                When::Chance(probability) => {
                    self.branches += usize::from(!all.is_empty());
                    self.chance(&mut branch.state, probability);
                    all.push((branch, step));
                }
                When::If(condition, needed) => match self.history.answer(branch.state.last, &condition) {
                    Some(answer) if answer != needed => {}
                    Some(_) => {
                        all.push((branch, step));
                        return all;
                    }
                    None => {
                        let other = self.fork(at, &mut branch, &condition, needed);
                        before = Some(other.state.last);
                        all.push((branch, step));
                    }
                },
            }
        }
        all
    }

    /// A statement that is not understood: either it lets the packet go on with the next rule, or nobody knows.
    fn unknown(&mut self, at: At<'_>, text: &Arc<str>, mut branch: Branch) -> Vec<(Branch, Step)> {
        let end = undecided(text.to_string());
        if self.is_too_much(1) {
            return vec![(branch, self.exceeded())];
        }
        let other = self.fork(at, &mut branch, &Condition::LetsGoOn(text.clone()), false);
        vec![(branch, end), (other, Step::Fails)]
    }
}
