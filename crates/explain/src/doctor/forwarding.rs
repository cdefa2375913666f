//! What becomes of pods' packets on their way through the host, whoever's rules they meet.

use super::elsewhere::is_before_services;
use super::pods::{Pod, names};
use super::{Backend, MOST_TRIED, Patient, Saved, plain_tool, rules_of};
use crate::fate::{Ended, Fate, RuleLine, fates};
use crate::finding::{Advice, Cause, Finding};
use crate::policy;
use crate::world::World;
use model::{Family, Origin, Packet, Protocol};
use nftables::listed;
use std::net::SocketAddr;

/// So many Services are tried where a rule that stops pods stops those to all Services, as a rule.
const SERVICES: usize = 12;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    for family in patient.families() {
        found.extend(untracked(patient, family));
        let Some(pod) = patient.some_pod(family) else {
            continue;
        };
        let stopped = of_pods(patient, family, &pod);
        let (told, rules): (Vec<Finding>, Vec<RuleLine>) = stopped.into_iter().unzip();
        found.extend(told);
        found.extend(to_peer(patient, family, &pod, &rules));
        found.extend(by_other_backend(patient, family, &pod));
    }
    found.extend(host_firewalls(patient));
    found
}

/// Whether rules of others stopped the packet, and which.
pub(super) fn stopped_by(fate: &Fate) -> Option<&RuleLine> {
    let is_stopped = matches!(fate.end, Ended::Dropped | Ended::Refused(_));
    let rule = fate.by.as_ref().filter(|_| is_stopped)?;
    let is_kubelets = rule.chain == "KUBE-FIREWALL";
    (!rule.is_ours() || is_kubelets).then_some(rule)
}

/// The same of a packet for a Service: what kube-proxy's rules saw and did not translate is another matter.
pub(super) fn stopped_on_way<'a>(world: &World, fate: &'a Fate) -> Option<&'a RuleLine> {
    let rule = stopped_by(fate)?;
    let is_before = !fate.is_forwarded && is_before_services(world, rule);
    (fate.is_translated() || is_before).then_some(rule)
}

/// The first way of a pod's packet that is stopped. Where nobody knows which interface it comes in through, some rules may
/// be another pod's: all ways count then, but for those that take a pod's address for this host's.
fn first_stopped<'f>(
    pod: &Pod,
    fates: &'f [Fate],
    stopped: impl Fn(&'f Fate) -> Option<&'f RuleLine>,
) -> Option<(&'f Fate, &'f RuleLine)> {
    let mut all = fates.iter().map(|fate| (fate, stopped(fate)));
    let passes =
        |(fate, rule): &(&Fate, Option<&RuleLine>)| rule.is_none() && !matches!(fate.end, Ended::Here(_));
    if pod.is_somewhere() && all.clone().any(|way| passes(&way)) {
        return None;
    }
    all.find_map(|(fate, rule)| Some((fate, rule?)))
}

/// How far a packet for a Service came, and what stopped it.
pub(super) fn how_far(fate: &Fate, rule: &RuleLine) -> String {
    let rule = rule_words(rule);
    match fate.to {
        Some(to) => format!("kube-proxy's rules translate it (to {to}), then {rule} stops it"),
        None => format!("{rule} stops it before kube-proxy's rules in table nat see it"),
    }
}

pub(super) fn verb(fate: &Fate) -> &'static str {
    match fate.end {
        Ended::Dropped => "dropped",
        _ => "rejected",
    }
}

/// The rule in words, with the way to find it.
pub(super) fn rule_words(rule: &RuleLine) -> String {
    match rule.number {
        Some(_) => format!("{}: {}", rule.place(), rule.text),
        None => rule.place(),
    }
}

/// Packets to Services of the pod that stands for all, or else of others whose addresses are known. Network policies are
/// about such pods on purpose.
fn of_pods(patient: &Patient, family: Family, pod: &Pod) -> Vec<(Finding, RuleLine)> {
    let stopped = to_services(patient, family, pod);
    if !stopped.is_empty() {
        return stopped;
    }
    let others = patient.other_pods(family, pod).into_iter();
    let mut of_others = others.map(|other| {
        let mut stopped = to_services(patient, family, &other);
        stopped.retain(|(_, rule)| !is_of_policies(rule));
        stopped
    });
    of_others.find(|stopped| !stopped.is_empty()).unwrap_or_default()
}

/// Whether a chain is one that network plugins have network policies in.
fn is_of_policies(rule: &RuleLine) -> bool {
    const CHAINS: [&str; 6] = [
        "KUBE-POD-FW",
        "KUBE-NWPLCY",
        "KUBE-ROUTER",
        "cali-",
        "WEAVE-NPC",
        "ANTREA-",
    ];
    CHAINS.iter().any(|prefix| rule.chain.starts_with(prefix))
}

