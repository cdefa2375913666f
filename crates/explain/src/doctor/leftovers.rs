//! What another mode of kube-proxy left, and traces that nobody looks at.

use super::{Patient, rules_of, unseen};
use crate::causes::listed;
use crate::finding::{Advice, Cause, Finding};
use iptables::ast::{TableName, Target};
use iptables::live_trace;
use nftables::listed::{Expr, Statement};
use nftables::names::TABLE;
use std::collections::BTreeMap;
use std::fmt;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(modes(patient));
    found.extend(nobody_serves(patient));
    found.extend(own_trace(patient));
    found.extend(traces(patient));
    found
}

/// A mode of kube-proxy, by what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Written {
    Iptables,
    Nftables,
    Ipvs,
    Userspace,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Written::Iptables => "iptables",
            Written::Nftables => "nftables",
            Written::Ipvs => "ipvs",
            Written::Userspace => "userspace",
        })
    }
}

/// The interface that holds the addresses of Services in ipvs mode.
const IPVS_INTERFACE: &str = "kube-ipvs0";

/// What shows a mode, in words.
fn signs(patient: &Patient) -> BTreeMap<Written, Vec<String>> {
    let mut signs: BTreeMap<Written, Vec<String>> = BTreeMap::new();
    for saved in &patient.saved {
        let mut counted: BTreeMap<Written, (usize, &str)> = BTreeMap::new();
        let chains = saved.rules.tables.values().flat_map(|table| table.chains.keys());
        for (mode, name) in chains.filter_map(|name| Some((mode_of(name.as_str())?, name.as_str()))) {
            counted.entry(mode).or_insert((0, name)).0 += 1;
        }
        for (mode, (count, first)) in counted {
            let tool = saved.backend.tool(saved.family);
            let chains = match count {
                1 => format!("chain {first} of {tool}"),
                count => format!("{count} chains such as {first} of {tool}"),
            };
            signs.entry(mode).or_default().push(chains);
        }
    }
    for table in &patient.world.host.native.tables {
        if &*table.name == TABLE {
            signs
                .entry(Written::Nftables)
                .or_default()
                .push(format!("table {}", table.title()));
        }
    }
    let interfaces = &patient.world.host_facts.interfaces;
    if let Some(dummy) = interfaces.iter().find(|of| &*of.name == IPVS_INTERFACE) {
        let addresses = crate::causes::count(dummy.addresses.len(), "address");
        signs
            .entry(Written::Ipvs)
            .or_default()
            .push(format!("interface {IPVS_INTERFACE} with {addresses}"));
    }
    signs
}

/// The mode that has written here, when it is one.
pub(super) fn only_mode(patient: &Patient) -> Option<String> {
    let signs = signs(patient);
    let mut modes = signs.keys();
    match (modes.next(), modes.next()) {
        (Some(only), None) => Some(only.to_string()),
        _ => None,
    }
}

/// Whether rules of kube-proxy are here, of whichever mode, or there is somebody else who serves Services.
pub(super) fn is_served(patient: &Patient) -> bool {
    const INTERFACES: [&str; 6] = [
        "cilium_",
        "antrea-gw",
        "ovn-k8s",
        "kube-dummy-if",
        "bpfin.cali",
        "bpfout.cali",
    ];
    const CHAINS: [&str; 6] = [
        "KUBE-SERVICES",
        "KUBE-NODEPORTS",
        "KUBE-FORWARD",
        "CILIUM_",
        "ANTREA-",
        "OVN-",
    ];
    let has = |prefixes: &[&str], name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let mut interfaces = patient.world.host_facts.interfaces.iter();
    let mut tables = patient.saved.iter().flat_map(|saved| saved.rules.tables.values());
    !signs(patient).is_empty()
        || interfaces.any(|of| has(&INTERFACES, &of.name))
        || tables.any(|table| table.chains.keys().any(|chain| has(&CHAINS, chain.as_str())))
}

/// Everything that rules can be in was seen, and nobody serves Services there.
fn nobody_serves(patient: &Patient) -> Option<Finding> {
    let is_seen = !unseen::lacks_rules(patient)
        && patient
            .not_seen
            .iter()
            .all(|gap| !gap.what.starts_with("rules of"));
    if is_served(patient) || !is_seen {
        return None;
    }
    let what = "no rule of kube-proxy is on this host, in whichever mode";
    Some(
        Finding::warning(Cause::RulesDiffer, what)
            .because(
                "Nobody translates what is sent to Services, unless somebody serves them whom this does not know: connections from here time \
                 out, or end with \"No route to host\".",
            )
            .advise(Advice::act(
                "see whether kube-proxy runs here, and what it says: kubectl get pods -n kube-system -o wide | grep kube-proxy; kubectl \
                 logs -n kube-system POD",
            )),
    )
}

/// Chains that one mode alone has: KUBE-SERVICES and KUBE-POSTROUTING are of several.
fn mode_of(chain: &str) -> Option<Written> {
    const PREFIXES: [(&str, Written); 8] = [
        ("KUBE-SVC-", Written::Iptables),
        ("KUBE-SEP-", Written::Iptables),
        ("KUBE-EXT-", Written::Iptables),
        ("KUBE-IPVS-", Written::Ipvs),
        ("KUBE-NODE-PORT", Written::Ipvs),
        ("KUBE-SOURCE-RANGES-FIREWALL", Written::Ipvs),
        ("KUBE-PORTALS-", Written::Userspace),
        ("KUBE-NODEPORT-", Written::Userspace),
    ];
    let mut found = PREFIXES
        .into_iter()
        .filter(|(prefix, _)| chain.starts_with(prefix));
    found.next().map(|(_, mode)| mode)
}

