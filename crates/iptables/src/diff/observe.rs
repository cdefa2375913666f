//! Readings of the kernel, taken in chain by chain and kept small.

use super::compact::{ChainId, Digest, DispatchRule, Place, is_tail, owner};
use super::node::NodeHave;
use crate::ast::{Chain, ChainName, Rule, TableName, Target};
use crate::names::{StaticChain, is_services};
use model::{Family, ServiceName};
use std::collections::{BTreeMap, BTreeSet};

/// What is to be read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Every chain of mangle, filter and nat.
    Everything,
    /// Just these chains.
    Chains(BTreeMap<TableName, BTreeSet<ChainName>>),
}

impl Reading {
    /// The chains of the node's part and those that dispatch: built-in chains for our jumps, static chains, canaries.
    ///
    /// This is what a look at the rules reads from time to time. It finds a flushed table and a lost jump.
    pub fn look() -> Reading {
        Reading::look_and(std::iter::empty())
    }

    /// The same, and these chains of services.
    pub fn look_and(services: impl IntoIterator<Item = ChainId>) -> Reading {
        let mut chains: BTreeMap<TableName, BTreeSet<ChainName>> = BTreeMap::new();
        for (table, names) in [
            (TableName::Filter, &["INPUT", "FORWARD", "OUTPUT"]),
            (TableName::Nat, &["PREROUTING", "OUTPUT", "POSTROUTING"]),
        ] {
            let builtin = names
                .iter()
                .map(|name| ChainName::new(name).expect("invariant: built-in chains have good names"));
            chains.entry(table).or_default().extend(builtin);
        }
        for chain in StaticChain::ALL {
            for table in chain.tables() {
                chains.entry(*table).or_default().insert(chain.name());
            }
        }
        chains
            .entry(TableName::Nat)
            .or_default()
            .extend(services.into_iter().map(ChainId::name));
        Reading::Chains(chains)
    }
}

/// What the kernel was seen to hold of ours. Strangers' chains and rules are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    family: Family,
    /// The chains of services.
    pub(super) service_chains: BTreeMap<ChainId, Digest>,
    /// Chains that begin as services' chains do, with names that no service port hashes to.
    pub(super) odd_chains: BTreeSet<ChainName>,
    /// Rules of dispatch chains, by the service they name; each list by place, then in the kernel's order.
    pub(super) dispatch: BTreeMap<ServiceName, Vec<DispatchRule>>,
    /// Rules of dispatch chains that name no service.
    pub(super) strays: Vec<DispatchRule>,
    /// The node's part.
    pub(super) node: NodeHave,
}

impl Observation {
    /// Nothing seen yet of a family's rules.
    pub fn new(family: Family) -> Observation {
        Observation {
            family,
            service_chains: BTreeMap::new(),
            odd_chains: BTreeSet::new(),
            dispatch: BTreeMap::new(),
            strays: Vec::new(),
            node: NodeHave::default(),
        }
    }

    /// Takes in one chain as it was read.
    pub fn record(&mut self, table: TableName, name: &ChainName, chain: &Chain) {
        if let Some(place) = Place::of(table, name) {
            self.node.record_chain(table, name, Vec::new());
            self.record_dispatch(place, &chain.rules);
        } else if StaticChain::of(table, name.as_str()).is_some() {
            self.node.record_chain(table, name, chain.rules.clone());
        } else if chain.policy.is_some() {
            let jumps: Vec<Rule> = chain
                .rules
                .iter()
                .filter(|rule| is_our_jump(rule))
                .cloned()
                .collect();
            if !jumps.is_empty() {
                self.node.record_chain(table, name, jumps);
            }
        } else if is_services(table, name.as_str()) {
            match ChainId::of(name) {
                Some(id) => drop(self.service_chains.insert(id, Digest::of(&chain.rules))),
                None => drop(self.odd_chains.insert(name.clone())),
            }
        }
    }

    fn record_dispatch(&mut self, place: Place, rules: &[Rule]) {
        for rule in rules {
            if place == Place::NatServices && is_tail(rule) {
                self.node.record_tail(rule.clone());
                continue;
            }
            if place == Place::NatServices {
                self.node.record_other();
            }
            let small = DispatchRule::new(self.family, place, rule);
            match owner(rule) {
                Some(service) => self.dispatch.entry(service).or_default().push(small),
                None => self.strays.push(small),
            }
        }
        for list in self.dispatch.values_mut() {
            // Within a place the kernel's order stays.
            list.sort_by_key(|rule| rule.place);
        }
    }
}

/// Whether a rule of a built-in chain leads to a static chain.
fn is_our_jump(rule: &Rule) -> bool {
    let Target::Jump(chain) = &rule.target else {
        return false;
    };
    StaticChain::ALL
        .into_iter()
        .any(|ours| ours.as_str() == chain.as_str())
}
