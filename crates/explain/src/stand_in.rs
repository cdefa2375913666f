//! Somebody to send for a question that names a kind of sender and no address: a pod of the objects, else an address that
//! such a pod could have. What an answer owes to an address that was made up is no answer.

use crate::explanation::{Explanation, Reach, Verdict};
use crate::finding::{Advice, Cause, Finding};
use crate::screen;
use crate::sender::{Sender, SenderKind, Whose};
use crate::target::Target;
use crate::told_apart;
use crate::world::{Rules, World};
use ipnet::IpNet;
use iptables::ast::{Is, Target as RuleTarget};
use model::{Family, LocalDetector, Origin, ServiceName};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

/// Addresses that pods have in many clusters, and of no network that is anybody's in particular.
pub(crate) const POD_V4: [u8; 4] = [10, 244, 255, 254];
pub(crate) const POD_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0x244, 0xff, 0, 0, 0, 0xfffe);
/// Addresses of documentation (RFC 5737, RFC 3849), for a node of which nothing is known.
const NODE_V4: [u8; 4] = [192, 0, 2, 254];
const NODE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xfffe, 0, 0, 0, 0, 1);
/// Addresses that are tried in place of the address that was made up.
const TRIED: usize = 256;

/// An address for a pod of the node, and whether pods are known to have such ones.
pub(crate) fn pod(world: &World, family: Family, asked: Option<&ServiceName>) -> (IpAddr, Whose) {
    let known = of_node(world, family)
        .or_else(|| of_objects(world, family, asked))
        .or_else(|| of_rules(world, family));
    match (known, family) {
        (Some(ip), _) => (ip, Whose::Taken),
        (None, Family::V4) => (IpAddr::from(POD_V4), Whose::MadeUp),
        (None, Family::V6) => (IpAddr::V6(POD_V6), Whose::MadeUp),
    }
}

/// An address for a node of which none is known.
pub(crate) fn node(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from(NODE_V4),
        Family::V6 => IpAddr::V6(NODE_V6),
    }
}

/// Whether an address was made up for a node of which none is known: it stands for any of them.
pub(crate) fn is_nodes(world: &World, ip: IpAddr) -> bool {
    world.addresses_are_unknown() && ip == node(Family::of(ip))
}

/// Of the network that this node's pods have, or all pods: an address that none is likely to have.
fn of_node(world: &World, family: Family) -> Option<IpAddr> {
    let of_family = |net: &&IpNet| Family::of(net.addr()) == family;
    let by_detector = match &world.desired.get(family).node.detector {
        Some(LocalDetector::Cidr(net)) => Some(net),
        _ => None,
    };
    let net = world.facts.pod_cidrs.iter().find(of_family).or(by_detector)?;
    Some(within(net))
}

/// The last usable address of a network, as far as small ones have one.
pub(crate) fn within(net: &IpNet) -> IpAddr {
    match net {
        IpNet::V4(net) if net.prefix_len() >= 31 => IpAddr::V4(net.network()),
        IpNet::V4(net) => IpAddr::from((u32::from(net.broadcast()) - 1).to_be_bytes()),
        IpNet::V6(net) if net.prefix_len() >= 112 => IpAddr::V6(net.network()),
        IpNet::V6(net) => IpAddr::V6(Ipv6Addr::from(u128::from(net.network()) | 0xfffe)),
    }
}

/// A pod that objects tell of: on this node before others, and no endpoint of the Service that is asked for, which would
/// meet itself.
fn of_objects(world: &World, family: Family, asked: Option<&ServiceName>) -> Option<IpAddr> {
    let own: BTreeSet<IpAddr> = asked
        .into_iter()
        .flat_map(|name| world.snapshot.slices_of(name))
        .flat_map(|slice| &slice.endpoints)
        .map(|endpoint| endpoint.ip)
        .collect();
    let mut nodes = world.host_facts.addresses();
    nodes.extend(world.facts.interface_addresses.iter());
    nodes.extend(world.snapshot.nodes().flat_map(|node| node.addresses.iter()));
    let pods = world.objects.pods.iter().flatten().map(|(_, pod)| pod);
    let by_pods = pods
        .filter(|pod| !pod.host_network)
        .flat_map(|pod| pod.ips.iter().map(|ip| (pod.node.as_deref(), *ip)));
    let endpoints = world.snapshot.slices().flat_map(|slice| &slice.endpoints);
    // A slice that somebody wrote by hand, or the API server for itself, lists whatever serves: it says of no node nor pod.
    let is_pods = |ip: IpAddr, node: Option<&str>| node.is_some() || world.objects.pod_of(ip).is_some();
    let by_slices = endpoints
        .map(|endpoint| (endpoint.node.as_deref(), endpoint.ip))
        .filter(|(node, ip)| is_pods(*ip, *node));
    // Where interfaces are known, packets of pods elsewhere would come in where no pod of this node is.
    let may_be_elsewhere = world.host_facts.interfaces.is_empty();
    let is_here = |node: Option<&str>| node.is_some_and(|node| *node == *world.facts.name);
    let fits = |(node, ip): &(Option<&str>, IpAddr)| {
        let is_pods = Family::of(*ip) == family && !own.contains(ip) && !nodes.contains(ip);
        is_pods && (may_be_elsewhere || is_here(*node))
    };
    let all = by_pods.chain(by_slices).filter(fits);
    let nearest = all.map(|(node, ip)| (!is_here(node), ip)).min();
    nearest.map(|(_, ip)| ip)
}

