//! Rules out of files: of iptables, of nftables as text or as JSON, told apart by their content.

use crate::input::dumps::{self, Wanted};
use crate::input::mailed;
use anyhow::{Context, Result, bail, ensure};
use iptables::ast::{Ruleset, TableName};
use iptables::parse::Opaque;
use model::Family;
use nftables::listed;
use path::Host;
use std::fs::File;
use std::io::Read;

/// The rules of all files together, on a host of which nothing else is known.
///
/// # Errors
/// Names the file that could not be read, or what in it is no rule; or says that no rules are of this family.
pub(super) fn host(files: &[String], family: Family) -> Result<Host> {
    let (host, other) = host_or_other(files, family)?;
    if let Some(other) = other {
        let tool = match family {
            Family::V4 => "iptables-save",
            Family::V6 => "ip6tables-save",
        };
        bail!(
            "the packet is of {family}, and the dump has only rules of {other}: give what {tool} prints as well"
        );
    }
    Ok(host)
}

/// The same, and the family that the rules are of where none are of this one.
///
/// # Errors
/// Names the file that could not be read, or what in it is no rule.
pub(super) fn host_or_other(files: &[String], family: Family) -> Result<(Host, Option<Family>)> {
    let dumps = dumps::read(files, Wanted::Only(family))?;
    let other = dumps.only_other_than(family);
    let mut host = Host {
        native: dumps.native.unwrap_or_default(),
        sets: dumps.sets,
        ..Host::default()
    };
    *host.rules.get_mut(family) = dumps.saved.get(family).clone().unwrap_or_default();
    Ok((host, other))
}

/// The tables that `iptables-save` says it leaves out, since they have rules that it has no words for.
pub(crate) fn left_out_of(text: &str) -> impl Iterator<Item = TableName> {
    text.lines().filter_map(iptables::parse::left_out)
}

/// Whether a table of this name is among those of nftables.
pub(crate) fn is_native(native: &listed::Ruleset, table: TableName, family: Family) -> bool {
    let of = listed::TableFamily::of(family);
    native.table(of, table.as_str()).is_some()
}

/// A table that `iptables-save` leaves out has to be in another dump: its rules decide as those of any other.
///
/// # Errors
/// When it is not.
pub(crate) fn ensure_is_native(
    native: &listed::Ruleset,
    file: &str,
    table: TableName,
    family: Family,
) -> Result<()> {
    ensure!(
        is_native(native, table, family),
        "{file} leaves out table {table}, which has rules that iptables has no words for: give what nft list ruleset \
         prints as well"
    );
    Ok(())
}

/// Adds the tables of the text of an `nft list ruleset`.
///
/// # Errors
/// When it is none, or a table is there twice.
pub(crate) fn add_native(native: &mut listed::Ruleset, file: &str, text: &str) -> Result<()> {
    let ruleset = nftables::parse::ruleset(text)
        .with_context(|| format!("{file} is not what nft list ruleset prints"))?;
    ensure!(!ruleset.tables.is_empty(), "{file} holds no table of nftables");
    for table in ruleset.tables {
        let known = native.table(table.family, &table.name).is_some();
        ensure!(
            !known,
            "{file} holds table {}, which another dump has too",
            table.title()
        );
        native.tables.push(table);
    }
    Ok(())
}

/// The rules of the text of an `iptables-save` file.
///
/// # Errors
/// When a rule is not understood, or a part of the file is missing.
pub(crate) fn rules_of(file: &str, text: &str, family: Family) -> Result<Ruleset> {
    let saved = iptables::parse::save(text, family);
    // A rule that was not understood may be the one that decides, and shifts the numbers of those behind it.
    let in_table = |line: &&Opaque| line.table.is_some() || line.text.contains("-A ");
    let found = saved.opaque.iter().find(in_table);
    if saved.ruleset.tables.is_empty() {
        let instead = mailed::instead(text).map_or_else(String::new, |what| format!(": {what}"));
        let line = found.map_or_else(String::new, |line| format!(" (line {} is in none)", line.line));
        bail!("{file} holds no table of iptables-save, nor of nft list ruleset{line}{instead}");
    }
    if let Some(line) = found {
        let text: String = line.text.chars().take(LONGEST_QUOTE).collect();
        bail!("{file}, line {}: not a rule of iptables-save: {text}", line.line);
    }
    ensure!(
        !mailed::is_cut(text),
        "{file} does not end with COMMIT: its end is missing"
    );
    Ok(saved.ruleset)
}

/// So much of a line that is not understood is quoted, in characters.
const LONGEST_QUOTE: usize = 200;

/// Largest dump that is read, in bytes; a million rules take 200 MB.
const LARGEST_DUMP: u64 = 256 << 20;

/// The text of a dump. Comments may be in any encoding: what is not UTF-8 in them decides nothing.
///
/// # Errors
/// When it cannot be read, or is larger than a dump can be.
pub(crate) fn read_dump(file: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let context = || format!("reading rules from {file}");
    let input: Box<dyn Read> = match file {
        "-" => Box::new(std::io::stdin().lock()),
        path => Box::new(File::open(path).with_context(context)?),
    };
    input
        .take(LARGEST_DUMP + 1)
        .read_to_end(&mut bytes)
        .with_context(context)?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    ensure!(
        length <= LARGEST_DUMP,
        "{file} is larger than {} MB: cut out the tables that matter",
        LARGEST_DUMP >> 20
    );
    Ok(mailed::text_of(bytes))
}
