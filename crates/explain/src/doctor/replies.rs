//! What pods answer the host: probes and the host's own connections die when a rule takes replies for something else.

use super::forwarding::{rule_words, stopped_by, verb};
use super::{Patient, plain_tool};
use crate::fate::{Fate, fates};
use crate::finding::{Advice, Cause, Finding};
use model::packet::ConnState;
use model::{Family, Protocol};
use std::net::SocketAddr;

/// A port that no rule is about.
const PORT: u16 = 40_000;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let families = patient.families().into_iter();
    families.filter_map(|family| dropped(patient, family)).collect()
}

/// A reply of a pod of this host that its rules drop, whatever connection it is of.
fn dropped(patient: &Patient, family: Family) -> Option<Finding> {
    let world = &patient.world;
    let pod = patient.some_pod(family).filter(|pod| !pod.is_somewhere())?;
    let own = world.host_facts.source_towards(pod.ip)?;
    let mut packet = pod.sends(SocketAddr::new(own, PORT), Protocol::Tcp);
    packet.src_port = 8080;
    packet.state = ConnState::Established;
    let all = fates(world, &packet);
    let is_stopped = |fate: &&Fate| stopped_by(fate).is_some();
    let first = all
        .iter()
        .find(is_stopped)
        .filter(|_| all.iter().all(|fate| is_stopped(&fate)))?;
    let rule = stopped_by(first)?;
    let network = patient.pod_network_words(family);
    let (tool, table, chain) = (plain_tool(family), &rule.table, &rule.chain);
    let advice = if table.contains(' ') {
        format!("nft insert rule {table} {chain} ct state established,related accept")
    } else {
        format!("{tool} -t {table} -I {chain} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
    };
    let what = format!(
        "what pods answer this host is {} by {}",
        verb(first),
        rule.place()
    );
    Some(
        Finding::fault(Cause::HostTrafficDropped, what)
            .because(format!(
                "Tried with a reply of {} to {own}: {} stops it, though it is of a connection that the host opened. The kubelet's probes fail, \
                 so pods are not ready and Services lose their endpoints; the host's own connections to Services time out where the \
                 endpoint is here.",
                pod.words(),
                rule_words(rule)
            ))
            .advise(Advice::act(format!(
                "accept replies before that rule: {advice}; or leave {network} out of it"
            ))),
    )
}
