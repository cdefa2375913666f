//! A restart with unchanged state deletes nothing: the flows that the present rules make are kept.
//!
//! The flows are made by the oracle, which says where the rules send a packet, and not by the code under test. Only
//! what is confirmed has an entry: a packet that is dropped or rejected leaves none.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use conntrack::{Expectation, Flow, ServiceFlows, TcpOption, decide};
use model::object::{Kind, Service, decode};
use model::oracle::outcome;
use model::resolve::Context;
use model::snapshot::{Change, Snapshot};
use model::{
    Desired, Family, FrontendKind, NodeFacts, NodePortTargets, Origin, Outcome, Packet, PerFamily, Protocol,
};
use proptest::prelude::*;
use scenario::GoldenCase;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

fn destinations(desired: &Desired, facts: &NodeFacts) -> Vec<(SocketAddr, Protocol)> {
    let family = desired.node.family;
    let local = facts.interface_addresses.iter().copied();
    let local: Vec<IpAddr> = local.filter(|ip| Family::of(*ip) == family).collect();
    let mut all = Vec::new();
    for port in desired.services.values().flat_map(|service| &service.ports) {
        let protocol = port.name.protocol;
        for frontend in &port.frontends {
            match frontend.kind {
                FrontendKind::ClusterIp(ip)
                | FrontendKind::ExternalIp(ip)
                | FrontendKind::LoadBalancerIp(ip) => {
                    all.push((SocketAddr::new(ip, frontend.port), protocol));
                    all.push((SocketAddr::new(ip, frontend.port.wrapping_add(1)), protocol));
                }
                FrontendKind::NodePort => {
                    all.extend(
                        local
                            .iter()
                            .map(|ip| (SocketAddr::new(*ip, frontend.port), protocol)),
                    );
                    if let NodePortTargets::Only(ips) = &desired.node.node_ports {
                        all.extend(
                            ips.iter()
                                .map(|ip| (SocketAddr::new(*ip, frontend.port), protocol)),
                        );
                    }
                }
            }
        }
        all.extend(port.reachable.iter().map(|endpoint| (*endpoint, protocol)));
    }
    all
}

fn sources(family: Family, facts: &NodeFacts, desired: &Desired) -> Vec<(IpAddr, Origin)> {
    let outside = Origin::Interface("eth0".into());
    let pod = Origin::Interface("cni0".into());
    let mut all: Vec<(IpAddr, Origin)> = match family {
        Family::V4 => vec![
            ("203.0.113.77".parse().unwrap(), outside),
            ("10.244.1.99".parse().unwrap(), pod.clone()),
        ],
        Family::V6 => vec![
            ("2001:db8:77::7".parse().unwrap(), outside),
            ("fd00:10:244:1::99".parse().unwrap(), pod.clone()),
        ],
    };
    let own = facts.interface_addresses.iter().copied();
    all.extend(
        own.filter(|ip| Family::of(*ip) == family)
            .map(|ip| (ip, Origin::Host)),
    );
    let ports = desired.services.values().flat_map(|service| &service.ports);
    let endpoint = ports.flat_map(|port| &port.reachable).next();
    all.extend(endpoint.map(|endpoint| (endpoint.ip(), pod)));
    all
}

/// The entries that a packet can make.
fn entries(desired: &Desired, facts: &NodeFacts, packet: &Packet) -> Vec<Flow> {
    let flow = |answerer| Flow {
        protocol: packet.protocol,
        client: SocketAddr::new(packet.src, packet.src_port),
        destination: packet.dst,
        answerer,
    };
    match outcome(desired, facts, packet) {
        Outcome::Delivered(deliveries) => deliveries.iter().map(|each| flow(each.endpoint)).collect(),
        Outcome::Untouched | Outcome::Accepted => vec![flow(packet.dst)],
        Outcome::Rejected | Outcome::Dropped => Vec::new(),
    }
}

/// All entries that the rules of a case can make.
fn all_entries(case: &GoldenCase, family: Family) -> Vec<Flow> {
    let desired = case.desired.get(family);
    let sources = sources(family, &case.facts, desired);
    let mut all = Vec::new();
    for (destination, protocol) in destinations(desired, &case.facts) {
        for (source, origin) in &sources {
            let packet = Packet::new(*source, destination, protocol, origin.clone());
            all.extend(entries(desired, &case.facts, &packet));
        }
    }
    all
}

