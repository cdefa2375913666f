//! What we render is what the real tools take, and what the kernel then prints.

mod support;

use ipnet::IpNet;
use iptables::ast::{ChainName, Ports, Rule, Ruleset, TableName, Target};
use iptables::build::{self, BuildContext, Capabilities, EndpointComments, InvalidPackets, Nfacct};
use iptables::names::{NFACCT_INVALID_DROPPED, NFACCT_LOCALHOST_NODE_PORTS};
use iptables::parse;
use iptables::plan::{Step, TableWrite};
use iptables::render::{RestoreText, RetireText, SaveText, StepText, Tool};
use model::crossing::ListedEndpoints;
use model::{
    Affinity, Balancing, Desired, DesiredNode, DesiredPort, DesiredService, Family, Frontend, FrontendKind,
    List, LocalDetector, Mark, NodePortTargets, Policy, Protocol, Reason, Route, Routes, ServiceName,
    ServicePortName,
};
use std::collections::BTreeMap;
use support::namespace::{Kind, Namespace};
use support::nfacct;

const KINDS: [Kind; 2] = [Kind::Nft, Kind::Legacy];

/// A namespace with our nfacct objects.
fn namespace() -> Option<Namespace> {
    let namespace = Namespace::new()?;
    nfacct::create(&namespace, NFACCT_INVALID_DROPPED);
    nfacct::create(&namespace, NFACCT_LOCALHOST_NODE_PORTS);
    Some(namespace)
}

/// Lines of a dump without comments, in an order that doesn't depend on the tool's order of chains and tables: each
/// line behind its table and, for rules, in its place within its chain.
fn sorted_lines(text: &str) -> Vec<String> {
    let mut table = "";
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with('*') {
            table = line;
        }
        let chain = line.split(' ').nth(1).unwrap_or_default();
        let place = places.entry(format!("{table} {chain}")).or_default();
        *place += usize::from(line.starts_with("-A"));
        let place = if line.starts_with("-A") { *place } else { 0 };
        lines.push(format!("{table} {chain} {place:06} {line}"));
    }
    lines.sort();
    lines
}

fn assert_loads_and_prints(kind: Kind, family: Family, ruleset: &Ruleset, what: &str) {
    let Some(namespace) = namespace() else { return };
    namespace.restore(kind, family, &RestoreText { ruleset, family }.to_string());
    let printed = sorted_lines(&namespace.save(kind, family));
    let ours = sorted_lines(&SaveText::new(ruleset, family).to_string());
    for (ours, printed) in ours.iter().zip(&printed) {
        assert_eq!(ours, printed, "{what} {kind:?} {family}");
    }
    assert_eq!(ours.len(), printed.len(), "{what} {kind:?} {family}");
}

fn context(desired: &Desired) -> BuildContext {
    BuildContext {
        capabilities: Capabilities {
            masquerade_ports: Ports::RandomFully,
            nfacct: Nfacct::Present,
        },
        endpoint_comments: EndpointComments::for_cluster(&ListedEndpoints::of(desired)),
        invalid: InvalidPackets::Dropped,
    }
}

#[test]
fn golden_clusters_load_and_the_kernel_prints_what_we_print() {
    for case in scenario::golden_cases() {
        for family in Family::ALL {
            let desired = case.desired.get(family);
            let ruleset = build::ruleset(desired, &context(desired));
            for kind in KINDS {
                assert_loads_and_prints(kind, family, &ruleset, &case.name);
            }
        }
    }
}

