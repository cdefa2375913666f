//! What is to be done to the kernel's rules: steps, each of which the kernel takes whole or not at all, per table.

use crate::ast::{ChainName, Rule, TableName};
use model::ServiceName;
use std::collections::BTreeMap;

/// Steps in order. A step is committed only after the one before it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// One step: a restore, then dispatch rules to take out, then chains to retire.
///
/// On `nf_tables`, [`Step::delete`] goes by netlink and rule handle, since iptables needs 96 ms and more to find a rule
/// by its specification in a large chain; on legacy all of it is one restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The services whose rules this step settles; what is remembered of them changes when it has been committed.
    pub services: Vec<ServiceName>,
    /// Per table, what one restore writes.
    pub write: BTreeMap<TableName, TableWrite>,
    /// Dispatch rules to delete, the old copy where the restore inserts an equal one: on `nf_tables` after the restore,
    /// last match each; on legacy within it before anything is inserted, first match each. A rule that is not there
    /// is no error.
    pub delete: Vec<(TableName, ChainName, Rule)>,
    /// Chains to delete last, emptied first. A chain that is not there is no error.
    pub retire: Vec<(TableName, ChainName)>,
}

/// What one restore does to one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableWrite {
    /// Chains made if missing, emptied and filled with these rules. Written in name order.
    pub chains: BTreeMap<ChainName, Vec<Rule>>,
    /// Rules put at the head of a chain, the first of this list ending up topmost.
    pub insert: Vec<(ChainName, Rule)>,
    /// Rules put at the end of a chain.
    pub append: Vec<(ChainName, Rule)>,
    /// Chains emptied and deleted in the same transaction: what jumped to them is rewritten in it.
    pub remove: Vec<ChainName>,
    /// Chains made if missing and otherwise left alone (canaries, and chains whose content others own).
    pub ensure: Vec<ChainName>,
}
