//! What a trace answers: the ways a packet can take, and each way's steps, conditions, chance and end.

use iptables::ast::TableName;
use model::{Delivery, Outcome, Packet};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use traced::{Condition, Did, Event, History, Hook, Interface, Name, NodeId, Place, State};

/// Every way a packet can take.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The packet that was asked about.
    pub packet: Packet,
    /// The ways, in the order of the rules they take first; never empty.
    ///
    /// Invariant: among ways that stand on the same conditions, the chances sum to one
    /// (`chances_sum_to_one_whatever_the_conditions_are`).
    pub ways: Vec<Way>,
    pub(crate) history: History,
}

/// One way through the host.
#[derive(Clone, Debug)]
pub struct Way {
    /// The packet at the end of it.
    pub state: State,
    /// What became of it.
    pub end: End,
    /// The destination that a rule gave it.
    pub translated: Option<SocketAddr>,
    /// Whether a rule rewrote its source.
    pub source: Source,
    /// Tables and routing decisions, in order.
    pub legs: Vec<Leg>,
}

/// What became of a packet's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// No rule touched it.
    Kept,
    /// It was rewritten to this; `None` for an address of this host that nobody told us.
    Rewritten(Option<IpAddr>),
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// It reached this host's sockets.
    Local(Listener),
    /// It leaves the host: forwarded, or sent by it.
    Left {
        /// Through this interface.
        interface: Interface,
        /// To this neighbour, when the routes are known.
        next_hop: Option<IpAddr>,
    },
    /// Refused, with this ICMP answer or `tcp-reset`.
    Rejected(Arc<str>),
    /// Dropped.
    Dropped,
    /// The host has no route for it.
    NoRoute,
    /// Nobody can say, and why.
    Undecided(Arc<str>),
}

/// Whether a socket waits for a packet that reached this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listener {
    /// The host's sockets are not known.
    Unknown,
    /// One listens.
    Present,
    /// None does: the kernel refuses the packet.
    Absent,
}

/// A part of a way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leg {
    /// A table was called.
    Table {
        /// By this hook.
        hook: Hook,
        /// The table.
        table: Name,
        /// The last event of the packet's history after it.
        until: Option<NodeId>,
    },
    /// The kernel decided where the packet goes.
    Routed {
        /// Where.
        to: Routed,
        /// The last event of the packet's history after it.
        until: Option<NodeId>,
    },
}

/// A routing decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routed {
    /// To this host itself.
    Here,
    /// Out through this interface.
    Out(Interface),
    /// Nowhere.
    Nowhere,
}

/// One step of a way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// Something that rules did: all events but chances and conditions.
    Rules(&'a Event),
    /// A routing decision.
    Routed(&'a Routed),
    /// From here on the way stands on this.
    Claim(Claim<'a>),
    /// Random choices in a row.
    Chance {
        /// The probability of all of them together.
        probability: f64,
        /// How many there were: the fifth endpoint of a list is reached by five choices.
        choices: usize,
    },
}

/// What a way stands on.
///
/// Lists of clients that are asked in a row and all do not know the client are one claim: with a thousand endpoints
/// every other way stands on hundreds of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim<'a> {
    /// The condition; the first of a row.
    pub condition: &'a Condition,
    /// Whether it is so on this way.
    pub holds: bool,
    /// How many more lists in a row do not know the client.
    pub others: usize,
}

/// Why a set of ways is not one [`Outcome`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSingleOutcome {
    /// The outcomes that the ways have, when they have any.
    pub outcomes: BTreeSet<Outcome>,
    /// What could not be decided, or ended otherwise than an outcome can say.
    pub open: BTreeSet<String>,
}

impl Way {
    pub(crate) fn new(state: State, end: End, legs: Vec<Leg>, history: &History) -> Way {
        let mut translated = None;
        let mut source = Source::Kept;
        for event in history.between(None, state.last) {
            match event {
                Event::Met {
                    did: Did::Dnat { to, .. },
                    ..
                } => translated = Some(*to),
                Event::Met {
                    did: Did::Snat { to, .. },
                    ..
                } => source = Source::Rewritten(*to),
                _ => {}
            }
        }
        Way {
            state,
            end,
            translated,
            source,
            legs,
        }
    }

    /// Whether the packet got through.
    pub fn got_through(&self) -> bool {
        matches!(self.end, End::Local(_) | End::Left { .. })
    }
}

impl Answer {
    /// A way's steps, in the order in which the kernel takes them.
    pub fn steps<'a>(&'a self, way: &'a Way) -> Vec<Step<'a>> {
        let mut steps = Vec::new();
        let mut from = None;
        for leg in &way.legs {
            let (Leg::Table { until, .. } | Leg::Routed { until, .. }) = leg;
            for event in told(self.history.between(from, *until)) {
                append(&mut steps, event);
            }
            from = *until;
            if let Leg::Routed { to, .. } = leg {
                steps.push(Step::Routed(to));
            }
        }
        steps
    }

    /// The rules a way meets, as table, chain and number, in the order of the kernel's trace events.
    pub fn met(&self, way: &Way) -> Vec<(Name, Name, u32)> {
        let mut met: Vec<(Name, Name, u32)> = self
            .met_places(way)
            .map(|place| (place.table.clone(), place.chain.clone(), place.rule))
            .collect();
        // A rule of nftables may do several things.
        met.dedup();
        met
    }

