//! Causes in traffic policies and source ranges.

use super::endpoints::Looked;
use super::{count, listed, of_service, subject};
use crate::explanation::{Explanation, Reach};
use crate::finding::{Advice, Cause, Finding};
use crate::known::{Kind, Known};
use crate::sender::{Sender, SenderKind, Whose};
use crate::target::Target;
use crate::world::World;
use ipnet::IpNet;
use model::address::parse_ip;
use model::{Admission, Family, Note, NoteKind, Policy, ServiceName};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// The field that says which policy holds for an address of this kind.
fn policy_field(kind: Kind) -> &'static str {
    match kind {
        Kind::ClusterIp => "internalTrafficPolicy",
        _ => "externalTrafficPolicy",
    }
}

/// Policy Local and no endpoint on this node: whose name does not fit, or who is where.
pub(crate) fn no_local(looked: &Looked<'_>, known: &Known) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(node_name(looked.world, looked.service));
    found.push(elsewhere(looked, known));
    found
}

fn elsewhere(looked: &Looked<'_>, known: &Known) -> Finding {
    let kind = known.kind;
    let (world, name) = (looked.world, looked.service);
    let node = world.node_words();
    let entries = looked.entries();
    let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
    for entry in entries
        .iter()
        .filter(|entry| entry.endpoint.conditions.is_usable())
    {
        let of = entry.endpoint.node.as_deref().unwrap_or("no node that is said");
        *nodes.entry(of.to_owned()).or_default() += 1;
    }
    let places: Vec<String> = nodes
        .iter()
        .map(|(node, number)| format!("{node} ({number})"))
        .collect();
    let is_here = |of: Option<&str>| of.is_some_and(|of| *of == *world.facts.name);
    let unready: Vec<String> = entries
        .iter()
        .filter(|entry| is_here(entry.endpoint.node.as_deref()) && !entry.endpoint.conditions.is_usable())
        .map(|entry| format!("{} ({})", entry.endpoint.ip, entry.state()))
        .collect();
    let field = policy_field(kind);
    let what = match unready.as_slice() {
        [] => format!("{field} of Service {name} is Local, and none of its endpoints is on {node}"),
        _ => format!("{field} of Service {name} is Local, and no endpoint on {node} is ready"),
    };
    let mut why = format!(
        "Traffic to its {} may go to endpoints on the same node alone, and is dropped where there is none. Endpoints are on: {}.",
        kind.words(),
        listed(&places, 5)
    );
    if !unready.is_empty() {
        why = format!("{why} Here: {}.", listed(&unready, 3));
    }
    let mut finding = Finding::fault(Cause::NoLocalEndpoints, what)
        .because(why)
        .about(of_service(name))
        .advise(Advice::change(
            of_service(name),
            format!("spec.{field}"),
            match kind {
                Kind::ClusterIp => "set it to Cluster, or run a pod of it on every node (DaemonSet)",
                _ => "set it to Cluster (endpoints then see the node's address in place of the client's)",
            },
        ));
    let names: Vec<&String> = nodes.keys().collect();
    finding = finding.advise_all(send_to(looked, known, &names));
    let service = world.snapshot.service(name);
    if let Some(port) = service.and_then(|service| service.health_check_node_port) {
        finding = finding.advise(Advice::act(format!(
            "see that the load balancer asks the health check on port {port}: nodes without endpoints fail it"
        )));
    }
    finding
}

/// The nodes that have endpoints, by the addresses at which clients outside come to them.
fn send_to(looked: &Looked<'_>, known: &Known, nodes: &[&String]) -> Option<Advice> {
    let address = |name: &&&String| {
        let node = looked.world.snapshot.node(name)?;
        let ip = node
            .addresses
            .iter()
            .find(|ip| Family::of(**ip) == looked.family)?;
        Some(match known.kind {
            Kind::NodePort => format!("{} ({name})", SocketAddr::new(*ip, known.port)),
            _ => format!("{name} ({ip})"),
        })
    };
    let addresses: Vec<String> = nodes.iter().filter_map(|name| address(&name)).collect();
    let all = listed(&addresses, 5);
    match (known.kind, addresses.as_slice()) {
        (Kind::ClusterIp, _) => None,
        _ if nodes.is_empty() => None,
        (_, []) => Some(Advice::act("send to a node that has an endpoint")),
        (Kind::NodePort, _) => Some(Advice::act(format!(
            "connect to a node that has an endpoint: {all}"
        ))),
        (_, _) => Some(Advice::act(format!(
            "have the load balancer, or whatever routes {}, send to nodes that have an endpoint: {all}",
            known.ip.map_or_else(String::new, |ip| ip.to_string())
        ))),
    }
}

