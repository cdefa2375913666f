//! One family's tables and the changes to them, each of which can be taken back.

use super::graph::{Callers, validate};
use super::line::{self, Host};
use crate::Backend;
use iptables::ast::{Chain, ChainName, Rule, Ruleset, Table, TableName};
use iptables::names::StaticChain;
use iptables::plan::TableWrite;
use std::collections::BTreeMap;

/// The tables of one family, with who jumps where kept beside them.
#[derive(Default)]
pub(super) struct Tables {
    ruleset: Ruleset,
    callers: BTreeMap<TableName, Callers>,
}

impl Tables {
    pub(super) fn ruleset(&self) -> &Ruleset {
        &self.ruleset
    }

    pub(super) fn from_ruleset(mut ruleset: Ruleset) -> Tables {
        let mut callers = BTreeMap::new();
        for (name, table) in &mut ruleset.tables {
            add_builtin(*name, table);
            let graph: &mut Callers = callers.entry(*name).or_default();
            for (chain, content) in &table.chains {
                for rule in &content.rules {
                    graph.add(chain, rule);
                }
            }
        }
        Tables { ruleset, callers }
    }

    /// Takes a batch back: the last one first.
    pub(super) fn take_back(&mut self, log: Log) {
        let mut batch = Batch::new(self, log.name);
        for undo in log.undo.into_iter().rev() {
            match undo {
                Undo::Chain(name, content) => batch.replace(&name, content),
                Undo::TakeOut(name, at) => {
                    batch.remove_at(&name, at);
                }
                Undo::PutBack(name, at, rule) => batch.insert_at(&name, at, rule),
            }
        }
        if log.created {
            self.ruleset.tables.remove(&log.name);
        }
    }

    /// Empties every chain.
    pub(super) fn flush(&mut self, table: TableName) {
        self.callers.remove(&table);
        let content = self.ruleset.tables.entry(table).or_default();
        add_builtin(table, content);
        for chain in content.chains.values_mut() {
            chain.rules.clear();
        }
    }

    /// Empties every chain and deletes those that are not built in.
    pub(super) fn wipe(&mut self, table: TableName) {
        self.flush(table);
        if let Some(table) = self.ruleset.tables.get_mut(&table) {
            table.chains.retain(|_, chain| chain.policy.is_some());
        }
    }
}

fn add_builtin(name: TableName, table: &mut Table) {
    for chain in name.built_in() {
        table
            .chains
            .entry(crate::builtin_name(chain))
            .or_insert_with(crate::empty_builtin);
    }
}

/// What one restore says about one table.
pub(super) struct Lines<'a> {
    pub(super) write: &'a TableWrite,
    /// Legacy only.
    pub(super) delete: Vec<(&'a ChainName, &'a Rule)>,
    /// Legacy only.
    pub(super) retire: Vec<&'a ChainName>,
}

/// How a change is taken back.
enum Undo {
    Chain(ChainName, Option<Chain>),
    TakeOut(ChainName, usize),
    PutBack(ChainName, usize, Rule),
}

/// Everything that a batch did, so that it can be taken back.
pub(super) struct Log {
    name: TableName,
    created: bool,
    undo: Vec<Undo>,
}

