//! What is healthy is not complained about: the Services of golden clusters, asked for from pods.

use explain::{From, HostFacts, Parts, Question, Reach, To, assemble, explain};
use ipnet::IpNet;
use model::object::{Slice, SliceEndpoint};
use model::{DesiredPort, Family, LocalDetector, ServiceName};
use scenario::GoldenCase;
use std::net::IpAddr;

/// So many Services of a cluster are asked for: the large one has many of a kind.
const SERVICES: usize = 12;

fn parts(case: &GoldenCase) -> Parts {
    let interfaces = case
        .interfaces
        .iter()
        .map(|(name, address)| serde_json::json!({"name": name, "addresses": [address.to_string()]}));
    let addresses: Vec<String> = case.addresses.iter().map(ToString::to_string).collect();
    let facts = serde_json::json!({
        "hostname": "node-a",
        "addresses": addresses,
        "interfaces": interfaces.collect::<Vec<_>>(),
    });
    Parts {
        documents: vec![case.cluster.clone()],
        config: Some(case.config.clone()),
        node: Some("node-a".to_owned()),
        facts: HostFacts::read(&facts).expect("good facts"),
        ..Parts::default()
    }
}

/// Every endpoint is as it should be, and there is one of the family.
fn is_healthy(slices: &[&Slice], family: Family) -> bool {
    let good = |endpoint: &SliceEndpoint| {
        let conditions = endpoint.conditions;
        conditions.ready && conditions.serving && !conditions.terminating
    };
    let of_family = |slice: &&&Slice| slice.family == Some(family) && slice.skipped.is_none();
    let mut endpoints = slices
        .iter()
        .filter(of_family)
        .flat_map(|slice| &slice.endpoints)
        .peekable();
    endpoints.peek().is_some() && endpoints.all(good)
}

/// A pod of the node, as far as the cluster's proxies can tell.
fn pod_of(case: &GoldenCase) -> IpAddr {
    match &case.desired.v4.node.detector {
        Some(LocalDetector::Cidr(IpNet::V4(net))) => net.hosts().nth(98).expect("a network of pods").into(),
        _ => [10, 244, 1, 99].into(),
    }
}

fn question(case: &GoldenCase, name: &ServiceName, port: &DesiredPort) -> Question {
    Question {
        from: From::PodAddress(pod_of(case)),
        to: format!("{name}:{}", port.frontends[0].port)
            .parse::<To>()
            .expect("a Service and a port"),
        protocol: Some(port.name.protocol),
        in_interface: None,
    }
}

/// What is to be run next lists the rules of the mode that the proxy runs in.
#[test]
fn the_next_command_lists_the_rules_of_the_mode() {
    let case = scenario::golden_cases().into_iter().next().expect("some");
    let mut services = case.desired.v4.services.iter();
    let (name, port) = services
        .find_map(|(name, service)| Some((name, service.ports.iter().find(|port| !port.cluster.is_empty())?)))
        .expect("a Service with endpoints");
    for (mode, list) in [
        ("iptables", "iptables-save |"),
        ("nftables", "nft list ruleset |"),
    ] {
        let mut parts = parts(&case);
        parts.config.as_mut().expect("it is given").mode = mode.to_owned();
        let question = question(&case, name, port);
        let answer = explain(&assemble(parts, &question).expect("good parts"), &question);
        let next = answer.next.join("\n");
        assert!(next.contains(list), "{mode}: {next}");
    }
}

#[test]
fn healthy_services_of_golden_clusters_give_no_finding() {
    let mut asked = 0;
    for case in scenario::golden_cases() {
        for (name, desired) in case.desired.v4.services.iter().take(SERVICES) {
            let slices = case.snapshot.slices_of(name);
            let service = case.snapshot.service(name).expect("it is desired");
            let is_everywhere = service.internal == model::Policy::Cluster;
            if !is_healthy(&slices, Family::V4) || !is_everywhere {
                continue;
            }
            for port in desired.ports.iter().filter(|port| !port.cluster.is_empty()) {
                let question = question(&case, name, port);
                let world = assemble(parts(&case), &question).expect("good parts");
                let answer = explain(&world, &question);
                let told: Vec<&str> = answer
                    .findings
                    .iter()
                    .map(|finding| finding.what.as_str())
                    .collect();
                assert_eq!(answer.reach, Reach::Yes, "{} {}: {told:?}", case.name, port.name);
                assert!(!answer.has_findings(), "{} {}: {told:?}", case.name, port.name);
                let mut endpoints: Vec<_> = answer.deliveries.iter().map(|to| to.endpoint).collect();
                endpoints.sort();
                let mut wanted = port.cluster.clone();
                wanted.sort();
                assert_eq!(endpoints, wanted, "{} {}", case.name, port.name);
                asked += 1;
            }
        }
    }
    assert!(asked >= 10, "only {asked} healthy Services were found");
}
