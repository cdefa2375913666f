//! Bridges that carry pods.

use super::Patient;
use crate::causes::{count, subject};
use crate::facts::InterfaceFacts;
use crate::finding::{Advice, Cause, Finding};
use ipnet::IpNet;
use model::Family;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    for family in Family::ALL {
        found.extend(not_filtered(patient, family));
        found.extend(of_another_range(patient, family));
    }
    found.extend(hairpin(patient));
    found
}

/// The bridge that pods of this host are on, with their network. An interface of which nobody said what it is counts when
/// its network is pods' and has room for several.
fn of_pods(patient: &Patient, family: Family) -> Option<(&InterfaceFacts, IpNet)> {
    let pods = patient.pod_network(family);
    let interfaces = &patient.world.host_facts.interfaces;
    let has_ports = |name: &str| interfaces.iter().any(|of| of.bridge.as_deref() == Some(name));
    interfaces.iter().find_map(|of| {
        let mut nets = of.addresses.iter().filter(|net| Family::of(net.addr()) == family);
        let net = nets
            .find(|net| net.prefix_len() + 1 < net.max_prefix_len())?
            .trunc();
        let is_of_pods = pods.is_some_and(|pods| pods.contains(&net));
        // Nobody said where pods are: the bridges that network plugins make are known by their names.
        let is_by_name = pods.is_none() && ["cni0", "cbr0", "kube-bridge"].contains(&&*of.name);
        let is_bridge = match of.kind.as_deref() {
            Some("bridge") => is_of_pods || is_by_name || (pods.is_none() && has_ports(&of.name)),
            Some(_) => false,
            None => is_of_pods || is_by_name,
        };
        is_bridge.then_some((of, net))
    })
}

/// The bridge has the range that the Node had before.
fn of_another_range(patient: &Patient, family: Family) -> Option<Finding> {
    let (bridge, net) = of_pods(patient, family)?;
    let facts = &patient.world.facts;
    let mut ranges = facts
        .pod_cidrs
        .iter()
        .filter(|range| Family::of(range.addr()) == family);
    let range = *ranges.next()?;
    let is_of_node = |range: &IpNet| range.contains(&net) || net.contains(range);
    // Plugins that give out addresses themselves may have one network for all nodes.
    if facts.pod_cidrs.iter().any(is_of_node) {
        return None;
    }
    let (name, node) = (&bridge.name, patient.world.node_words());
    let what = format!("bridge {name} is of {net}, and the pods' range of Node {node} is {range}");
    Some(
        Finding::fault(Cause::BridgeOfOtherRange, what)
            .because(format!(
                "Other nodes send what is for {range} to this one, and nobody knows that {net} is here: pods that got their address from {name} \
                 are reached from this host alone. A bridge outlives the range that its node had, when the node is made anew."
            ))
            .about(subject("Node", "", &node))
            .advise(Advice::act(format!(
                "take the bridge away and have the network plugin make it anew, then restart the pods of this node: ip link delete {name}"
            ))),
    )
}

fn not_filtered(patient: &Patient, family: Family) -> Option<Finding> {
    let name = match family {
        Family::V4 => "net.bridge.bridge-nf-call-iptables",
        Family::V6 => "net.bridge.bridge-nf-call-ip6tables",
    };
    let (bridge, _) = of_pods(patient, family)?;
    let facts = &patient.world.host_facts;
    if !facts.is_off(name) {
        return None;
    }
    let (state, advice) = if facts.sysctl(name).is_some() {
        (
            "is 0",
            format!("sysctl -w {name}=1, and write it into /etc/sysctl.d/"),
        )
    } else {
        (
            "is not there, since br_netfilter is not loaded",
            format!(
                "modprobe br_netfilter, sysctl -w {name}=1, and write both into /etc/modules-load.d/ and /etc/sysctl.d/"
            ),
        )
    };
    let bridge = &bridge.name;
    Some(
        Finding::fault(
            Cause::BridgeNotFiltered,
            format!("replies between pods on {bridge} pass netfilter by: {name} {state}"),
        )
        .because(format!(
            "A pod reaches a Service whose endpoint is on another node, and not when it is on this one: the request is translated, the reply \
             is switched on {bridge} and comes from the endpoint's own address, so the client refuses it."
        ))
        .advise(Advice::act(advice)),
    )
}

/// Ports of the pods' bridge that never send a frame back where it came from.
fn hairpin(patient: &Patient) -> Option<Finding> {
    let (bridge, _) = of_pods(patient, Family::V4).or_else(|| of_pods(patient, Family::V6))?;
    let name = &bridge.name;
    let all = patient.world.host_facts.interfaces.iter();
    let ports: Vec<&InterfaceFacts> = all.filter(|of| of.bridge.as_deref() == Some(&**name)).collect();
    // A port to another host carries no pod that would ask for itself.
    let is_of_pod = |of: &&&InterfaceFacts| of.kind.as_deref().is_none_or(|kind| kind == "veth");
    let off: Vec<&&InterfaceFacts> = ports
        .iter()
        .filter(is_of_pod)
        .filter(|of| of.hairpin == Some(false))
        .collect();
    let first = off.first()?;
    let what = format!(
        "pods on {name} cannot reach themselves by a Service: hairpin mode is off on {} of its {}",
        off.len(),
        count(ports.len(), "port")
    );
    Some(
        Finding::warning(Cause::HairpinOff, what)
            .because(
                "A pod that is an endpoint of the Service it asks for is chosen itself now and then: with three endpoints one connection of \
                 three hangs.",
            )
            .advise(Advice::act(format!(
                "set hairpinMode: true in the bridge plugin's configuration; for pods that run already: ip link set dev {} type \
                 bridge_slave hairpin on",
                first.name
            ))),
    )
}