fn modes(patient: &Patient) -> Option<Finding> {
    let signs = signs(patient);
    let current = patient.said_mode.as_deref();
    let is_mixed = signs.len() > 1;
    if !is_mixed {
        return None;
    }
    let names: Vec<String> = signs.keys().map(ToString::to_string).collect();
    let shown: Vec<String> = signs
        .iter()
        .map(|(mode, signs)| format!("{mode}: {}", listed(signs, 3)))
        .collect();
    let others: Vec<String> = match current {
        Some(current) if names.iter().any(|name| name == current) => {
            names.iter().filter(|name| *name != current).cloned().collect()
        }
        _ => Vec::new(),
    };
    let (what, advice) = match others.as_slice() {
        [] => (
            format!(
                "kube-proxy's rules of several modes are here at once: {}",
                names.join(", ")
            ),
            "find out which mode is meant (mode in kube-proxy's configuration), stop kube-proxy, run kube-proxy --cleanup, start it again",
        ),
        others => (
            format!(
                "mode {} left its rules on this host, where mode {} serves",
                others.join(" and "),
                current.unwrap_or_default()
            ),
            "stop kube-proxy, run kube-proxy --cleanup, start it again; or restart the node",
        ),
    };
    Some(
        Finding::fault(Cause::OtherMode, what)
            .because(format!(
                "{}. Rules that nobody keeps up to date send connections to endpoints that have gone, or take packets before the mode in \
                 use sees them.",
                shown.join("; ")
            ))
            .advise(Advice::act(advice)),
    )
}

/// What our own `trace --live` leaves in legacy when it is killed together with its watchdog.
fn own_trace(patient: &Patient) -> Option<Finding> {
    let mut places = Vec::new();
    let mut settings = Vec::new();
    for saved in &patient.saved {
        if saved.rules.chain(TableName::Raw, live_trace::CHAIN).is_none() {
            continue;
        }
        let (tool, setting) = (
            saved.backend.tool(saved.family),
            live_trace::setting(saved.family),
        );
        places.push(format!("raw {} ({tool})", live_trace::CHAIN));
        let mut jumps = rules_of(&saved.rules).filter(|(_, _, rule)| live_trace::leads_there(rule));
        let before = jumps.find_map(|(_, _, rule)| live_trace::before(rule.comment()?));
        settings.extend(before.map(|before| format!("{setting}={before}")));
    }
    if places.is_empty() {
        return None;
    }
    let what = format!(
        "packets are traced by rules that kube-proxy trace --live left: {}",
        listed(&places, 4)
    );
    let again = match settings.as_slice() {
        [] => String::new(),
        all => format!(", and sets {} again", all.join(", ")),
    };
    let advice =
        format!("unless one is running just now: kube-proxy trace --live --for 1s removes them{again}");
    Some(
        Finding::warning(Cause::TraceLeft, what)
            .because(
                "It was killed, and the process that cleans up after it as well. Each step of each packet that these rules match is reported \
                 by the kernel: that costs much. While net.netfilter.nf_log.2 (10 for IPv6) is nfnetlink_log, traces and what conntrack says \
                 of invalid packets do not come to the kernel's log.",
            )
            .advise(Advice::act(advice)),
    )
}

fn traces(patient: &Patient) -> Option<Finding> {
    let mut places = Vec::new();
    let mut remove = None;
    for saved in &patient.saved {
        for (table, chain, rule) in rules_of(&saved.rules) {
            let is_trace = matches!(&rule.target, Target::Other { name, .. } if &**name == "TRACE");
            if is_trace && chain != live_trace::CHAIN {
                let tool = saved.backend.tool(saved.family);
                places.push(format!("{table} {chain} ({tool})"));
                let list = format!(
                    "{tool} -t {table} -L {chain} --line-numbers, then {tool} -t {table} -D {chain} NUMBER"
                );
                remove = remove.or(Some(list));
            }
        }
    }
    for table in patient.native_tables() {
        for chain in &table.chains {
            let traces = |statement: &Statement| match statement {
                Statement::Assign {
                    to: Expr::Field(words),
                    ..
                } => words.iter().any(|word| &**word == "nftrace"),
                _ => false,
            };
            if chain.rules.iter().any(|rule| rule.statements.iter().any(traces)) {
                let place = format!("table {}, chain {}", table.title(), chain.name);
                places.push(place);
                remove = remove.or(Some(format!(
                    "nft -a list chain {} {}, then nft delete rule {} {} handle N",
                    table.title(),
                    chain.name,
                    table.title(),
                    chain.name
                )));
            }
        }
    }
    places.sort();
    places.dedup();
    let remove = remove?;
    let what = format!(
        "packets are traced by rules that somebody left: {}",
        listed(&places, 4)
    );
    Some(
        Finding::warning(Cause::TraceLeft, what)
            .because("Each step of each packet that they match is reported by the kernel: that costs much, and fills logs.")
            .advise(Advice::act(format!("unless somebody looks at them just now: {remove}"))),
    )
}
