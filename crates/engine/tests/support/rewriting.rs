//! Whether a step writes dispatch rules that could have stayed.

use super::rig::Rig;
use super::strangers::name;
use iptables::ast::{ChainName, Match, Rule, TableName};
use iptables::plan::Step;
use model::Family;
use std::collections::{BTreeMap, BTreeSet};

const DISPATCH: [&str; 4] = [
    "KUBE-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-PROXY-FIREWALL",
];

/// A service port in one dispatch chain: table, chain, and the first word of its rules' comments.
pub type Port = (TableName, ChainName, String);

/// The rules of each port in each dispatch chain, in the kernel's order.
pub fn port_rules(rig: &Rig, family: Family) -> BTreeMap<Port, Vec<Rule>> {
    let mut rules: BTreeMap<Port, Vec<Rule>> = BTreeMap::new();
    for (table, content) in &rig.kernel.ruleset(family).tables {
        let dispatch = content
            .chains
            .iter()
            .filter(|(chain, _)| DISPATCH.contains(&chain.as_str()));
        for (chain, content) in dispatch {
            for rule in &content.rules {
                let port = (*table, chain.clone(), first_word(rule));
                rules.entry(port).or_default().push(rule.clone());
            }
        }
    }
    rules
}

/// `ns/name:port` in a dispatch chain.
fn first_word(rule: &Rule) -> String {
    let comment = rule.matches.iter().find_map(|one| match one {
        Match::Comment(text) => text.split(' ').next(),
        _ => None,
    });
    comment.unwrap_or_default().to_owned()
}

/// Dispatch chains are never rewritten. No rule of a port whose rules end up as they were is put in and taken out.
///
/// Rules of one port have an order, and new ones go to the head of a chain: a new one that belongs behind an old one
/// takes the old one's place along.
pub fn no_rewriting(step: &Step, same: &BTreeSet<&Port>) -> Result<(), String> {
    for (table, write) in &step.write {
        for chain in DISPATCH {
            if write.chains.contains_key(&name(chain)) {
                return Err(format!("{table} {chain} was written whole"));
            }
        }
        for (chain, rule) in &write.insert {
            let replaced = step
                .delete
                .iter()
                .any(|(t, c, r)| t == table && c == chain && r == rule);
            if replaced && same.contains(&(*table, chain.clone(), first_word(rule))) {
                return Err(format!("{table} {chain}: {rule:?} was replaced by itself"));
            }
        }
    }
    Ok(())
}
