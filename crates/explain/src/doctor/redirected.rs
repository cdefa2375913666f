//! Rules of others that send packets for Services elsewhere.

use super::pods::names;
use super::{MOST_TRIED, Patient};
use crate::fate::{Fate, RuleLine, fates};
use crate::finding::{Advice, Cause, Finding};
use model::{Family, Origin, Packet};
use std::net::SocketAddr;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    for family in patient.families() {
        found.extend(redirected(patient, family));
    }
    found
}

/// Somebody whose packets are tried.
struct Tried {
    words: String,
    packet: Packet,
}

fn senders(patient: &Patient, family: Family, at: SocketAddr, protocol: model::Protocol) -> Vec<Tried> {
    let mut all = Vec::new();
    if let Some(pod) = patient.some_pod(family) {
        all.push(Tried {
            words: pod.words(),
            packet: pod.sends(at, protocol),
        });
    }
    if let Some(ip) = patient.world.host_facts.source_towards(at.ip()) {
        all.push(Tried {
            words: "a process of this host".to_owned(),
            packet: Packet::new(ip, at, protocol, Origin::Host),
        });
    }
    all
}

/// The rule of others that gave every way of the packet its destination.
fn redirects(all: &[Fate]) -> Option<(&RuleLine, SocketAddr)> {
    let first = all
        .first()
        .filter(|_| all.iter().all(Fate::is_translated_by_others))?;
    Some((first.to_by.as_ref()?, first.to?))
}

fn redirected(patient: &Patient, family: Family) -> Option<Finding> {
    let world = &patient.world;
    let mut hit: Option<(RuleLine, SocketAddr, String)> = None;
    let mut services = Vec::new();
    for (at, protocol, service) in patient.cluster_ips(family, MOST_TRIED) {
        // A cache of the node answers for this address, on purpose.
        if world.is_local(at.ip()) {
            continue;
        }
        for tried in senders(patient, family, at, protocol) {
            let all = fates(world, &tried.packet);
            let Some((rule, to)) = redirects(&all) else {
                continue;
            };
            services.push(format!("{service} ({at}/{protocol})"));
            hit.get_or_insert_with(|| (rule.clone(), to, tried.words.clone()));
        }
    }
    let (rule, to, who) = hit?;
    let network = patient.pod_network_words(family);
    let what = format!(
        "packets for Services are sent to {to} by {}, which is not kube-proxy's",
        rule.place()
    );
    Some(
        Finding::fault(Cause::ForeignDnat, what)
            .because(format!(
                "Tried from {who}: {} takes them before kube-proxy's rules are asked, so they reach no endpoint of {}.",
                rule.text,
                names(services, 3)
            ))
            .advise(Advice::act(format!(
                "leave pods and cluster IPs out of that rule (! -s {network}, or a destination of its own), put it after the jump to \
                 KUBE-SERVICES, or take it out"
            ))),
    )
}