/// The changes of one restore to one table.
pub(super) struct Batch<'a> {
    name: TableName,
    tables: &'a mut Tables,
    created: bool,
    undo: Vec<Undo>,
    /// Every rule added, in order: only they can have brought something the kernel refuses.
    added: Vec<(ChainName, Rule)>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(tables: &'a mut Tables, name: TableName) -> Batch<'a> {
        let created = !tables.ruleset.tables.contains_key(&name);
        if created {
            let mut table = Table::default();
            add_builtin(name, &mut table);
            tables.ruleset.tables.insert(name, table);
        }
        Batch {
            name,
            tables,
            created,
            undo: Vec::new(),
            added: Vec::new(),
        }
    }

    /// Makes the chains that are not there.
    pub(super) fn make<'c>(&mut self, chains: impl Iterator<Item = &'c ChainName>) -> Result<(), String> {
        for name in chains {
            line::check_chain_name(name)?;
            if !self.table().chains.contains_key(name) {
                self.set(name, Some(Chain::default()));
            }
        }
        Ok(())
    }

    /// The lines of a restore, in the order in which they are rendered.
    pub(super) fn restore(&mut self, host: &Host<'_>, lines: &Lines<'_>) -> Result<(), String> {
        let canary = |name: &&ChainName| name.as_str() == StaticChain::Canary.as_str();
        let canaries = lines.write.ensure.iter().filter(canary);
        for name in lines
            .write
            .chains
            .keys()
            .chain(&lines.write.remove)
            .chain(canaries)
        {
            line::check_chain_name(name)?;
            self.set(name, Some(Chain::default()));
        }
        self.empty(&lines.retire);
        for (chain, rule) in &lines.delete {
            self.delete_first(chain, rule);
        }
        for (name, rules) in &lines.write.chains {
            for rule in rules {
                self.put(host, name, usize::MAX, rule)?;
            }
        }
        for (name, rule) in lines.write.insert.iter().rev() {
            self.put(host, name, 0, rule)?;
        }
        for (name, rule) in &lines.write.append {
            self.put(host, name, usize::MAX, rule)?;
        }
        for name in &lines.write.remove {
            self.remove(name)?;
        }
        self.retire(&lines.retire)
    }

    /// Empties chains that are there.
    pub(super) fn empty(&mut self, chains: &[&ChainName]) {
        for name in chains {
            if self.table().chains.contains_key(*name) {
                self.set(name, Some(Chain::default()));
            }
        }
    }

    /// Deletes chains that are there.
    pub(super) fn retire(&mut self, chains: &[&ChainName]) -> Result<(), String> {
        for name in chains {
            if self.table().chains.contains_key(*name) {
                self.remove(name)?;
            }
        }
        Ok(())
    }

    /// Deletes the first equal rule, if there is one.
    pub(super) fn delete_first(&mut self, chain: &ChainName, rule: &Rule) {
        let content = self.table().chains.get(chain);
        let at = content.and_then(|content| content.rules.iter().position(|have| have == rule));
        if let Some(at) = at {
            self.take_out(chain, at);
        }
    }

    /// Deletes the last equal rule, if there is one.
    pub(super) fn delete_last(&mut self, chain: &ChainName, rule: &Rule) {
        let content = self.table().chains.get(chain);
        let at = content.and_then(|content| content.rules.iter().rposition(|have| have == rule));
        if let Some(at) = at {
            self.take_out(chain, at);
        }
    }

    /// What the kernel looks at when the batch is committed.
    pub(super) fn validate(&self, backend: Backend) -> Result<(), String> {
        let empty = Callers::default();
        let callers = self.tables.callers.get(&self.name).unwrap_or(&empty);
        validate(backend, self.name, self.table(), callers, &self.added)
    }

    /// How to take everything back.
    pub(super) fn log(self) -> Log {
        Log {
            name: self.name,
            created: self.created,
            undo: self.undo,
        }
    }

    fn table(&self) -> &Table {
        self.tables
            .ruleset
            .tables
            .get(&self.name)
            .expect("invariant: made in new")
    }

    fn content(&mut self, name: &ChainName) -> Option<&mut Chain> {
        self.tables
            .ruleset
            .tables
            .get_mut(&self.name)
            .and_then(|table| table.chains.get_mut(name))
    }

    fn graph(&mut self) -> &mut Callers {
        self.tables.callers.entry(self.name).or_default()
    }

    /// Makes, empties or deletes a chain.
    fn set(&mut self, name: &ChainName, content: Option<Chain>) {
        let before = self.table().chains.get(name).cloned();
        self.undo.push(Undo::Chain(name.clone(), before));
        self.replace(name, content);
    }

    fn put(&mut self, host: &Host<'_>, name: &ChainName, at: usize, rule: &Rule) -> Result<(), String> {
        let table = self.table();
        let Some(chain) = table.chains.get(name) else {
            return Err(format!("{name}: No chain/target/match by that name"));
        };
        let at = at.min(chain.rules.len());
        line::check_rule(host, table, name, rule)?;
        self.undo.push(Undo::TakeOut(name.clone(), at));
        self.added.push((name.clone(), rule.clone()));
        self.insert_at(name, at, rule.clone());
        Ok(())
    }

    fn take_out(&mut self, name: &ChainName, at: usize) {
        if let Some(rule) = self.remove_at(name, at) {
            self.undo.push(Undo::PutBack(name.clone(), at, rule));
        }
    }

    /// `-X`: refused while the chain holds rules or is jumped to.
    fn remove(&mut self, name: &ChainName) -> Result<(), String> {
        let holds_rules = self
            .table()
            .chains
            .get(name)
            .is_some_and(|chain| !chain.rules.is_empty());
        if holds_rules || self.graph().has_callers(name) {
            return Err(format!(
                "CHAIN_DEL failed (Device or resource busy): chain {name}"
            ));
        }
        self.set(name, None);
        Ok(())
    }

    fn replace(&mut self, name: &ChainName, content: Option<Chain>) {
        if let Some(before) = self.content(name).map(|chain| std::mem::take(&mut chain.rules)) {
            for rule in &before {
                self.graph().remove(name, rule);
            }
        }
        for rule in content.iter().flat_map(|chain| &chain.rules) {
            self.graph().add(name, rule);
        }
        let chains = &mut self
            .tables
            .ruleset
            .tables
            .get_mut(&self.name)
            .expect("invariant: made in new")
            .chains;
        match content {
            Some(content) => chains.insert(name.clone(), content),
            None => chains.remove(name),
        };
    }

    fn insert_at(&mut self, name: &ChainName, at: usize, rule: Rule) {
        self.graph().add(name, &rule);
        if let Some(chain) = self.content(name) {
            chain.rules.insert(at.min(chain.rules.len()), rule);
        }
    }

    fn remove_at(&mut self, name: &ChainName, at: usize) -> Option<Rule> {
        let rule = self
            .content(name)
            .filter(|chain| at < chain.rules.len())?
            .rules
            .remove(at);
        self.graph().remove(name, &rule);
        Some(rule)
    }
}
