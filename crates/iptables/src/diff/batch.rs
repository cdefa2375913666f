//! A step, and what is to be remembered once the kernel has said yes to it.

use super::compact::{ChainId, DispatchRule};
use super::have::Holding;
use super::node::{NodeDifference, NodeHave};
use super::service::Difference;
use crate::ast::{ChainName, Rule, TableName};
use crate::plan::{Step, TableWrite};
use model::ServiceName;

/// In which order the parts of a batch go to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOrder {
    /// One step, whose deletions come after everything it writes (`nf_tables`).
    AtOnce,
    /// Rules of the filter table are deleted by a second step. On legacy the deletions are lines of each table's
    /// restore, and an address would no longer be refused before it is translated.
    FilterDeletionsApart,
    /// Deletions first: wrong, and seeded to show that a test finds it.
    #[cfg(feature = "mutants")]
    DeletionsFirst,
}

/// One step in the making.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// What the kernel is to do.
    pub step: Step,
    pub(super) settles: Vec<(ServiceName, Holding)>,
    pub(super) abandons: Vec<ChainId>,
    pub(super) node: Option<NodeHave>,
    pub(super) swept: Swept,
}

/// Leftovers that the step takes away.
#[derive(Clone, Debug, Default)]
pub(super) struct Swept {
    pub(super) chains: Vec<ChainId>,
    pub(super) odd_chains: Vec<ChainName>,
    pub(super) strays: Vec<DispatchRule>,
}

impl Batch {
    /// An empty one.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let Step {
            services: _,
            write,
            delete,
            retire,
        } = &self.step;
        write.is_empty() && delete.is_empty() && retire.is_empty()
    }

    /// How many services it settles.
    pub fn len(&self) -> usize {
        self.settles.len()
    }

    /// The services it settles.
    pub fn services(&self) -> impl Iterator<Item = &ServiceName> {
        self.settles.iter().map(|(name, _)| name)
    }

    /// How many chains of services it writes.
    pub fn chains(&self) -> usize {
        self.step
            .write
            .get(&TableName::Nat)
            .map_or(0, |nat| nat.chains.len())
    }

    /// Whether it leaves chains of its services to a sweep.
    pub fn abandons_chains(&self) -> bool {
        !self.abandons.is_empty()
    }

    /// The leftover chains it deletes.
    pub fn swept_chains(&self) -> impl Iterator<Item = ChainName> {
        let known = self.swept.chains.iter().map(|id| id.name());
        self.swept.odd_chains.iter().cloned().chain(known)
    }

    /// Takes the steps out, to be committed one after the other. What is left is to be remembered afterwards.
    pub fn take_steps(&mut self, order: StepOrder) -> (Step, Option<Step>) {
        let mut step = std::mem::take(&mut self.step);
        match order {
            StepOrder::AtOnce => (step, None),
            StepOrder::FilterDeletionsApart => {
                let deletions = std::mem::take(&mut step.delete);
                let moves = |table: &TableName, chain: &ChainName, rule: &Rule| {
                    let inserted = step.write.get(table).map(|write| &write.insert);
                    inserted.is_some_and(|insert| insert.iter().any(|(at, new)| at == chain && new == rule))
                };
                // A rule that moves is there before and after, and the restore deletes its old copy first.
                let (filter, others) = deletions.into_iter().partition(|(table, chain, rule)| {
                    *table == TableName::Filter
                        && step.write.contains_key(&TableName::Nat)
                        && !moves(table, chain, rule)
                });
                step.delete = others;
                let second = Step {
                    delete: filter,
                    ..Step::default()
                };
                (step, (!second.delete.is_empty()).then_some(second))
            }
            #[cfg(feature = "mutants")]
            StepOrder::DeletionsFirst => {
                let second = Step {
                    write: std::mem::take(&mut step.write),
                    ..Step::default()
                };
                (step, Some(second))
            }
        }
    }

    /// Keeps chains that should go.
    #[cfg(feature = "mutants")]
    pub fn keep_gone_chains(&mut self) {
        self.step.retire.clear();
        for write in self.step.write.values_mut() {
            write.remove.clear();
        }
    }

    /// Keeps rules that should go.
    #[cfg(feature = "mutants")]
    pub fn keep_gone_rules(&mut self) {
        self.step.delete.clear();
    }

    /// Adds the difference of one service.
    pub fn add(&mut self, difference: Difference) {
        let Difference {
            name,
            after,
            chains,
            insert,
            delete,
            remove,
            retire,
            abandon,
        } = difference;
        if !chains.is_empty() || !remove.is_empty() {
            let nat = self.table(TableName::Nat);
            nat.chains.extend(chains);
            nat.remove.extend(remove.into_iter().map(ChainId::name));
        }
        for (place, rule) in insert {
            self.table(place.table()).insert.push((place.chain(), rule));
        }
        self.delete(&delete);
        self.retire(retire.into_iter().map(ChainId::name));
        self.abandons.extend(abandon);
        self.step.services.push(name.clone());
        self.settles.push((name, after));
    }

    /// Adds the difference of the node's part.
    pub fn add_node(&mut self, difference: NodeDifference) {
        let NodeDifference { write, delete, after } = difference;
        for (table, theirs) in write {
            let ours = self.table(table);
            ours.chains.extend(theirs.chains);
            ours.insert.extend(theirs.insert);
            ours.append.extend(theirs.append);
            ours.ensure.extend(theirs.ensure);
        }
        self.delete(&delete);
        self.node = Some(after);
    }

    /// What is written to one table.
    fn table(&mut self, table: TableName) -> &mut TableWrite {
        self.step.write.entry(table).or_default()
    }

    /// Deletes rules, keeping the order of [`super::compact::Place::ALL`] over all services of the step.
    pub(super) fn delete(&mut self, rules: &[DispatchRule]) {
        for rule in rules {
            self.step
                .delete
                .push((rule.place.table(), rule.place.chain(), rule.rule()));
        }
        self.step
            .delete
            .sort_by_key(|(table, chain, _)| super::compact::Place::of(*table, chain));
    }

    pub(super) fn retire(&mut self, chains: impl IntoIterator<Item = ChainName>) {
        self.step
            .retire
            .extend(chains.into_iter().map(|chain| (TableName::Nat, chain)));
    }
}