/// A node port of a service with this name, with a sticky endpoint, masqueraded unless it comes from a local pod.
fn desired(namespace: &str, name: &str, detector: LocalDetector) -> Desired {
    let service = ServiceName::new(namespace, name);
    let route = |masquerade, reason| Route::Endpoints {
        list: List::Cluster,
        masquerade,
        reason,
    };
    let endpoints = vec![
        "10.1.2.3:80".parse().expect("an address"),
        "10.1.2.4:80".parse().expect("an address"),
    ];
    let frontend = |kind, port, pod| Frontend {
        kind,
        port,
        routes: Routes {
            pod,
            node: route(true, Reason::ExternalCluster),
            outside: route(true, Reason::ExternalCluster),
        },
        admission: None,
    };
    let cluster_ip = FrontendKind::ClusterIp([10, 96, 0, 9].into());
    let port = DesiredPort {
        name: ServicePortName {
            service: service.clone(),
            port: "".into(),
            protocol: Protocol::Sctp,
        },
        internal: Policy::Cluster,
        external: Policy::Cluster,
        affinity: Some(Affinity {
            timeout_seconds: 10_800,
        }),
        balancing: Balancing::Random,
        cluster: endpoints.clone(),
        local: vec![],
        reachable: endpoints,
        on_node: Vec::new(),
        frontends: vec![
            frontend(cluster_ip, 80, route(false, Reason::ClusterIpFromPod)),
            frontend(
                FrontendKind::NodePort,
                30_080,
                route(true, Reason::ExternalCluster),
            ),
        ],
        health_check_node_port: None,
        listed_endpoints: 2,
    };
    let services = BTreeMap::from([(
        service.clone(),
        DesiredService {
            name: service,
            ports: vec![port],
        },
    )]);
    Desired {
        node: node(detector),
        services,
    }
}

fn node(detector: LocalDetector) -> DesiredNode {
    DesiredNode {
        family: Family::V4,
        mark: Mark::default(),
        detector: Some(detector),
        node_ports: NodePortTargets::AllLocal,
        localhost_node_ports: true,
    }
}

fn cidr(text: &str) -> LocalDetector {
    LocalDetector::Cidr(text.parse::<IpNet>().expect("a network"))
}

/// The API server allows none of these names but the first; a folder of manifests might hold them.
#[test]
fn odd_and_endless_names_load_and_are_printed_as_we_print_them() {
    let longest = ("n".repeat(63), "s".repeat(63));
    let endless = ("n".repeat(400), "s".repeat(400));
    let wide = ("x".to_owned(), "é".repeat(200));
    let quoting = (
        r#"a"b\c'd"#.to_owned(),
        "e f\n-A INPUT -j DROP\n\t$(x)`#".to_owned(),
    );
    for (namespace, name) in [longest, endless, wide, quoting] {
        let desired = desired(&namespace, &name, cidr("10.0.0.0/8"));
        let ruleset = build::ruleset(&desired, &context(&desired));
        for kind in KINDS {
            assert_loads_and_prints(kind, Family::V4, &ruleset, &name);
        }
    }
}

/// iptables-nft 1.8.9 refuses the whole table for `! -s 0.0.0.0/0`.
#[test]
fn any_detector_loads_and_is_printed_as_we_print_it() {
    for detector in [
        cidr("0.0.0.0/0"),
        cidr("10.1.2.3/8"),
        LocalDetector::Bridge("br0".into()),
        LocalDetector::InterfacePrefix("cali".into()),
        LocalDetector::InterfacePrefix("abcdefghijklmno".into()),
        // All that a configuration may say and a shell would mind.
        LocalDetector::Bridge("-!#$*+(){}[];|&".into()),
        LocalDetector::Bridge("!".into()),
        LocalDetector::InterfacePrefix("+".into()),
        LocalDetector::InterfacePrefix("-A".into()),
    ] {
        let what = format!("{detector:?}");
        let desired = desired("ns", "svc", detector);
        let ruleset = build::ruleset(&desired, &context(&desired));
        for kind in KINDS {
            assert_loads_and_prints(kind, Family::V4, &ruleset, &what);
        }
    }
}

fn chain(name: &str) -> ChainName {
    ChainName::new(name).expect("a good name")
}

fn jump(to: &str) -> Rule {
    Rule::new(Target::Jump(chain(to)))
}

fn commit(namespace: &Namespace, kind: Kind, step: &Step) {
    let family = Family::V4;
    let tool = match kind {
        Kind::Nft => Tool::NfTables,
        Kind::Legacy => Tool::Legacy,
    };
    namespace.restore(kind, family, &StepText { step, family, tool }.to_string());
    if kind == Kind::Nft {
        // What the real thing does by netlink.
        for (table, chain, rule) in &step.delete {
            let rule = iptables::render::RuleText { rule, family };
            namespace.restore(kind, family, &format!("*{table}\n-D {chain} {rule}\nCOMMIT\n"));
        }
        namespace.restore(kind, family, &RetireText { step }.to_string());
    }
}