/// Policy Local at a cluster IP, and not every node has an endpoint: what a client gets is its own node's doing.
pub(crate) fn differs_by_node(world: &World, target: &Target, answer: &Explanation) -> Option<Finding> {
    let known = target
        .known
        .as_ref()
        .filter(|known| known.kind == Kind::ClusterIp)?;
    let service = world.snapshot.service(&known.service)?;
    if service.internal != Policy::Local {
        return None;
    }
    let slices = world.snapshot.slices_of(&known.service).into_iter();
    let endpoints = slices.flat_map(|slice| &slice.endpoints);
    let usable = endpoints.filter(|endpoint| endpoint.conditions.is_usable());
    let nodes: BTreeSet<&str> = usable.filter_map(|endpoint| endpoint.node.as_deref()).collect();
    let first = answer.findings.first().map(|first| first.cause);
    let is_everywhere = world.snapshot.nodes().all(|node| nodes.contains(&*node.name));
    let differs = match answer.reach {
        Reach::No => first == Some(Cause::NoLocalEndpoints) && !nodes.is_empty(),
        Reach::Yes | Reach::Fails(_) => !is_everywhere,
        Reach::NotOurs | Reach::Unknown => false,
    };
    let what = "it depends on the node that the client is on, which is not known";
    let nodes: Vec<&str> = nodes.into_iter().collect();
    let why = format!(
        "internalTrafficPolicy of Service {} is Local: clients reach endpoints of their own node alone. Those are on: {}.",
        known.service,
        listed(&nodes, 5)
    );
    let finding = Finding::fault(Cause::NotKnown, what).because(why);
    let finding = finding.about(of_service(&known.service)).advise(Advice::act(
        "say which node it is: --node NAME, or give the client's Pod with its spec.nodeName",
    ));
    differs.then_some(finding)
}

/// The node's own name differs from how slices spell it, so no endpoint counts as local.
pub(crate) fn node_name(world: &World, service: &ServiceName) -> Option<Finding> {
    let own = &*world.facts.name;
    if own.is_empty() {
        return None;
    }
    let endpoints = world.snapshot.slices().flat_map(|slice| &slice.endpoints);
    let names: BTreeSet<&str> = endpoints
        .filter_map(|endpoint| endpoint.node.as_deref())
        .collect();
    if names.contains(own) {
        return None;
    }
    let is_same = |name: &&&str| {
        let first = |text: &str| text.split('.').next().unwrap_or_default().to_lowercase();
        first(name) == first(own)
    };
    let spelled = names.iter().find(is_same)?;
    let what = format!("slices call the node {spelled:?}, and kube-proxy takes itself for {own:?}");
    let finding = Finding::fault(Cause::NodeName, what)
        .because(
            "An endpoint is local when its nodeName equals the name that kube-proxy goes by: the kubelet's Node name, letter by \
             letter. So nothing is local here, and policy Local drops.",
        )
        .advise(Advice {
            object: None,
            field: Some("hostnameOverride".to_owned()),
            action: format!("set hostnameOverride (--hostname-override) of kube-proxy to {spelled}"),
        })
        .about(subject("Node", "", spelled));
    Some(finding.about(of_service(service)))
}

