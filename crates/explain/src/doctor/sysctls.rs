//! Settings of the kernel.

use super::pods::names;
use super::unseen::lacks_filter;
use super::{Patient, rules_of};
use crate::finding::{Advice, Cause, Finding};
use crate::known::Kind;
use iptables::ast::{AddrType, Is, Match, Rule, TableName, Target};
use model::Family;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    for family in Family::ALL {
        found.extend(forwarding(patient, family));
    }
    found.extend(family_off(patient));
    found.extend(super::reverse_path::finding(patient));
    found.extend(exposed(patient));
    found.extend(node_ports_on_loopback(patient));
    found.extend(local_ports(patient));
    found.extend(liberal(patient));
    found
}

fn forwarding(patient: &Patient, family: Family) -> Option<Finding> {
    let facts = &patient.world.host_facts;
    let name = match family {
        Family::V4 => "net.ipv4.ip_forward",
        Family::V6 => "net.ipv6.conf.all.forwarding",
    };
    // A host of one family may leave the other as it is.
    let is_used =
        family == Family::V4 || patient.has_services(family) || patient.pod_network(family).is_some();
    let is_off = |name: &str| facts.sysctl(name) == Some("0");
    if is_used && is_off(name) {
        return Some(not_forwarding(
            format!("{name} is 0: the host forwards no packet of {family}"),
            name,
        ));
    }
    // IPv6 has one switch for all interfaces; of IPv4 each has its own. Others than these may be off on purpose.
    let pods = patient.some_pod(family).map(|pod| pod.interface);
    let mut defaults = facts
        .routes
        .iter()
        .flatten()
        .filter(|of| of.route.to.prefix_len() == 0 && of.is_main());
    let uplink = defaults.next().map(|of| of.route.interface.clone());
    let mut names = pods.into_iter().chain(uplink).filter(|_| family == Family::V4);
    names.find_map(|interface| {
        let name = format!("net.ipv4.conf.{interface}.forwarding");
        is_off(&name).then(|| {
            let what = format!("{name} is 0: what comes in by {interface} is not forwarded");
            not_forwarding(what, &name)
        })
    })
}

fn not_forwarding(what: String, name: &str) -> Finding {
    Finding::fault(Cause::NotForwarding, what)
        .because(
            "Pods' packets come in and have to leave again for their endpoint, and so do those to node ports. Only endpoints of this host's \
             own network namespace work.",
        )
        .advise(Advice::act(format!(
            "sysctl -w {name}=1, and write it into /etc/sysctl.d/; look for whoever takes it back (a network manager, a hardening script)"
        )))
}

/// Services of IPv6 on a host that has it off.
fn family_off(patient: &Patient) -> Option<Finding> {
    let name = "net.ipv6.conf.all.disable_ipv6";
    let is_off = patient.world.host_facts.sysctl(name) == Some("1");
    (is_off && patient.has_services(Family::V6)).then(|| {
        Finding::warning(
            Cause::FamilyOff,
            format!("Services have IPv6 addresses, and this host has IPv6 off ({name} is 1)"),
        )
        .because("kube-proxy serves IPv4 alone here; pods that ask for a Service by its IPv6 address wait.")
        .advise(Advice::act(format!(
            "sysctl -w {name}=0, or take this node out of a cluster of two families"
        )))
    })
}

/// CVE-2020-8558: what listens on loopback can be reached by neighbours.
fn exposed(patient: &Patient) -> Option<Finding> {
    let facts = &patient.world.host_facts;
    let is_open = |name: &str| facts.sysctl(&format!("net.ipv4.conf.{name}.route_localnet")) == Some("1");
    let of_interface = || {
        facts
            .interfaces
            .iter()
            .map(|of| &*of.name)
            .filter(|name| *name != "lo")
            .find(|name| is_open(name))
    };
    let name = if is_open("all") { "all" } else { of_interface()? };
    let v4 = || patient.saved.iter().filter(|saved| saved.family == Family::V4);
    // Without rules nobody can say whether something keeps them out.
    let is_guarded = v4().any(|saved| {
        let mut all = rules_of(&saved.rules);
        all.any(|(_, _, rule)| {
            matches!(rule.target, Target::Drop | Target::Reject(_)) && is_about_loopback(rule)
        })
    });
    let is_guarded_natively = patient.world.host.native.tables.iter().any(|table| {
        let mut rules = table.chains.iter().flat_map(|chain| &chain.rules);
        rules.any(|rule| {
            let text = nftables::listed::RuleText(rule).to_string();
            text.contains("ip daddr 127.0.0.0/8") && text.contains("drop")
        })
    });
    // A list of nftables has the tables of iptables-nft too.
    let is_listed = !patient.world.host.native.tables.is_empty();
    let is_unknown = v4().next().is_none() || (!is_listed && lacks_filter(&patient.saved, Family::V4));
    if is_unknown || is_guarded || is_guarded_natively {
        return None;
    }
    let what = format!(
        "services on this host's loopback can be reached by neighbours: net.ipv4.conf.{name}.route_localnet is 1"
    );
    Some(
        Finding::warning(Cause::LocalnetExposed, what)
            .because(
                "Nothing drops packets from elsewhere to 127.0.0.0/8 (CVE-2020-8558); kube-proxy in iptables mode and the kubelet keep a rule \
                 in KUBE-FIREWALL for it, and there is none.",
            )
            .advise(Advice::act(
                "if nobody needs node ports on 127.0.0.1: iptables.localhostNodePorts: false, and sysctl -w \
                 net.ipv4.conf.all.route_localnet=0",
            ))
            .advise(Advice::act(
                "if somebody does: iptables -A INPUT ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
            )),
    )
}

