//! What to write so that the kernel's elements become the wanted ones.
//!
//! A packet looks into several sets one after the other, and a commit may come between two looks. So what says where a
//! frontend is looked for is only added at first, and taken away when no packet can be on its way any more ([`Change::later`]).

use crate::ast::{Element, ElementKey, Elements};
use crate::leaving::{Leaves, Leaving, sends};
use std::collections::BTreeSet;

/// One operation on an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Puts an element in that is not there.
    Add(ElementKey, Element),
    /// Puts an element in place of another with the same key, at once.
    Replace(ElementKey, Element, Element),
    /// Takes an element out.
    Delete(ElementKey, Element),
}

impl Operation {
    /// The key that it is about.
    pub fn key(&self) -> &ElementKey {
        match self {
            Operation::Add(key, _) | Operation::Replace(key, ..) | Operation::Delete(key, _) => key,
        }
    }
}

/// What to do now, in one batch, and what after a while, in others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Now.
    pub now: Vec<Operation>,
    /// When a packet that was on its way has arrived.
    pub later: Vec<Operation>,
    /// The same time after that: as long as a set says so, packets look for their endpoint there.
    pub last: Vec<Operation>,
}

impl Change {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty() && self.later.is_empty() && self.last.is_empty()
    }

    /// What has waited goes now, by itself: in one batch with what comes, a packet might find neither.
    pub(crate) fn retire(&mut self, waited: &BTreeSet<ElementKey>) {
        if self.now.is_empty() {
            let later = std::mem::take(&mut self.later).into_iter();
            (self.now, self.later) = later.partition(|operation| waited.contains(operation.key()));
        }
    }
}

/// The change from what is there to what is wanted. Who wants nothing serves nobody any more, so nothing waits.
pub fn change(have: &Elements, want: &Elements) -> Change {
    let mut change = Change::default();
    let leaving = Leaving::new(have, want);
    for (key, old) in have {
        match want.get(key) {
            None if want.is_empty() => change.now.push(Operation::Delete(key.clone(), old.clone())),
            None => take_out(&leaving, key, old, &mut change),
            Some(new) if new.endpoint != old.endpoint => {
                change
                    .now
                    .push(Operation::Replace(key.clone(), old.clone(), new.clone()));
            }
            // Comments are no difference.
            Some(_) => {}
        }
    }
    for (key, new) in want.iter().filter(|(key, _)| !have.contains_key(*key)) {
        change.now.push(Operation::Add(key.clone(), new.clone()));
    }
    change
}

fn take_out<'a>(leaving: &Leaving<'a>, key: &'a ElementKey, old: &Element, change: &mut Change) {
    let when = if waits(key) && !leaving.is_overtaken(key) {
        Leaves::Later
    } else {
        leaving.when(key)
    };
    let operations = match when {
        Leaves::Now => return change.now.push(Operation::Delete(key.clone(), old.clone())),
        Leaves::Later => &mut change.later,
        Leaves::Last => &mut change.last,
    };
    let stand_in = old.endpoint.and_then(|endpoint| leaving.stand_in(key, endpoint));
    let mut then = old.clone();
    if let Some(endpoint) = stand_in {
        then.endpoint = Some(endpoint);
        let replace = Operation::Replace(key.clone(), old.clone(), then.clone());
        change.now.push(replace);
    }
    operations.push(Operation::Delete(key.clone(), then));
}

