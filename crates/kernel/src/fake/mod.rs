//! A kernel in memory that refuses what the kernel and the tools refuse, and fails when told to.
//!
//! `tests/contract.rs` holds it to the live one: same verdict, same resulting state.

mod fault;
mod graph;
mod line;
mod own_table;
mod tables;
#[cfg(test)]
mod tests;

pub use fault::{Edit, Fault, Journal};
pub use own_table::{FakeChain, FakeTable, FakeTables, Refusal, TableWitness};

use crate::guard;
use crate::{Backend, ChainSink, CommitError, FailureKind, ObserveError, RuleKernel, Scope};
use fault::Faults;
use iptables::ast::{ChainName, Rule, Ruleset, Table, TableName};
use iptables::plan::{Step, TableWrite};
use iptables::render::{SaveText, StepText, Tool};
use model::{Family, PerFamily};
use std::collections::BTreeSet;
use std::sync::Arc;
use tables::{Batch, Lines, Tables};

/// Called after every write with what the kernel then holds.
pub type Witness = Box<dyn FnMut(Family, &Ruleset) + Send>;

/// iptables of both families in memory.
pub struct FakeKernel {
    backend: Backend,
    tables: PerFamily<Tables>,
    counters: BTreeSet<Arc<str>>,
    generation: u32,
    faults: Faults,
    journal: Vec<Journal>,
    witness: Option<Witness>,
}

impl FakeKernel {
    /// A kernel without rules; it has the nfacct counters of kube-proxy.
    pub fn new(backend: Backend) -> FakeKernel {
        FakeKernel {
            backend,
            tables: PerFamily::from_fn(|_| Tables::default()),
            counters: crate::NFACCT_COUNTERS
                .iter()
                .map(|name| Arc::from(*name))
                .collect(),
            generation: 1,
            faults: Faults::default(),
            journal: Vec::new(),
            witness: None,
        }
    }

    /// Adds a line to the fault script. Counting of commits and observations starts now.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.add(fault);
    }

    /// Calls `witness` after every write from now on.
    pub fn watch(&mut self, witness: Witness) {
        self.witness = Some(witness);
    }

    /// Which nfacct counters exist.
    pub fn set_counters(&mut self, counters: impl IntoIterator<Item = Arc<str>>) {
        self.counters = counters.into_iter().collect();
    }

    /// What was asked so far, in order.
    pub fn journal(&self) -> &[Journal] {
        &self.journal
    }

    /// Forgets the journal.
    pub fn clear_journal(&mut self) {
        self.journal.clear();
    }

    /// What the kernel holds now. Tables never written to are not in it; built-in chains of the others are.
    pub fn ruleset(&self, family: Family) -> &Ruleset {
        self.tables.get(family).ruleset()
    }

    /// What the kernel holds now, as `iptables-save` prints it.
    pub fn save_text(&self, family: Family) -> String {
        SaveText {
            ruleset: self.ruleset(family),
            family,
            opaque: &[],
        }
        .to_string()
    }

    /// Replaces everything that the kernel holds, unchecked: a host as it is found.
    pub fn load(&mut self, family: Family, ruleset: Ruleset) {
        *self.tables.get_mut(family) = Tables::from_ruleset(ruleset);
        self.written(family);
    }

    /// A stranger's doing, by the tools' rules.
    ///
    /// # Errors
    /// As the tools would refuse it.
    pub fn edit(&mut self, family: Family, edit: &Edit) -> Result<(), CommitError> {
        match edit {
            Edit::Step(step) => self.apply(family, step),
            Edit::Flush(table) => {
                self.tables.get_mut(family).flush(*table);
                self.written(family);
                Ok(())
            }
            Edit::Wipe(table) => {
                self.tables.get_mut(family).wipe(*table);
                self.written(family);
                Ok(())
            }
        }
    }

    fn apply(&mut self, family: Family, step: &Step) -> Result<(), CommitError> {
        guard::check_step(step)?;
        self.make_chains(family, step)?;
        match self.backend {
            Backend::NfTables => {
                for (table, write) in &step.write {
                    let lines = Lines {
                        write,
                        delete: Vec::new(),
                        retire: Vec::new(),
                    };
                    self.restore(family, *table, &lines)?;
                }
                self.settle(family, step)
            }
            Backend::Legacy => self.apply_at_once(family, step),
        }
    }

    /// Chains that others own too are made before anything else, and stay when what follows fails.
    fn make_chains(&mut self, family: Family, step: &Step) -> Result<(), CommitError> {
        let text = StepText {
            step,
            family,
            tool: Tool::NfTables,
        };
        let chains: Vec<_> = text.chains_to_make_first().collect();
        if chains.is_empty() {
            return Ok(());
        }
        self.faults
            .before_write()
            .map_err(|kind| injected(family, kind))?;
        for (table, chain) in chains {
            Batch::new(self.tables.get_mut(family), table)
                .make([chain].into_iter())
                .map_err(|detail| refused(family, detail))?;
        }
        self.written(family);
        Ok(())
    }

    /// On legacy, deletions and retirements are lines of the same restore.
    fn apply_at_once(&mut self, family: Family, step: &Step) -> Result<(), CommitError> {
        let empty = TableWrite::default();
        for table in TableName::ALL {
            let write = step.write.get(&table);
            let lines = Lines {
                write: write.unwrap_or(&empty),
                delete: deleted(step, table),
                retire: retired(step, table),
            };
            if write.is_some() || !lines.delete.is_empty() || !lines.retire.is_empty() {
                self.restore(family, table, &lines)?;
            }
        }
        Ok(())
    }

    fn restore(&mut self, family: Family, table: TableName, lines: &Lines<'_>) -> Result<(), CommitError> {
        self.faults
            .before_write()
            .map_err(|kind| injected(family, kind))?;
        let host = line::Host {
            backend: self.backend,
            family,
            table,
            counters: &self.counters,
        };
        let tables = self.tables.get_mut(family);
        let mut batch = Batch::new(tables, table);
        let outcome = batch
            .restore(&host, lines)
            .and_then(|()| batch.validate(self.backend));
        let log = batch.log();
        if let Err(detail) = outcome {
            tables.take_back(log);
            return Err(refused(family, detail));
        }
        self.written(family);
        Ok(())
    }

    /// On `nf_tables`, deletions and retirements are one transaction over all tables.
    fn settle(&mut self, family: Family, step: &Step) -> Result<(), CommitError> {
        if step.delete.is_empty() && step.retire.is_empty() {
            return Ok(());
        }
        self.faults
            .before_write()
            .map_err(|kind| injected(family, kind))?;
        let tables = self.tables.get_mut(family);
        let mut logs = Vec::new();
        let mut outcome = Ok(());
        for table in TableName::ALL {
            let mut batch = Batch::new(tables, table);
            for (chain, rule) in deleted(step, table) {
                batch.delete_last(chain, rule);
            }
            let chains = retired(step, table);
            batch.empty(&chains);
            outcome = outcome.and_then(|()| batch.retire(&chains));
            logs.push(batch.log());
        }
        if let Err(detail) = outcome {
            logs.into_iter().rev().for_each(|log| tables.take_back(log));
            return Err(refused(family, detail));
        }
        self.written(family);
        Ok(())
    }

    fn written(&mut self, family: Family) {
        self.generation = self.generation.wrapping_add(1);
        if let Some(witness) = &mut self.witness {
            witness(family, self.tables.get(family).ruleset());
        }
    }

    fn report(&self, family: Family, scope: &Scope, sink: &mut ChainSink<'_>) {
        let ruleset = self.tables.get(family).ruleset();
        let empty = Table::default();
        let of = |table| ruleset.tables.get(&table).unwrap_or(&empty);
        match scope {
            Scope::Everything => {
                for table in crate::OBSERVED_TABLES {
                    report_builtin(table, of(table), |_| true, sink);
                    for (name, chain) in &of(table).chains {
                        sink(table, name.clone(), chain.clone());
                    }
                }
            }
            Scope::Chains(table, names) => {
                report_builtin(*table, of(*table), |name| names.contains(name), sink);
                for name in names {
                    if let Some(chain) = of(*table).chains.get(name) {
                        sink(*table, name.clone(), chain.clone());
                    }
                }
            }
        }
    }
}