    /// The chance of exactly these steps. The way's own chance ([`State::chance`]) is larger when it stands for others
    /// that end alike, as all throws of a die that is thrown until it shows an endpoint.
    pub fn chance_of_steps(&self, way: &Way) -> f64 {
        let events = self.history.between(None, way.state.last).into_iter();
        events
            .filter_map(|event| match event {
                Event::Chance { probability } => Some(*probability),
                _ => None,
            })
            .product()
    }

    fn met_places(&self, way: &Way) -> impl Iterator<Item = &Place> {
        let events = told(self.history.between(None, way.state.last));
        events.filter_map(|event| match event {
            Event::Met { place, .. } => Some(place),
            _ => None,
        })
    }

    /// What a way stands on. Chances are in [`State::chance`].
    pub fn claims<'a>(&'a self, way: &'a Way) -> Vec<Claim<'a>> {
        let steps = self.steps(way).into_iter();
        steps
            .filter_map(|step| match step {
                Step::Claim(claim) => Some(claim),
                _ => None,
            })
            .collect()
    }

    /// Every condition that a way stands on, one by one, in the order in which they were asked, and whether it is so.
    pub fn assumed<'a>(&'a self, way: &'a Way) -> Vec<(&'a Condition, bool)> {
        let events = self.history.between(None, way.state.last).into_iter();
        events
            .filter_map(|event| match event {
                Event::Assumed { condition, holds } => Some((condition, *holds)),
                _ => None,
            })
            .collect()
    }

    /// All ways together as the one outcome they amount to.
    ///
    /// # Errors
    /// When ways end differently, or some end cannot be said as an outcome.
    pub fn outcome(&self) -> Result<Outcome, NoSingleOutcome> {
        let mut deliveries = BTreeSet::new();
        let mut outcomes = BTreeSet::new();
        let mut open = BTreeSet::new();
        for way in &self.ways {
            match (&way.end, way.translated) {
                (End::Rejected(_), _) => drop(outcomes.insert(Outcome::Rejected)),
                (End::Dropped, _) => drop(outcomes.insert(Outcome::Dropped)),
                (End::NoRoute, _) => drop(open.insert("no route".to_owned())),
                (End::Undecided(why), _) => drop(open.insert(why.to_string())),
                (End::Local(_) | End::Left { .. }, Some(endpoint)) => {
                    deliveries.insert(Delivery {
                        endpoint,
                        masquerade: way.source != Source::Kept,
                    });
                }
                (End::Local(_), None) if self.accepted_for_health_check(way) => {
                    outcomes.insert(Outcome::Accepted);
                }
                (End::Local(_) | End::Left { .. }, None) => drop(outcomes.insert(Outcome::Untouched)),
            }
        }
        if !deliveries.is_empty() {
            outcomes.insert(Outcome::Delivered(deliveries));
        }
        if open.is_empty() && outcomes.len() == 1 {
            outcomes.pop_first().ok_or(NoSingleOutcome { outcomes, open })
        } else {
            Err(NoSingleOutcome { outcomes, open })
        }
    }

    /// Health-check node ports are what filter's KUBE-NODEPORTS accepts (reference: upstream's chain of that name).
    fn accepted_for_health_check(&self, way: &Way) -> bool {
        let ours =
            |place: &Place| place.table == TableName::Filter.as_str() && place.chain == "KUBE-NODEPORTS";
        let events = self.history.between(None, way.state.last);
        events
            .into_iter()
            .any(|event| matches!(event, Event::Met { place, did: Did::Accepted } if ours(place)))
    }
}

/// The events without those that were written down of a rule that may or may not have been met: what it would have done.
fn told(events: Vec<&Event>) -> impl Iterator<Item = &Event> {
    let mut perhaps: Option<&Place> = None;
    events.into_iter().filter(move |event| {
        let is_of_it = matches!(event, Event::Met { place, .. } if perhaps == Some(place));
        perhaps = match event {
            Event::MayHaveMet { place, .. } => Some(place),
            _ => None,
        };
        !is_of_it
    })
}

/// Adds an event to the steps; rows of choices, and of lists that do not know the client, are one step.
fn append<'a>(steps: &mut Vec<Step<'a>>, event: &'a Event) {
    match (event, steps.last_mut()) {
        (Event::Chance { probability: next }, Some(Step::Chance { probability, choices })) => {
            *probability *= next;
            *choices += 1;
        }
        (Event::Chance { probability }, _) => steps.push(Step::Chance {
            probability: *probability,
            choices: 1,
        }),
        (
            Event::Assumed {
                condition,
                holds: false,
            },
            Some(Step::Claim(Claim {
                condition: before,
                holds: false,
                others,
            })),
        ) if condition.is_of_a_client() && before.is_of_a_client() => *others += 1,
        (Event::Assumed { condition, holds }, _) => steps.push(Step::Claim(Claim {
            condition,
            holds: *holds,
            others: 0,
        })),
        (event, _) => steps.push(Step::Rules(event)),
    }
}
