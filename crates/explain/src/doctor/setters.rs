//! Rules of others that set or ask for a packet's mark, of iptables and of nftables.

use super::Patient;
use crate::fate::is_of_kubernetes;
use iptables::ast::{Is, Match, Rule, Ruleset, TableName, Target};
use iptables::render::RuleText;
use nftables::listed::{BinaryOp, Expr, Op, Statement, Table, Value, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// What a rule does with marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MarkRule {
    /// Where it is, in words.
    pub(super) place: String,
    /// The rule.
    pub(super) text: String,
    pub(super) does: Does,
}

/// What a rule does with the bits of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Leaves these bits set that were not.
    Sets(u32),
    /// Takes these bits away, behind the place where kube-proxy sets them.
    Clears(u32),
    /// Stops or translates packets that have these bits.
    ActsOn(u32),
}

/// All that touch any of these bits and are not Kubernetes' own.
pub(super) fn of_others(patient: &Patient, bits: u32) -> Vec<MarkRule> {
    let mut found = Vec::new();
    for saved in &patient.saved {
        let tool = saved.backend.tool(saved.family);
        for (table, chain, rule, late) in others(&saved.rules) {
            if let Some(does) = of_rule(rule, bits, late) {
                found.push(MarkRule {
                    place: format!("{table} {chain} ({tool})"),
                    text: RuleText {
                        rule,
                        family: saved.family,
                    }
                    .to_string(),
                    does,
                });
            }
        }
    }
    for table in patient
        .native_tables()
        .filter(|table| &*table.name != nftables::names::TABLE)
    {
        found.extend(of_table(table, bits));
    }
    found
}

/// Others' rules, and whether packets may meet them behind kube-proxy's translation and before its masquerading.
fn others(rules: &Ruleset) -> Vec<(TableName, &str, &Rule, bool)> {
    let mut found = Vec::new();
    for (table, chains) in &rules.tables {
        let late = late_chains(*table, &chains.chains);
        for (name, chain) in &chains.chains {
            let name = name.as_str();
            if !is_of_kubernetes(name) {
                found.extend(
                    chain
                        .rules
                        .iter()
                        .map(|rule| (*table, name, rule, late.contains(name))),
                );
            }
        }
    }
    found
}

/// Chains that are reached from a hook where the mark is set already and still counts.
fn late_chains(
    table: TableName,
    chains: &BTreeMap<iptables::ast::ChainName, iptables::ast::Chain>,
) -> BTreeSet<&str> {
    let begin: &[&str] = match table {
        TableName::Mangle | TableName::Security => &["FORWARD", "POSTROUTING"],
        TableName::Filter => &["FORWARD", "OUTPUT"],
        TableName::Raw | TableName::Nat => &[],
    };
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut next: Vec<&str> = begin.to_vec();
    while let Some(name) = next.pop() {
        let Some((name, chain)) = chains.get_key_value(name) else {
            continue;
        };
        if reached.insert(name.as_str()) {
            next.extend(chain.rules.iter().filter_map(|rule| match &rule.target {
                Target::Jump(to) | Target::Goto(to) => Some(to.as_str()),
                _ => None,
            }));
        }
    }
    reached
}

fn of_rule(rule: &Rule, bits: u32, late: bool) -> Option<Does> {
    match &rule.target {
        Target::Mark { value, mask } => effect(!mask, *value, bits, late),
        Target::Drop | Target::Reject(_) | Target::Dnat(_) | Target::Masquerade(_) | Target::Other { .. } => {
            let asked = rule.matches.iter().find_map(|one| match one {
                Match::Mark {
                    is: Is::Equal((value, mask)),
                } => Some(value & mask & bits),
                _ => None,
            })?;
            (asked != 0).then_some(Does::ActsOn(asked))
        }
        _ => None,
    }
}

/// A new mark is (old & keep) ^ value.
fn effect(keep: u32, value: u32, bits: u32, late: bool) -> Option<Does> {
    let sets = value & bits;
    let clears = !keep & !value & bits;
    if sets != 0 {
        Some(Does::Sets(sets))
    } else if clears != 0 && late {
        Some(Does::Clears(clears))
    } else {
        None
    }
}