fn is_about_loopback(rule: &Rule) -> bool {
    matches!(&rule.dst, Some(Is::Equal(net)) if net.addr().is_loopback())
}

/// Rules offer node ports on loopback, and the kernel does not let their packets out.
fn node_ports_on_loopback(patient: &Patient) -> Option<Finding> {
    let facts = &patient.world.host_facts;
    let is_closed = facts.sysctl("net.ipv4.conf.all.route_localnet") == Some("0");
    let has_node_ports = patient
        .known(Family::V4)
        .iter()
        .any(|known| known.kind == Kind::NodePort);
    let chains = patient.chains(TableName::Nat, "KUBE-SERVICES");
    let offers = |rule: &Rule| {
        let is_tail = matches!(&rule.target, Target::Jump(to) if to.as_str() == "KUBE-NODEPORTS");
        let is_any_local = rule.matches.iter().any(|one| {
            matches!(
                one,
                Match::AddrType {
                    dst: Some(Is::Equal(AddrType::Local)),
                    ..
                }
            )
        });
        is_tail && is_any_local && rule.dst.is_none()
    };
    let is_offered = chains
        .filter(|(saved, _)| saved.family == Family::V4)
        .any(|(_, chain)| chain.rules.iter().any(offers));
    (is_closed && has_node_ports && is_offered).then(|| {
        Finding::remark(
            Cause::RouteLocalnet,
            "node ports do not answer on 127.0.0.1: net.ipv4.conf.all.route_localnet is 0",
        )
        .because(
            "kube-proxy in iptables mode sets it to 1 at start unless iptables.localhostNodePorts is false; its rules offer them there.",
        )
    })
}

/// Connections that leave this host may take a node port for their source.
fn local_ports(patient: &Patient) -> Option<Finding> {
    let facts = &patient.world.host_facts;
    let range = facts.sysctl("net.ipv4.ip_local_port_range")?;
    let mut ends = range.split_whitespace().map(str::parse::<u16>);
    let (Some(Ok(first)), Some(Ok(last))) = (ends.next(), ends.next()) else {
        return None;
    };
    let reserved = facts
        .sysctl("net.ipv4.ip_local_reserved_ports")
        .unwrap_or_default();
    let is_reserved = |port: u16| {
        reserved.split(',').any(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            matches!((from.trim().parse::<u16>(), to.trim().parse::<u16>()), (Ok(from), Ok(to)) if (from..=to).contains(&port))
        })
    };
    let families = Family::ALL.into_iter().flat_map(|family| patient.known(family));
    let node_ports = families
        .filter(|known| known.kind == Kind::NodePort)
        .map(|known| known.port);
    let taken: Vec<u16> = node_ports
        .filter(|port| (first..=last).contains(port) && !is_reserved(*port))
        .collect();
    let some = taken.first()?;
    let ports = names(taken.iter().map(ToString::to_string).collect(), 3);
    let what = format!(
        "connections of this host may take a node port for their source: {ports}, in ip_local_port_range {first} to {last}"
    );
    Some(
        Finding::warning(Cause::LocalPortRange, what)
            .because(format!(
                "A reply to such a connection comes to the node port's number and may be taken for a request to the Service; and a \
                 connection to node port {some} can fail while a socket has the number."
            ))
            .advise(Advice::act(
                "sysctl -w net.ipv4.ip_local_port_range='32768 60999', or net.ipv4.ip_local_reserved_ports=30000-32767",
            )),
    )
}

/// The rule that drops INVALID packets, where many are.
fn liberal(patient: &Patient) -> Option<Finding> {
    const MANY: u64 = 10_000;
    let facts = &patient.world.host_facts;
    let invalid = facts.conntrack?.invalid;
    let is_strict = facts.sysctl("net.netfilter.nf_conntrack_tcp_be_liberal") == Some("0");
    let drops = patient
        .chains(TableName::Filter, "KUBE-FORWARD")
        .any(|(_, chain)| chain.rules.iter().any(|rule| rule.target == Target::Drop));
    (is_strict && drops && invalid >= MANY).then(|| {
        Finding::remark(
            Cause::ConntrackLoss,
            format!("{invalid} packets were INVALID for connection tracking, and KUBE-FORWARD drops those"),
        )
        .because(
            "Where packets take another way back, long connections are cut. With net.netfilter.nf_conntrack_tcp_be_liberal=1 (or \
             conntrack.tcpBeLiberal in kube-proxy's configuration) they are not INVALID, and kube-proxy writes no such rule.",
        )
    })
}
