//! Which endpoint of a list lies in which slot.
//!
//! An endpoint stays where it is as long as it is listed. A slot that is taken before and after a change is taken at every
//! moment in between, because the kernel swaps the element in one batch; and if the list is empty neither before nor
//! after, there is such a slot. So a packet that tries every slot finds an endpoint, whatever is committed meanwhile.

use crate::names::Bound;
use std::net::SocketAddr;

/// Slots and what is in them. The last one is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots(Vec<Option<SocketAddr>>);

/// What may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Slots are dense: an endpoint moves into a hole that another leaves, so that a die finds one at once.
    Dense,
    /// Nothing is moved, because clients are remembered by slot.
    InPlace,
}

impl Slots {
    /// What is taken, in order.
    pub fn taken(&self) -> impl Iterator<Item = (u32, SocketAddr)> + '_ {
        (0_u32..)
            .zip(&self.0)
            .filter_map(|(slot, endpoint)| Some((slot, (*endpoint)?)))
    }

    /// The smallest bound; `None` without endpoints.
    pub fn bound(&self) -> Option<Bound> {
        Bound::of(self.0.len())
    }

    /// What the kernel said lies in the slots.
    pub fn from_taken(taken: impl IntoIterator<Item = (u32, SocketAddr)>) -> Slots {
        let mut slots = Vec::new();
        for (slot, endpoint) in taken {
            let slot = slot as usize;
            if slots.len() <= slot {
                slots.resize(slot + 1, None);
            }
            slots[slot] = Some(endpoint);
        }
        Slots(slots)
    }

    /// The slots for a list that has become `want`, which is without doubles.
    #[must_use]
    pub fn changed_to(&self, want: &[SocketAddr], keeping: Keeping) -> Slots {
        let mut sorted = want.to_vec();
        sorted.sort_unstable();
        let place = |endpoint: &SocketAddr| sorted.binary_search(endpoint);
        // By place in `sorted`.
        let mut seen = vec![false; sorted.len()];
        let mut slots = self.0.clone();
        let mut keep = |slot: &mut Option<SocketAddr>| {
            *slot = slot.filter(|endpoint| {
                place(endpoint).is_ok_and(|place| !std::mem::replace(&mut seen[place], true))
            });
        };
        // Who lies in two slots stands in for another in the lower one: its clients are remembered by the upper one.
        match keeping {
            Keeping::Dense => slots.iter_mut().for_each(&mut keep),
            Keeping::InPlace => slots.iter_mut().rev().for_each(&mut keep),
        }
        let is_new = |endpoint: &SocketAddr| place(endpoint).is_ok_and(|place| !seen[place]);
        let mut new = want.iter().copied().filter(is_new);
        // Slots that have just been left come first: they are the ones that are taken all the time.
        for was_taken in [true, false] {
            let holes = slots.iter_mut().zip(&self.0);
            let holes = holes.filter(|(slot, old)| slot.is_none() && old.is_some() == was_taken);
            for (hole, _) in holes {
                *hole = new.next();
            }
        }
        slots.extend(new.map(Some));
        if keeping == Keeping::Dense {
            close_holes(&mut slots);
        }
        let used = slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        slots.truncate(used);
        Slots(slots)
    }
}

/// Moves endpoints from the end into holes.
fn close_holes(slots: &mut Vec<Option<SocketAddr>>) {
    let mut hole = 0;
    loop {
        while slots.pop_if(|last| last.is_none()).is_some() {}
        while slots.get(hole).is_some_and(Option::is_some) {
            hole += 1;
        }
        if hole >= slots.len() {
            return;
        }
        slots[hole] = slots.pop().expect("invariant: the last slot is taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn endpoint(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 80))
    }

    fn list() -> impl Strategy<Value = Vec<SocketAddr>> {
        prop::collection::btree_set(0_u8..20, 0..12).prop_map(|set| set.into_iter().map(endpoint).collect())
    }

    fn in_slot(slots: &Slots) -> BTreeSet<u32> {
        slots.taken().map(|(slot, _)| slot).collect()
    }

    proptest! {
        #[test]
        fn slots_hold_the_list_and_some_slot_is_taken_all_the_time(
            lists in prop::collection::vec(list(), 1..12),
            dense in any::<bool>(),
        ) {
            let mut slots = Slots::default();
            let keeping = if dense { Keeping::Dense } else { Keeping::InPlace };
            for list in lists {
                let new = slots.changed_to(&list, keeping);
                let held: Vec<SocketAddr> = new.taken().map(|(_, endpoint)| endpoint).collect();
                prop_assert_eq!(held.len(), list.len());
                prop_assert_eq!(held.iter().collect::<BTreeSet<_>>(), list.iter().collect::<BTreeSet<_>>());
                if dense {
                    prop_assert_eq!(new.0.len(), list.len());
                }
                if !list.is_empty() && slots.bound().is_some() {
                    let shared = in_slot(&slots).intersection(&in_slot(&new)).count();
                    prop_assert!(shared > 0, "{slots:?} {new:?}");
                }
                // Where a packet goes that threw in vain.
                prop_assert!(!dense || list.is_empty() || in_slot(&new).contains(&0));
                slots = new;
            }
        }

        #[test]
        fn an_endpoint_that_stays_listed_stays_in_its_slot_when_clients_are_remembered(before in list(), after in list()) {
            let old = Slots::default().changed_to(&before, Keeping::InPlace);
            let new = old.changed_to(&after, Keeping::InPlace);
            for (slot, endpoint) in old.taken().filter(|(_, endpoint)| after.contains(endpoint)) {
                prop_assert!(new.taken().any(|of| of == (slot, endpoint)));
            }
        }
    }

    #[test]
    fn one_endpoint_less_moves_one() {
        let old = Slots::default().changed_to(&[1, 2, 3, 4].map(endpoint), Keeping::Dense);
        let new = old.changed_to(&[1, 3, 4].map(endpoint), Keeping::Dense);
        let taken: Vec<_> = new.taken().collect();
        assert_eq!(taken, [(0, endpoint(1)), (1, endpoint(4)), (2, endpoint(3))]);
    }
}