/// The entries that would be deleted, as text, and how many there are in all.
fn deleted(case: &GoldenCase, snapshot: &Snapshot, tcp: TcpOption) -> (Vec<String>, usize) {
    let mut deleted = Vec::new();
    let mut count = 0;
    for family in Family::ALL {
        let expectation = Expectation::from_snapshot(snapshot, family, &case.facts, &case.settings, tcp);
        for flow in all_entries(case, family) {
            count += 1;
            let verdict = decide(&expectation, &flow);
            if verdict.is_delete() {
                deleted.push(format!("{}: {flow}: {verdict}", case.name));
            }
        }
    }
    (deleted, count)
}

/// Makes a case's TCP services UDP ones, so that as many as possible have a say.
fn as_udp(case: &GoldenCase) -> GoldenCase {
    let text = case.cluster.to_string().replace("\"TCP\"", "\"UDP\"");
    let cluster: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut world = support::World::default();
    for object in decode(cluster).objects {
        world.snapshot.apply(Change::Apply(object));
    }
    let mut udp = case.clone();
    udp.desired = PerFamily::from_fn(|family| {
        Desired::from_snapshot(&world.snapshot, family, &case.facts, &case.settings).0
    });
    udp.snapshot = world.snapshot;
    udp
}

#[test]
fn flows_that_the_state_itself_makes_are_kept() {
    let mut checked = 0;
    for case in scenario::golden_cases() {
        let udp = as_udp(&case);
        let ways = [
            (&case, TcpOption::Never),
            (&case, TcpOption::CutGone),
            (&udp, TcpOption::Never),
        ];
        for (case, tcp) in ways {
            let (deleted, count) = deleted(case, &case.snapshot, tcp);
            assert_eq!(deleted, [""; 0]);
            checked += count;
        }
    }
    assert!(checked > 1000, "only {checked} flows");
}

/// The check above can fail.
#[test]
fn the_same_flows_are_stale_in_a_cluster_without_slices() {
    let mut stale = 0;
    for case in scenario::golden_cases() {
        let case = as_udp(&case);
        let mut bare = case.snapshot.clone();
        bare.apply(Change::ReplaceAll {
            kind: Kind::Slice,
            objects: Vec::new(),
        });
        stale += deleted(&case, &bare, TcpOption::Never).0.len();
    }
    assert!(stale > 100, "only {stale} flows");
}

/// A small case with what its rules make, and each family's.
struct Made {
    case: GoldenCase,
    flows: PerFamily<Vec<Flow>>,
}

/// Golden cases are read once for all runs of the property; the large ones would make it slow and show no more.
fn small_cases() -> &'static [Made] {
    static CASES: OnceLock<Vec<Made>> = OnceLock::new();
    CASES.get_or_init(|| {
        let small = scenario::golden_cases()
            .into_iter()
            .filter(|case| case.snapshot.slices().count() < 20);
        let made = small.map(|case| as_udp(&case)).map(|case| Made {
            flows: PerFamily::from_fn(|family| all_entries(&case, family)),
            case,
        });
        made.collect()
    })
}

proptest! {
    /// Whatever happened before: once a cluster is as it is, what its rules make is kept, though much is remembered.
    #[test]
    fn what_went_before_does_not_make_present_flows_stale(
        history in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..60),
        case in any::<prop::sample::Index>(),
        family in prop::sample::select(&Family::ALL[..]),
    ) {
        let made = case.get(small_cases());
        let case = &made.case;
        let services: Vec<_> = case.snapshot.services().collect();
        let tcp = TcpOption::Never;
        let mut expectation =
            Expectation::from_snapshot(&case.snapshot, family, &case.facts, &case.settings, tcp);
        let context = Context {
            family,
            node: &case.facts,
            settings: &case.settings,
            claims: case.snapshot.claims(),
        };
        let flows_of = |service: &Service| {
            ServiceFlows::of(service, &case.snapshot.slices_of(&service.name), &context, tcp)
        };
        for (number, is_there) in &history {
            let service = number.get(&services);
            let flows = if *is_there { flows_of(service) } else { ServiceFlows::default() };
            expectation.update(&service.name, flows);
        }
        for service in &services {
            expectation.update(&service.name, flows_of(service));
        }
        for flow in made.flows.get(family) {
            let verdict = decide(&expectation, flow);
            prop_assert!(!verdict.is_delete(), "{}: {flow}: {verdict}", case.name);
        }
    }
}
