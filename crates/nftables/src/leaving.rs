//! When an endpoint may leave the slot or bucket that it lies in.
//!
//! Packets are sent to a list's slots or buckets by elements of other sets: `within-n` or `hashed` for the list, and under
//! policy Local `policy-local` for clients from outside. When a frontend's packets are sent elsewhere from now on, those on
//! their way still look where they were sent.

use crate::ast::{ElementKey, Elements, Value};
use crate::names::{self, Form, Kind, Role};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// When an element is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// At once.
    Now,
    /// When no packet can be on its way to it any more.
    Later,
    /// The same time after what sends packets to it has been taken out.
    Last,
}

/// Elements that are there, and those that are wanted.
pub(crate) struct Leaving<'a> {
    have: &'a Elements,
    want: &'a Elements,
    sent_before: OnceCell<Sent<'a>>,
    sent_after: OnceCell<Sent<'a>>,
    endpoints: OnceCell<BTreeMap<List<'a>, BTreeSet<SocketAddr>>>,
}

type List<'a> = (Kind, &'a [Value]);

/// Where the endpoints of a list lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Slots,
    Buckets,
}

/// The lists that packets are sent to.
type Sent<'a> = BTreeSet<(List<'a>, Place)>;

impl<'a> Leaving<'a> {
    pub(crate) fn new(have: &'a Elements, want: &'a Elements) -> Leaving<'a> {
        Leaving {
            have,
            want,
            sent_before: OnceCell::new(),
            sent_after: OnceCell::new(),
            endpoints: OnceCell::new(),
        }
    }

    /// Whether packets that do not find a frontend in a set find it in another with a larger bound, by a later rule: whoever
    /// looks after a commit looks there after it, too. A list that has grown need not wait, and under affinity must not: the
    /// set with the smaller bound would draw clients that other slots know.
    pub(crate) fn is_overtaken(&self, key: &ElementKey) -> bool {
        let within = |key: &ElementKey| match names::form_of(key.set.as_str())? {
            Form {
                kind,
                role: Role::Within(bound, sticky),
                ..
            } => Some((bound, (kind, sticky))),
            _ => None,
        };
        let Some((bound, choice)) = within(key) else {
            return false;
        };
        let mut wanted = self.want.keys().filter(|other| other.key == key.key);
        wanted.any(|other| within(other).is_some_and(|(larger, same)| larger > bound && same == choice))
    }

    /// When an element that is wanted no more is taken out.
    pub(crate) fn when(&self, key: &'a ElementKey) -> Leaves {
        let Some((list, place)) = lies_in(key) else {
            return Leaves::Now;
        };
        let after = self.sent_after.get_or_init(|| sent(self.want));
        // A list that only becomes shorter has others. One that nobody takes over serves nobody from now on.
        let is_shorter = after.contains(&(list, place));
        if is_shorter && place == Place::Slots && self.holds_up(key, list) {
            return Leaves::Last;
        }
        if is_shorter || !self.is_served(after, list) {
            return Leaves::Now;
        }
        let before = self.sent_before.get_or_init(|| sent(self.have));
        if before.contains(&(list, place)) {
            Leaves::Last
        } else {
            Leaves::Later
        }
    }

    /// Who goes in for an endpoint that waits for leaving and serves no more; `None` if it serves.
    pub(crate) fn stand_in(&self, key: &'a ElementKey, endpoint: SocketAddr) -> Option<SocketAddr> {
        let (list, _) = lies_in(key)?;
        let wanted = self.endpoints.get_or_init(|| endpoints(self.want)).get(&list)?;
        if wanted.contains(&endpoint) {
            None
        } else {
            wanted.first().copied()
        }
    }

    /// Whether packets that look below some bound would find nobody without this slot: of the slots below it none is taken
    /// both before and after. Who comes back from there goes on to the same choice with a larger bound, the rule for which comes
    /// later: if the frontend is in that set before and after, somebody has to be found there. (To stand in for an endpoint that
    /// has gone is the last resort: under affinity clients are remembered by a slot that somebody else gets, and move twice.)
    fn holds_up(&self, key: &ElementKey, list: List<'a>) -> bool {
        let stays = |key: &ElementKey| self.have.contains_key(key) && self.want.contains_key(key);
        let first = ElementKey {
            set: list.0.slot(0),
            key: list.1.into(),
        };
        if stays(&first) {
            return false;
        }
        let mut bounds = Vec::new();
        let mut slots = Vec::new();
        for other in self.have.keys().filter(|other| other.key == key.key) {
            match names::form_of(other.set.as_str()).filter(|form| form.kind == Some(list.0)) {
                Some(Form {
                    role: Role::Within(bound, sticky),
                    ..
                }) => bounds.push((bound.get(), sticky, stays(other))),
                Some(Form {
                    role: Role::Slot(slot),
                    ..
                }) => slots.push((slot, other)),
                _ => {}
            }
        }
        let below = |bound: u32| slots.iter().filter(move |(slot, _)| *slot < bound);
        let finds = |bound| below(bound).any(|(_, other)| stays(other));
        let goes_on = |bound, sticky| {
            let mut later = bounds
                .iter()
                .filter(|(other, choice, stays)| *other > bound && *choice == sticky && *stays);
            later.any(|(other, ..)| finds(*other))
        };
        bounds.iter().any(|(bound, sticky, _)| {
            let lowest = below(*bound).min_by_key(|(slot, _)| *slot);
            let is_lowest = lowest.is_some_and(|(_, lowest)| *lowest == key);
            is_lowest && !finds(*bound) && !goes_on(*bound, *sticky)
        })
    }

    /// Whether packets that were sent to a list find endpoints elsewhere from now on.
    fn is_served(&self, after: &Sent<'a>, list: List<'a>) -> bool {
        let has = |list| {
            [Place::Slots, Place::Buckets]
                .iter()
                .any(|place| after.contains(&(list, *place)))
        };
        let (kind, key) = list;
        let all = match kind {
            Kind::ServiceLocal => Kind::Service,
            Kind::NodePortLocal => Kind::NodePort,
            Kind::Service | Kind::NodePort => return has(list),
        };
        let policy_local = ElementKey {
            set: all.policy_local(),
            key: key.into(),
        };
        has(list) || (has((all, key)) && !self.want.contains_key(&policy_local))
    }
}

