//! What strangers write beside our rules.

use super::cluster::Cluster;
use super::rig::Rig;
use iptables::ast::{ChainName, Match, Rule, TableName, Target};
use iptables::plan::{Step, TableWrite};
use model::Family;

pub fn stranger_rule(target: Target, text: &str) -> Rule {
    Rule {
        matches: vec![Match::Comment(format!("STRANGER {text}").into())],
        ..Rule::new(target)
    }
}

pub fn name(text: &str) -> ChainName {
    ChainName::new(text).unwrap()
}

/// Strangers' chains and rules, at the heads and at the ends of built-in chains.
pub fn strangers_step(at: usize) -> Step {
    let mut step = Step::default();
    for (table, builtin) in [
        (TableName::Filter, ["INPUT", "FORWARD", "OUTPUT"]),
        (TableName::Nat, ["PREROUTING", "OUTPUT", "POSTROUTING"]),
    ] {
        let mut write = TableWrite::default();
        let own = name(&format!("STRANGER-{at}"));
        write
            .chains
            .insert(own.clone(), vec![stranger_rule(Target::Return, "own")]);
        for chain in builtin {
            let jump = stranger_rule(Target::Jump(own.clone()), &format!("jump {at}"));
            let rule = stranger_rule(Target::Accept, &format!("accept {at}"));
            write.insert.push((name(chain), jump));
            write.append.push((name(chain), rule));
        }
        step.write.insert(table, write);
    }
    step
}

/// Everything of strangers, with the order of rules in each chain.
pub fn strangers(rig: &Rig, family: Family) -> Vec<String> {
    let mut all = Vec::new();
    for (table, content) in &rig.kernel.ruleset(family).tables {
        for (name, chain) in &content.chains {
            for rule in &chain.rules {
                if rule.comment().is_some_and(|text| text.starts_with("STRANGER")) {
                    all.push(format!("{table} {name} {rule:?}"));
                }
            }
        }
    }
    all
}

/// Endpoint chains that a stranger leads to cannot be deleted; nothing else may be left over.
pub fn same_but_for_stuck(rig: &Rig, cluster: &Cluster) -> Result<(), String> {
    for family in Family::ALL {
        let Err(text) = rig.compare(cluster, family) else {
            continue;
        };
        let only_surplus = text
            .lines()
            .filter(|line| !line.is_empty())
            .all(|line| line.contains("surplus") && line.contains("KUBE-SEP-"));
        if !only_surplus || text.lines().count() > 1 {
            return Err(text);
        }
    }
    Ok(())
}
