//! Policy routing: tables that are asked before the main one, and take packets for pods away.

use super::Patient;
use crate::facts::{HostFacts, PolicyRule, RouteFacts, RouteKind};
use crate::finding::{Advice, Cause, Finding};
use model::Family;
use std::net::IpAddr;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let taken = Family::ALL
        .into_iter()
        .filter_map(|family| taken_away(patient, family));
    taken.collect()
}

/// The main table leads to pods, and a rule that meets every packet asks another table before.
fn taken_away(patient: &Patient, family: Family) -> Option<Finding> {
    let facts = &patient.world.host_facts;
    let pod = patient.some_pod(family);
    let peer = pod
        .as_ref()
        .and_then(|pod| patient.some_peer(family, pod))
        .map(|at| at.ip());
    let asked: Vec<IpAddr> = peer.into_iter().chain(pod.map(|pod| pod.ip)).collect();
    let (to, main, rule, instead) = asked.into_iter().find_map(|to| {
        let main = facts.route_to(to).filter(|of| of.route.to.prefix_len() > 0)?;
        let (rule, instead) = before_main(facts, to)?;
        let is_other = instead.route.interface != main.route.interface;
        (is_other && !is_meant_for(main, instead)).then_some((to, main, rule, instead))
    })?;
    let network = patient.pod_network_words(family);
    let table = rule.table.as_deref().unwrap_or_default();
    let leads = match instead.kind {
        RouteKind::Nowhere => "nowhere".to_owned(),
        _ => format!("to {}", instead.route.interface),
    };
    let tool = match family {
        Family::V4 => "ip",
        Family::V6 => "ip -6",
    };
    let what = format!(
        "policy routing takes packets for pods away: table {table} leads {leads}, and is asked before the main table"
    );
    Some(
        Finding::fault(Cause::PolicyRoute, what)
            .because(format!(
                "Tried with {to}, a pod's address: the main table leads to it by {}, and the rule \"{}\" comes first, whose table has {} by {}. \
                 kube-proxy's rules are right; a packet that they send to a pod is routed like any other. An exit node or pushed routes of a \
                 VPN do that.",
                main.route.interface,
                rule.text,
                instead.route.to,
                if instead.route.interface.is_empty() { "nobody" } else { &instead.route.interface }
            ))
            .advise(Advice::act(format!(
                "have that table pass over pods' addresses: {tool} route add throw {network} table {table}; who made the table (a VPN's \
                 client) has a setting for it as a rule, or must not take all routes on nodes"
            ))),
    )
}

/// Whether a route of another table is for just those pods that the main one's is for: network plugins have their own
/// tables (Calico's for `WireGuard`), and a VPN takes whatever there is.
fn is_meant_for(main: &RouteFacts, instead: &RouteFacts) -> bool {
    instead.kind == RouteKind::Unicast && instead.route.to.prefix_len() >= main.route.to.prefix_len()
}

/// The route that a packet without a mark takes to an address, by a table that is asked before the main one.
fn before_main(facts: &HostFacts, to: IpAddr) -> Option<(&PolicyRule, &RouteFacts)> {
    let mut rules: Vec<&PolicyRule> = facts
        .policy_rules
        .iter()
        .flatten()
        .filter(|rule| rule.is_for_all && rule.priority.is_some())
        .collect();
    rules.sort_by_key(|rule| rule.priority);
    for rule in rules {
        // The main table's own rule need not have been written down.
        if rule.priority > Some(PLACE_OF_MAIN) {
            break;
        }
        // One that refuses has no table.
        let table = rule.table.as_deref()?;
        let Some(route) = best(facts, table, to) else {
            continue;
        };
        let is_suppressed = rule
            .suppresses
            .is_some_and(|least| route.route.to.prefix_len() <= least);
        if is_suppressed || route.kind == RouteKind::Throw {
            continue;
        }
        return (table != MAIN).then_some((rule, route));
    }
    None
}

/// The name of the table that `ip route` shows when it is not asked for another.
const MAIN: &str = "main";
/// The place of the rule that asks it.
const PLACE_OF_MAIN: u32 = 32766;

/// The longest route of a table.
fn best<'a>(facts: &'a HostFacts, table: &str, to: IpAddr) -> Option<&'a RouteFacts> {
    let of_table = |of: &&RouteFacts| match &of.table {
        Some(name) => name == table,
        None => table == MAIN && of.is_main(),
    };
    let routes = facts.routes.iter().flatten();
    routes
        .filter(of_table)
        .filter(|of| of.route.to.contains(&to))
        .max_by_key(|of| of.route.to.prefix_len())
}