fn of_table(table: &Table, bits: u32) -> Vec<MarkRule> {
    let mut found = Vec::new();
    for chain in &table.chains {
        // Behind the translation of destinations, and before that of sources.
        let late = chain.base.as_ref().is_some_and(|base| match &*base.hook {
            "forward" => true,
            "postrouting" => base.priority < 100,
            _ => false,
        });
        for rule in &chain.rules {
            let does = rule.statements.iter().find_map(|statement| match statement {
                Statement::Assign { to, value } if is_mark(to) => {
                    let (keep, value) = mark_of(value)?;
                    effect(keep, value, bits, late)
                }
                _ => None,
            });
            let does = does.or_else(|| acts(rule, bits));
            if let Some(does) = does {
                found.push(MarkRule {
                    place: format!("table {}, chain {}", table.title(), chain.name),
                    text: nftables::listed::RuleText(rule).to_string(),
                    does,
                });
            }
        }
    }
    found
}

fn is_mark(expr: &Expr) -> bool {
    let Expr::Field(words) = expr else { return false };
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    matches!(words.as_slice(), ["mark"] | ["meta", "mark"])
}

/// What becomes of a mark, as (keep, value); `None` when it depends on something else.
fn mark_of(expr: &Expr) -> Option<(u32, u32)> {
    match expr {
        expr if is_mark(expr) => Some((u32::MAX, 0)),
        Expr::Value(_) => Some((0, number(expr)?)),
        Expr::Binary(op, both) => {
            let (keep, value) = mark_of(&both.0)?;
            let with = number(&both.1)?;
            match op {
                BinaryOp::And => Some((keep & with, value & with)),
                BinaryOp::Or => Some((keep & !with, value | with)),
                BinaryOp::Xor => Some((keep, value ^ with)),
                BinaryOp::Left | BinaryOp::Right => None,
            }
        }
        _ => None,
    }
}

fn number(expr: &Expr) -> Option<u32> {
    match expr {
        Expr::Value(Value::Mark(mark)) => Some(*mark),
        Expr::Value(Value::Number(number)) => u32::try_from(*number).ok(),
        _ => None,
    }
}

/// Whether a rule drops, refuses or translates what has some of the bits.
fn acts(rule: &nftables::listed::Rule, bits: u32) -> Option<Does> {
    let is_action = rule.statements.iter().any(|statement| {
        matches!(
            statement,
            Statement::Verdict(Verdict::Drop) | Statement::Reject(_) | Statement::Nat(_)
        )
    });
    let asked = rule.statements.iter().find_map(|statement| match statement {
        Statement::Match {
            left,
            op: Op::Is | Op::Equal,
            right,
        } => asked(left, right),
        _ => None,
    })?;
    (is_action && asked & bits != 0).then_some(Does::ActsOn(asked & bits))
}

/// The bits that `meta mark 0x1` or `meta mark & 0x1 == 0x1` asks to be set.
fn asked(left: &Expr, right: &Expr) -> Option<u32> {
    match left {
        left if is_mark(left) => number(right),
        Expr::Binary(BinaryOp::And, both) if is_mark(&both.0) => Some(number(right)? & number(&both.1)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_a_mark_is_read_from_the_statement() {
        let does = |text: &str, late: bool| {
            let rule = nftables::parse::rule(text);
            rule.statements.iter().find_map(|statement| match statement {
                Statement::Assign { to, value } if is_mark(to) => {
                    let (keep, value) = mark_of(value)?;
                    effect(keep, value, 0x4000, late)
                }
                _ => None,
            })
        };
        assert_eq!(does("meta mark set 0x0000ca6c", false), Some(Does::Sets(0x4000)));
        assert_eq!(
            does("meta mark set meta mark | 0x00004000", false),
            Some(Does::Sets(0x4000))
        );
        assert_eq!(does("meta mark set 0x00000001", true), Some(Does::Clears(0x4000)));
        assert_eq!(does("meta mark set 0x00000001", false), None);
        assert_eq!(does("meta mark set meta mark & 0x0000ffff", true), None);
        assert_eq!(does("meta mark set meta mark | 0x00080000", true), None);
    }
}