fn nat_step(write: TableWrite) -> Step {
    Step {
        write: BTreeMap::from([(TableName::Nat, write)]),
        ..Step::default()
    }
}

/// What the two steps of the test below leave.
const AFTER_BOTH_STEPS: &str = "\
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A2 - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A KUBE-SERVICES -j KUBE-SEP-A2
-A KUBE-SERVICES -j KUBE-SVC-A
-A KUBE-SERVICES -j KUBE-NODEPORTS
-A KUBE-SVC-A -j KUBE-SEP-A2
-A KUBE-NODEPORTS -j KUBE-SVC-A
-A KUBE-NODEPORTS -j KUBE-SEP-A2
COMMIT
";

#[test]
fn steps_do_to_the_kernel_what_they_say() {
    let first = nat_step(TableWrite {
        chains: BTreeMap::from([
            (
                chain("KUBE-SERVICES"),
                vec![jump("KUBE-SVC-OLD"), jump("KUBE-NODEPORTS")],
            ),
            (chain("KUBE-SVC-OLD"), vec![jump("KUBE-SEP-OLD")]),
            (chain("KUBE-SEP-OLD"), vec![]),
            (
                chain("KUBE-SVC-A"),
                vec![jump("KUBE-SEP-A1"), jump("KUBE-SEP-A2")],
            ),
            (chain("KUBE-SEP-A1"), vec![]),
            (chain("KUBE-SEP-A2"), vec![]),
            (chain("KUBE-NODEPORTS"), vec![jump("KUBE-SVC-A")]),
        ]),
        ensure: vec![chain("KUBE-PROXY-CANARY")],
        ..TableWrite::default()
    });
    let second = Step {
        delete: vec![(TableName::Nat, chain("KUBE-SERVICES"), jump("KUBE-SVC-OLD"))],
        // The last of these has never been there.
        retire: ["KUBE-SVC-OLD", "KUBE-SEP-OLD", "KUBE-SEP-NONE"]
            .map(|name| (TableName::Nat, chain(name)))
            .to_vec(),
        ..nat_step(TableWrite {
            chains: BTreeMap::from([(chain("KUBE-SVC-A"), vec![jump("KUBE-SEP-A2")])]),
            insert: vec![
                (chain("KUBE-SERVICES"), jump("KUBE-SEP-A2")),
                (chain("KUBE-SERVICES"), jump("KUBE-SVC-A")),
            ],
            append: vec![(chain("KUBE-NODEPORTS"), jump("KUBE-SEP-A2"))],
            remove: vec![chain("KUBE-SEP-A1")],
            ensure: vec![chain("KUBE-PROXY-CANARY")],
        })
    };
    for kind in KINDS {
        let Some(namespace) = namespace() else { return };
        commit(&namespace, kind, &first);
        commit(&namespace, kind, &second);
        let have = parse::save(&namespace.save(kind, Family::V4), Family::V4);
        assert_eq!(have, parse::save(AFTER_BOTH_STEPS, Family::V4), "{kind:?}");
    }
}

#[test]
fn a_table_that_iptables_has_no_words_for_is_left_out_of_its_dump() {
    let Some(namespace) = namespace() else { return };
    let family = Family::V4;
    namespace.restore(
        Kind::Nft,
        family,
        "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n",
    );
    let rule = "add rule ip filter INPUT fib daddr type local accept\n";
    let output = namespace.0.run(&["nft", "-f", "-"], rule);
    assert!(output.status.success(), "{output:?}");
    let save = parse::save(&namespace.save(Kind::Nft, family), family);
    let left_out: Vec<_> = save
        .opaque
        .iter()
        .map(|line| parse::left_out(&line.text))
        .collect();
    assert_eq!(left_out, [Some(TableName::Filter)]);
    let tables: Vec<_> = save.ruleset.tables.into_keys().collect();
    assert_eq!(tables, [TableName::Nat]);
}
