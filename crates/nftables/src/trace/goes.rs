//! Where verdicts lead: other chains, programs, the end.

use super::walk::{At, Branch, Exit, Flow, Walk};
use crate::listed::Verdict as Listed;
use std::sync::Arc;
use traced::{Condition, Did, Name, State, Verdict};

/// How many chains may lead to one another: the kernel refuses more (`NFT_JUMP_STACK_SIZE`).
const DEPTH: usize = 16;

impl Walk<'_, '_> {
    /// Where a verdict leads.
    pub(super) fn go(&mut self, at: At<'_>, mut branch: Branch, verdict: Listed) -> Vec<(State, Flow)> {
        let leaves = |branch: Branch, exit| vec![(branch.state, Flow::Leaves(exit))];
        match verdict {
            Listed::Continue => {
                self.met(at, &mut branch, Did::Nothing);
                vec![(branch.state, Flow::Next)]
            }
            Listed::Accept => {
                self.met(at, &mut branch, Did::Accepted);
                leaves(branch, Exit::Done(Verdict::Accept))
            }
            Listed::Drop => {
                self.met(at, &mut branch, Did::Dropped);
                leaves(branch, Exit::Done(Verdict::Drop))
            }
            Listed::Return => {
                self.met(at, &mut branch, Did::Returned);
                leaves(branch, Exit::Returned)
            }
            Listed::Queue(words) => self.queue(at, branch, &words),
            Listed::Jump(to) => {
                self.met(at, &mut branch, Did::Jumped(Name::from(to.clone())));
                let exits = self.enter(at, &to, branch.state);
                let back = |(state, exit)| match exit {
                    Exit::Returned => (state, Flow::Next),
                    done @ Exit::Done(_) => (state, Flow::Leaves(done)),
                };
                exits.into_iter().map(back).collect()
            }
            Listed::Goto(to) => {
                self.met(at, &mut branch, Did::WentTo(Name::from(to.clone())));
                let exits = self.enter(at, &to, branch.state);
                exits
                    .into_iter()
                    .map(|(state, exit)| (state, Flow::Leaves(exit)))
                    .collect()
            }
        }
    }

    /// A program takes the packet. What it gives back goes on behind this base chain.
    fn queue(&mut self, at: At<'_>, mut branch: Branch, words: &Arc<str>) -> Vec<(State, Flow)> {
        self.met(at, &mut branch, Did::HandedOver(words.clone()));
        let mut kept = branch.clone();
        let given_back = self.fork(at, &mut kept, &Condition::LetsGoOn(words.clone()), false);
        let done = |branch: Branch, verdict| (branch.state, Flow::Leaves(Exit::Done(verdict)));
        vec![
            done(given_back, Verdict::Accept),
            done(kept, Verdict::Undecided(words.clone())),
        ]
    }

    fn enter(&mut self, at: At<'_>, to: &Arc<str>, state: State) -> Vec<(State, Exit)> {
        let table = &self.site.table;
        let refused = |why: String| Exit::Done(Verdict::Undecided(why.into()));
        let Some(chain) = self.indexed.chains.get(&**to).copied() else {
            let why = format!("chain {to} of table {table} is not among the rules given");
            return vec![(state, refused(why))];
        };
        if at.trail.contains(&&**to) {
            let why = format!("chain {to} leads to itself; the kernel refuses such rules");
            return vec![(state, refused(why))];
        }
        if at.trail.len() > DEPTH {
            let why = format!("more than {DEPTH} chains lead to chain {to}: the kernel refuses such rules");
            return vec![(state, refused(why))];
        }
        self.chain(chain, state, at.trail)
    }
}
