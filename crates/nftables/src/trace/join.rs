//! Branches that come to the same place as the same packet, and go on as one.

use super::walk::Walk;
use std::collections::BTreeMap;
use traced::{Ground, Seen, State};

/// Branches that have come to one place, each packet once for what it stands on.
pub(super) struct Joined<T> {
    pub(super) all: Vec<(State, T)>,
    /// Which of them are the same packet and stand on the same: one for each end that they came to.
    alike: BTreeMap<(Ground, Seen), Vec<usize>>,
}

impl<T> Default for Joined<T> {
    fn default() -> Self {
        Joined {
            all: Vec::new(),
            alike: BTreeMap::new(),
        }
    }
}

impl Walk<'_, '_> {
    /// Adds a branch, or its chance to one that is the same packet, stands on the same and came to the same.
    pub(super) fn join<T: PartialEq>(&mut self, joined: &mut Joined<T>, state: State, end: T) {
        let place = (self.history.stands_on(state.last), state.seen());
        let alike = joined.alike.entry(place).or_default();
        self.history.compared_quickly(alike.len());
        let came_to = |index: &&usize| joined.all.get(**index).is_some_and(|(_, of)| *of == end);
        let known = alike.iter().find(came_to).copied();
        if let Some((known, _)) = known.and_then(|index| joined.all.get_mut(index)) {
            known.chance += state.chance;
            self.branches = self.branches.saturating_sub(1);
        } else {
            alike.push(joined.all.len());
            joined.all.push((state, end));
        }
    }

    /// Two branches that a rule parted become one when it does not matter any more on what: a client that a slot is asked
    /// for, and that is forgotten since nobody is in the slot, has not been known there either way.
    pub(super) fn reunite(&mut self, next: &mut Vec<(State, ())>) {
        let [(one, ()), (other, ())] = &next[..] else {
            return;
        };
        let same_packet = State {
            last: one.last,
            ..*other
        };
        if same_packet != *one {
            return;
        }
        if let Some(last) = self.history.reunited(one.last, other.last) {
            next.truncate(1);
            next[0].0.last = Some(last);
            self.branches = self.branches.saturating_sub(1);
        }
    }
}