/// Pods' packets to Services that are stopped, after they were translated or before.
fn to_services(patient: &Patient, family: Family, pod: &Pod) -> Vec<(Finding, RuleLine)> {
    let world = &patient.world;
    let mut found: Vec<(Finding, RuleLine)> = Vec::new();
    for (at, protocol, service) in patient.cluster_ips(family, SERVICES) {
        let fates = fates(world, &pod.sends(at, protocol));
        let stopped = first_stopped(pod, &fates, |fate| stopped_on_way(world, fate));
        let Some((fate, rule)) = stopped else { continue };
        if found.iter().any(|(_, other)| other.place() == rule.place()) {
            continue;
        }
        let stop = Stop {
            fate,
            rule,
            service: &service,
        };
        found.push((dropped(patient, family, pod, &stop), rule.clone()));
    }
    found
}

/// A packet that was stopped on its way to a Service.
struct Stop<'a> {
    fate: &'a Fate,
    rule: &'a RuleLine,
    service: &'a str,
}

fn dropped(patient: &Patient, family: Family, pod: &Pod, stop: &Stop<'_>) -> Finding {
    let Stop { fate, rule, service } = *stop;
    let is_to_host = matches!(fate.to, Some(to) if patient.world.is_local(to.ip()));
    let verb = verb(fate);
    let what = if policy::is_forward(rule) {
        format!("pod traffic to services is {verb} by the FORWARD policy, {family}")
    } else {
        format!("pod traffic to services is {verb} by {}", rule.place())
    };
    let tried = format!(
        "Tried with a connection from {} to {service}: {}.",
        pod.words(),
        how_far(fate, rule)
    );
    let (why, advice) = let_through(patient, family, pod, &Place { rule, is_to_host });
    Finding::fault(Cause::PodTrafficDropped, what)
        .because(format!("{tried} {why}"))
        .advise(Advice::act(advice))
}

/// What stopped a pod's packet, and where that was bound for.
struct Place<'a> {
    rule: &'a RuleLine,
    is_to_host: bool,
}

/// Why nothing lets a pod's packet through, and what would.
fn let_through(patient: &Patient, family: Family, pod: &Pod, at: &Place<'_>) -> (String, String) {
    let network = patient.pod_network_words(family);
    let tool = plain_tool(family);
    let both = [format!("-s {network}"), format!("-d {network}")];
    if let Some(told) = policy::elsewhere(at.rule, tool, &both) {
        return (told.why, told.advice);
    }
    let (why, advice) = if policy::is_forward(at.rule) {
        (
            "kube-proxy accepts what carries its mark and replies; a pod's packet to a cluster IP has no mark, and no other rule accepts \
             new pod traffic.",
            format!(
                "have the network plugin accept pods' traffic, or: {tool} -A FORWARD -s {network} -j ACCEPT; {tool} -A FORWARD -d \
                 {network} -j ACCEPT"
            ),
        )
    } else if at.is_to_host {
        (
            "The endpoint is a program of this host, so the firewall of incoming packets decides.",
            format!(
                "let pods' traffic in: {tool} -I INPUT -s {network} -j ACCEPT, or the same in the firewall's own words"
            ),
        )
    } else {
        let interface = match &*pod.interface {
            "" => "the pods' interface",
            named => named,
        };
        (
            "It is not kube-proxy's rule.",
            format!(
                "allow traffic from and to {network} there, or put {interface} into a zone that forwards (firewall-cmd --zone=trusted \
                 --add-interface={interface} --permanent)"
            ),
        )
    };
    (why.to_owned(), advice)
}

/// A pod's packet to another pod, without a Service.
fn to_peer(patient: &Patient, family: Family, pod: &Pod, told: &[RuleLine]) -> Option<Finding> {
    let to = patient.some_peer(family, pod)?;
    let fates = fates(&patient.world, &pod.sends(to, Protocol::Tcp));
    let (fate, rule) = first_stopped(pod, &fates, stopped_by)?;
    // What stops pods' packets to Services stops these too: one finding is enough.
    if told.iter().any(|other| other.place() == rule.place()) {
        return None;
    }
    let is_explained = !told.is_empty();
    let verb = verb(fate);
    let (table, interface) = (&rule.table, &pod.interface);
    let what = if is_explained {
        format!("forwarded pod traffic is {verb} by {}", rule.place())
    } else {
        format!("forwarded pod traffic {verb} unless a Service translated it, by table {table}")
    };
    let zone = if table.ends_with("firewalld") && !pod.is_somewhere() {
        format!(" {interface} is in no zone of its own.")
    } else {
        String::new()
    };
    let network = patient.pod_network_words(family);
    Some(
        Finding::fault(Cause::PodTrafficRejected, what)
            .because(format!(
                "Tried with a connection from {} to {to}: {} stops it.{zone} Services may work, since packets that were \
                 translated are let through; pods' own addresses, headless Services and StatefulSets do not.",
                pod.words(),
                rule_words(rule)
            ))
            .advise(Advice::act(format!(
                "let pods' traffic through: firewall-cmd --permanent --zone=trusted --add-source={network} && firewall-cmd --reload, or \
                 the like in the firewall's own words"
            ))),
    )
}

