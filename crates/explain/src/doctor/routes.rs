//! Routes: whether Services can be asked for at all, and whether their range is somebody else's.

use super::Patient;
use super::pods::names;
use crate::causes::subject;
use crate::facts::{InterfaceFacts, RouteFacts, RouteKind};
use crate::finding::{Advice, Cause, Finding, Severity};
use crate::known::Kind;
use ipnet::IpNet;
use model::Family;
use std::net::IpAddr;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    for family in Family::ALL {
        let ranges = service_ranges(patient, family);
        found.extend(overlap(patient, &ranges));
        if found.is_empty() {
            found.extend(routed_elsewhere(patient, &ranges));
        }
        found.extend(no_route(patient, family, &ranges));
        found.extend(endpoints_nowhere(patient, family));
    }
    found.extend(router_advertisements(patient));
    found
}

/// The ranges that cluster IPs are taken of, as far as objects say.
fn service_ranges(patient: &Patient, family: Family) -> Vec<IpNet> {
    let cidrs = patient
        .world
        .snapshot
        .service_cidrs()
        .flat_map(|cidr| &cidr.cidrs);
    let of_family = cidrs.filter(|net| Family::of(net.addr()) == family);
    let mut all: Vec<IpNet> = of_family.copied().collect();
    all.sort();
    all.dedup();
    all
}

fn cluster_ips(patient: &Patient, family: Family) -> Vec<IpAddr> {
    let known = patient.known(family).iter();
    let of_kind = known.filter(|known| known.kind == Kind::ClusterIp);
    of_kind.filter_map(|known| known.ip).collect()
}

/// Addresses on a link of this host that are Services' as well.
fn overlap(patient: &Patient, ranges: &[IpNet]) -> Option<Finding> {
    let facts = &patient.world.host_facts;
    let nets = facts.interfaces.iter().flat_map(|interface| {
        let networks = interface
            .addresses
            .iter()
            .filter(|net| net.prefix_len() < net.max_prefix_len());
        networks.map(move |net| (interface, *net))
    });
    let mut both = nets.flat_map(|(interface, net)| ranges.iter().map(move |range| (interface, net, *range)));
    let (interface, own, range) = both.find(|(_, net, range)| overlaps(&net.trunc(), range))?;
    let net = own.trunc();
    let name = &interface.name;
    let pods = patient.pod_network(Family::of(net.addr()));
    let is_pods = pods.is_some_and(|pods| overlaps(&pods, &net)) || is_bridge(interface);
    let clash = {
        let service = patient
            .known(Family::of(net.addr()))
            .iter()
            .find(|known| known.ip == Some(own.addr()));
        service.map_or_else(String::new, |known| {
            format!(
                " {} is both an address of this host and the cluster IP of Service {}, which is why that one works, and no proof that \
                 Services do.",
                own.addr(),
                known.service
            )
        })
    };
    let told = pods
        .filter(|pods| overlaps(pods, &range))
        .map_or_else(String::new, |pods| {
            format!(" kube-proxy is told that pods are in {pods}, too.")
        });
    let (what, why) = if is_pods {
        (
            format!("service range overlaps pod network: ServiceCIDR {range} and {net} on {name}"),
            "For a pod these addresses are on its own link: it asks for them there, nobody answers, and no rule of this host sees the \
             packet. The rules are right, and processes of the host reach Services.",
        )
    } else {
        (
            format!("service range overlaps the network of {name}: ServiceCIDR {range} and {net}"),
            "Machines there with an address that a Service gets cannot be reached from this cluster any more; others' packets for a \
             Service may be answered by such a machine.",
        )
    };
    Some(
        Finding::fault(Cause::RangeOverlap, what)
            .because(format!("{why}{clash}{told}"))
            .about(subject("ServiceCIDR", "", &cidr_name(patient, range)))
            .advise(Advice::act(format!(
                "give pods and Services networks that do not overlap: another network than {net} in the network plugin's configuration, or \
                 another --service-cluster-ip-range at the API server"
            ))),
    )
}

