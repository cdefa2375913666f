//! What somebody else's commits may have done to our rules.

use iptables::ast::{ChainName, TableName};
use iptables::diff::compact::ChainId;
use iptables::names::StaticChain;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How much has to be read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// Nothing but the suspects.
    #[default]
    Suspects,
    /// The chains of a look as well.
    Look,
    /// All of it.
    Everything,
}

/// What was done to a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edit {
    /// Rules were added, or it was made.
    Added,
    /// Rules were deleted, or it was.
    Deleted,
}

/// What somebody else may have done to the rules of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// Chains of services that were touched.
    pub suspects: BTreeSet<ChainId>,
    /// What else.
    pub extent: Extent,
    /// Who was the last to do so, as far as the kernel tells.
    pub by: Option<Arc<str>>,
}

/// More suspects than this are no fewer readings than everything.
const MOST_SUSPECTS: usize = 2000;

impl Disturbance {
    /// Anything may have happened.
    pub fn everything(by: Option<Arc<str>>) -> Disturbance {
        Disturbance {
            suspects: BTreeSet::new(),
            extent: Extent::Everything,
            by,
        }
    }

    /// Something happened that a look finds.
    pub fn look(by: Option<Arc<str>>) -> Disturbance {
        Disturbance {
            suspects: BTreeSet::new(),
            extent: Extent::Look,
            by,
        }
    }

    /// Takes in that somebody edited a chain; says whether it concerns us.
    ///
    /// Rules that others add to built-in chains are theirs; rules that they delete there may have been our jumps.
    pub fn note(&mut self, table: TableName, chain: &ChainName, edit: Edit) -> Concern {
        let is_static = || {
            StaticChain::ALL
                .into_iter()
                .any(|ours| ours.as_str() == chain.as_str() && ours.tables().contains(&table))
        };
        let is_builtin = table.built_in().contains(&chain.as_str());
        if table == TableName::Nat
            && let Some(id) = ChainId::of(chain)
        {
            self.suspects.insert(id);
            if self.suspects.len() > MOST_SUSPECTS {
                self.suspects.clear();
                self.extent = Extent::Everything;
            }
        } else if is_static() || (is_builtin && edit == Edit::Deleted) {
            self.extent = self.extent.max(Extent::Look);
        } else {
            return Concern::None;
        }
        Concern::Ours
    }

    /// Adds another.
    pub fn merge(&mut self, other: Disturbance) {
        self.suspects.extend(other.suspects);
        self.extent = self.extent.max(other.extent);
        if other.by.is_some() {
            self.by = other.by;
        }
    }
}

/// What waits may grow.
pub(crate) trait Merge {
    /// Adds another.
    fn merge(&mut self, other: Self);
}

impl Merge for Disturbance {
    fn merge(&mut self, other: Disturbance) {
        Disturbance::merge(self, other);
    }
}

/// Whether an edit may concern our rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// It may.
    Ours,
    /// It does not.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(table: TableName, chain: &str, edit: Edit) -> Disturbance {
        let mut disturbance = Disturbance::default();
        let chain = ChainName::new(chain).expect("a chain's name");
        disturbance.note(table, &chain, edit);
        disturbance
    }

    #[test]
    fn strangers_chains_and_rules_that_are_added_to_built_in_chains_are_no_concern() {
        for (table, chain, edit) in [
            (TableName::Nat, "PREROUTING", Edit::Added),
            (TableName::Nat, "CNI-HOSTPORT", Edit::Deleted),
            (TableName::Filter, "KUBE-SVC-AAAAAAAAAAAAAAAA", Edit::Deleted),
            (TableName::Filter, "KUBE-ROUTER-INPUT", Edit::Added),
        ] {
            assert_eq!(noted(table, chain, edit), Disturbance::default(), "{chain}");
        }
    }

    #[test]
    fn a_service_chain_is_suspect_and_jumps_and_static_chains_need_a_look() {
        let suspect = noted(TableName::Nat, "KUBE-SVC-AAAAAAAAAAAAAAAA", Edit::Deleted);
        assert_eq!((suspect.suspects.len(), suspect.extent), (1, Extent::Suspects));
        for (table, chain, edit) in [
            (TableName::Nat, "PREROUTING", Edit::Deleted),
            (TableName::Nat, "KUBE-SERVICES", Edit::Added),
            (TableName::Mangle, "KUBE-PROXY-CANARY", Edit::Deleted),
        ] {
            assert_eq!(noted(table, chain, edit).extent, Extent::Look, "{chain}");
        }
    }
}