/// Built-in chains are there even in a table that nobody has used yet.
fn report_builtin(
    table: TableName,
    have: &Table,
    wanted: impl Fn(&ChainName) -> bool,
    sink: &mut ChainSink<'_>,
) {
    for name in table.built_in() {
        let name = crate::builtin_name(name);
        if wanted(&name) && !have.chains.contains_key(&name) {
            sink(table, name, crate::empty_builtin());
        }
    }
}

impl RuleKernel for FakeKernel {
    fn backend(&self) -> Backend {
        self.backend
    }

    fn commit(&mut self, family: Family, step: &Step) -> Result<(), CommitError> {
        for edit in self.faults.strangers_before_commit(family) {
            // A stranger whose edit is refused has changed nothing; that is no failure of this commit.
            let _ = self.edit(family, &edit);
        }
        let result = match self.faults.on_commit(family) {
            Some(kind) => Err(injected(family, kind)),
            None => self.apply(family, step),
        };
        self.journal.push(Journal::Commit {
            family,
            step: step.clone(),
            result: result.clone(),
        });
        result
    }

    fn observe(
        &mut self,
        family: Family,
        scope: &Scope,
        sink: &mut ChainSink<'_>,
    ) -> Result<(), ObserveError> {
        self.journal.push(Journal::Observe {
            family,
            scope: scope.clone(),
        });
        if let Some(kind) = self.faults.on_observe(family) {
            Err(ObserveError {
                attempted: format!("reading {family} chains of the fake kernel"),
                kind,
                detail: "as the fault script says".to_owned(),
            })
        } else {
            self.report(family, scope, sink);
            Ok(())
        }
    }

    fn generation(&mut self) -> Result<Option<u32>, ObserveError> {
        Ok(match self.backend {
            Backend::NfTables => Some(self.generation),
            Backend::Legacy => None,
        })
    }
}

/// What a step deletes from a table.
fn deleted(step: &Step, table: TableName) -> Vec<(&ChainName, &Rule)> {
    step.delete
        .iter()
        .filter(|(t, _, _)| *t == table)
        .map(|(_, chain, rule)| (chain, rule))
        .collect()
}

/// What a step retires from a table.
fn retired(step: &Step, table: TableName) -> Vec<&ChainName> {
    step.retire
        .iter()
        .filter(|(t, _)| *t == table)
        .map(|(_, chain)| chain)
        .collect()
}

fn injected(family: Family, kind: FailureKind) -> CommitError {
    CommitError {
        attempted: format!("restore into the fake {family} kernel"),
        kind,
        detail: "as the fault script says".to_owned(),
    }
}

fn refused(family: Family, detail: String) -> CommitError {
    CommitError {
        attempted: format!("restore into the fake {family} kernel"),
        kind: FailureKind::Refused,
        detail,
    }
}
