//! What needs no kernel: tables side by side, rules in words, ways chosen, listings.

use super::predict::{Prediction, Taken};
use super::report::{Row, Step, side_by_side};
use super::{REQUESTS, listing, words};
use iptables::ast::{ChainName, Rule, TableName};
use iptables::parse::save;
use kernel::follow::MetRule;
use model::Family;
use model::snapshot::{Change, Snapshot};
use path::{Host, HostInterface, Route};
use std::net::SocketAddr;

/// Upstream's rules for the demonstration's cluster.
const GOLDEN: &str = include_str!("../../../../scenarios/golden/seed-nodeport/iptables.txt");

fn step(name: &str) -> Step {
    let (chain, rule) = name.split_once(' ').unwrap();
    Step {
        table: TableName::Nat,
        chain: ChainName::new(chain).unwrap(),
        rule: rule.parse().unwrap(),
        text: String::new(),
        what: String::new(),
    }
}

fn aligned(predicted: &[&str], observed: &[&str]) -> Vec<(Option<String>, Option<String>)> {
    let steps = |names: &[&str]| names.iter().map(|name| step(name)).collect();
    let name = |step: Option<Step>| step.map(|step| format!("{} {}", step.chain, step.rule));
    let rows = side_by_side(steps(predicted), steps(observed)).into_iter();
    rows.map(|row| (name(row.predicted), name(row.observed)))
        .collect()
}

fn both(name: &str) -> (Option<String>, Option<String>) {
    (Some(name.to_owned()), Some(name.to_owned()))
}

#[test]
fn equal_steps_stand_beside_each_other_whatever_is_missing_before_them() {
    let left_out = aligned(&["A 1", "B 1", "C 1"], &["A 1", "C 1"]);
    assert_eq!(
        left_out,
        [both("A 1"), (Some("B 1".to_owned()), None), both("C 1")]
    );
    let too_many = aligned(&["C 1"], &["A 1", "B 1", "C 1"]);
    let only = |name: &str| (None, Some(name.to_owned()));
    assert_eq!(too_many, [only("A 1"), only("B 1"), both("C 1")]);
}

#[test]
fn steps_that_stand_for_each_other_share_a_row() {
    let other = (Some("B 1".to_owned()), Some("B 2".to_owned()));
    let rows = aligned(&["A 1", "B 1", "C 1"], &["A 1", "B 2", "C 1"]);
    assert_eq!(rows, [both("A 1"), other, both("C 1")]);
    assert_eq!(aligned(&[], &[]), []);
    let end = (Some("B 1".to_owned()), None);
    assert_eq!(aligned(&["A 1", "B 1"], &["A 1"]), [both("A 1"), end]);
}

#[test]
fn rule_of_other_words_at_the_same_place_does_not_agree() {
    let mut changed = step("A 1");
    changed.text = "-j DNAT --to-destination 10.0.0.9:80".to_owned();
    let row = Row {
        predicted: Some(step("A 1")),
        observed: Some(changed),
    };
    assert!(!row.agrees());
}

fn rule(text: &str) -> Rule {
    let saved = save(&format!("*nat\n:A - [0:0]\n-A A {text}\nCOMMIT\n"), Family::V4);
    let chain = saved.ruleset.chain(TableName::Nat, "A").unwrap();
    chain.rules.first().expect("a rule").clone()
}

#[test]
fn rules_are_told_in_a_few_words() {
    let cases = [
        ("-m comment --comment x -j KUBE-SERVICES", "→ KUBE-SERVICES"),
        (
            "-d 10.1.68.7/32 -p tcp -m tcp --dport 8080 -j KUBE-SVC-HKCWQRYAXFH7ZPX3",
            "to 10.1.68.7:8080 → KUBE-SVC-HKCW…",
        ),
        (
            "! -s 10.244.0.0/16 -d 10.1.68.7/32 -p tcp -m tcp --dport 8080 -j KUBE-MARK-MASQ",
            "not from 10.244.0.0/16 → KUBE-MARK-MASQ",
        ),
        (
            "-m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-YRHRNHV2V2F35SK2",
            "with chance 0.33 → KUBE-SEP-YRHR…",
        ),
        (
            "-m comment --comment x -j KUBE-SEP-YRHRNHV2V2F35SK2",
            "otherwise → KUBE-SEP-YRHR…",
        ),
        (
            "-p tcp -m tcp -j DNAT --to-destination 10.244.1.3:8080",
            "destination becomes 10.244.1.3:8080",
        ),
        (
            "-m mark ! --mark 0x4000/0x4000 -j RETURN",
            "not marked 0x4000 → return",
        ),
        (
            "-m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL",
            "new connection → KUBE-PROXY-FIREWALL",
        ),
        (
            "-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS",
            "to this node → KUBE-NODEPORTS",
        ),
        ("-j MASQUERADE --random-fully", "source becomes the node's"),
    ];
    for (text, want) in cases {
        assert_eq!(words::what(&rule(text), None), want, "{text}");
    }
}

/// node-a with upstream's rules.
fn golden_host() -> Host {
    let interface = |name: &str, address: &str| HostInterface {
        name: name.into(),
        addresses: vec![address.parse().unwrap()],
    };
    let route = |to: &str, via: &str| Route {
        to: to.parse().unwrap(),
        via: Some(via.parse().unwrap()),
        interface: "eth0".into(),
    };
    let mut host = Host {
        interfaces: vec![
            interface("eth0", "192.168.50.238/24"),
            interface("cni0", "10.244.1.1/24"),
        ],
        routes: Some(vec![
            route("10.244.2.0/24", "192.168.50.239"),
            route("0.0.0.0/0", "198.19.255.254"),
        ]),
        ..Host::default()
    };
    *host.rules.get_mut(Family::V4) = save(GOLDEN, Family::V4).ruleset;
    host
}

