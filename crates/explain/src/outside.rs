//! A client outside of the cluster, and a Service by its name: such a client has load balancers' addresses, external IPs and
//! node ports to ask at. The cluster IP is for the inside.

use crate::asked::other_ports;
use crate::causes::{listed, of_service};
use crate::explanation::{Explanation, Reach, ask, nowhere};
use crate::finding::{Advice, Cause, Finding, Severity};
use crate::known::{Kind, Known};
use crate::objects::{Ingress, ServiceDetails};
use crate::question::{From, Port, Question, To};
use crate::screen;
use crate::target::{Aim, Target, aim, asked_family, others_than};
use crate::unserved::unserved;
use crate::world::{Rules, World};
use model::object::{Service, ServicePort};
use model::{Family, Protocol, ServiceName};
use std::net::IpAddr;

/// Other ways in that are looked at beside the first.
const MOST: usize = 6;

/// Whether the sender is a client outside of the cluster.
pub(crate) fn is_outside(world: &World, from: &From) -> bool {
    match from {
        From::Outside => true,
        From::Address(ip) => is_outsiders(world, *ip),
        From::Name(_) | From::PodAddress(_) | From::Pod | From::Node | From::NamedNode(_) => false,
    }
}

/// An address that no pod and no node has, and no pod could have. Where the pods' networks are not known, a private address
/// may be a pod's.
fn is_outsiders(world: &World, ip: IpAddr) -> bool {
    let mut endpoints = world.snapshot.slices().flat_map(|slice| &slice.endpoints);
    let is_ours = world.is_local(ip)
        || ip.is_loopback()
        || world.objects.pod_of(ip).is_some()
        || world.snapshot.nodes().any(|node| node.addresses.contains(&ip))
        || endpoints.any(|endpoint| endpoint.ip == ip);
    let networks = world.pod_networks(Family::of(ip));
    let may_be_a_pod = if networks.is_empty() {
        is_private(ip)
    } else {
        networks.iter().any(|net| net.contains(&ip))
    };
    !is_ours && !may_be_a_pod
}

/// Addresses that no router of the Internet knows: those that clusters give to pods.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        // RFC 6598's 100.64.0.0/10, too.
        IpAddr::V4(ip) => ip.is_private() || (ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64),
        IpAddr::V6(ip) => ip.is_unique_local(),
    }
}

/// What becomes of a client outside at the first address that it would use, with what is wrong at the others.
pub(crate) fn explain(
    world: &World,
    question: &Question,
    name: &ServiceName,
    port: Option<&Port>,
) -> Explanation {
    if matches!(aim(world, question), Aim::Nowhere { .. }) {
        return ask(world, question);
    }
    let Some((wanted, protocol)) = asked_port(world, question, name, port) else {
        return ask(world, question);
    };
    let of_port = |known: &Known| known.port_name == wanted && known.protocol == protocol;
    let family = asked_family(world, question);
    let ways = ways_in(world, family, name, of_port);
    let asked_for = asked_for(world, name, &wanted, protocol);
    let lost = asked_for.map_or_else(Vec::new, |(service, port)| unserved(world, service, port));
    let asked = |to: To| {
        let question = Question {
            to,
            protocol: Some(protocol),
            ..question.clone()
        };
        ask(world, &question)
    };
    let Some((first, more)) = ways.split_first() else {
        return match proxied(world, family, name) {
            Some(ip) => asked(To::Address(ip, asked_for.map(|(_, port)| port.port))),
            None => no_way_in(world, question, name, lost, &ways_in(world, None, name, of_port)),
        };
    };
    let mut answer = asked(to(first));
    answer.findings.extend(lost.into_iter().map(|finding| Finding {
        severity: Severity::Warning,
        ..finding
    }));
    if let Some(details) = world.objects.services.get(name) {
        answer.findings.extend(pending(name, details));
        answer.findings.extend(sent_on(first, details, family));
    }
    for other in more.iter().take(MOST) {
        let told = asked(to(other));
        let found = of_other_node(world, other).or_else(|| beside(&answer, other, &told));
        answer.findings.extend(found);
    }
    let not_looked_at = not_looked_at(more.get(MOST..).unwrap_or_default());
    answer.findings.extend(not_looked_at);
    if let (None, Some((service, asked))) = (port, asked_for) {
        answer.findings.extend(other_ports(&others_than(service, asked)));
    }
    answer
        .findings
        .sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    answer
}

