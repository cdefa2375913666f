//! A table, ready to be asked.

use crate::listed::{Chain, Set, Table};
use std::collections::{BTreeMap, BTreeSet};

/// A table whose chains and sets are found by name at once.
#[derive(Clone, Debug)]
pub struct Indexed<'a> {
    pub(super) chains: BTreeMap<&'a str, &'a Chain>,
    sets: BTreeMap<&'a str, &'a Set>,
    updated: BTreeSet<&'a str>,
}

impl<'a> Indexed<'a> {
    /// Looks through a table once.
    pub fn of(table: &'a Table) -> Indexed<'a> {
        Indexed {
            chains: table.chains.iter().map(|chain| (&*chain.name, chain)).collect(),
            sets: table.sets.iter().map(|set| (&*set.name, set)).collect(),
            updated: table.updated(),
        }
    }

    /// The set of this name.
    pub(super) fn set(&self, name: &str) -> Option<&'a Set> {
        self.sets.get(name).copied()
    }

    /// Whether a rule changes the set.
    pub(super) fn is_updated(&self, set: &str) -> bool {
        self.updated.contains(set)
    }
}
