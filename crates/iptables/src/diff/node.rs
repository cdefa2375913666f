//! The difference of the node's part: static chains, canaries, jumps, and the rules that end nat `KUBE-SERVICES`.

use super::compact::{DispatchRule, Place};
use super::count::RuleCount;
use super::harm::Harm;
use crate::ast::{ChainName, Rule, TableName};
use crate::build::{Jump, NodeRules, no_martians};
use crate::names::StaticChain;
use crate::plan::TableWrite;
use model::Family;
use std::collections::BTreeMap;

/// What is there of the node's part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHave {
    /// Chains that exist. Static chains with all their rules, dispatch chains without any, and of built-in chains only
    /// those with jumps into static chains, with just these jumps.
    chains: BTreeMap<(TableName, ChainName), Vec<Rule>>,
    /// The jumps to the node ports in nat `KUBE-SERVICES`, sorted.
    tail: Vec<Rule>,
    position: TailPosition,
}

/// Where the jumps to the node ports stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TailPosition {
    /// Nothing comes after them.
    #[default]
    Last,
    /// Other rules come after one of them.
    Buried,
}

impl NodeHave {
    pub(super) fn record_chain(&mut self, table: TableName, name: &ChainName, rules: Vec<Rule>) {
        self.chains.insert((table, name.clone()), rules);
    }

    pub(super) fn record_tail(&mut self, rule: Rule) {
        let at = self.tail.partition_point(|known| *known <= rule);
        self.tail.insert(at, rule);
    }

    /// A rule of nat `KUBE-SERVICES` that is none of the tail's was seen.
    pub(super) fn record_other(&mut self) {
        if !self.tail.is_empty() {
            self.position = TailPosition::Buried;
        }
    }

    /// Names what `seen` lacks of this, or has otherwise.
    pub(super) fn harm(&self, seen: &NodeHave, harm: &mut Harm) {
        for ((table, chain), rules) in &self.chains {
            let found = seen.rules(*table, chain);
            if found == Some(rules) {
                continue;
            }
            let is_builtin = table.built_in().contains(&chain.as_str());
            harm.add(|| match found {
                _ if is_builtin => format!("our jumps in {table} {chain} missing or changed"),
                None => format!("{table} chain {chain} missing"),
                Some(_) => format!("{table} chain {chain} changed"),
            });
        }
        if self.tail != seen.tail || self.position != seen.position {
            harm.add(|| "the end of nat KUBE-SERVICES changed".to_owned());
        }
    }

    /// Static chains' rules and the tail. Of the kubelet's chain one rule is ours too, and of built-in ones none.
    pub(super) fn rules_in_our_chains(&self) -> RuleCount {
        let count = |((table, chain), rules): (&(TableName, ChainName), &Vec<Rule>)| {
            if chain.as_str() == StaticChain::Firewall.as_str() {
                usize::from(rules.contains(&no_martians()))
            } else if table.built_in().contains(&chain.as_str()) {
                0
            } else {
                rules.len()
            }
        };
        let in_table = |of: TableName| {
            let chains = self.chains.iter().filter(|((table, _), _)| *table == of);
            chains.map(count).sum::<usize>()
        };
        RuleCount {
            filter: in_table(TableName::Filter),
            nat: in_table(TableName::Nat) + self.tail.len(),
        }
    }

    fn rules(&self, table: TableName, chain: &ChainName) -> Option<&Vec<Rule>> {
        self.chains.get(&(table, chain.clone()))
    }
}

/// The node's difference.
#[derive(Clone, Debug)]
pub struct NodeDifference {
    pub(super) write: BTreeMap<TableName, TableWrite>,
    pub(super) delete: Vec<DispatchRule>,
    pub(super) after: NodeHave,
}

