//! The steps of a plan, as input of `iptables-restore --noflush`.

use super::Written;
use super::save::{begin, command, end, fresh};
use crate::ast::{ChainName, Rule, TableName};
use crate::names::StaticChain;
use crate::plan::{Step, TableWrite};
use model::Family;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

/// Which of the two tools reads the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `iptables-nft-restore`. Deletions and retirements are not part of the text: deletions go by netlink, and
    /// retirements are a second text ([`RetireText`]).
    NfTables,
    /// `iptables-legacy-restore`: all of the step, since each restore hands the whole table back to the kernel.
    Legacy,
}

/// A step's restore. Empty when there is nothing to restore.
///
/// Per table, in this order: the lines of chains, sorted by name, since iptables-nft 1.8.9 keeps chains in a list
/// sorted by name and walks it for each (performance.md); deletions (legacy); the rules of the chains; insertions;
/// additions; removals of chains.
#[derive(Clone, Copy, Debug)]
pub struct StepText<'a> {
    /// The step.
    pub step: &'a Step,
    /// The family.
    pub family: Family,
    /// Who reads it.
    pub tool: Tool,
}

impl StepText<'_> {
    /// Chains that must be made before this text is restored, if they are missing, and whose rules are others'.
    ///
    /// A restore can't say "make it if it is missing and leave it alone else": a chain line empties the chain and `-N`
    /// fails. Canaries are empty anyway, and so they are in the text.
    pub fn chains_to_make_first(&self) -> impl Iterator<Item = (TableName, &ChainName)> {
        self.step.write.iter().flat_map(|(table, write)| {
            let kept = write.ensure.iter().filter(|chain| !stays_empty(chain));
            kept.map(move |chain| (*table, chain))
        })
    }

    fn table(&self, out: &mut dyn Write, table: TableName, work: &TableWork<'_>) -> Written {
        begin(out, table)?;
        for chain in work.fresh_chains() {
            fresh(out, chain)?;
        }
        for (chain, rule) in &work.delete {
            command(out, "-D", chain, rule, self.family)?;
        }
        if let Some(write) = work.write {
            self.write_rules(out, write)?;
        }
        for chain in work.leaving() {
            writeln!(out, "-X {chain}")?;
        }
        end(out)
    }

    fn write_rules(&self, out: &mut dyn Write, write: &TableWrite) -> Written {
        for (chain, rules) in &write.chains {
            for rule in rules {
                command(out, "-A", chain, rule, self.family)?;
            }
        }
        // Each goes to the head, so the last of them first.
        for (chain, rule) in write.insert.iter().rev() {
            command(out, "-I", chain, rule, self.family)?;
        }
        for (chain, rule) in &write.append {
            command(out, "-A", chain, rule, self.family)?;
        }
        Ok(())
    }
}

impl fmt::Display for StepText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> Written {
        for (table, work) in work_by_table(self.step, self.tool) {
            if !work.is_empty() {
                self.table(f, table, &work)?;
            }
        }
        Ok(())
    }
}

/// The chains that a step retires, as a restore of their own, for `nf_tables`. Empty when there are none.
///
/// A chain that is not there is made and deleted again, which is no error.
#[derive(Clone, Copy, Debug)]
pub struct RetireText<'a> {
    /// The step.
    pub step: &'a Step,
}

impl fmt::Display for RetireText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> Written {
        for (table, chains) in retired_by_table(self.step) {
            begin(f, table)?;
            for chain in &chains {
                fresh(f, chain)?;
            }
            for chain in &chains {
                writeln!(f, "-X {chain}")?;
            }
            end(f)?;
        }
        Ok(())
    }
}

/// What one restore does to one table.
#[derive(Default)]
struct TableWork<'a> {
    write: Option<&'a TableWrite>,
    delete: Vec<(&'a ChainName, &'a Rule)>,
    retire: BTreeSet<&'a ChainName>,
}

impl<'a> TableWork<'a> {
    fn is_empty(&self) -> bool {
        let nothing_added = |write: &TableWrite| write.insert.is_empty() && write.append.is_empty();
        self.fresh_chains().is_empty() && self.delete.is_empty() && self.write.is_none_or(nothing_added)
    }

    /// Chains that begin empty, sorted.
    fn fresh_chains(&self) -> BTreeSet<&'a ChainName> {
        let mut chains = self.leaving();
        if let Some(write) = self.write {
            chains.extend(write.chains.keys());
            chains.extend(write.ensure.iter().filter(|chain| stays_empty(chain)));
        }
        chains
    }

    /// Chains that are gone after the restore, sorted. Their lines make them, so that it is no error if they are gone.
    fn leaving(&self) -> BTreeSet<&'a ChainName> {
        let removed = self.write.iter().flat_map(|write| &write.remove);
        self.retire.iter().copied().chain(removed).collect()
    }
}

fn work_by_table(step: &Step, tool: Tool) -> BTreeMap<TableName, TableWork<'_>> {
    let mut tables: BTreeMap<TableName, TableWork<'_>> = BTreeMap::new();
    for (table, write) in &step.write {
        tables.entry(*table).or_default().write = Some(write);
    }
    if tool == Tool::Legacy {
        for (table, chain, rule) in &step.delete {
            tables.entry(*table).or_default().delete.push((chain, rule));
        }
        for (table, chains) in retired_by_table(step) {
            tables.entry(table).or_default().retire = chains;
        }
    }
    tables
}

fn retired_by_table(step: &Step) -> BTreeMap<TableName, BTreeSet<&ChainName>> {
    let mut tables: BTreeMap<TableName, BTreeSet<&ChainName>> = BTreeMap::new();
    for (table, chain) in &step.retire {
        tables.entry(*table).or_default().insert(chain);
    }
    tables
}

/// Whether nobody ever has rules in this chain.
fn stays_empty(chain: &ChainName) -> bool {
    chain.as_str() == StaticChain::Canary.as_str()
}