/// The client is in no source range of a load-balancer IP; or some client is, and others are not.
pub(crate) fn admitted(
    world: &World,
    name: &ServiceName,
    admission: &Admission,
    sender: &Sender,
    at: IpAddr,
) -> Option<Finding> {
    let client = sender.ip;
    let ranges = &admission.ranges;
    let lets_all_in = ranges.iter().any(|range| range.prefix_len() == 0);
    if admission.admits(client) {
        let is_picked = (sender.kind, sender.whose) == (SenderKind::Outside, Whose::Taken);
        return (is_picked && !lets_all_in).then(|| for_some(name, ranges, at));
    }
    if let Some((field, value)) = without_mask(world, name, client) {
        let what = format!(
            "{client} is in none of the loadBalancerSourceRanges of Service {name}: {field} is {value:?}, which is left out"
        );
        let net = IpNet::from(client);
        return Some(
            Finding::fault(Cause::SourceRange, what)
                .because(format!(
                    "A range is a network with its length. {}",
                    dropped(ranges, at)
                ))
                .about(of_service(name))
                .advise(Advice::change(
                    of_service(name),
                    "spec.loadBalancerSourceRanges",
                    format!("write {net}, or the client's network"),
                )),
        );
    }
    let is_given = sender.whose == Whose::Given;
    let who = match (sender.kind, is_given) {
        (SenderKind::Pod, false) => format!("a pod of {} (such as {client})", world.node_words()),
        (SenderKind::Outside, false) => format!("a client outside (such as {client})"),
        _ => client.to_string(),
    };
    let what = format!("{who} is in none of the loadBalancerSourceRanges of Service {name}");
    let host = IpNet::from(client);
    let add = match (sender.kind, is_given) {
        (_, true) => format!("add {host}, or the client's network"),
        (SenderKind::Pod, false) => "add the pods' network, or have pods use the cluster IP".to_owned(),
        (_, false) => "add the client's network".to_owned(),
    };
    Some(
        Finding::fault(Cause::SourceRange, what)
            .because(dropped(ranges, at))
            .about(of_service(name))
            .advise(Advice::change(
                of_service(name),
                "spec.loadBalancerSourceRanges",
                add,
            )),
    )
}

/// A range that is the client's address and no network, so that it was left out: its field and value.
fn without_mask<'a>(world: &'a World, name: &ServiceName, client: IpAddr) -> Option<(&'a str, &'a str)> {
    let subject = of_service(name);
    let notes: Vec<&Note> = world
        .notes
        .iter()
        .filter(|note| note.subject == subject)
        .collect();
    notes.into_iter().find_map(|note| match &note.kind {
        NoteKind::BadField { field, value, .. } => {
            let is_it = field.starts_with("spec.loadBalancerSourceRanges") && parse_ip(value) == Some(client);
            is_it.then_some((field.as_str(), value.as_str()))
        }
        _ => None,
    })
}

fn dropped(ranges: &[IpNet], at: IpAddr) -> String {
    format!(
        "Whoever is not in {} is dropped at {at}, pods and nodes of the cluster too. The cluster IP and node ports are not limited.",
        listed(ranges, 5)
    )
}

/// The address is for some clients alone; whether for the one that is meant, nobody said.
fn for_some(name: &ServiceName, ranges: &[IpNet], at: IpAddr) -> Finding {
    let what = format!(
        "only for clients in {} (loadBalancerSourceRanges of Service {name})",
        listed(ranges, 5)
    );
    Finding::warning(Cause::SourceRange, what)
        .because(dropped(ranges, at))
        .about(of_service(name))
        .advise(Advice::act("ask for your client: --from IP"))
        .advise(Advice::change(
            of_service(name),
            "spec.loadBalancerSourceRanges",
            "to let others in, add their network",
        ))
}

/// Policy Local limits a route that works: good to know when load is uneven.
pub(crate) fn local_words(
    looked: &Looked<'_>,
    kind: Kind,
    policy: Policy,
    used: usize,
    all: usize,
) -> Option<Finding> {
    if policy == Policy::Cluster || used == 0 || used >= all {
        return None;
    }
    let field = policy_field(kind);
    let what = format!(
        "{field}: Local keeps traffic on {} of this node, of {all} in all",
        count(used, "endpoint")
    );
    Some(Finding::remark(Cause::PolicyLocal, what).about(of_service(looked.service)))
}