/// The port of a Service by its name and protocol, where objects have it.
fn asked_for<'a>(
    world: &'a World,
    name: &ServiceName,
    port: &str,
    protocol: Protocol,
) -> Option<(&'a Service, &'a ServicePort)> {
    let service = world.snapshot.service(name)?;
    let mut ports = service.ports.iter();
    let port = ports.find(|one| (&*one.name, one.protocol) == (port, protocol))?;
    Some((service, port))
}

/// There is no way in for this client: since others have the addresses, since they are of another family, or since there are none.
fn no_way_in(
    world: &World,
    question: &Question,
    name: &ServiceName,
    mut why: Vec<Finding>,
    ways: &[Known],
) -> Explanation {
    why.extend(of_other_family(name, asked_family(world, question), ways));
    if why.is_empty() {
        why.push(not_exposed(world, name));
    }
    let mut answer = nowhere(world, question, Some(name.clone()), why.remove(0));
    answer.findings.extend(why);
    answer
}

fn to(known: &Known) -> To {
    match known.ip {
        Some(ip) => To::Address(ip, Some(known.port)),
        None => To::NodePort(known.port),
    }
}

/// Ways in that are too many to look at each.
fn not_looked_at(ways: &[Known]) -> Option<Finding> {
    let words: Vec<String> = ways.iter().map(Known::words).collect();
    let ways_in = match words.len() {
        1 => "way in",
        _ => "ways in",
    };
    let what = format!(
        "and {} more {ways_in}, not looked at: {} (--to IP:PORT asks at one)",
        words.len(),
        listed(&words, 4)
    );
    (!ways.is_empty()).then(|| Finding::remark(Cause::SeenFrom, what))
}

/// The Service has ways in, and none of the client's family.
fn of_other_family(name: &ServiceName, asked: Option<Family>, ways: &[Known]) -> Option<Finding> {
    let family = asked.filter(|_| !ways.is_empty())?;
    let words: Vec<String> = ways.iter().map(Known::words).collect();
    let what = format!(
        "Service {name} has no {family} address for clients outside of the cluster, only {}",
        listed(&words, 3)
    );
    Some(
        Finding::fault(Cause::NoAddressOfFamily, what)
            .because("A packet and its destination are of one family.")
            .about(of_service(name))
            .advise(Advice::change(
                of_service(name),
                "spec.ipFamilyPolicy",
                format!("in a dual-stack cluster set it to PreferDualStack, and add {family} to spec.ipFamilies; then the load balancer \
                         or spec.externalIPs can have an {family} address, and node ports are served at one"),
            )),
    )
}

/// The name and protocol of the port that is asked for; a node port's number names it as well.
fn asked_port(
    world: &World,
    question: &Question,
    name: &ServiceName,
    port: Option<&Port>,
) -> Option<(String, Protocol)> {
    let all = Family::ALL.into_iter().flat_map(|family| world.known(family));
    let mut fitting = all.filter(|known| {
        known.service == *name
            && question
                .protocol
                .is_none_or(|protocol| known.protocol == protocol)
            && match port {
                None => true,
                Some(Port::Number(number)) => known.port == *number,
                Some(Port::Name(name)) => known.port_name == *name,
            }
    });
    fitting.next().map(|known| (known.port_name, known.protocol))
}

