//! What happened on every branch of a walk: one tree, so that branches share what they have in common.

use super::condition::{Condition, Lasts, implied};
use super::criteria::Criterion;
use super::site::Hook;
use crate::ast::{ChainName, Policy, TableName};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// An event of a [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(usize);

/// A rule's place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The hook that led there.
    pub hook: Hook,
    /// The table.
    pub table: TableName,
    /// The chain.
    pub chain: ChainName,
    /// The rule's number in its chain, from 1, as `iptables -L --line-numbers` counts.
    pub rule: u32,
}

/// What a rule that was met did.
#[derive(Clone, Debug, PartialEq)]
pub enum Did {
    /// Counted, logged, remembered the client, or changed something that no rule and no route looks at.
    Nothing,
    /// Sent the packet to a chain, to come back.
    Jumped(ChainName),
    /// Sent the packet to a chain, not to come back.
    WentTo(ChainName),
    /// Ended the chain.
    Returned,
    /// Accepted, as far as this table goes.
    Accepted,
    /// Dropped.
    Dropped,
    /// Refused, with this ICMP answer or `tcp-reset`.
    Rejected(Arc<str>),
    /// Rewrote the destination.
    Dnat {
        /// Before.
        from: SocketAddr,
        /// After.
        to: SocketAddr,
    },
    /// Rewrote the source.
    Snat {
        /// Address before, when known.
        from: Option<IpAddr>,
        /// Address after; `None` for an address of this host that nobody told us.
        to: Option<IpAddr>,
    },
    /// Changed the packet's mark; unknown bits print as zeros.
    Marked {
        /// Before.
        from: u32,
        /// After.
        to: u32,
    },
    /// Took the packet out of connection tracking.
    Untracked,
    /// Handed it to a program that decides (NFQUEUE), or to a target that is not known.
    HandedOver(Arc<str>),
}

/// One thing that happened to a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It met a rule: the rule matched.
    Met {
        /// Where.
        place: Place,
        /// What the rule did.
        did: Did,
    },
    /// It may or may not match this rule, and nothing hangs on it.
    MayHaveMet {
        /// Where.
        place: Place,
        /// What the match hangs on, each with the answer it needs; empty when it is chance alone.
        conditions: Vec<(Condition, bool)>,
    },
    /// A rule was evaluated and did not match. Recorded with [`Detail::Everything`] alone.
    Passed {
        /// Where.
        place: Place,
        /// The first part of the rule that was not true.
        failed: Criterion,
    },
    /// A built-in chain ended, and its policy decided.
    Policy {
        /// The hook.
        hook: Hook,
        /// The table.
        table: TableName,
        /// The chain.
        chain: ChainName,
        /// The policy.
        policy: Policy,
    },
    /// From here on the branch stands on this.
    Assumed {
        /// The question.
        condition: Condition,
        /// The answer on this branch.
        holds: bool,
    },
    /// A random choice was taken.
    Chance {
        /// Its probability, exact: the kernel counts in 2^-31.
        probability: f64,
    },
}

/// How much of a walk is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// The rules that matched.
    #[default]
    Met,
    /// Every rule that was evaluated.
    Everything,
}

/// The events of all branches.
///
/// A history allows so much work and then no more: rules can be written that have more ways than there are atoms, and
/// whoever reads somebody's dump is not to die of it. What costs is counted in steps back through the events, which is
/// what long traces mostly do.
#[derive(Clone, Debug)]
pub struct History {
    nodes: Vec<Node>,
    detail: Detail,
    /// The work that is left.
    left: u64,
}

#[derive(Clone, Debug)]
struct Node {
    before: Option<NodeId>,
    event: Event,
    /// What it costs to tell the branch up to here.
    telling: u64,
}

/// The work that a history allows: seconds. The affinity of a service with 5,000 endpoints takes a half of it.
const WORK: u64 = 1 << 30;
/// What an event costs, for its memory: there are a million at most.
const EVENT: u64 = WORK >> 20;
/// What the evaluation of a rule costs.
const RULE: u64 = 32;
/// What it costs to tell an event that is a line of its own, in memory and output.
const LINE: u64 = 256;

