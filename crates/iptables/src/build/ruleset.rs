//! Everything at once, as the kernel would hold it: the specification that smaller steps must add up to.

use super::node::dispatch_chains;
use super::{BuildContext, NodeRules, ServiceRules};
use crate::ast::{Chain, ChainName, Policy, Rule, Ruleset, TableName};
use crate::names::StaticChain;
use model::Desired;

/// All rules of one family, built-in chains included, on a host where nobody else has rules.
///
/// In the shared chains services stand in the order of their names; the jumps to the node ports come last.
pub fn ruleset(desired: &Desired, context: &BuildContext) -> Ruleset {
    let mut ruleset = empty();
    let tail = put_node(&mut ruleset, super::node(&desired.node, context));
    for service in desired.services.values() {
        put_service(&mut ruleset, super::service(service, &desired.node, context));
    }
    extend(&mut ruleset, TableName::Nat, &StaticChain::Services.name(), tail);
    ruleset
}

/// The tables we write to, with built-in and dispatch chains and no rules.
fn empty() -> Ruleset {
    let mut ruleset = Ruleset::default();
    for table in [TableName::Mangle, TableName::Filter, TableName::Nat] {
        for name in table.built_in() {
            let name = ChainName::new(name).expect("invariant: built-in chains have good names");
            chain_mut(&mut ruleset, table, &name).policy = Some(Policy::Accept);
        }
    }
    for (table, chain) in dispatch_chains() {
        chain_mut(&mut ruleset, table, &chain);
    }
    ruleset
}

/// Gives back the tail of `KUBE-SERVICES`, which comes after the services' rules.
fn put_node(ruleset: &mut Ruleset, node: NodeRules) -> Vec<Rule> {
    for (table, chains) in node.chains {
        for (chain, rules) in chains {
            extend(ruleset, table, &chain, rules);
        }
    }
    for (table, chain) in node.ensured {
        chain_mut(ruleset, table, &chain);
    }
    for jump in node.jumps {
        extend(ruleset, jump.table, &jump.from, [jump.rule]);
    }
    node.tail
}

fn put_service(ruleset: &mut Ruleset, service: ServiceRules) {
    for (chain, rules) in service.chains {
        extend(ruleset, TableName::Nat, &chain, rules);
    }
    for dispatch in service.dispatch {
        extend(ruleset, dispatch.table, &dispatch.chain, [dispatch.rule]);
    }
}

fn extend(ruleset: &mut Ruleset, table: TableName, chain: &ChainName, rules: impl IntoIterator<Item = Rule>) {
    chain_mut(ruleset, table, chain).rules.extend(rules);
}

fn chain_mut<'a>(ruleset: &'a mut Ruleset, table: TableName, chain: &ChainName) -> &'a mut Chain {
    let table = ruleset.tables.entry(table).or_default();
    table.chains.entry(chain.clone()).or_default()
}