/// The ways in for clients outside, those first that they are meant to take.
fn ways_in(
    world: &World,
    asked: Option<Family>,
    name: &ServiceName,
    of_port: impl Fn(&Known) -> bool,
) -> Vec<Known> {
    let mut all: Vec<Known> = Vec::new();
    let families = Family::ALL.into_iter();
    for family in families.filter(|family| asked.is_none_or(|asked| asked == *family)) {
        let known = world.known(family).into_iter();
        let ways =
            known.filter(|known| known.service == *name && known.kind != Kind::ClusterIp && of_port(known));
        for way in ways {
            // A node port is one thing, whatever the families.
            if !all.iter().any(|other| other.at() == way.at()) {
                all.push(way);
            }
        }
    }
    all.sort_by_key(|known| match known.kind {
        Kind::LoadBalancerIp => 0,
        Kind::ExternalIp => 1,
        Kind::NodePort => 2,
        Kind::ClusterIp => 3,
    });
    all
}

/// A way in that is the address of another Node, where clients outside come to: its rules decide.
fn of_other_node(world: &World, way: &Known) -> Option<Finding> {
    let ip = way.ip?;
    let node = world.snapshot.nodes().find(|node| node.addresses.contains(&ip))?;
    let what = format!(
        "{} is an address of Node {}, whose rules decide there: --node {}",
        way.words(),
        node.name,
        node.name
    );
    (*node.name != *world.facts.name).then(|| Finding::remark(Cause::SeenFrom, what))
}

/// What another way in has to say that the first does not.
fn beside(first: &Explanation, way: &Known, told: &Explanation) -> Option<Finding> {
    let said = told
        .findings
        .iter()
        .find(|finding| finding.severity > Severity::Remark);
    let words = way.words();
    match (told.reach, said) {
        (Reach::Yes, None) => Some(Finding::remark(
            Cause::SeenFrom,
            format!("{words} answers clients outside too"),
        )),
        (_, Some(said)) if first.findings.iter().any(|other| other.cause == said.cause) => None,
        (_, Some(said)) => Some(Finding {
            what: format!("{words}: {}", said.what),
            severity: Severity::Warning,
            ..said.clone()
        }),
        (_, None) => Some(Finding::remark(
            Cause::SeenFrom,
            format!("{words}: {}", screen::headline(told)),
        )),
    }
}

/// The address of a load balancer that sees the traffic itself (ipMode: Proxy), of the client's family, where that is the only
/// way in.
fn proxied(world: &World, asked: Option<Family>, name: &ServiceName) -> Option<IpAddr> {
    let details = world.objects.services.get(name)?;
    let sees_it = details.ingress.iter().filter(|ingress| sees_traffic(ingress));
    let mut ips = sees_it.filter_map(|ingress| ingress.ip);
    ips.find(|ip| asked.is_none_or(|asked| asked == Family::of(*ip)))
}

fn sees_traffic(ingress: &Ingress) -> bool {
    ingress.mode.as_deref().is_some_and(|mode| mode != "VIP")
}

/// The client knows the load balancer by an address of its family or a name that is not served here, and what it sends on is
/// looked at.
fn sent_on(first: &Known, details: &ServiceDetails, asked: Option<Family>) -> Option<Finding> {
    let by = |ingress: &Ingress| match ingress.ip {
        None => ingress.hostname.clone(),
        Some(ip) => {
            let is_asked = asked.is_none_or(|asked| asked == Family::of(ip));
            (is_asked && sees_traffic(ingress)).then(|| ip.to_string())
        }
    };
    let balancer = details.ingress.iter().find_map(by)?;
    let what = format!(
        "clients outside ask {balancer}, a load balancer that kube-proxy does not serve; looked at is {}, where it may send them",
        first.words()
    );
    (first.kind == Kind::NodePort).then(|| Finding::remark(Cause::SeenFrom, what))
}

/// A load balancer that has no address yet.
fn pending(name: &ServiceName, details: &ServiceDetails) -> Option<Finding> {
    if details.kind != "LoadBalancer" || !details.ingress.is_empty() {
        return None;
    }
    let what = format!(
        "Service {name} is of type LoadBalancer, and nobody gave it an address: its status lists none"
    );
    Some(
        Finding::warning(Cause::LoadBalancerPending, what)
            .because(
                "kube-proxy serves the addresses in status.loadBalancer.ingress, which the load balancer's controller writes: \
                 there is none, or it has no address left. `kubectl get service` shows <pending>.",
            )
            .about(of_service(name))
            .advise(Advice::change(
                of_service(name),
                "status.loadBalancer.ingress",
                format!(
                    "its controller writes it; its events say why it does not: kubectl describe service -n {} {}",
                    name.namespace, name.name
                ),
            )),
    )
}

