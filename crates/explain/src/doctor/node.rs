//! The host and its Node object, and its clock.

use super::Patient;
use crate::causes::{listed, subject};
use crate::finding::{Advice, Cause, Finding};
use std::net::IpAddr;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(name(patient));
    found.extend(address(patient));
    found.extend(clock(patient));
    found
}

/// kube-proxy takes the host's name for the Node's, in lower case and without blanks around it.
fn name(patient: &Patient) -> Option<Finding> {
    let world = &patient.world;
    let configured = world
        .host_facts
        .config
        .get("hostnameOverride")
        .and_then(|name| name.as_str());
    let of_proxy = world.facts.name.to_string();
    let (own, is_override) = match (configured, &world.host_facts.hostname) {
        (Some(name), _) if !name.is_empty() => (name.to_owned(), true),
        (_, Some(name)) if of_proxy.is_empty() || of_proxy == *name => (name.clone(), false),
        // Somebody said which node is meant.
        _ => (of_proxy, true),
    };
    let own = own.trim().to_lowercase();
    let nodes: Vec<&str> = world.snapshot.nodes().map(|node| &*node.name).collect();
    if own.is_empty() || nodes.is_empty() || nodes.contains(&own.as_str()) {
        return None;
    }
    let has_address = |ip: &IpAddr| world.host_facts.addresses().contains(ip);
    let mut by_address = world
        .snapshot
        .nodes()
        .filter(|node| node.addresses.iter().any(has_address));
    let likely = by_address.next().map(|node| node.name.to_string());
    let (short, likely) = (own.split('.').next().unwrap_or_default().to_owned(), likely);
    let similar = || {
        nodes
            .iter()
            .find(|node| node.split('.').next() == Some(&short))
            .map(ToString::to_string)
    };
    let likely = likely.or_else(similar);
    let source = if is_override {
        "as kube-proxy is told that its node is"
    } else {
        "as this host is"
    };
    let there = match &likely {
        Some(node) => format!("its Node seems to be {node}"),
        None => format!("there are: {}", listed(&nodes, 5)),
    };
    let target = likely.clone().unwrap_or_else(|| "NODE".to_owned());
    let finding = Finding::fault(Cause::NoSuchNode, format!("no Node is called {own}, {source}; {there}"))
        .because(
            "kube-proxy finds its Node and this node's endpoints by that name. With another one, policy Local has no endpoint here, hints \
             of zones are ignored, and kube-proxy does not learn of its own addresses and pod networks.",
        )
        .advise(Advice {
            object: None,
            field: Some("hostnameOverride".to_owned()),
            action: format!("set hostnameOverride: {target} in kube-proxy's configuration (--hostname-override={target}), as the kubelet has it"),
        });
    Some(match likely {
        Some(node) => finding.about(subject("Node", "", &node)),
        None => finding,
    })
}

/// The Node's address is none of the host's.
fn address(patient: &Patient) -> Option<Finding> {
    let world = &patient.world;
    let own = world.host_facts.addresses();
    let node = world.snapshot.node(&world.facts.name)?;
    if own.is_empty() || node.addresses.is_empty() || node.addresses.iter().any(|ip| own.contains(ip)) {
        return None;
    }
    let has: Vec<IpAddr> = own.into_iter().filter(|ip| !ip.is_loopback()).collect();
    let what = format!(
        "Node {} has address {}, which this host does not have",
        node.name,
        listed(&node.addresses, 3)
    );
    Some(
        Finding::warning(Cause::NodeAddress, what)
            .because(format!(
                "This host has {}. Node ports with nodePortAddresses: primary are served on the Node's address, and other nodes look for \
                 this one there. Behind a cloud's one-to-one NAT that may be meant.",
                listed(&has, 4)
            ))
            .about(subject("Node", "", &node.name))
            .advise(Advice::act("start the kubelet with --node-ip of an address that the host has")),
    )
}

/// So many seconds are no matter of a request's way.
const SKEW: i64 = 30;

fn clock(patient: &Patient) -> Option<Finding> {
    let clock = patient.world.host_facts.clock;
    let advice =
        Advice::act("run a time service (chronyd or systemd-timesyncd), and look at it: timedatectl");
    if let Some(ahead) = clock.ahead.filter(|ahead| ahead.abs() >= SKEW) {
        let word = if ahead > 0 { "ahead of" } else { "behind" };
        let what = format!("the clock is {} seconds {word} the API server's", ahead.abs());
        return Some(
            Finding::warning(Cause::Clock, what)
                .because("Certificates and tokens are refused as not yet or no longer valid, and logs of nodes cannot be laid side by side.")
                .advise(advice),
        );
    }
    (clock.is_synchronised == Some(false)).then(|| {
        Finding::remark(Cause::Clock, "the kernel says that the clock is not synchronised")
            .because("It may drift until certificates and tokens are refused.")
            .advise(advice)
    })
}
