//! Jumps from built-in chains into kube-proxy's: without them its chains are whole, and no packet meets them.

use super::{Backend, Patient};
use crate::causes::listed;
use crate::finding::{Advice, Cause, Finding};
use iptables::ast::{Ruleset, TableName, Target};
use model::Family;
use std::collections::BTreeSet;

/// A built-in chain, the chain that it has to lead to, and what misses it otherwise.
struct Wanted {
    table: TableName,
    from: &'static str,
    to: &'static str,
    misses: &'static str,
}

/// Those that every version of kube-proxy in iptables mode makes.
const WANTED: [Wanted; 4] = [
    Wanted {
        table: TableName::Nat,
        from: "PREROUTING",
        to: "KUBE-SERVICES",
        misses: "What pods and clients outside send to Services keeps its destination, and reaches nobody; node ports are closed. Processes \
                 of the host are served by OUTPUT, and are no proof.",
    },
    Wanted {
        table: TableName::Nat,
        from: "OUTPUT",
        to: "KUBE-SERVICES",
        misses: "What processes of the host send to Services (kubelet, the API server, pods with hostNetwork) keeps its destination, and \
                 reaches nobody. Pods are served by PREROUTING, and are no proof.",
    },
    Wanted {
        table: TableName::Nat,
        from: "POSTROUTING",
        to: "KUBE-POSTROUTING",
        misses: "Marked packets keep their source, so the endpoint answers the client past this host, which does not know that answer: node \
                 ports and load balancers fail for endpoints on other nodes, and a pod does not reach itself.",
    },
    Wanted {
        table: TableName::Filter,
        from: "FORWARD",
        to: "KUBE-FORWARD",
        misses: "Marked packets and replies are no longer accepted there: a policy DROP, or a firewall's last rule, stops them.",
    },
];

/// Jumps that are not there, though the chains are.
pub(super) fn missing(patient: &Patient, family: Family) -> Option<Finding> {
    let rules = patient.world.host.rules.get(family);
    let lost: Vec<&Wanted> = WANTED.iter().filter(|wanted| is_missing(rules, wanted)).collect();
    told(rules, &lost, family, &backend(patient, rules).tool(family))
}

/// The jump of table nat from this built-in chain is not there, though the chain that it leads to is.
pub(crate) fn missing_from(rules: &Ruleset, from: &str, family: Family, tool: &str) -> Option<Finding> {
    let is_it = |wanted: &&Wanted| wanted.table == TableName::Nat && wanted.from == from;
    let lost: Vec<&Wanted> = WANTED
        .iter()
        .filter(is_it)
        .filter(|wanted| is_missing(rules, wanted))
        .collect();
    told(rules, &lost, family, tool)
}

fn told(rules: &Ruleset, lost: &[&Wanted], family: Family, tool: &str) -> Option<Finding> {
    // Without any jump at all these are leftovers of a proxy that is no more.
    let is_left_over = WANTED
        .iter()
        .all(|wanted| rules.chain(wanted.table, wanted.to).is_none() || is_missing(rules, wanted));
    let first = lost.first().filter(|_| !is_left_over)?;
    let places: Vec<String> = lost
        .iter()
        .map(|wanted| format!("{} {} to {}", wanted.table, wanted.from, wanted.to))
        .collect();
    let what = format!("the jump from {} is missing, {family}", listed(&places, 4));
    let misses: Vec<&str> = lost.iter().map(|wanted| wanted.misses).collect();
    Some(
        Finding::fault(Cause::JumpMissing, what)
            .because(format!(
                "kube-proxy's chains are there, and nothing leads into them. {} Somebody flushed {} (a VPN's or a firewall's script, a \
                 restored dump); upstream's kube-proxy looks after its canary chain alone, and does not notice.",
                misses.join(" "),
                first.from
            ))
            .advise(Advice::act(format!(
                "restart kube-proxy, which puts its jumps in again (or: {tool} -t {} -I {} -j {}), and look who flushes: a second look after \
                 its next run tells",
                first.table, first.from, first.to
            ))),
    )
}

fn backend(patient: &Patient, rules: &Ruleset) -> Backend {
    let mut saved = patient.saved.iter();
    saved
        .find(|saved| saved.rules == *rules)
        .map_or(Backend::NfTables, |saved| saved.backend)
}

/// Whether the chain is there with rules in it, and no jump leads to it from the built-in one.
fn is_missing(rules: &Ruleset, wanted: &Wanted) -> bool {
    let has_rules = rules
        .chain(wanted.table, wanted.to)
        .is_some_and(|chain| !chain.rules.is_empty());
    has_rules && !leads(rules, wanted)
}

fn leads(rules: &Ruleset, wanted: &Wanted) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![wanted.from.to_owned()];
    while let Some(name) = open.pop() {
        if name == wanted.to {
            return true;
        }
        if !seen.insert(name.clone()) {
            continue;
        }
        let chain = rules.chain(wanted.table, &name);
        for rule in chain.iter().flat_map(|chain| &chain.rules) {
            if let Target::Jump(to) | Target::Goto(to) = &rule.target {
                open.push(to.as_str().to_owned());
            }
        }
    }
    false
}