/// The name by which a load balancer is known, where it has no address in the status.
fn host_name(details: &ServiceDetails) -> Option<&str> {
    details
        .ingress
        .iter()
        .find_map(|ingress| ingress.hostname.as_deref())
}

/// A load balancer that has a name alone, and no node port to send to: how it gets to the pods is its own business.
fn by_host_name(name: &ServiceName, host: &str) -> Finding {
    let what = format!(
        "clients outside reach Service {name} by its load balancer, {host}, which kube-proxy does not serve"
    );
    Finding::fault(Cause::IpModeProxy, what)
        .because("Its status lists a host name and no address, and it has no node ports: the load balancer sends to pods by itself.")
        .about(of_service(name))
        .advise(Advice::act(format!("look at the load balancer: its targets and health checks, and what DNS answers for {host}")))
}

/// Nothing of the Service is for clients outside.
fn not_exposed(world: &World, name: &ServiceName) -> Finding {
    let details = world.objects.services.get(name);
    if let Some(finding) = details.and_then(|details| pending(name, details)) {
        return Finding {
            severity: Severity::Fault,
            ..finding
        };
    }
    if let Some(host) = details.and_then(host_name) {
        return by_host_name(name, host);
    }
    let ips: Vec<String> = world.snapshot.service(name).map_or_else(Vec::new, |service| {
        let of = |family: Family| *service.cluster_ips.get(family);
        Family::ALL
            .into_iter()
            .filter_map(of)
            .map(|ip| ip.to_string())
            .collect()
    });
    let what = format!(
        "Service {name} cannot be reached from outside of the cluster: it has a cluster IP alone, no node port, external IP or load \
         balancer"
    );
    Finding::fault(Cause::NotExposed, what)
        .because(format!(
            "A cluster IP ({}) {NODES_ONLY}: --to IP:PORT --in-interface IF.",
            listed(&ips, 2)
        ))
        .about(of_service(name))
        .advise_all(expose(name))
}

/// What holds for cluster IPs; goes on after the address, and before how to ask.
const NODES_ONLY: &str = "is known on the cluster's nodes only. Where routers send it to a node on purpose, ask for the packet \
                          as it comes in";

/// A cluster IP that a client outside asks at: nobody brings its packets to a node, unless the network was told to. Rules
/// that were saved, and an interface that was named, are asked about packets that do come.
pub(crate) fn not_routed(world: &World, question: &Question, target: &Target) -> Option<Finding> {
    let known = target.known.as_ref()?;
    let comes_in = question.in_interface.is_some() || world.rules == Rules::Observed;
    if known.kind != Kind::ClusterIp || comes_in || !is_outside(world, &question.from) {
        return None;
    }
    let name = &known.service;
    let what = format!(
        "{} is the cluster IP of Service {name}: it is not routed outside of the cluster",
        target.at.ip()
    );
    let of_port = |way: &Known| (&way.port_name, way.protocol) == (&known.port_name, known.protocol);
    let ways: Vec<String> = ways_in(world, asked_family(world, question), name, of_port)
        .iter()
        .map(Known::words)
        .collect();
    let advice = if ways.is_empty() {
        expose(name).to_vec()
    } else {
        vec![Advice::act(format!("clients outside use {}", listed(&ways, 4)))]
    };
    let finding = Finding::fault(Cause::NotExposed, what)
        .because(format!("A cluster IP {NODES_ONLY}: --in-interface IF."))
        .about(of_service(name));
    Some(finding.advise_all(advice))
}

/// How a Service is made to be reached from outside.
fn expose(name: &ServiceName) -> [Advice; 2] {
    [
        Advice::change(
            of_service(name),
            "spec.type",
            "set it to NodePort, or to LoadBalancer where something gives out load balancers",
        ),
        Advice::change(
            of_service(name),
            "spec.externalIPs",
            "or list addresses here that are routed to a node",
        ),
    ]
}
