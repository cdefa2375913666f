//! Labs of other shapes than the seed's: two families, host-network pods, odd addresses, more interfaces.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use lab::cluster::{self, Endpoint, Shape, ShapeNode};
use lab::{
    Interface, Lab, Node, Outside, Pod, PodNetwork, Port, Probe, ProbeOutcome, Refusal, Sink, Topology, live,
};

fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn up(topology: &Topology) -> Lab {
    Lab::up(topology).unwrap_or_else(|error| panic!("{}", error.chain()))
}

#[track_caller]
fn assert_answered(outcome: &ProbeOutcome, name: &str, client: &str) {
    assert_eq!(
        (outcome.answered_by(), outcome.seen_client()),
        (Some(name), Some(ip(client))),
        "{outcome:?}"
    );
}

fn node(name: &str, addresses: &[&str], pod_cidrs: &[&str]) -> Node {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Node {
        name: name.to_owned(),
        addresses: nets(addresses),
        pod_cidrs: nets(pod_cidrs),
        interfaces: vec![],
    }
}

fn pod(name: &str, node: &str, addresses: &[&str]) -> Pod {
    Pod {
        name: name.to_owned(),
        node: node.to_owned(),
        addresses: addresses.iter().copied().map(ip).collect(),
        network: PodNetwork::Own,
        ports: vec![Port::tcp(80), Port::udp(80)],
        answers_as: None,
    }
}

/// Nodes in different networks, both families, pods inside and outside of their node's pod network.
fn dual_stack(prefix: &str) -> Topology {
    let mut topology = Topology::new(prefix);
    topology.nodes = vec![
        node(
            "a",
            &["172.20.1.1/24", "2001:db8:1::1/64"],
            &["10.10.1.0/24", "fd00:10:1::/64"],
        ),
        node(
            "b",
            &["172.20.2.1/24", "2001:db8:2::1/64"],
            &["10.10.2.0/24", "fd00:10:2::/64"],
        ),
    ];
    topology.pods = vec![
        pod("first", "a", &["10.10.1.1", "fd00:10:1::1"]),
        pod("second", "a", &["10.10.1.9", "fd00:10:1::9"]),
        pod("third", "b", &["10.10.2.9", "fd00:10:2::9"]),
        pod("stranger", "b", &["10.99.0.9", "fd00:99::9"]),
    ];
    topology.outside = vec![Outside {
        name: "client".to_owned(),
        addresses: vec![
            "203.0.113.9/24".parse().unwrap(),
            "2001:db8:cafe::9/64".parse().unwrap(),
        ],
        routes: vec![],
        ports: vec![Port::tcp(443)],
    }];
    topology.sink = Some(Sink::default());
    topology
}

#[test]
fn both_families_reach_every_pod_with_its_own_source_address() {
    if !live::available(&[]) {
        return;
    }
    let lab = up(&dual_stack(&live::prefix("dual")));
    let pods = lab.topology().pods.clone();
    for from in &pods {
        for to in &pods {
            for (source, destination) in from.addresses.iter().zip(&to.addresses) {
                let dst = SocketAddr::new(*destination, 80);
                for probe in [Probe::tcp(dst), Probe::udp(dst)] {
                    let outcome = lab.probe(&from.name, probe).unwrap();
                    assert_answered(&outcome, &to.name, &source.to_string());
                }
            }
        }
    }
}

#[test]
fn refusals_and_the_sink_work_over_ipv6() {
    if !live::available(&["ip6tables"]) {
        return;
    }
    let lab = up(&dual_stack(&live::prefix("six")));
    let reject = |port: &str, with: &str| {
        let rule = format!("ip6tables -A INPUT -p tcp --dport {port} -j REJECT --reject-with {with}");
        lab.must_exec("a", &rule.split(' ').collect::<Vec<_>>()).unwrap();
    };
    reject("1001", "icmp6-port-unreachable");
    reject("1002", "icmp6-adm-prohibited");
    let at = |port| SocketAddr::new(ip("2001:db8:1::1"), port);
    for (probe, expected) in [
        (Probe::tcp(at(1000)), Refusal::Reset),
        (Probe::udp(at(1000)), Refusal::PortUnreachable),
        (Probe::tcp(at(1001)), Refusal::PortUnreachable),
        (Probe::tcp(at(1002)), Refusal::Prohibited),
    ] {
        assert_eq!(
            lab.probe("client", probe).unwrap(),
            ProbeOutcome::Refused(expected),
            "{probe:?}"
        );
    }
    for probe in [
        Probe::tcp(socket("[fd00:5e::1]:80")),
        Probe::udp(socket("[fd00:5e::1]:80")),
    ] {
        let outcome = lab.probe("third", probe).unwrap();
        assert_answered(&outcome, "sink", "fd00:10:2::9");
    }
}

#[test]
fn an_outside_server_sees_the_pods_address() {
    if !live::available(&[]) {
        return;
    }
    let lab = up(&dual_stack(&live::prefix("egress")));
    // It has no route back to pods, so its answer would go to the sink: the node must masquerade, as real ones do.
    let probe = Probe::tcp(socket("203.0.113.9:443"));
    assert_eq!(
        lab.probe("third", probe.within(Duration::from_millis(300)))
            .unwrap(),
        ProbeOutcome::Timeout
    );
    assert_answered(&lab.probe("b", probe).unwrap(), "client", "172.20.2.1");
}

