//! What each stage costs, by number of services with ten endpoints each.

use divan::{Bencher, black_box};
use iptables::ast::{Ports, Ruleset};
use iptables::build::{self, BuildContext, Capabilities, EndpointComments, InvalidPackets, Nfacct};
use iptables::parse::{self, SaveParser};
use iptables::render::SaveText;
use model::{
    Balancing, Desired, DesiredNode, DesiredPort, DesiredService, Family, Frontend, FrontendKind, List,
    LocalDetector, Mark, NodePortTargets, Policy, Protocol, Reason, Route, Routes, ServiceName,
    ServicePortName,
};
use std::net::{Ipv4Addr, SocketAddr};

const SERVICES: [u32; 2] = [1_000, 10_000];
const CONTEXT: BuildContext = BuildContext {
    capabilities: Capabilities {
        masquerade_ports: Ports::RandomFully,
        nfacct: Nfacct::Present,
    },
    endpoint_comments: EndpointComments::Omitted,
    invalid: InvalidPackets::Dropped,
};

fn main() {
    divan::main();
}

fn route(masquerade: bool) -> Route {
    Route::Endpoints {
        list: List::Cluster,
        masquerade,
        reason: Reason::ClusterIpOffCluster,
    }
}

fn service(n: u32) -> DesiredService {
    let name = ServiceName::new(format!("ns-{}", n % 50), format!("svc-{n}"));
    let address = |base: [u8; 4], n: u32| Ipv4Addr::from_bits(Ipv4Addr::from(base).to_bits() + n);
    let endpoints: Vec<SocketAddr> = (0..10)
        .map(|i| SocketAddr::from((address([10, 128, 0, 0], n * 10 + i), 8080)))
        .collect();
    let port = DesiredPort {
        name: ServicePortName {
            service: name.clone(),
            port: "http".into(),
            protocol: Protocol::Tcp,
        },
        internal: Policy::Cluster,
        external: Policy::Cluster,
        affinity: None,
        balancing: Balancing::Random,
        cluster: endpoints.clone(),
        local: vec![],
        reachable: endpoints,
        on_node: Vec::new(),
        frontends: vec![Frontend {
            kind: FrontendKind::ClusterIp(address([172, 16, 0, 0], n).into()),
            port: 80,
            routes: Routes {
                pod: route(false),
                node: route(true),
                outside: route(true),
            },
            admission: None,
        }],
        health_check_node_port: None,
        listed_endpoints: 10,
    };
    DesiredService {
        name,
        ports: vec![port],
    }
}

fn desired(services: u32) -> Desired {
    let node = DesiredNode {
        family: Family::V4,
        mark: Mark::default(),
        detector: Some(LocalDetector::Cidr("10.128.0.0/9".parse().expect("a network"))),
        node_ports: NodePortTargets::AllLocal,
        localhost_node_ports: true,
    };
    let services = (0..services).map(service).map(|s| (s.name.clone(), s)).collect();
    Desired { node, services }
}

fn ruleset(services: u32) -> Ruleset {
    build::ruleset(&desired(services), &CONTEXT)
}

#[divan::bench(args = SERVICES, sample_count = 3)]
fn build_everything(bencher: Bencher, services: u32) {
    let desired = desired(services);
    bencher.bench_local(|| build::ruleset(black_box(&desired), &CONTEXT));
}

#[divan::bench]
fn build_one_service(bencher: Bencher) {
    let desired = desired(1);
    let service = service(7);
    bencher.bench_local(|| build::service(black_box(&service), &desired.node, &CONTEXT));
}

#[divan::bench(args = SERVICES, sample_count = 3)]
fn render_everything(bencher: Bencher, services: u32) {
    let ruleset = ruleset(services);
    bencher.bench_local(|| SaveText::new(black_box(&ruleset), Family::V4).to_string());
}

#[divan::bench(args = SERVICES, sample_count = 3)]
fn parse_everything_and_keep_nothing(bencher: Bencher, services: u32) {
    let ruleset = ruleset(services);
    let text = SaveText::new(&ruleset, Family::V4).to_string();
    bencher.bench_local(|| {
        let mut rules = 0;
        let mut sink = |piece| {
            if let parse::Piece::Chain(_, _, chain) = piece {
                rules += chain.rules.len();
            }
        };
        let mut parser = SaveParser::new(Family::V4, &mut sink);
        for line in text.lines() {
            parser.line(line);
        }
        parser.finish();
        rules
    });
}