/// Whether a packet may have passed by one set of this kind before a commit and come to the other after it.
fn waits(key: &ElementKey) -> bool {
    let name = key.set.as_str();
    sends(key) || name.ends_with("-rejected") || name.ends_with("-dropped")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{Name, Value};
    use crate::names::{Bound, Kind};
    use model::Protocol;
    use std::net::SocketAddr;

    fn element(set: Name, port: u16, endpoint: Option<u8>) -> (ElementKey, Element) {
        let key = [Value::Protocol(Protocol::Tcp), Value::Port(port)].into();
        let endpoint = endpoint.map(|number| SocketAddr::from(([10, 0, 0, number], 80)));
        let element = Element {
            endpoint,
            comment: None,
        };
        (ElementKey { set, key }, element)
    }

    fn sets(operations: &[Operation]) -> Vec<&str> {
        operations
            .iter()
            .map(|operation| operation.key().set.as_str())
            .collect()
    }

    #[test]
    fn slots_stay_until_no_packet_looks_for_them_when_buckets_take_over_and_the_other_way_round() {
        let kind = Kind::NodePort;
        let within = kind.within(Bound::of(2).expect("some"));
        let mut slots = Elements::from([
            element(within.clone(), 1, None),
            element(kind.slot(0), 1, Some(1)),
            element(kind.slot(1), 1, Some(2)),
        ]);
        let buckets = Elements::from([
            element(kind.hashed(), 1, None),
            element(kind.bucket(7), 1, Some(1)),
            element(kind.bucket(8), 1, Some(2)),
        ]);
        let there = change(&slots, &buckets);
        let new = ["nodeport-bucket-7", "nodeport-bucket-8", "nodeport-hashed"];
        assert_eq!(sets(&there.now), new);
        assert_eq!(sets(&there.later), ["nodeport-within-2"]);
        assert_eq!(sets(&there.last), ["nodeport-slot-0", "nodeport-slot-1"]);
        let back = change(&buckets, &slots);
        assert_eq!(sets(&back.later), ["nodeport-hashed"]);
        assert_eq!(sets(&back.last), ["nodeport-bucket-7", "nodeport-bucket-8"]);
        // Nobody looks for them any more.
        slots.remove(&element(within, 1, None).0);
        let then = change(&slots, &buckets);
        assert_eq!(sets(&then.later), ["nodeport-slot-0", "nodeport-slot-1"]);
        assert!(then.last.is_empty());
        // Another port's slots say nothing of this one's buckets.
        let other = Elements::from([element(kind.slot(0), 2, Some(1))]);
        assert_eq!(sets(&change(&buckets, &other).later), ["nodeport-hashed"]);
        // Who has no endpoint any more is sent nowhere from now on.
        let refused = Elements::from([element(kind.rejected(), 1, None)]);
        assert_eq!(sets(&change(&buckets, &refused).later), ["nodeport-hashed"]);
    }

    #[test]
    fn local_slots_stay_until_nobody_is_sent_there_when_a_policy_becomes_cluster() {
        let within = Bound::of(1).expect("some");
        let cluster = Elements::from([
            element(Kind::NodePort.within(within), 1, None),
            element(Kind::NodePort.slot(0), 1, Some(1)),
        ]);
        let mut local = cluster.clone();
        local.extend([
            element(Kind::NodePort.policy_local(), 1, None),
            element(Kind::NodePortLocal.within(within), 1, None),
            element(Kind::NodePortLocal.slot(0), 1, Some(2)),
        ]);
        let there = change(&local, &cluster);
        assert_eq!(sets(&there.now), ["nodeport-policy-local"]);
        assert_eq!(sets(&there.later), ["nodeport-local-within-1"]);
        assert_eq!(sets(&there.last), ["nodeport-local-slot-0"]);
        // Under policy Local nobody takes over.
        let mut without = local.clone();
        without.retain(|key, _| !key.set.as_str().starts_with("nodeport-local-"));
        let gone = change(&local, &without);
        assert_eq!(sets(&gone.now), ["nodeport-local-slot-0"]);
    }

    #[test]
    fn an_endpoint_that_has_gone_serves_nobody_while_its_bucket_waits() {
        let kind = Kind::NodePort;
        let slots = Elements::from([
            element(kind.within(Bound::of(1).expect("some")), 1, None),
            element(kind.slot(0), 1, Some(2)),
        ]);
        let buckets = Elements::from([
            element(kind.hashed(), 1, None),
            element(kind.bucket(7), 1, Some(1)),
            element(kind.bucket(8), 1, Some(2)),
        ]);
        let there = change(&buckets, &slots);
        let (key, old) = element(kind.bucket(7), 1, Some(1));
        let (_, new) = element(kind.bucket(7), 1, Some(2));
        assert!(
            there
                .now
                .contains(&Operation::Replace(key.clone(), old, new.clone()))
        );
        assert_eq!(sets(&there.last), ["nodeport-bucket-7", "nodeport-bucket-8"]);
        assert_eq!(there.last[0], Operation::Delete(key, new));
    }

    #[test]
    fn a_slot_below_a_smaller_bound_is_left_at_once_if_packets_go_on_to_a_larger_one() {
        let kind = Kind::NodePort;
        let within = |slots| kind.within_sticky(Bound::of(slots).expect("some"), 60);
        let grown = Elements::from([
            element(within(1), 1, None),
            element(within(2), 1, None),
            element(kind.slot(0), 1, Some(1)),
            element(kind.slot(1), 1, Some(2)),
        ]);
        let shrunk = Elements::from([element(within(2), 1, None), element(kind.slot(1), 1, Some(2))]);
        let now = change(&grown, &shrunk).now;
        assert_eq!(sets(&now), ["nodeport-slot-0", "nodeport-within-1-sticky-60s"]);
    }

    #[test]
    fn a_list_that_has_grown_leaves_the_smaller_set_at_once_and_one_that_has_shrunk_the_larger_later() {
        let kind = Kind::NodePort;
        let bound = |slots| Bound::of(slots).expect("some");
        let at_once = (kind.within(bound(2)), kind.within(bound(8)), 1);
        let shrunk = (kind.within(bound(8)), kind.within(bound(2)), 0);
        let sticky = |slots, timeout| kind.within_sticky(bound(slots), timeout);
        let other_choice = (kind.within(bound(2)), sticky(8, 60), 0);
        let other_timeout = (sticky(2, 60), sticky(8, 61), 0);
        let grown_sticky = (sticky(2, 60), sticky(8, 60), 1);
        for (old, new, gone) in [at_once, shrunk, other_choice, other_timeout, grown_sticky] {
            let (have, want) = (element(old.clone(), 1, None), element(new, 1, None));
            let change = change(&Elements::from([have]), &Elements::from([want]));
            assert_eq!(
                (change.now.len(), change.later.len()),
                (1 + gone, 1 - gone),
                "{old}"
            );
        }
    }

    /// Where there is no larger bound, or it is one of another choice, somebody stands in.
    #[test]
    fn somebody_stands_in_as_long_as_packets_may_look_below_a_bound_and_nowhere_else() {
        let kind = Kind::NodePort;
        let bound = |slots| Bound::of(slots).expect("some");
        let (slot_0, slot_1) = (
            |to| element(kind.slot(0), 1, Some(to)),
            element(kind.slot(1), 1, Some(2)),
        );
        for larger in [kind.within(bound(2)), kind.within_sticky(bound(2), 7)] {
            let grown = Elements::from([
                element(kind.within_sticky(bound(1), 60), 1, None),
                element(larger.clone(), 1, None),
                slot_0(1),
                slot_1.clone(),
            ]);
            let shrunk = Elements::from([element(larger, 1, None), slot_1.clone()]);
            let there = change(&grown, &shrunk);
            let ((key, old), (_, new)) = (slot_0(1), slot_0(2));
            assert_eq!(there.now, [Operation::Replace(key.clone(), old, new.clone())]);
            assert_eq!(there.last, [Operation::Delete(key, new)]);
        }
    }

    #[test]
    fn what_has_waited_goes_by_itself() {
        let kind = Kind::NodePort;
        let (old, _) = element(kind.within(Bound::of(1).expect("some")), 1, None);
        let waited = BTreeSet::from([old.clone()]);
        let delete = Operation::Delete(old, Element::default());
        let waits = Change {
            later: vec![delete.clone()],
            ..Change::default()
        };
        let (key, new) = element(kind.slot(0), 1, Some(1));
        let mut busy = Change {
            now: vec![Operation::Add(key, new)],
            ..waits.clone()
        };
        busy.retire(&waited);
        assert_eq!((busy.now.len(), busy.later.len()), (1, 1));
        let mut free = waits.clone();
        free.retire(&waited);
        assert_eq!((free.now, free.later), (vec![delete], Vec::new()));
        let mut early = waits.clone();
        early.retire(&BTreeSet::new());
        assert_eq!(early, waits);
    }
}