#[test]
fn a_source_that_nobody_routes_to_is_seen_by_the_sink_and_gets_no_answer() {
    if !live::available(&[]) {
        return;
    }
    let lab = up(&dual_stack(&live::prefix("spoof")));
    lab.must_exec("client", &["ip", "addr", "add", "10.123.0.1/32", "dev", "lo"])
        .unwrap();
    let probe = Probe::udp(socket("198.51.100.7:9")).within(Duration::from_millis(300));
    assert_answered(&lab.probe("client", probe).unwrap(), "sink", "203.0.113.9");
    assert_eq!(
        lab.probe("client", probe.from(ip("10.123.0.1"))).unwrap(),
        ProbeOutcome::Timeout
    );
    let sources: Vec<IpAddr> = lab.take_seen().iter().map(|packet| packet.src.ip()).collect();
    assert_eq!(sources, [ip("203.0.113.9"), ip("10.123.0.1")]);
    let foreign = lab.probe("client", probe.from(ip("10.123.0.2"))).unwrap();
    assert!(matches!(foreign, ProbeOutcome::Failed(_)), "{foreign:?}");
}

#[test]
fn a_host_network_pod_and_another_interface_are_reached_at_the_nodes_addresses() {
    if !live::available(&[]) {
        return;
    }
    let mut topology = dual_stack(&live::prefix("host"));
    let addresses = vec!["172.21.0.1/24".parse().unwrap()];
    topology.nodes[0].interfaces = vec![Interface {
        name: "eth1".to_owned(),
        addresses,
    }];
    let mut host = pod("host", "a", &["172.20.1.1", "172.21.0.1"]);
    host.network = PodNetwork::Host;
    topology.pods.push(host);
    let lab = up(&topology);
    for address in ["172.20.1.1:80", "172.21.0.1:80"] {
        let outcome = lab.probe("client", Probe::tcp(socket(address))).unwrap();
        assert_answered(&outcome, "host", "203.0.113.9");
    }
    assert_eq!(lab.namespace("host").unwrap(), lab.namespace("a").unwrap());
    let links = lab.must_exec("host", &["ip", "-br", "link"]).unwrap();
    assert!(links.contains("eth1") && links.contains("cni0"), "{links}");
}

#[test]
fn a_lab_of_a_cluster_serves_each_endpoint_wherever_it_is() {
    if !live::available(&[]) {
        return;
    }
    let endpoint = |address: &str, node: Option<&str>| Endpoint {
        name: "web".to_owned(),
        address: ip(address),
        ports: vec![Port::tcp(80), Port::udp(53)],
        node: node.map(str::to_owned),
    };
    let nodes = vec![ShapeNode {
        name: "alpha".to_owned(),
        addresses: vec![],
        pod_cidrs: vec![],
    }];
    let endpoints = vec![
        endpoint("10.180.0.1", Some("alpha")),
        endpoint("10.180.0.2", Some("beta")),
        endpoint("fd00:180::1", None),
        endpoint("192.168.50.200", Some("alpha")),
    ];
    let shape = Shape {
        nodes,
        endpoints,
        ..Shape::default()
    };
    let lab = up(&cluster::topology(&live::prefix("shape"), &shape));
    for endpoint in &shape.endpoints {
        for probe in [
            Probe::tcp(SocketAddr::new(endpoint.address, 80)),
            Probe::udp(SocketAddr::new(endpoint.address, 53)),
        ] {
            let outcome = lab.probe("alpha", probe).unwrap();
            let name = format!("web-{}", endpoint.address.to_string().replace(['.', ':'], "-"));
            assert_eq!(
                outcome.answered_by(),
                Some(name.as_str()),
                "{probe:?} {outcome:?}"
            );
        }
    }
}

/// One of many pods on node `a`.
fn many(number: u32) -> Pod {
    let address = std::net::Ipv4Addr::from_bits(0x0a50_0000 + number).to_string();
    pod(&format!("many-{number}"), "a", &[&address])
}

#[test]
fn what_cannot_be_built_is_refused_before_anything_is_made() {
    let broken = |change: fn(&mut Topology)| {
        let mut topology = dual_stack("broken");
        change(&mut topology);
        topology
            .validate()
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    for (change, reason) in [
        (
            (|t| t.prefix = "a-b".to_owned()) as fn(&mut Topology),
            "no prefix",
        ),
        (|t| t.pods[0].node = "c".to_owned(), "unknown node"),
        (|t| t.pods[0].name = "a".to_owned(), "two places"),
        (
            |t| t.pods[0].addresses = vec![ip("10.10.1.9")],
            "two places have the address",
        ),
        (|t| t.pods[0].name = "../x".to_owned(), "no name"),
        (|t| t.pods[0].answers_as = Some("a b".to_owned()), "blanks"),
        (|t| t.nodes[0].pod_cidrs.truncate(1), "no pod network"),
        (|t| t.nodes[0].addresses.clear(), "no address"),
        (|t| t.pods.extend((0..1024_u32).map(many)), "1023 ports"),
    ] {
        let said = broken(change);
        assert!(said.contains(reason), "{said:?} does not say {reason:?}");
    }
}

#[test]
#[ignore = "a measurement: two nodes and eight pods should come up in about a second"]
fn how_long_a_lab_takes() {
    let mut topology = lab::seed::topology(&live::prefix("speed"));
    topology.pods.push(pod("eighth", "node-b", &["10.244.2.99"]));
    let start = Instant::now();
    let lab = up(&topology);
    let up = start.elapsed();
    let probe = Probe::tcp(socket("10.244.2.3:8080"));
    let start = Instant::now();
    let answered = lab.probe_many("sender-a", probe, 10_000).unwrap();
    let answered = answered.iter().filter(|one| one.answered_by().is_some()).count();
    let bulk = start.elapsed();
    let start = Instant::now();
    lab.down().unwrap();
    println!(
        "up {up:?}, 10000 probes {bulk:?} ({answered} answered), down {:?}",
        start.elapsed()
    );
}
