//! Whether two rulesets mean the same to a reader of chains: what differs, in words.
//!
//! Chains are compared as sets and rules as ordered lists, except in the dispatch chains
//! ([`crate::names::DISPATCH_CHAINS`]): there the order of service ports is free, the order of one service port's
//! rules is not, and the jumps to the node ports come last.

use crate::ast::{Chain, ChainName, Is, Policy, Proto, Rule, Ruleset, TableName, Target};
use crate::names::{StaticChain, is_dispatch};
use crate::render::RuleText;
use model::Family;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One difference between what is wanted and what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The table.
    pub table: TableName,
    /// The chain.
    pub chain: ChainName,
    /// What differs.
    pub kind: DifferenceKind,
}

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The chain is wanted and not there.
    ChainMissing,
    /// The chain is there and not wanted.
    ChainUnexpected,
    /// The chain's policy.
    Policy {
        /// What is wanted.
        want: Option<Policy>,
        /// What is there.
        have: Option<Policy>,
    },
    /// A rule is wanted (once more than it is there).
    RuleMissing(Rule),
    /// A rule is there (once more than it is wanted).
    RuleUnexpected(Rule),
    /// The same rules in another order: the first that stands elsewhere.
    Order {
        /// The rule wanted there.
        want: Rule,
        /// The rule found there.
        have: Rule,
    },
    /// A jump to the node ports that has other rules after it.
    NotLast(Rule),
}

impl Difference {
    /// The difference in a line of words.
    pub fn text(&self, family: Family) -> impl fmt::Display + '_ {
        DifferenceText {
            difference: self,
            family,
        }
    }
}

struct DifferenceText<'a> {
    difference: &'a Difference,
    family: Family,
}

impl fmt::Display for DifferenceText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = self.family;
        let Difference { table, chain, kind } = self.difference;
        let rule = |rule| RuleText { rule, family };
        let policy = |policy: &Option<Policy>| policy.map_or("-", Policy::as_str);
        write!(f, "{table} {chain}: ")?;
        match kind {
            DifferenceKind::ChainMissing => f.write_str("chain is missing"),
            DifferenceKind::ChainUnexpected => f.write_str("chain is not wanted"),
            DifferenceKind::Policy { want, have } => {
                write!(f, "policy is {}, wanted {}", policy(have), policy(want))
            }
            DifferenceKind::RuleMissing(missing) => write!(f, "missing: {}", rule(missing)),
            DifferenceKind::RuleUnexpected(surplus) => write!(f, "not wanted: {}", rule(surplus)),
            DifferenceKind::Order { want, have } => {
                write!(f, "order: found {}, wanted there {}", rule(have), rule(want))
            }
            DifferenceKind::NotLast(early) => write!(f, "not last: {}", rule(early)),
        }
    }
}

/// All differences, by table and chain.
pub fn differences(want: &Ruleset, have: &Ruleset) -> Vec<Difference> {
    let mut found = Vec::new();
    let tables: BTreeSet<_> = want.tables.keys().chain(have.tables.keys()).collect();
    for table in tables {
        let chains = |ruleset: &Ruleset| ruleset.tables.get(table).cloned().unwrap_or_default().chains;
        let (want, have) = (chains(want), chains(have));
        let names: BTreeSet<_> = want.keys().chain(have.keys()).collect();
        for chain in names {
            let kinds = match (want.get(chain), have.get(chain)) {
                (Some(want), Some(have)) => chain_differences(is_dispatch(*table, chain), want, have),
                (Some(_), None) => vec![DifferenceKind::ChainMissing],
                (None, _) => vec![DifferenceKind::ChainUnexpected],
            };
            found.extend(kinds.into_iter().map(|kind| Difference {
                table: *table,
                chain: chain.clone(),
                kind,
            }));
        }
    }
    found
}

fn chain_differences(dispatch: bool, want: &Chain, have: &Chain) -> Vec<DifferenceKind> {
    let mut kinds = Vec::new();
    if want.policy != have.policy {
        kinds.push(DifferenceKind::Policy {
            want: want.policy,
            have: have.policy,
        });
    }
    if dispatch {
        let (want_groups, have_groups) = (by_port(&want.rules), by_port(&have.rules));
        let keys: BTreeSet<_> = want_groups.keys().chain(have_groups.keys()).collect();
        for key in keys {
            let of = |groups: &BTreeMap<_, Vec<_>>| groups.get(key).cloned().unwrap_or_default();
            rule_differences(&of(&want_groups), &of(&have_groups), &mut kinds);
        }
        kinds.extend(early_node_port_jumps(&have.rules));
    } else {
        let (want, have): (Vec<_>, Vec<_>) = (want.rules.iter().collect(), have.rules.iter().collect());
        rule_differences(&want, &have, &mut kinds);
    }
    kinds
}

/// Surplus and missing rules, else the first one out of order.
fn rule_differences(want: &[&Rule], have: &[&Rule], kinds: &mut Vec<DifferenceKind>) {
    if want == have {
        return;
    }
    let mut balance: BTreeMap<&Rule, isize> = BTreeMap::new();
    for rule in want {
        *balance.entry(rule).or_default() += 1;
    }
    for rule in have {
        *balance.entry(rule).or_default() -= 1;
    }
    let before = kinds.len();
    for (rule, n) in balance {
        let kind = if n > 0 {
            DifferenceKind::RuleMissing
        } else {
            DifferenceKind::RuleUnexpected
        };
        kinds.extend((0..n.unsigned_abs()).map(|_| kind(rule.clone())));
    }
    if kinds.len() > before {
        return;
    }
    let moved = want.iter().zip(have).find(|(want, have)| want != have);
    kinds.extend(moved.map(|(want, have)| DifferenceKind::Order {
        want: (*want).clone(),
        have: (*have).clone(),
    }));
}

/// Whose rule it is, as far as its comment tells: the first word is the service port's name, except in the node-port
/// jumps, whose order among each other is free as well and which therefore stand for themselves.
type PortKey<'a> = (&'a str, Option<&'a Is<Proto>>, Option<&'a Rule>);

fn by_port(rules: &[Rule]) -> BTreeMap<PortKey<'_>, Vec<&Rule>> {
    let mut groups: BTreeMap<PortKey<'_>, Vec<&Rule>> = BTreeMap::new();
    for rule in rules {
        groups.entry(port_key(rule)).or_default().push(rule);
    }
    groups
}

fn port_key(rule: &Rule) -> PortKey<'_> {
    let first = rule.comment().and_then(|text| text.split(' ').next());
    match first {
        Some(title) if title.contains('/') => (title, rule.protocol.as_ref(), None),
        _ => ("", None, Some(rule)),
    }
}

fn leads_to_node_ports(rule: &Rule) -> bool {
    matches!(&rule.target, Target::Jump(chain) if chain.as_str() == StaticChain::NodePorts.as_str())
}

/// The jumps to the node ports that have other rules after them.
fn early_node_port_jumps(rules: &[Rule]) -> impl Iterator<Item = DifferenceKind> {
    let last_other = rules.iter().rposition(|rule| !leads_to_node_ports(rule));
    let before = &rules[..last_other.unwrap_or(0)];
    let early = before.iter().filter(|rule| leads_to_node_ports(rule));
    early.map(|rule| DifferenceKind::NotLast(rule.clone()))
}
