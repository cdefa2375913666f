//! Rules of iptables as they were written: by which backend, by which tool, in which order.

use super::{Backend, Patient, Saved, jumps, rules_of};
use crate::causes::count;
use crate::finding::{Advice, Cause, Finding};
use iptables::ast::{Ruleset, TableName, Target};
use model::Family;
use std::collections::BTreeMap;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    for family in Family::ALL {
        found.extend(both_backends(patient, family).or_else(|| other_than_kubelet(patient, family)));
        found.extend(jumps::missing(patient, family));
    }
    for saved in &patient.saved {
        found.extend(unsupported(saved));
        found.extend(doubled(saved));
        found.extend(host_ports_first(saved));
    }
    found
}

/// Chains that the kubelet makes for its own use or as a hint, and no proxy.
const OF_KUBELET: [&str; 6] = [
    "KUBE-IPTABLES-HINT",
    "KUBE-KUBELET-CANARY",
    "KUBE-FIREWALL",
    "KUBE-MARK-DROP",
    "KUBE-MARK-MASQ",
    "KUBE-POSTROUTING",
];

/// Those by which it says which backend it uses.
const HINTS: [&str; 2] = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

/// So many chains of kube-proxy are there.
pub(super) fn kube_chains(rules: &Ruleset) -> usize {
    let chains = rules.tables.values().flat_map(|table| table.chains.keys());
    chains
        .filter(|name| name.as_str().starts_with("KUBE-") && !OF_KUBELET.contains(&name.as_str()))
        .count()
}

fn both_backends(patient: &Patient, family: Family) -> Option<Finding> {
    let of = |backend: Backend| {
        let mut all = patient.saved.iter();
        let saved = all.find(|saved| saved.family == family && saved.backend == backend)?;
        Some(kube_chains(&saved.rules)).filter(|chains| *chains > 0)
    };
    let (nf_tables, legacy) = (of(Backend::NfTables)?, of(Backend::Legacy)?);
    let (stale, fewer, more) = if legacy <= nf_tables {
        (Backend::Legacy, legacy, nf_tables)
    } else {
        (Backend::NfTables, nf_tables, legacy)
    };
    let guess = if fewer < more {
        format!("{} has fewer, so it is probably what is left.", stale.as_str())
    } else {
        "Which one that is cannot be told from their number; legacy is the older one as a rule.".to_owned()
    };
    let tool = stale.tool(family);
    let what = format!(
        "legacy and nf_tables iptables both hold KUBE rules of {family}: {} and {}",
        count(legacy, "chain"),
        count(nf_tables, "chain")
    );
    Some(
        Finding::fault(Cause::BothBackends, what)
            .because(format!(
                "The kernel asks both, and kube-proxy keeps one of them up to date. The other one goes on sending connections to \
                 endpoints of the day it was written. {guess}"
            ))
            .advise(Advice::act(format!(
                "look at which of them changes when an endpoint does, and clear the other: {tool}-save | grep -v KUBE- | \
                 {tool}-restore"
            )))
            .advise(Advice::act(
                "have the kubelet, kube-proxy and the network plugin use one backend (update-alternatives --config iptables)",
            )),
    )
}

/// The kubelet says that the host uses one backend, and kube-proxy writes to the other.
fn other_than_kubelet(patient: &Patient, family: Family) -> Option<Finding> {
    let mut all = patient.saved.iter().filter(|saved| saved.family == family);
    let has_hint = |saved: &&Saved| {
        HINTS
            .iter()
            .any(|hint| saved.rules.chain(TableName::Mangle, hint).is_some())
    };
    let proxy = all.clone().find(|saved| kube_chains(&saved.rules) > 0)?;
    let kubelet = all.clone().find(has_hint)?.backend;
    if proxy.backend == kubelet || all.any(|saved| saved.backend == proxy.backend && has_hint(&saved)) {
        return None;
    }
    let (kubelet, ours) = (kubelet.as_str(), proxy.backend.as_str());
    let what = format!("the kubelet uses {kubelet} iptables and kube-proxy {ours}, {family}");
    Some(
        Finding::warning(Cause::BothBackends, what)
            .because(
                "The host's own firewall is where the kubelet looks. Its rules and kube-proxy's do not see each other: one accepts, and \
                 the other may still drop.",
            )
            .advise(Advice::act(format!(
                "give kube-proxy the backend of the host: an image that chooses by the kubelet's hint, or iptables of {kubelet} in it"
            ))),
    )
}

fn unsupported(saved: &Saved) -> Option<Finding> {
    let tool = saved.backend.tool(saved.family);
    (saved.unsupported > 0).then(|| {
        let what = format!(
            "{tool} cannot read {} that a newer tool wrote ([unsupported revision])",
            count(saved.unsupported, "rule")
        );
        Finding::fault(Cause::UnsupportedRules, what)
            .because(
                "Whatever this tool saves and restores loses these rules: with a DNAT among them, services stop. Host and containers have \
                 iptables of different versions.",
            )
            .advise(Advice::act("bring iptables of the host and of the images to one version"))
    })
}

/// The same jump to a chain of kube-proxy, several times in one built-in chain.
fn doubled(saved: &Saved) -> Option<Finding> {
    let mut seen: BTreeMap<(TableName, &str, &str, String), usize> = BTreeMap::new();
    for (table, chain, rule) in rules_of(&saved.rules) {
        if let Target::Jump(to) = &rule.target
            && to.as_str().starts_with("KUBE-")
            && table.built_in().contains(&chain)
        {
            *seen
                .entry((table, chain, to.as_str(), format!("{rule:?}")))
                .or_default() += 1;
        }
    }
    let ((table, chain, to, _), times) = seen.into_iter().max_by_key(|(_, times)| *times)?;
    (times > 1).then(|| {
        let tool = saved.backend.tool(saved.family);
        let what = format!("{table} {chain} jumps to {to} {times} times ({tool})");
        Finding::warning(Cause::DoubledRules, what)
            .because(
                "A tool that does not find its own rule adds it again at each sync (iptables 1.8.0 to 1.8.2 on nf_tables), or two proxies \
                 write. Packets walk the chain as often as it stands there.",
            )
            .advise(Advice::act(format!(
                "update iptables, stop the second proxy, then take out all but one: {tool} -t {table} -L {chain} --line-numbers"
            )))
    })
}

/// CVE-2019-9946: host ports take a packet before Services do.
fn host_ports_first(saved: &Saved) -> Option<Finding> {
    let place = |chain: &str, wanted: &str| {
        let rules = &saved.rules.chain(TableName::Nat, chain)?.rules;
        rules
            .iter()
            .position(|rule| matches!(&rule.target, Target::Jump(to) if to.as_str() == wanted))
    };
    let first = ["PREROUTING", "OUTPUT"].into_iter().find(|chain| {
        let places = place(chain, "CNI-HOSTPORT-DNAT").zip(place(chain, "KUBE-SERVICES"));
        places.is_some_and(|(host_ports, services)| host_ports < services)
    })?;
    Some(
        Finding::warning(
            Cause::HostPortsFirst,
            format!(
                "nat {first} asks for host ports (CNI-HOSTPORT-DNAT) before Services (KUBE-SERVICES), {}",
                saved.family
            ),
        )
        .because(
            "A pod with a hostPort takes traffic of Services with the same port, whatever their addresses (CVE-2019-9946).",
        )
        .advise(Advice::act(
            "update the portmap plugin to 0.7.5 or later, and restart kube-proxy, which puts its jump first",
        )),
    )
}
