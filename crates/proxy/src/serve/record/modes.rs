//! Series that one mode has and another has not.

use super::{Mode, Record, as_f64, name};
use iptables::ast::TableName;
use iptables::diff::count::RuleCount;
use iptables::plan::Step;
use model::Family;
use nftables::step::{self as nft, FrameStep};
use std::collections::BTreeMap;

/// What a step of nftables mode is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To bring what is wanted.
    #[default]
    Sync,
    /// To take away chains and sets that nobody wants. Upstream does that in a transaction of its own, too.
    Cleanup,
}

impl Purpose {
    /// The purpose of a step.
    pub(super) fn of(step: &nft::Step) -> Purpose {
        let takes_away =
            |part: &FrameStep| matches!(part, FrameStep::DeleteChains(_) | FrameStep::DeleteSets(_));
        if step.elements.is_empty() && !step.frame.is_empty() && step.frame.iter().all(takes_away) {
            Purpose::Cleanup
        } else {
            Purpose::Sync
        }
    }
}

impl Record {
    /// The step that was given out last failed.
    pub(super) fn step_failed(&mut self, family: Family) {
        let run = self.runs.get(family);
        let names: &[&'static str] = match (self.mode, run.purpose) {
            (Mode::Iptables, _) if run.full => &[name::RESTORE_FAILURES],
            (Mode::Iptables, _) => &[name::RESTORE_FAILURES, name::PARTIAL_FAILURES],
            (Mode::Nftables, Purpose::Sync) => &[name::NFT_FAILURES],
            (Mode::Nftables, Purpose::Cleanup) => &[name::NFT_CLEANUP_FAILURES],
        };
        for name in names {
            self.metrics.add(name, &[&family.to_string()], 1.0);
        }
    }

    /// A run that wrote so many rules is over.
    pub(super) fn rules_written(&mut self, family: Family, written: &BTreeMap<TableName, usize>) {
        if self.mode != Mode::Iptables {
            return;
        }
        for table in [TableName::Filter, TableName::Nat] {
            let written = written.get(&table).copied().unwrap_or(0);
            let labels = [&*family.to_string(), table.as_str()];
            self.metrics
                .set(name::RULES_LAST, &labels, as_f64(written as u64));
        }
    }

    /// So many rules there are.
    pub(super) fn count_rules(&mut self, family: Family, rules: RuleCount) {
        if self.mode != Mode::Iptables || self.rules.get_mut(family).replace(rules) == Some(rules) {
            return;
        }
        for (table, count) in [(TableName::Filter, rules.filter), (TableName::Nat, rules.nat)] {
            let labels = [&*family.to_string(), table.as_str()];
            self.metrics.set(name::RULES_TOTAL, &labels, as_f64(count as u64));
        }
    }
}

/// Adds the rules of a step to those that a run wrote.
pub(super) fn count_rules(step: &Step, written: &mut BTreeMap<TableName, usize>) {
    for (table, write) in &step.write {
        let rules = write.chains.values().map(Vec::len).sum::<usize>();
        *written.entry(*table).or_default() += rules + write.insert.len() + write.append.len();
    }
}
