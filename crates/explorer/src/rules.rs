//! The rules of one Service: those that name it in chains that all Services share, and the chains they lead to.

use explain::world::{Mode, Rules};
use explain::{World, known};
use iptables::ast::{ChainName, Rule, TableName, Target};
use iptables::names;
use iptables::render::RuleText;
use model::{Family, ServiceName};
use nftables::build::{self, ServiceSlots, Shapes};
use nftables::render;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};

/// Rules of a family that are told; of more, only that there are more.
const MOST: usize = 400;

/// The rules of one Service, both families', and whether there are more than are told.
pub(crate) fn json(world: &World, service: &ServiceName) -> Value {
    let mut told = Vec::new();
    let mut are_more = false;
    for family in Family::ALL {
        let found = match (world.rules, world.mode) {
            (Rules::None, Mode::Nftables) => elements(world, family, service),
            _ => rules(world, family, service),
        };
        are_more |= found.len() > MOST;
        told.extend(found.into_iter().take(MOST));
    }
    json!({ "rules": told, "are_more": are_more })
}

/// Rules of iptables, a service's dispatch first and then its chains as they are jumped to.
fn rules(world: &World, family: Family, service: &ServiceName) -> Vec<Value> {
    let all = world.host.rules.get(family);
    let mut told = Vec::new();
    let mut next = VecDeque::new();
    let mut seen: BTreeSet<&ChainName> = BTreeSet::new();
    let mut tell = |table: TableName, chain: &str, number: usize, rule: &Rule| {
        let text = RuleText { rule, family }.to_string();
        told.push(json!({
            "family": family.to_string(), "table": table.as_str(), "chain": chain, "number": number + 1, "text": text,
        }));
    };
    for (table, chain) in known::DISPATCHING {
        let found = all.chain(table, chain).map_or(&[][..], |chain| &chain.rules);
        let is_its = |rule: &Rule| {
            let named = rule.comment().and_then(known::service_of);
            named.is_some_and(|(name, ..)| name == *service)
        };
        for (number, rule) in found.iter().enumerate().filter(|(_, rule)| is_its(rule)) {
            tell(table, chain, number, rule);
            next.extend(jump(rule));
        }
    }
    while let Some(chain) = next.pop_front().filter(|_| seen.len() <= MOST) {
        if !seen.insert(chain) {
            continue;
        }
        let found = all
            .chain(TableName::Nat, chain.as_str())
            .map_or(&[][..], |chain| &chain.rules);
        for (number, rule) in found.iter().enumerate() {
            tell(TableName::Nat, chain.as_str(), number, rule);
            next.extend(jump(rule));
        }
    }
    told
}

/// The chain of a service that a rule jumps to.
fn jump(rule: &Rule) -> Option<&ChainName> {
    match &rule.target {
        Target::Jump(chain) | Target::Goto(chain) if names::is_services(TableName::Nat, chain.as_str()) => {
            Some(chain)
        }
        _ => None,
    }
}

/// Elements of nftables mode's table.
fn elements(world: &World, family: Family, service: &ServiceName) -> Vec<Value> {
    let desired = world.desired.get(family);
    let Some(service) = desired.services.get(service) else {
        return Vec::new();
    };
    let slots = build::place(&ServiceSlots::new(), service);
    let frame = build::frame(&desired.node, &Shapes::new(), &[]);
    let text = render::file(&frame, &build::service(service, &slots));
    let elements = text.lines().filter_map(|line| line.strip_prefix("add element "));
    elements
        .map(|line| {
            // "ip kube-proxy-rs SET { ... }"
            let mut words = line.splitn(4, ' ').skip(1);
            let (table, set) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            json!({
                "family": family.to_string(), "table": table, "chain": set, "number": Value::Null,
                "text": words.next().unwrap_or_default(),
            })
        })
        .collect()
}
