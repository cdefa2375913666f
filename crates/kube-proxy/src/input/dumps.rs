//! Saved rules of a host: what `iptables-save`, `ip6tables-save` and `nft list ruleset` print.

use crate::trace;
use anyhow::{Result, bail};
use iptables::ast::{Is, Match, Ruleset};
use iptables::parse;
use model::{Family, PerFamily};
use nftables::listed;

/// What dumps hold.
#[derive(Clone, Debug, Default)]
pub struct Dumps {
    /// Rules of iptables, by family.
    pub saved: PerFamily<Option<Ruleset>>,
    /// Tables of nftables, of all files; `None` without such a dump.
    pub native: Option<listed::Ruleset>,
}

/// Reads dumps; what each is, and the family of rules of iptables, is told by what is in it. Rules of iptables come as one
/// file a family, tables of nftables in as many as there are.
///
/// # Errors
/// Names the file, and the line that is no rule.
pub fn read(files: &[String]) -> Result<Dumps> {
    let mut dumps = Dumps::default();
    let mut left_out = Vec::new();
    for file in files {
        let text = trace::read_dump(file)?;
        if nftables::parse::form_of(&text).is_some() {
            trace::add_native(dumps.native.get_or_insert_default(), file, &text)?;
            continue;
        }
        let family = family_of(&text);
        let slot: &mut Option<Ruleset> = dumps.saved.get_mut(family);
        if slot.is_some() {
            bail!("{file}: a second dump of {family} rules");
        }
        *slot = Some(trace::rules_of(file, &text, family)?);
        left_out.extend(trace::left_out_of(&text).map(|table| (file, table, family)));
    }
    let none = listed::Ruleset::default();
    for (file, table, family) in left_out {
        trace::ensure_is_native(dumps.native.as_ref().unwrap_or(&none), file, table, family)?;
    }
    Ok(dumps)
}

/// `ip6tables-save` prints the same words as `iptables-save`: addresses tell them apart, else matches that only one family
/// has.
pub(crate) fn family_of(text: &str) -> Family {
    let of_six = parse::save(text, Family::V6);
    let rules = of_six
        .ruleset
        .tables
        .values()
        .flat_map(|table| table.chains.values())
        .flat_map(|chain| &chain.rules);
    let mut seen = PerFamily {
        v4: 0_usize,
        v6: 0_usize,
    };
    for rule in rules {
        for net in [&rule.src, &rule.dst].into_iter().flatten() {
            let (Is::Equal(net) | Is::Not(net)) = net;
            *seen.get_mut(Family::of(net.addr())) += 1;
        }
        let is_six = rule
            .matches
            .iter()
            .any(|one| matches!(one, Match::Other { module, .. } if module.contains('6')));
        seen.v6 += usize::from(is_six);
    }
    let says_six = text
        .lines()
        .next()
        .is_some_and(|line| line.contains("ip6tables-save"));
    if says_six || seen.v6 > seen.v4 {
        Family::V6
    } else {
        Family::V4
    }
}
