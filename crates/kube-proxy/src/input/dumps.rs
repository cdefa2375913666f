//! Saved rules of a host: what `iptables-save`, `ip6tables-save` and `nft list ruleset` print.

use super::parts::{Section, parts};
use crate::trace;
use anyhow::{Result, anyhow, bail};
use explain::page::harmless;
use iptables::ast::{Ruleset, TableName};
use model::{Family, PerFamily};
use nftables::listed;
use path::IpSets;
use std::collections::BTreeSet;

/// What dumps hold.
#[derive(Clone, Debug, Default)]
pub struct Dumps {
    /// Rules of iptables, by family.
    pub saved: PerFamily<Option<Ruleset>>,
    /// Tables of nftables, of all files; `None` without such a dump.
    pub native: Option<listed::Ruleset>,
    /// Sets of `ipset`, of all files.
    pub(crate) sets: IpSets,
    /// The families of the rules of iptables that are there, whether they were asked for or not.
    given: BTreeSet<Family>,
}

impl Dumps {
    /// The family that rules are of, where none are of this one and no list of nftables tells of both.
    pub(crate) fn only_other_than(&self, family: Family) -> Option<Family> {
        let is_told = self.native.is_some() || self.given.contains(&family);
        self.given.first().copied().filter(|_| !is_told)
    }
}

/// Which rules of dumps are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Those of both families. Rules that may be of either are taken for IPv4's, which is told.
    Both,
    /// Those of one. Rules that may be of either are its own.
    Only(Family),
}

impl Wanted {
    fn has(self, family: Family) -> bool {
        self == Wanted::Both || self == Wanted::Only(family)
    }
}

/// Reads dumps; what each is, and the family of rules of iptables, is told by what is in it. A file may hold several.
///
/// # Errors
/// Names the file, and the line that is no rule.
pub(crate) fn read(files: &[String], wanted: Wanted) -> Result<Dumps> {
    let mut dumps = Dumps::default();
    let mut left_out = Vec::new();
    for file in files {
        let text = trace::read_dump(file)?;
        if IpSets::is_text(&text) {
            let sets = IpSets::read(&text).map_err(|why| anyhow!("{file}: {why}"))?;
            dumps.sets.extend(sets);
            continue;
        }
        let parts = parts(&text);
        if let Some(native) = &parts.native {
            trace::add_native(dumps.native.get_or_insert_default(), file, native)?;
        }
        let is_alone = parts.saved.len() == 1;
        for section in &parts.saved {
            let family = family(file, section, is_alone, wanted)?;
            dumps.given.insert(family);
            if wanted.has(family) {
                add(&mut dumps, file, &section.text, family)?;
                left_out.extend(trace::left_out_of(&section.text).map(|table| (file, table, family)));
            }
        }
    }
    let none = listed::Ruleset::default();
    for (file, table, family) in left_out {
        trace::ensure_is_native(dumps.native.as_ref().unwrap_or(&none), file, table, family)?;
    }
    Ok(dumps)
}

/// The family of rules: as they tell, or as the file's name does, or as is asked.
fn family(file: &str, section: &Section<'_>, is_alone: bool, wanted: Wanted) -> Result<Family> {
    let name = file.rsplit('/').next().unwrap_or(file);
    match (section.family, wanted) {
        (Some(family), _) => Ok(family),
        (None, _) if is_alone && name.starts_with("ip6tables") => Ok(Family::V6),
        (None, _) if is_alone && name.starts_with("iptables") => Ok(Family::V4),
        (None, Wanted::Only(family)) if is_alone => Ok(family),
        (None, Wanted::Both) if is_alone => {
            anstream::eprintln!(
                "note: {}: nothing in it tells whether its rules are of IPv4 or IPv6, so they are taken for IPv4's; a first line \
                 \"# ip6tables\" says otherwise",
                harmless(file)
            );
            Ok(Family::V4)
        }
        (None, _) => bail!(
            "{file}: rules of the same table are in it twice, and nothing tells which are of IPv4 and which of IPv6: put a line \
             \"# iptables\" or \"# ip6tables\" before each, or give each family a file"
        ),
    }
}

fn add(dumps: &mut Dumps, file: &str, text: &str, family: Family) -> Result<()> {
    let rules = trace::rules_of(file, text, family)?;
    let known = dumps.saved.get_mut(family).get_or_insert_default();
    let both = |table: &TableName| known.tables.contains_key(table);
    if let Some(table) = rules.tables.keys().copied().find(both) {
        bail!("{file}: a second dump of {family} rules: table {table} is there twice");
    }
    known.tables.extend(rules.tables);
    Ok(())
}
