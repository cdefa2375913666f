//! The rules of one service, or of the node's part, as `iptables-save` would print them if there were no others.

use super::{SaveText, Written};
use crate::ast::{Chain, Ruleset, TableName};
use crate::build::{NodeRules, ServiceRules};
use model::Family;
use std::fmt;

/// One service's rules: its own chains, and its rules in the chains that all services share.
#[derive(Clone, Copy, Debug)]
pub struct ServiceRulesText<'a> {
    /// The rules.
    pub rules: &'a ServiceRules,
    /// Their family.
    pub family: Family,
}

impl fmt::Display for ServiceRulesText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> Written {
        let mut ruleset = Ruleset::default();
        for (chain, rules) in &self.rules.chains {
            chain_of(&mut ruleset, TableName::Nat, chain)
                .rules
                .clone_from(rules);
        }
        for dispatch in &self.rules.dispatch {
            let chain = chain_of(&mut ruleset, dispatch.table, &dispatch.chain);
            chain.rules.push(dispatch.rule.clone());
        }
        write!(f, "{}", SaveText::new(&ruleset, self.family))
    }
}

/// The rules that no service owns, the jumps of built-in chains among them.
#[derive(Clone, Copy, Debug)]
pub struct NodeRulesText<'a> {
    /// The rules.
    pub rules: &'a NodeRules,
    /// Their family.
    pub family: Family,
}

impl fmt::Display for NodeRulesText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> Written {
        let mut ruleset = Ruleset::default();
        for (table, chains) in &self.rules.chains {
            for (chain, rules) in chains {
                chain_of(&mut ruleset, *table, chain).rules.clone_from(rules);
            }
        }
        for (table, chain) in &self.rules.ensured {
            chain_of(&mut ruleset, *table, chain);
        }
        for jump in &self.rules.jumps {
            let chain = chain_of(&mut ruleset, jump.table, &jump.from);
            chain.policy = Some(crate::ast::Policy::Accept);
            chain.rules.push(jump.rule.clone());
        }
        let services = crate::names::StaticChain::Services.name();
        chain_of(&mut ruleset, TableName::Nat, &services)
            .rules
            .clone_from(&self.rules.tail);
        write!(f, "{}", SaveText::new(&ruleset, self.family))
    }
}

fn chain_of<'a>(ruleset: &'a mut Ruleset, table: TableName, chain: &crate::ast::ChainName) -> &'a mut Chain {
    let table = ruleset.tables.entry(table).or_default();
    table.chains.entry(chain.clone()).or_default()
}