/// Whether an element says that a frontend is looked for in its list.
pub(crate) fn sends(key: &ElementKey) -> bool {
    let name = key.set.as_str();
    name.contains("-within-") || name.ends_with("-hashed")
}

fn sent(elements: &Elements) -> Sent<'_> {
    let senders = elements.keys().filter(|key| sends(key));
    let sent = senders.filter_map(|key| {
        let Form { kind, role, .. } = names::form_of(key.set.as_str())?;
        let place = match role {
            Role::Within(..) => Place::Slots,
            Role::Hashed => Place::Buckets,
            _ => return None,
        };
        Some(((kind?, &*key.key), place))
    });
    sent.collect()
}

/// The list of which an element is one endpoint.
fn lies_in(key: &ElementKey) -> Option<(List<'_>, Place)> {
    let Form { kind, role, .. } = names::form_of(key.set.as_str())?;
    let place = match role {
        Role::Slot(_) => Place::Slots,
        Role::Bucket(_) => Place::Buckets,
        _ => return None,
    };
    Some(((kind?, &*key.key), place))
}

fn endpoints(elements: &Elements) -> BTreeMap<List<'_>, BTreeSet<SocketAddr>> {
    let mut all: BTreeMap<List<'_>, BTreeSet<SocketAddr>> = BTreeMap::new();
    for (key, element) in elements {
        if let (Some(endpoint), Some((list, _))) = (element.endpoint, lies_in(key)) {
            all.entry(list).or_default().insert(endpoint);
        }
    }
    all
}
