//! What happened on every branch of a walk: one tree, so that branches share what they have in common.

use crate::condition::{Condition, Lasts, implied};
use crate::criterion::Criterion;
use crate::site::{Hook, Name};
use crate::verdict::Policy;
use std::collections::BTreeMap;
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
    pub table: Name,
    /// The chain.
    pub chain: Name,
    /// The rule's number in its chain, from 1, as `iptables -L --line-numbers` counts.
    pub rule: u32,
}

/// What a rule that was met did.
#[derive(Clone, Debug, PartialEq)]
pub enum Did {
    /// Counted, logged, remembered the client, or changed something that no rule and no route looks at.
    Nothing,
    /// Sent the packet to a chain, to come back.
    Jumped(Name),
    /// Sent the packet to a chain, not to come back.
    WentTo(Name),
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
    /// Put an element into a set of nftables, or its time anew.
    Remembered(Condition),
    /// Took an element out of a set of nftables.
    Forgot(Condition),
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
    /// The rule that it meets next found an element of a set or map.
    Found {
        /// Where the rule is.
        place: Place,
        /// The set or map.
        set: Arc<str>,
        /// The element, as printed.
        element: Arc<str>,
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
        table: Name,
        /// The chain.
        chain: Name,
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
    /// Every ground that a branch came to stand on, by the one before and what was added.
    grounds: BTreeMap<(Ground, Layer), Ground>,
    /// The same the other way round: the ground before and what was added, of ground 1 and on.
    layers: Vec<(Ground, Layer)>,
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
    /// What the branch stands on up to here.
    stands_on: Ground,
}

/// What a branch stands on, chance aside: two branches that have the same one have the same answers before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ground(usize);

/// What an event adds to what a branch stands on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Assumed(Condition, bool),
    Rewritten,
    Remembered(Condition),
    Forgot(Condition),
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
            grounds: BTreeMap::new(),
            layers: Vec::new(),
            detail,
            left: WORK,
        }
    }

    /// The same with less work allowed, for tests of what happens then.
    #[must_use]
    pub fn allowing(self, work: u64) -> History {
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
        let stands_on = self.ground_with(self.stands_on(before), &event);
        self.nodes.push(Node {
            before,
            event,
            telling,
            stands_on,
        });
        id
    }

    /// Whether all work that is allowed was done. What was not followed yet must end undecided, and say so.
    pub fn exhausted(&self) -> bool {
        self.left == 0
    }

    /// Counts the evaluation of a rule.
    pub fn evaluated(&mut self) {
        self.spend(RULE);
    }

    /// Counts a comparison with so many others.
    pub fn compared(&mut self, with: usize) {
        self.spend(RULE.saturating_mul(u64::try_from(with).unwrap_or(u64::MAX)));
    }

    /// Counts a comparison of a packet with so many others.
    pub fn compared_quickly(&mut self, with: usize) {
        self.spend(u64::try_from(with).unwrap_or(u64::MAX));
    }

    /// Counts a branch more: its whole way will have to be told. Those who tell it go through it several times.
    pub fn forked(&mut self, last: Option<NodeId>) {
        self.spend(4 * self.telling(last));
    }

    /// What a branch stands on.
    pub fn stands_on(&self, last: Option<NodeId>) -> Ground {
        last.and_then(|id| self.nodes.get(id.0))
            .map_or_else(Ground::default, |node| node.stands_on)
    }

    /// Two branches that parted on a condition alone, and for which it does not hold any more, whichever way it was: one
    /// branch that does not stand on it. `None` when anything else tells them apart.
    pub fn reunited(&mut self, one: Option<NodeId>, other: Option<NodeId>) -> Option<NodeId> {
        let (common, ways) = self.apart(one, other);
        let mut steps = ways.iter().flatten().filter_map(|id| self.event(*id)?.layer());
        let Some(Layer::Assumed(condition, _)) = ways[0].last().and_then(|id| self.event(*id)?.layer())
        else {
            return None;
        };
        let is_of_it = |layer: Layer| match layer {
            Layer::Assumed(of, _) | Layer::Remembered(of) | Layer::Forgot(of) => of == condition,
            Layer::Rewritten => false,
        };
        let by_chance = |id: &NodeId| matches!(self.event(*id), Some(Event::Chance { .. }));
        if !steps.all(is_of_it) || ways.iter().flatten().any(by_chance) {
            return None;
        }
        let is_forgotten = |id: &&NodeId| {
            matches!(
                self.event(**id),
                Some(Event::Met {
                    did: Did::Forgot(_),
                    ..
                })
            )
        };
        let forgot = ways
            .iter()
            .flatten()
            .find(is_forgotten)
            .and_then(|id| self.event(*id))
            .cloned()?;
        let Event::Met { place, .. } = &forgot else {
            return None;
        };
        let place = place.clone();
        if [one, other]
            .into_iter()
            .any(|last| self.answer(last, &condition) != Some(false))
        {
            return None;
        }
        let perhaps = Event::MayHaveMet {
            place,
            conditions: vec![(condition, true)],
        };
        let perhaps = self.push(common, perhaps);
        Some(self.push(Some(perhaps), forgot))
    }

    /// Where two branches parted, and the events of each since, newest first.
    fn apart(&self, one: Option<NodeId>, other: Option<NodeId>) -> (Option<NodeId>, [Vec<NodeId>; 2]) {
        let mut at = [one, other];
        let mut ways = [Vec::new(), Vec::new()];
        while at[0] != at[1] {
            // An event is younger than those before it.
            let younger = usize::from(at[1] > at[0]);
            let Some(id) = at[younger] else { break };
            ways[younger].push(id);
            at[younger] = self.nodes.get(id.0).and_then(|node| node.before);
        }
        (at[0], ways)
    }

    fn event(&self, id: NodeId) -> Option<&Event> {
        self.nodes.get(id.0).map(|node| &node.event)
    }

    fn ground_with(&mut self, ground: Ground, event: &Event) -> Ground {
        let Some(layer) = event.layer() else {
            return ground;
        };
        if let Some(before) = self.undone(ground, &layer) {
            return before;
        }
        if let Some(known) = self.grounds.get(&(ground, layer.clone())) {
            return *known;
        }
        self.layers.push((ground, layer.clone()));
        let next = Ground(self.layers.len());
        self.grounds.insert((ground, layer), next);
        next
    }

    /// The ground from before an element was put in, when it is taken out again and was not there before either: a die
    /// that is thrown for slots in which nobody is would else come to another ground with each throw.
    fn undone(&self, ground: Ground, layer: &Layer) -> Option<Ground> {
        let Layer::Forgot(condition) = layer else {
            return None;
        };
        let (before, Layer::Remembered(put)) = self.added(ground)? else {
            return None;
        };
        (put == condition && self.is_out(*before, condition)).then_some(*before)
    }

    /// Whether a ground says that an element is not in its set.
    fn is_out(&self, mut ground: Ground, condition: &Condition) -> bool {
        while let Some((before, layer)) = self.added(ground) {
            match layer {
                Layer::Forgot(of) if of == condition => return true,
                Layer::Assumed(of, holds) if of == condition => return !holds,
                Layer::Remembered(of) if of == condition => return false,
                Layer::Rewritten => return false,
                _ => ground = *before,
            }
        }
        false
    }

    fn added(&self, ground: Ground) -> Option<&(Ground, Layer)> {
        self.layers.get(ground.0.checked_sub(1)?)
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
                condition: Condition::SeenRecently { .. } | Condition::Element { .. },
                holds: false,
            } => 1,
            _ => LINE,
        }
    }

    /// What it adds to what a branch stands on.
    fn layer(&self) -> Option<Layer> {
        let did = match self {
            Event::Assumed { condition, holds } => return Some(Layer::Assumed(condition.clone(), *holds)),
            Event::Met { did, .. } => did,
            _ => return None,
        };
        match did {
            Did::Dnat { .. } | Did::Snat { .. } => Some(Layer::Rewritten),
            Did::Remembered(condition) => Some(Layer::Remembered(condition.clone())),
            Did::Forgot(condition) => Some(Layer::Forgot(condition.clone())),
            _ => None,
        }
    }
}

/// What a branch with these events already stands on, newest first, as far as it is still true.
fn assumptions<'a>(events: impl Iterator<Item = &'a Event>) -> impl Iterator<Item = (&'a Condition, bool)> {
    let mut rewritten = false;
    let mut changed: Vec<&Condition> = Vec::new();
    events.filter_map(move |event| match event {
        Event::Met {
            did: Did::Dnat { .. } | Did::Snat { .. },
            ..
        } => {
            rewritten = true;
            None
        }
        // A set may be full: then the element is not in it.
        Event::Met {
            did: Did::Remembered(condition),
            ..
        } => {
            changed.push(condition);
            None
        }
        Event::Met {
            did: Did::Forgot(condition),
            ..
        } => {
            let newest = !changed.contains(&condition) && !rewritten;
            changed.push(condition);
            newest.then_some((condition, false))
        }
        Event::Assumed { condition, holds } => {
            let lasting = match condition.lasts() {
                Lasts::Whole => true,
                Lasts::UntilRewritten => !rewritten && !changed.contains(&condition),
                Lasts::Once => false,
            };
            lasting.then_some((condition, *holds))
        }
        _ => None,
    })
}