impl NodeDifference {
    /// What the node's part needs.
    pub fn new(want: NodeRules, have: &super::have::Have) -> NodeDifference {
        let family = have.family;
        let have = &have.node;
        let mut difference = NodeDifference {
            write: BTreeMap::new(),
            delete: Vec::new(),
            after: have.clone(),
        };
        for (table, chains) in want.chains {
            for (chain, rules) in chains {
                difference.fill(table, chain, rules);
            }
        }
        let dispatch = Place::ALL.into_iter().map(|place| (place.table(), place.chain()));
        for (table, chain) in want.ensured.into_iter().chain(dispatch) {
            difference.ensure(table, chain);
        }
        difference.jumps(want.jumps);
        difference.tail(family, want.tail);
        difference
    }

    /// Whether the kernel holds all of this already.
    pub fn is_empty(&self) -> bool {
        self.write.is_empty() && self.delete.is_empty()
    }

    fn table(&mut self, table: TableName) -> &mut TableWrite {
        self.write.entry(table).or_default()
    }

    fn fill(&mut self, table: TableName, chain: ChainName, rules: Vec<Rule>) {
        if chain == StaticChain::Firewall.name() {
            self.complete(table, &chain, rules);
        } else if self.after.rules(table, &chain) != Some(&rules) {
            self.after.record_chain(table, &chain, rules.clone());
            self.table(table).chains.insert(chain, rules);
        }
    }

    /// A chain that is shared with the kubelet gets the rules that it lacks, and keeps those it has.
    fn complete(&mut self, table: TableName, chain: &ChainName, rules: Vec<Rule>) {
        self.ensure(table, chain.clone());
        let mut all = self.after.rules(table, chain).cloned().unwrap_or_default();
        let missing: Vec<Rule> = rules.into_iter().filter(|rule| !all.contains(rule)).collect();
        for rule in missing {
            all.push(rule.clone());
            self.table(table).append.push((chain.clone(), rule));
        }
        self.after.record_chain(table, chain, all);
    }

    fn ensure(&mut self, table: TableName, chain: ChainName) {
        if self.after.rules(table, &chain).is_none() {
            self.after.record_chain(table, &chain, Vec::new());
            self.table(table).ensure.push(chain);
        }
    }

    /// A jump may stand anywhere in its chain; one that is missing is put at the head, as upstream does.
    fn jumps(&mut self, want: Vec<Jump>) {
        let mut missing: BTreeMap<(TableName, ChainName), Vec<Rule>> = BTreeMap::new();
        for jump in want {
            let have = self.after.rules(jump.table, &jump.from);
            if have.is_none_or(|rules| !rules.contains(&jump.rule)) {
                missing
                    .entry((jump.table, jump.from))
                    .or_default()
                    .push(jump.rule);
            }
        }
        for ((table, from), rules) in missing {
            let below = self.after.rules(table, &from).cloned().unwrap_or_default();
            let all = rules.iter().cloned().chain(below).collect();
            self.after.record_chain(table, &from, all);
            let inserts = rules.into_iter().map(|rule| (from.clone(), rule));
            self.table(table).insert.extend(inserts);
        }
    }

    /// New jumps to the node ports are appended, and so are all of them when others came to stand behind them. What is
    /// deleted afterwards is each one's first, upper, copy.
    fn tail(&mut self, family: Family, want: Vec<Rule>) {
        let mut surplus = std::mem::take(&mut self.after.tail);
        let kept_in_place = self.after.position == TailPosition::Last;
        for rule in want {
            let known = surplus.iter().position(|known| *known == rule);
            match known {
                Some(at) if kept_in_place => drop(surplus.remove(at)),
                _ => {
                    let append = (Place::NatServices.chain(), rule.clone());
                    self.table(TableName::Nat).append.push(append);
                }
            }
            self.after.record_tail(rule);
        }
        self.after.position = TailPosition::Last;
        let surplus = surplus
            .iter()
            .map(|rule| DispatchRule::new(family, Place::NatServices, rule));
        self.delete.extend(surplus);
    }
}