/// Legacy and `nf_tables` are both asked: one's policy drops what the other's rules accept.
fn by_other_backend(patient: &Patient, family: Family, pod: &Pod) -> Option<Finding> {
    let others = patient.saved.iter().filter(|saved| {
        let is_main = patient.world.host.rules.get(family) == &saved.rules;
        saved.family == family && !is_main && rules_of(&saved.rules).next().is_some()
    });
    let policies = patient.saved.iter().filter(|saved| {
        let forward = saved.rules.chain(iptables::ast::TableName::Filter, "FORWARD");
        let drops = forward.is_some_and(|chain| chain.policy == Some(iptables::ast::Policy::Drop));
        saved.family == family && drops && patient.world.host.rules.get(family) != &saved.rules
    });
    let mut candidates: Vec<&Saved> = others.chain(policies).collect();
    candidates.dedup();
    let to = patient.some_peer(family, pod)?;
    candidates.into_iter().find_map(|saved| {
        let world = with_rules(&patient.world, saved);
        let fates = fates(&world, &pod.sends(to, Protocol::Tcp));
        let (fate, rule) = first_stopped(pod, &fates, stopped_by)?;
        let (backend, tool) = (saved.backend.as_str(), saved.backend.tool(family));
        let other = match saved.backend {
            Backend::NfTables => Backend::Legacy,
            Backend::Legacy => Backend::NfTables,
        };
        let what = format!(
            "pod traffic is {} by {} of {backend} iptables, {family}",
            verb(fate),
            rule.place()
        );
        Some(
            Finding::fault(Cause::PodTrafficDropped, what)
                .because(format!(
                    "kube-proxy's rules are in {}, and the kernel asks both: what they accept, {backend} may still stop ({}).",
                    other.as_str(),
                    rule_words(rule)
                ))
                .advise(Advice::act(format!(
                    "look whose it is: {tool}-save -t filter; and accept pods' traffic there, or clear it if nobody uses {backend}"
                ))),
        )
    })
}

fn with_rules(world: &World, saved: &Saved) -> World {
    let mut other = world.clone();
    *other.host.rules.get_mut(saved.family) = saved.rules.clone();
    other.host.native = listed::Ruleset::default();
    other
}

/// Cluster IPs whose packets nat never sees.
fn untracked(patient: &Patient, family: Family) -> Option<Finding> {
    let world = &patient.world;
    // Without the host's interfaces nobody knows which addresses a cache of the node has.
    let pod = patient.some_pod(family).filter(|pod| !pod.is_somewhere());
    let mut hit: Vec<(String, SocketAddr)> = Vec::new();
    let mut by = None;
    for (at, protocol, service) in patient.cluster_ips(family, MOST_TRIED) {
        // A cache of the node answers for this address, on purpose.
        if world.is_local(at.ip()) {
            continue;
        }
        let mut packets: Vec<Packet> = pod.iter().map(|pod| pod.sends(at, protocol)).collect();
        let own = world.host_facts.source_towards(at.ip());
        packets.extend(own.map(|ip| Packet::new(ip, at, protocol, Origin::Host)));
        let rule = packets
            .iter()
            .flat_map(|packet| fates(world, packet))
            .find_map(|fate| fate.untracked);
        if let Some(rule) = rule {
            hit.push((service, at));
            by = by.or(Some(rule));
        }
    }
    let rule = by?;
    let addresses = hit.iter().map(|(_, at)| at.to_string()).collect();
    let services = names(hit.iter().map(|(service, _)| service.clone()).collect(), 3);
    let what = format!(
        "{} keeps packets to Services from connection tracking (notrack): {services}",
        rule.place()
    );
    Some(
        Finding::fault(Cause::Untracked, what)
            .because(format!(
                "Untracked packets meet no nat rule: they leave for {} untranslated, and no address of this host is that. The rule: {}. A \
                 node-local cache that died leaves such rules.",
                names(addresses, 3),
                rule.text
            ))
            .advise(Advice::act(
                "start that cache again, or take its rules out: iptables-save -t raw | grep -i notrack",
            )),
    )
}

/// Firewalls that are known to take rules of others away, or to be written anew.
fn host_firewalls(patient: &Patient) -> Vec<Finding> {
    let native = |name: &str| {
        let mut tables = patient.world.host.native.tables.iter();
        tables.any(|table| &*table.name == name)
    };
    let chain_begins = |prefix: &str| {
        patient.saved.iter().any(|saved| {
            let mut tables = saved.rules.tables.values();
            tables.any(|table| table.chains.keys().any(|name| name.as_str().starts_with(prefix)))
        })
    };
    let mut found = Vec::new();
    if native("firewalld") || chain_begins("FWDI_") || chain_begins("FWD_public") {
        found.push(
            Finding::remark(Cause::HostFirewall, "firewalld is at work on this host").because(
                "With FlushAllOnReload it takes kube-proxy's rules of iptables away at each reload, until kube-proxy writes them again; and \
                 it forwards for pods' interfaces only if a zone says so.",
            ),
        );
    }
    if chain_begins("ufw-") {
        found.push(Finding::remark(Cause::HostFirewall, "ufw is at work on this host").because(
            "Its usual policy drops what is forwarded (DEFAULT_FORWARD_POLICY in /etc/default/ufw); a reload keeps kube-proxy's rules.",
        ));
    }
    found
}
