//! What rules say of the Services that they serve, as objects: where nobody gives objects, a host's rules are held against
//! what they say themselves. A chain that lacks a rule, leads nowhere or has one too many shows; a Service that lacks
//! altogether does not.

mod services;

use super::{Drift, Owner, Sign, What};
use crate::traffic::pods;
use iptables::ast::{Is, Rule, Ruleset, TableName, Target};
use iptables::names::StaticChain;
use model::object;
use model::settings::{LocalDetector, Mark, NodePortAddresses};
use model::snapshot::{Change, Snapshot};
use model::{Family, Settings};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What rules say of themselves.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The Services and their endpoints.
    pub objects: Snapshot,
    /// The settings that the node's part shows.
    pub settings: Settings,
    /// Addresses that node ports are restricted to.
    pub addresses: Vec<IpAddr>,
}

/// What the chains of iptables mode say; `None` when they are not there.
pub fn recovered(found: &Ruleset, family: Family, node: &str) -> Option<Recovered> {
    found.chain(TableName::Nat, StaticChain::Services.as_str())?;
    let mut objects = Snapshot::new();
    for document in services::documents(found, family, node) {
        for object in object::decode(document).objects {
            objects.apply(Change::Apply(object));
        }
    }
    let tail: Vec<&Rule> = tail(found).collect();
    let addresses = tail.iter().filter_map(|rule| destination(rule)).collect();
    Some(Recovered {
        objects,
        settings: settings(found, family, &tail),
        addresses,
    })
}

/// Takes out of a drift what lacks altogether and is not needed by anything that is there: rules that say nothing of a chain do
/// not say that it should be. What was taken out is named in a remark.
#[must_use]
pub fn spared(mut drift: Drift, found: &Ruleset) -> Drift {
    let mut spared = BTreeSet::new();
    let is_used = |chain: &str| {
        let tables = found.tables.values().flat_map(|table| table.chains.values());
        let mut rules = tables.flat_map(|chain| &chain.rules);
        rules.any(|rule| matches!(&rule.target, Target::Jump(to) | Target::Goto(to) if to.as_str() == chain))
    };
    let does_nothing = |table: &str, chain: &str| {
        let table = TableName::from_word(table);
        let chain = table.and_then(|table| found.chain(table, chain));
        chain.is_none_or(|chain| chain.rules.is_empty())
    };
    drift.differences.retain_mut(|difference| {
        if difference.owner != Owner::Node {
            return true;
        }
        if difference.what == What::Missing && !is_used(&difference.name) {
            spared.insert(format!("{} {}", difference.table, difference.name));
            return false;
        }
        let table = difference.table.clone();
        difference.lines.retain(|line| {
            let to = line.text.rsplit_once("-j ").map_or("", |(_, to)| to);
            let is_idle = line.sign == Sign::Missing && to.starts_with("KUBE-") && does_nothing(&table, to);
            // The kubelet's as well as ours, and written by either.
            if line.sign == Sign::Missing && difference.name == StaticChain::Firewall.as_str() {
                spared.insert(format!("{table} {}'s rule", difference.name));
                return false;
            }
            if is_idle {
                spared.insert(format!("{table} {} -j {to}", difference.name));
            }
            !is_idle
        });
        !difference.lines.is_empty() || difference.what != What::Changed
    });
    if !spared.is_empty() {
        let spared: Vec<String> = spared.into_iter().collect();
        drift.remarks.push(format!(
            "kube-proxy writes these as well; they are not in the dump, and nothing that is there needs them: {}",
            spared.join(", ")
        ));
    }
    drift
}

fn rules(found: &Ruleset, table: TableName, chain: StaticChain) -> impl Iterator<Item = &Rule> {
    let chain = found.chain(table, chain.as_str());
    chain.into_iter().flat_map(|chain| &chain.rules)
}

/// The jumps to the node ports.
fn tail(found: &Ruleset) -> impl Iterator<Item = &Rule> {
    let jump = Target::Jump(StaticChain::NodePorts.name());
    rules(found, TableName::Nat, StaticChain::Services).filter(move |rule| rule.target == jump)
}

/// The one address that a rule is about.
fn destination(rule: &Rule) -> Option<IpAddr> {
    match &rule.dst {
        Some(Is::Equal(net)) if net.prefix_len() == net.max_prefix_len() => Some(net.addr()),
        _ => None,
    }
}

fn settings(found: &Ruleset, family: Family, tail: &[&Rule]) -> Settings {
    let mut settings = Settings {
        masquerade_all: masquerades_all(found),
        mark: mark(found).unwrap_or_default(),
        localhost_node_ports_wanted: serves_loopback(tail),
        ..Settings::default()
    };
    *settings.detectors.get_mut(family) = detector(found, family);
    let addresses: Vec<IpAddr> = tail.iter().filter_map(|rule| destination(rule)).collect();
    if !addresses.is_empty() {
        let nets = addresses.into_iter().map(Into::into).collect();
        *settings.node_port_addresses.get_mut(family) = NodePortAddresses::In(nets);
    }
    settings
}

fn mark(found: &Ruleset) -> Option<Mark> {
    rules(found, TableName::Nat, StaticChain::MarkMasq).find_map(|rule| match rule.target {
        Target::Mark { value, mask } if value == mask && value.is_power_of_two() => {
            Mark::from_bit(value.trailing_zeros())
        }
        _ => None,
    })
}

/// Unless it is spared, or others are named.
fn serves_loopback(tail: &[&Rule]) -> bool {
    let named = tail.iter().filter_map(|rule| destination(rule));
    let spared = tail.iter().any(|rule| matches!(rule.dst, Some(Is::Not(_))));
    !spared && (tail.iter().all(|rule| rule.dst.is_none()) || named.into_iter().any(|ip| ip.is_loopback()))
}

fn detector(found: &Ruleset, family: Family) -> Option<LocalDetector> {
    Some(
        match pods(found, &nftables::listed::Ruleset::default(), family)? {
            crate::traffic::Where::Net(net) => LocalDetector::Cidr(net),
            crate::traffic::Where::Interface(name) => match name.strip_suffix('+') {
                Some(prefix) => LocalDetector::InterfacePrefix(prefix.into()),
                None => LocalDetector::Bridge(name),
            },
        },
    )
}

/// Marks every packet to a cluster IP, whoever sent it.
fn masquerades_all(found: &Ruleset) -> bool {
    let marking = Target::Jump(StaticChain::MarkMasq.name());
    let nat = found.tables.get(&TableName::Nat).into_iter();
    let lists = nat
        .flat_map(|nat| &nat.chains)
        .filter(|(name, _)| name.as_str().starts_with("KUBE-SV"));
    let mut marks = lists
        .flat_map(|(_, chain)| &chain.rules)
        .filter(|rule| rule.target == marking && rule.dst.is_some());
    marks.any(|rule| rule.src.is_none() && rule.in_interface.is_none())
}
