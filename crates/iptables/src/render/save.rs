//! Whole tables, as `iptables-save` prints them and as `iptables-restore --noflush` takes them.

use super::Written;
use super::rule::write_words;
use crate::ast::{Chain, ChainName, Rule, Ruleset, Table, TableName};
use crate::parse::Opaque;
use model::Family;
use std::fmt::{self, Write};

/// Tables as `iptables-save` of iptables 1.8.9 (`nf_tables`) prints them, without its comments and counters.
///
/// Built-in chains come first, in the order of the hooks, then the others by name.
#[derive(Clone, Copy, Debug)]
pub struct SaveText<'a> {
    /// The tables.
    pub ruleset: &'a Ruleset,
    /// Lines that were not understood when the tables were read, printed at the ends of their tables, and those of no
    /// known table at the end of all.
    pub opaque: &'a [Opaque],
    /// Their family.
    pub family: Family,
}

impl<'a> SaveText<'a> {
    /// The text of tables and nothing else.
    pub fn new(ruleset: &'a Ruleset, family: Family) -> Self {
        SaveText {
            ruleset,
            opaque: &[],
            family,
        }
    }
}

impl fmt::Display for SaveText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> Written {
        let opaque = |f: &mut fmt::Formatter<'_>, table| {
            let mut lines = self.opaque.iter().filter(|line| line.table == table);
            lines.try_for_each(|line| writeln!(f, "{}", line.text))
        };
        for (name, table) in &self.ruleset.tables {
            table_rules(f, *name, table, self.family, &|_| true)?;
            opaque(f, Some(*name))?;
            end(f)?;
        }
        opaque(f, None)
    }
}

/// Tables as input of `iptables-restore --noflush`: user chains are made or emptied and filled; built-in chains get
/// their rules appended and keep their policies.
#[derive(Clone, Copy, Debug)]
pub struct RestoreText<'a> {
    /// The tables.
    pub ruleset: &'a Ruleset,
    /// Their family.
    pub family: Family,
}

impl fmt::Display for RestoreText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> Written {
        for (name, table) in &self.ruleset.tables {
            table_rules(f, *name, table, self.family, &|chain| chain.policy.is_none())?;
            end(f)?;
        }
        Ok(())
    }
}

/// A table up to its `COMMIT`.
fn table_rules(
    out: &mut dyn Write,
    name: TableName,
    table: &Table,
    family: Family,
    declared: &dyn Fn(&Chain) -> bool,
) -> Written {
    begin(out, name)?;
    for (chain_name, chain) in in_order(name, table) {
        if declared(chain) {
            let policy = chain.policy.map_or("-", crate::ast::Policy::as_str);
            writeln!(out, ":{chain_name} {policy} [0:0]")?;
        }
    }
    for (chain_name, chain) in in_order(name, table) {
        for rule in &chain.rules {
            command(out, "-A", chain_name, rule, family)?;
        }
    }
    Ok(())
}

/// Built-in chains in the order of the hooks, then the others by name.
fn in_order(name: TableName, table: &Table) -> impl Iterator<Item = (&ChainName, &Chain)> {
    let built_in = name.built_in();
    let first = built_in
        .iter()
        .filter_map(|word| table.chains.iter().find(|(n, _)| n.as_str() == *word));
    let rest = table
        .chains
        .iter()
        .filter(|(n, _)| !built_in.contains(&n.as_str()));
    first.chain(rest)
}

pub(super) fn begin(out: &mut dyn Write, table: TableName) -> Written {
    writeln!(out, "*{table}")
}

pub(super) fn end(out: &mut dyn Write) -> Written {
    out.write_str("COMMIT\n")
}

/// The line that makes a user chain, or empties it.
pub(super) fn fresh(out: &mut dyn Write, chain: &ChainName) -> Written {
    out.write_str(":")?;
    out.write_str(chain.as_str())?;
    out.write_str(" - [0:0]\n")
}

/// `-A CHAIN ...`, or `-I` or `-D`.
pub(super) fn command(
    out: &mut dyn Write,
    verb: &str,
    chain: &ChainName,
    rule: &Rule,
    family: Family,
) -> Written {
    out.write_str(verb)?;
    out.write_str(" ")?;
    out.write_str(chain.as_str())?;
    write_words(out, rule, family)?;
    out.write_str("\n")
}
