//! Strict filtering by the way back (`rp_filter` 1), where packets have another way back than the one they came by.
//!
//! The kernel looks for the way back with the addresses that the packet has by then, behind the translation of its
//! destination, and without its mark (`fib_validate_source`; with it where `src_valid_mark` is set).

use super::Patient;
use crate::facts::{HostFacts, InterfaceFacts, PolicyRule, RouteFacts};
use crate::finding::{Advice, Cause, Finding};
use model::Family;
use std::net::IpAddr;

/// Interfaces that lead to others than pods of this host: with an address in a network that is no pods'.
fn uplinks(patient: &Patient) -> Vec<&InterfaceFacts> {
    let pods = patient.pod_network(Family::V4);
    let is_outside = |ip: IpAddr| {
        let v4 = matches!(ip, IpAddr::V4(v4) if !v4.is_loopback() && !v4.is_link_local());
        v4 && !pods.is_some_and(|pods| pods.contains(&ip))
    };
    // A node in a container has a veth for its uplink; one to a pod has no such address.
    let is_made = |kind: &str| ["bridge", "dummy", "vxlan", "geneve", "ipip"].contains(&kind);
    let all = patient.world.host_facts.interfaces.iter();
    all.filter(|of| {
        let is_virtual = of.kind.as_deref().is_some_and(is_made);
        !is_virtual
            && !is_for_pods(&patient.world.host_facts, of)
            && of
                .addresses
                .iter()
                .any(|net| is_outside(net.addr()) && net.prefix_len() < net.max_prefix_len())
    })
    .collect()
}

/// Routes of IPv4 that lead anywhere.
fn defaults(facts: &HostFacts) -> impl Iterator<Item = &RouteFacts> {
    let all = facts.routes.iter().flatten();
    all.filter(|of| of.route.to.prefix_len() == 0 && of.route.to.addr().is_ipv4())
}

/// The rules that ask a table other than the main one.
fn asking<'a>(facts: &'a HostFacts, table: &'a str) -> impl Iterator<Item = &'a PolicyRule> {
    let rules = facts.policy_rules.iter().flatten();
    rules.filter(move |rule| rule.table.as_deref() == Some(table))
}

/// Whether a network plugin has an interface for pods: a table of its own leads out of it, for pods' addresses. Amazon's
/// and Cilium's do so with each further interface of the machine. What comes in there is for such a pod, and goes back there.
fn is_for_pods(facts: &HostFacts, interface: &InterfaceFacts) -> bool {
    let is_own = |ip: IpAddr| {
        let mut all = facts.interfaces.iter().flat_map(|of| &of.addresses);
        all.any(|net| net.addr() == ip)
    };
    let is_by_pod = |rule: &PolicyRule| rule.from.is_some_and(|from| !is_own(from.addr()));
    let mut own = defaults(facts).filter(|of| of.route.interface == interface.name);
    own.any(|of| {
        let table = of.table.as_deref();
        table.is_some_and(|table| asking(facts, table).all(is_by_pod))
    })
}

/// Why packets that came in by one of the uplinks may have another way back.
fn other_ways(facts: &HostFacts, uplinks: &[&InterfaceFacts]) -> Option<&'static str> {
    if uplinks.len() > 1 {
        return Some("this host has several uplinks");
    }
    let first = uplinks.first()?;
    let leads_elsewhere = |rule: &PolicyRule| {
        let mut all = defaults(facts).filter(|of| of.table.is_some() && of.table == rule.table);
        all.any(|of| of.route.interface != first.name)
    };
    let rules = || facts.policy_rules.iter().flatten();
    if rules().any(|rule| rule.from.is_some() && leads_elsewhere(rule)) {
        return Some("packets of some pods are routed by their source, out of another interface");
    }
    // A rule for packets with a mark is not asked for the way back; one for those without is.
    let is_for_unmarked = |rule: &PolicyRule| rule.is_for_all && rule.mark.is_some();
    let by_mark = rules().any(|rule| is_for_unmarked(rule) && leads_elsewhere(rule));
    let counts_mark = |name: &str| facts.sysctl(&format!("net.ipv4.conf.{name}.src_valid_mark")) == Some("1");
    let is_answered = counts_mark("all") || counts_mark(&first.name);
    (by_mark && !is_answered).then_some("packets without a mark are routed out of another interface")
}

/// Strict filtering by the way back, on a host that has several ways.
pub(super) fn finding(patient: &Patient) -> Option<Finding> {
    let facts = &patient.world.host_facts;
    let value = |name: &str| facts.sysctl_number(&format!("net.ipv4.conf.{name}.rp_filter"));
    let all = value("all")?;
    let uplinks = uplinks(patient);
    // The larger of both decides: 2 is loose, whoever says it.
    let is_strict = |of: &&InterfaceFacts| value(&of.name).is_some_and(|own| own.max(all) == 1);
    let strict: Vec<&str> = uplinks
        .iter()
        .copied()
        .filter(is_strict)
        .map(|of| &*of.name)
        .collect();
    let first = strict.first()?;
    let dropped = facts.counters.get("IPReversePathFilter").copied().unwrap_or(0);
    let reason = other_ways(facts, &uplinks)?;
    let seen = match dropped {
        0 => String::new(),
        dropped => {
            format!(" {dropped} packets were dropped for it since the host started (IPReversePathFilter).")
        }
    };
    let what = format!("rp_filter is strict on {}, and {reason}", strict.join(", "));
    Some(
        Finding::warning(Cause::RpFilter, what)
            .because(format!(
                "A packet is dropped without a word when the way back to its sender does not lead through the interface that it came in by: \
                 node ports and load balancers at the other uplink get no answer.{seen}"
            ))
            .advise(Advice::act(format!(
                "sysctl -w net.ipv4.conf.{first}.rp_filter=2 (loose; and each other uplink), and write it into /etc/sysctl.d/"
            ))),
    )
}