/// Of the pods' network that saved rules were written for: what comes from elsewhere is marked there.
fn of_rules(world: &World, family: Family) -> Option<IpAddr> {
    if world.rules != Rules::Observed {
        return None;
    }
    let tables = world.host.rules.get(family).tables.values();
    let mut rules = tables
        .flat_map(|table| table.chains.values())
        .flat_map(|chain| &chain.rules);
    rules.find_map(|rule| match (&rule.src, &rule.target) {
        (Some(Is::Not(net)), RuleTarget::Jump(chain)) if chain.as_str() == "KUBE-MARK-MASQ" => {
            Some(within(net))
        }
        _ => None,
    })
}

/// The answer for a sender whose address was made up: that of the made-up one where others fare alike, else none.
pub(crate) fn answer(
    world: &World,
    sender: &Sender,
    target: &Target,
    ask: impl Fn(&Sender) -> Explanation,
) -> Explanation {
    let first = ask(sender);
    let fares = |answer: &Explanation| std::mem::discriminant(&answer.reach);
    let family = Family::of(sender.ip);
    let networks = told_apart::networks(world, family, target);
    let all = others(world, family, &networks);
    let other = all.iter().take(TRIED).find_map(|ip| {
        let other = ask(&Sender {
            ip: *ip,
            ..sender.clone()
        });
        (fares(&other) != fares(&first)).then_some((*ip, other))
    });
    let told = |ip: IpAddr, answer: &Explanation| format!("As {ip}: {}.", screen::headline(answer));
    let asked = told(sender.ip, &first);
    match other {
        Some((ip, other)) => {
            let (what, why) = (
                format!("it depends on {}, which is not known", who(sender)),
                format!("{asked} {}", told(ip, &other)),
            );
            open(sender, first, what, why)
        }
        None if all.len() > TRIED => not_all_tried(sender, first, networks.len()),
        None => first,
    }
}

/// Addresses to try in place of the one that was made up: one for each way to fare differently.
fn others(world: &World, family: Family, networks: &BTreeSet<IpNet>) -> Vec<IpAddr> {
    let all = told_apart::addresses(family, networks);
    // A pod has no address of a node, which the rules know by itself.
    let all = all.values().copied().filter(|ip| !world.is_local(*ip));
    if world.rules == Rules::Observed {
        return all.collect();
    }
    // Without rules of others it is source ranges alone, and they let in or they do not, whichever it is; beside what
    // kube-proxy takes for pods.
    let detector = world.desired.get(family).node.detector.as_ref();
    let is_pods = |ip: &IpAddr| matches!(detector, Some(LocalDetector::Cidr(net)) if net.contains(ip));
    let mut seen = BTreeSet::new();
    all.filter(|ip| seen.insert((networks.iter().any(|net| net.contains(ip)), is_pods(ip))))
        .collect()
}

/// From many networks it is alike, and there are more.
fn not_all_tried(sender: &Sender, mut first: Explanation, networks: usize) -> Explanation {
    let what = format!("it may depend on {}, which is not known", who(sender));
    let why = format!(
        "Rules tell {networks} networks apart; from {TRIED} of those it is alike, the others were not tried."
    );
    let finding = Finding::warning(Cause::NotKnown, what).because(why);
    first.findings.push(finding.advise(Advice::act(give(sender))));
    first
        .findings
        .sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    first
}

fn who(sender: &Sender) -> &'static str {
    match sender.kind {
        SenderKind::Pod => "the pod's address",
        SenderKind::Node => "the node's address",
        SenderKind::Outside => "the client's address",
    }
}

/// Nobody can say, since it hangs on an address that nobody gave.
fn open(sender: &Sender, first: Explanation, what: String, why: String) -> Explanation {
    let finding = Finding::fault(Cause::NotKnown, what)
        .because(why)
        .advise(Advice::act(give(sender)));
    no_answer(first, finding, who(sender))
}

/// How the address is given that is not known.
fn give(sender: &Sender) -> &'static str {
    match sender.kind {
        SenderKind::Pod => "give it: --from pod:IP, or --cluster-cidr, or Nodes with spec.podCIDR, or Pods",
        SenderKind::Node => "give the Node with its status.addresses, or --facts",
        SenderKind::Outside => "give it: --from IP",
    }
}

/// In place of an answer: what it depends on.
pub(crate) fn no_answer(first: Explanation, finding: Finding, on: &str) -> Explanation {
    Explanation {
        verdict: Verdict::Mixed,
        reach: Reach::Unknown,
        client: format!("gets through or not, depending on {on}"),
        deliveries: Vec::new(),
        findings: vec![finding],
        rules: Vec::new(),
        next: Vec::new(),
        ..first
    }
}

/// Where packets of such a sender come in: with a made-up address nobody knows.
pub(crate) fn origin(known: Origin, whose: Whose) -> Origin {
    match (whose, known) {
        (Whose::MadeUp, Origin::Interface(_)) => Origin::Interface("".into()),
        (_, known) => known,
    }
}