#[test]
fn way_shown_is_the_one_to_the_endpoint_that_the_kernel_chose() {
    let prediction = Prediction::new(golden_host(), &REQUESTS[0]);
    assert_eq!(prediction.chances(), [0.5, 0.5]);
    for (endpoint, chain) in [
        ("10.244.1.3:8080", "KUBE-SEP-YRHRNHV2V2F35SK2"),
        ("10.244.2.3:8080", "KUBE-SEP-6JBGLP5EV4JHVRIR"),
    ] {
        let endpoint: SocketAddr = endpoint.parse().unwrap();
        let taken = Taken {
            met: &[],
            endpoint: Some(endpoint),
        };
        let way = prediction.way(&taken);
        assert_eq!(way.destination(), endpoint);
        assert!(way.steps().iter().any(|step| step.chain.as_str() == chain));
        assert!(!way.masqueraded());
        assert_eq!(way.marked_in(), None);
    }
}

#[test]
fn without_such_an_endpoint_the_way_with_most_in_common_is_shown() {
    let prediction = Prediction::new(golden_host(), &REQUESTS[0]);
    let met = |chain: &str, rule| MetRule {
        table: TableName::Nat,
        chain: ChainName::new(chain).unwrap(),
        rule,
    };
    for (rule, chain, want) in [
        (2, "KUBE-SEP-YRHRNHV2V2F35SK2", "10.244.1.3:8080"),
        (3, "KUBE-SEP-6JBGLP5EV4JHVRIR", "10.244.2.3:8080"),
    ] {
        let way_met = [
            met("PREROUTING", 1),
            met("KUBE-SERVICES", 2),
            met("KUBE-SVC-HKCWQRYAXFH7ZPX3", rule),
            met(chain, 2),
        ];
        let taken = Taken {
            met: &way_met,
            endpoint: Some("10.9.9.9:1".parse().unwrap()),
        };
        assert_eq!(prediction.way(&taken).destination().to_string(), want);
    }
}

#[test]
fn masquerading_is_told_with_the_chain_that_asks_for_it() {
    let chains = [
        None,
        Some("KUBE-SVC-HKCWQRYAXFH7ZPX3"),
        Some("KUBE-EXT-HKCWQRYAXFH7ZPX3"),
    ];
    let words = [
        "is a pod",
        "is no pod",
        "a node port may lead to a pod of another node",
    ];
    for ((request, chain), word) in REQUESTS.iter().zip(chains).zip(words) {
        let prediction = Prediction::new(golden_host(), request);
        let taken = Taken {
            met: &[],
            endpoint: None,
        };
        let way = prediction.way(&taken);
        assert_eq!(way.marked_in().as_deref(), chain, "{}", request.title);
        assert_eq!(way.masqueraded(), chain.is_some(), "{}", request.title);
        let why = words::why(request.from.ip(), chain);
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn services_and_endpoints_are_listed_as_kubectl_does() {
    let mut snapshot = Snapshot::new();
    let text = include_str!("../../../../scenarios/golden/seed-nodeport/cluster.json");
    let decoded = model::object::decode(serde_json::from_str(text).unwrap());
    for object in decoded.objects {
        snapshot.apply(Change::Apply(object));
    }
    let services: Vec<String> = listing::services(&snapshot)
        .into_iter()
        .map(|one| {
            format!(
                "{} {} {} {} {}",
                one.name, one.kind, one.cluster_ip, one.external_ip, one.ports
            )
        })
        .collect();
    assert_eq!(
        services,
        [
            "kubernetes ClusterIP 10.96.0.1 <none> 443/TCP",
            "sender NodePort 10.1.177.169 <none> 8081:31081/TCP",
            "spring-test NodePort 10.1.68.7 <none> 8080:31080/TCP",
            "kube-dns ClusterIP 10.1.0.10 <none> 53/UDP,53/TCP,9153/TCP",
        ]
    );
    let endpoints: Vec<String> = listing::endpoints(&snapshot)
        .into_iter()
        .map(|one| format!("{} {}", one.name, one.endpoints))
        .collect();
    assert_eq!(
        endpoints,
        [
            "kubernetes <none>",
            "sender 10.244.1.7:8080,10.244.2.7:8080",
            "spring-test 10.244.1.3:8080,10.244.2.3:8080",
            "kube-dns 10.244.1.2:53,10.244.1.4:53,10.244.2.2:53 + 6 more...",
        ]
    );
}

#[test]
fn numbers_follow_the_order_of_services_that_the_proxy_chose_and_no_rule_does() {
    let rules = |services: &str, endpoint: &str| {
        let text = format!(
            "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SEP-A - [0:0]\n{services}\
             -A KUBE-SEP-A -s {endpoint}/32 -j KUBE-MARK-MASQ\n-A KUBE-SEP-A -j RETURN\nCOMMIT\n"
        );
        save(&text, Family::V4).ruleset
    };
    let line = |ip: &str| format!("-A KUBE-SERVICES -d {ip}/32 -j RETURN\n");
    let (a, b, c) = (line("10.1.0.1"), line("10.1.0.2"), line("10.1.0.3"));
    let mut wanted = rules(&format!("{a}{b}{c}"), "10.0.0.1");
    // The kernel has another order, lacks a rule, has one too many, and another endpoint.
    let have = rules(&format!("{}{c}{a}", line("10.1.0.9")), "10.0.0.2");
    super::stage::adopt_free_order(&mut wanted, &have);
    assert_eq!(wanted, rules(&format!("{c}{a}{b}"), "10.0.0.1"));
}