impl History {
    /// An empty one, that will keep this much.
    pub fn new(detail: Detail) -> History {
        History {
            nodes: Vec::new(),
            detail,
            left: WORK,
        }
    }

    /// The same with less work allowed.
    #[cfg(test)]
    pub(super) fn allowing(self, work: u64) -> History {
        History { left: work, ..self }
    }

    /// How much it keeps.
    pub fn detail(&self) -> Detail {
        self.detail
    }

    /// Adds an event after another.
    pub fn push(&mut self, before: Option<NodeId>, event: Event) -> NodeId {
        let id = NodeId(self.nodes.len());
        let telling = self.telling(before) + event.telling();
        self.spend(EVENT);
        self.nodes.push(Node {
            before,
            event,
            telling,
        });
        id
    }

    /// Whether all work that is allowed was done. What was not followed yet must end undecided, and say so.
    pub fn exhausted(&self) -> bool {
        self.left == 0
    }

    /// Counts the evaluation of a rule.
    pub(super) fn evaluated(&mut self) {
        self.spend(RULE);
    }

    /// Counts a comparison with so many others.
    pub(super) fn compared(&mut self, with: usize) {
        self.spend(RULE.saturating_mul(u64::try_from(with).unwrap_or(u64::MAX)));
    }

    /// Counts a branch more: its whole way will have to be told. Those who tell it go through it several times.
    pub(super) fn forked(&mut self, last: Option<NodeId>) {
        self.spend(4 * self.telling(last));
    }

    fn spend(&mut self, work: u64) {
        self.left = self.left.saturating_sub(work);
    }

    fn telling(&self, last: Option<NodeId>) -> u64 {
        last.and_then(|id| self.nodes.get(id.0))
            .map_or(0, |node| node.telling)
    }

    /// One branch's events between two of its points, oldest first: after `from` (or the beginning) up to `to`.
    pub fn between(&self, from: Option<NodeId>, to: Option<NodeId>) -> Vec<&Event> {
        let mut events: Vec<&Event> = self.backwards(to, from).collect();
        events.reverse();
        events
    }

    fn backwards(&self, to: Option<NodeId>, until: Option<NodeId>) -> impl Iterator<Item = &Event> {
        let mut at = to;
        std::iter::from_fn(move || {
            if at == until {
                return None;
            }
            let node = self.nodes.get(at?.0)?;
            at = node.before;
            Some(&node.event)
        })
    }

    /// What the branch that ends at `last` already stands on says about a condition, if anything.
    pub fn answer(&mut self, last: Option<NodeId>, condition: &Condition) -> Option<bool> {
        let mut seen = 0;
        let events = self.backwards(last, None).inspect(|_| seen += 1);
        let answer = assumptions(events).find_map(|(assumed, holds)| implied(condition, assumed, holds));
        self.spend(seen);
        answer
    }
}

impl Event {
    /// What it costs to tell it. Rows of choices, and of lists that do not know the client, are told in one line.
    fn telling(&self) -> u64 {
        match self {
            Event::Chance { .. }
            | Event::Assumed {
                condition: Condition::SeenRecently { .. },
                holds: false,
            } => 1,
            _ => LINE,
        }
    }
}

/// What a branch with these events already stands on, newest first, as far as it is still true.
fn assumptions<'a>(events: impl Iterator<Item = &'a Event>) -> impl Iterator<Item = (&'a Condition, bool)> {
    let mut rewritten = false;
    events.filter_map(move |event| match event {
        Event::Met {
            did: Did::Dnat { .. } | Did::Snat { .. },
            ..
        } => {
            rewritten = true;
            None
        }
        Event::Assumed { condition, holds } => {
            let lasting = match condition.lasts() {
                Lasts::Whole => true,
                Lasts::UntilRewritten => !rewritten,
                Lasts::Once => false,
            };
            lasting.then_some((condition, *holds))
        }
        _ => None,
    })
}