fn cidr_name(patient: &Patient, range: IpNet) -> String {
    let mut all = patient.world.snapshot.service_cidrs();
    let found = all.find(|cidr| cidr.cidrs.contains(&range));
    found.map_or_else(|| range.to_string(), |cidr| cidr.name.to_string())
}

fn overlaps(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

fn is_bridge(interface: &InterfaceFacts) -> bool {
    interface.kind.as_deref() == Some("bridge")
}

/// A part of the range, and less than all of it, is routed to others.
fn routed_elsewhere(patient: &Patient, ranges: &[IpNet]) -> Option<Finding> {
    let routes = patient.world.host_facts.routes.iter().flatten();
    let mut inside = routes.filter(|of| {
        let to = of.route.to;
        let is_part = |range: &IpNet| range.contains(&to) && to != *range;
        let is_whole_net = to.prefix_len() < to.max_prefix_len();
        of.is_main() && is_whole_net && ranges.iter().any(is_part)
    });
    let of = inside.next()?;
    let (to, interface) = (of.route.to, &of.route.interface);
    let leads = match (of.kind, of.route.via) {
        (RouteKind::Nowhere | RouteKind::Throw | RouteKind::Own, _) => "nowhere".to_owned(),
        (_, Some(via)) => format!("to {via} on {interface}"),
        (_, None) => format!("to {interface}"),
    };
    let range = ranges.iter().find(|range| range.contains(&to))?;
    let what = format!("a part of the service range is routed elsewhere: {to}, of {range}, {leads}");
    Some(
        Finding::warning(Cause::RangeOverlap, what)
            .because(
                "Somebody else uses these addresses. Once a Service has one of them, the cluster reaches the Service and no longer what is \
                 behind that route.",
            )
            .advise(Advice::act(format!(
                "find out whose {to} is (ip route get), and take the route or the range away; until then, keep Services out of it"
            ))),
    )
}

/// The range that kubeadm gives unless it is told otherwise.
const USUAL_RANGE: &str = "10.96.0.0/12";

/// Nothing leads to cluster IPs: processes of this host cannot ask for them.
fn no_route(patient: &Patient, family: Family, ranges: &[IpNet]) -> Option<Finding> {
    let facts = &patient.world.host_facts;
    let routes = facts.routes.as_ref()?;
    // Rules of policy routing may lead packets to tables that nobody wrote down.
    let is_led = |ip: IpAddr| {
        let leads = |of: &RouteFacts| of.kind == RouteKind::Unicast && of.route.to.contains(&ip);
        let other_tables = routes.iter().any(|of| !of.is_main() && leads(of));
        facts.route_to(ip).is_some()
            || facts.connected(ip).is_some()
            || other_tables
            || patient.world.is_local(ip)
    };
    let usual: IpNet = USUAL_RANGE.parse().ok()?;
    let mut ips: Vec<IpAddr> = cluster_ips(patient, family);
    let is_guess = ips.is_empty() && ranges.is_empty();
    if ips.is_empty() {
        ips.extend(ranges.iter().map(|range| first_address(*range)));
    }
    if is_guess && family == Family::V4 {
        ips.push(first_address(usual));
    }
    // The range, as one would write it into a route.
    let lost: Vec<IpAddr> = ips.iter().copied().filter(|ip| !is_led(*ip)).collect();
    let first = *lost.first()?;
    let range = ranges.iter().find(|range| range.contains(&first)).copied();
    let (range, severity) = match range {
        Some(range) => (range.to_string(), Severity::Fault),
        None if is_guess || usual.contains(&first) => (
            USUAL_RANGE.to_owned(),
            if is_guess {
                Severity::Warning
            } else {
                Severity::Fault
            },
        ),
        None => (
            names(lost.iter().map(ToString::to_string).collect(), 3),
            Severity::Fault,
        ),
    };
    let assumed = if is_guess {
        format!(" (No object says what the range is; {USUAL_RANGE} is the usual one.)")
    } else {
        String::new()
    };
    let tool = match family {
        Family::V4 => "ip route",
        Family::V6 => "ip -6 route",
    };
    let dev = facts
        .primary_address(family)
        .and_then(|ip| facts.connected(ip))
        .map_or("IF", |(of, _)| &of.name);
    Some(
        Finding::new(Cause::NoRoute, severity, format!("no route to service range {range}: there is no default route"))
            .because(format!(
                "A process of the host (kubelet, network plugin, pods with hostNetwork) needs a route before any rule sees its packet: it \
                 gets \"Network is unreachable\". The rules are right, and pods are not concerned.{assumed}"
            ))
            .advise(Advice::act(format!(
                "add a default route, or one for the range: {tool} add {range} dev {dev}"
            ))),
    )
}

/// Endpoints whose best route drops or refuses packets. A network plugin keeps such a route for its own block of addresses,
/// and better ones for the pods that are there.
fn endpoints_nowhere(patient: &Patient, family: Family) -> Option<Finding> {
    let facts = &patient.world.host_facts;
    let routes = || facts.routes.iter().flatten().filter(|of| of.is_main());
    let best = |ip: IpAddr| {
        let leads = routes().filter(|of| of.route.to.contains(&ip));
        leads.max_by_key(|of| of.route.to.prefix_len())
    };
    let endpoints = patient.endpoints(family);
    let lost: Vec<(IpAddr, IpNet)> = endpoints
        .iter()
        .filter_map(|ip| Some((*ip, best(*ip)?)))
        .filter(|(_, of)| of.kind == RouteKind::Nowhere)
        .map(|(ip, of)| (ip, of.route.to))
        .collect();
    // This node's own block has its pods' routes in it, and a pod that has just gone is in the rules for a moment.
    let is_own = |block: IpNet| routes().any(|of| of.route.to != block && block.contains(&of.route.to));
    let (_, block) = *lost.iter().find(|(_, block)| !is_own(*block))?;
    let addresses = lost.iter().filter(|(_, of)| *of == block);
    let addresses = names(addresses.map(|(ip, _)| ip.to_string()).collect(), 3);
    let tool = match family {
        Family::V4 => "ip route",
        Family::V6 => "ip -6 route",
    };
    Some(
        Finding::fault(
            Cause::NoRoute,
            format!("no route to endpoints {addresses}: {block} is a route that drops or refuses"),
        )
        .because(
            "kube-proxy's rules send to them, and then the host has no way: connections to their Services time out, or end with \"No route \
             to host\", one for each time that such an endpoint is chosen.",
        )
        .advise(Advice::act(format!(
            "see who made it and why ({tool} show {block}): a network plugin of an earlier installation, or one that lost the other node"
        ))),
    )
}

fn first_address(net: IpNet) -> IpAddr {
    match net.network() {
        IpAddr::V4(ip) => IpAddr::from(u32::from(ip).saturating_add(1).to_be_bytes()),
        IpAddr::V6(ip) => IpAddr::from(u128::from(ip).saturating_add(1).to_be_bytes()),
    }
}

/// A host that forwards IPv6 does not listen to routers, so the default route that one told it of runs out.
fn router_advertisements(patient: &Patient) -> Option<Finding> {
    let facts = &patient.world.host_facts;
    let routes = facts.routes.iter().flatten();
    let mut learnt = routes.filter(|of| {
        of.route.to.prefix_len() == 0 && of.route.to.addr().is_ipv6() && of.made_by.as_deref() == Some("ra")
    });
    let interface = &learnt.next()?.route.interface;
    let accept = facts.sysctl_number(&format!("net.ipv6.conf.{interface}.accept_ra"))?;
    let forwards = facts.sysctl_number("net.ipv6.conf.all.forwarding")? != 0;
    (forwards && accept == 1).then(|| {
        let what = format!("the IPv6 default route of {interface} will run out: the host forwards, and accept_ra is 1");
        Finding::warning(Cause::RouterAdvertisements, what)
            .because("The kernel ignores routers' advertisements where it forwards, unless accept_ra is 2. After their lifetime the route is gone.")
            .advise(Advice::act(format!(
                "sysctl -w net.ipv6.conf.{interface}.accept_ra=2, and write it into /etc/sysctl.d"
            )))
    })
}
