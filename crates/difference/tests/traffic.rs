//! What becomes otherwise of traffic: the sentences for each change that there are scenarios of, and that rules and objects
//! are told alike.

mod support;

use difference::screen::{Extent, changes as screen};
use difference::traffic::{Behaviour, Refusing, changes, of_desired, of_host};
use iptables::ast::TableName;
use iptables::parse;
use model::snapshot::Snapshot;
use model::{Desired, Family};
use path::{Host, LocalAddresses};
use scenario::Transition;
use support::{World, world, worlds};

fn desired(of: &Transition, objects: &Snapshot) -> Behaviour {
    let desired = Desired::from_snapshot(objects, Family::V4, &of.facts, &of.settings).0;
    of_desired(&desired, Refusing::OnMostWays)
}

/// An owner and its sentences.
type Said = (&'static str, &'static [&'static str]);

/// What is said of each transition.
const TOLD: [(&str, &[Said]); 11] = [
    (
        "affinity-timeout-changed",
        &[(
            "shop/web:http",
            &["session affinity: a client stays for 60 s; was 10800 s"],
        )],
    ),
    (
        "claim-handed-over",
        &[
            (
                "shop/older:http",
                &["external IP 203.0.113.9:80/TCP: no longer served; was to 10.244.1.31:8080"],
            ),
            (
                "shop/younger:http",
                &["external IP 203.0.113.9:80/TCP: to 10.244.1.32:8080 (masqueraded)"],
            ),
        ],
    ),
    (
        "endpoint-added",
        &[(
            "shop/web:http",
            &["cluster IP 10.96.0.10:80/TCP, node port 30080/TCP: gains 10.244.2.11:8080"],
        )],
    ),
    (
        "endpoint-removed",
        &[(
            "shop/web:http",
            &["cluster IP 10.96.0.10:80/TCP, node port 30080/TCP: loses 10.244.2.10:8080"],
        )],
    ),
    (
        "endpoint-replaced",
        &[(
            "shop/web:http",
            &[
                "cluster IP 10.96.0.10:80/TCP, node port 30080/TCP: gains 10.244.2.11:8080, loses 10.244.2.10:8080",
            ],
        )],
    ),
    (
        "policy-flipped",
        &[(
            "shop/web:http",
            &[
                "node port 30080/TCP from outside: loses 10.244.2.10:8080, no longer masqueraded: endpoints see the client's address",
                "node port 30080/TCP from pods: no longer masqueraded: endpoints see the client's address",
            ],
        )],
    ),
    (
        "scaled-from-zero",
        &[(
            "shop/web:http",
            &[
                "node port 30080/TCP; cluster IP 10.96.0.10:80/TCP from the node and outside: now to 10.244.1.10:8080, 10.244.2.10:8080 (masqueraded); was refused at once",
                "cluster IP 10.96.0.10:80/TCP from pods: now to 10.244.1.10:8080, 10.244.2.10:8080 (source kept); was refused at once",
            ],
        )],
    ),
    (
        "scaled-to-zero",
        &[(
            "shop/web:http",
            &[
                "cluster IP 10.96.0.10:80/TCP, node port 30080/TCP: now refused at once; was to 10.244.1.10:8080, 10.244.2.10:8080",
            ],
        )],
    ),
    (
        "service-added",
        &[(
            "shop/web:http",
            &[
                "is new",
                "node port 30080/TCP; cluster IP 10.96.0.10:80/TCP from the node and outside: to 10.244.1.10:8080, 10.244.2.10:8080 (masqueraded)",
                "cluster IP 10.96.0.10:80/TCP from pods: to 10.244.1.10:8080, 10.244.2.10:8080 (source kept)",
            ],
        )],
    ),
    (
        "service-removed",
        &[(
            "shop/web:http",
            &["is gone: cluster IP 10.96.0.10:80/TCP, node port 30080/TCP no longer served"],
        )],
    ),
    (
        "threshold-crossed",
        &[(
            "shop/web:http",
            &["cluster IP 10.96.0.10:80/TCP, node port 30080/TCP: gains 10.244.2.11:8080"],
        )],
    ),
];

#[test]
fn each_transition_is_told_in_its_sentences() {
    let transitions = scenario::transitions();
    assert_eq!(transitions.len(), TOLD.len(), "a transition is told of nowhere");
    for of in transitions {
        let (_, want) = TOLD
            .iter()
            .find(|(name, _)| *name == of.name)
            .expect("it is told of");
        let found = changes(&desired(&of, &of.before), &desired(&of, &of.after));
        let found: Vec<(&str, Vec<&str>)> = found
            .changes
            .iter()
            .map(|change| {
                (
                    change.owner.as_str(),
                    change.sentences.iter().map(String::as_str).collect(),
                )
            })
            .collect();
        let want: Vec<(&str, Vec<&str>)> = want.iter().map(|(owner, said)| (*owner, said.to_vec())).collect();
        assert_eq!(found, want, "{}", of.name);
        let nothing = changes(&desired(&of, &of.before), &desired(&of, &of.before));
        assert!(nothing.changes.is_empty(), "{}", of.name);
    }
}

fn host(of: &World) -> Host {
    Host {
        addresses: LocalAddresses::Known(of.facts.interface_addresses.iter().copied().collect()),
        ..Host::default()
    }
}

/// Rules do not say everything that objects do: what they cannot is taken out of both.
fn without(mut behaviour: Behaviour) -> Behaviour {
    behaviour.node.clear();
    for port in behaviour.ports.values_mut() {
        port.health_check = None;
    }
    behaviour.ports.retain(|_, port| !port.frontends.is_empty());
    behaviour
}

/// The tracer over rules and the oracle's routes are two opinions about each frontend and sender of the golden clusters.
#[test]
fn what_rules_do_is_what_the_objects_ask_for_in_either_mode() {
    let mut told = 0;
    for of in worlds().iter().filter(|of| of.name != "large-cluster") {
        for family in Family::ALL {
            let want = |refusing| without(of_desired(of.desired.get(family), refusing).by_address());
            if want(Refusing::OnAllWays).ports.is_empty() {
                continue;
            }
            let mut by_chains = host(of);
            *by_chains.rules.get_mut(family) = of.rules(family);
            let mut by_table = host(of);
            by_table.native.tables.push(of.table(family));
            for (mode, host, refusing) in [
                ("iptables", by_chains, Refusing::OnMostWays),
                ("nftables", by_table, Refusing::OnAllWays),
            ] {
                let want = want(refusing);
                let have = without(of_host(&host, family).expect("it serves").by_address());
                let found = changes(&want, &have);
                assert!(
                    found.changes.is_empty(),
                    "{} {family} {mode}: {:#?}",
                    of.name,
                    found.changes
                );
                told += want.ports.len();
            }
        }
    }
    assert!(told > 100, "{told}");
}

#[test]
fn what_a_lost_rule_does_to_traffic_is_told() {
    let of = world("nodeport");
    let case = scenario::golden_cases()
        .into_iter()
        .find(|case| case.name == "nodeport")
        .expect("the case");
    let whole = parse::save(&case.saved.v4, Family::V4).ruleset;
    let mut cut = whole.clone();
    let nat = cut.tables.get_mut(&TableName::Nat).expect("nat");
    nat.chains
        .get_mut("KUBE-POSTROUTING")
        .expect("the chain")
        .rules
        .clear();
    let of_rules = |rules| {
        let mut host = host(&of);
        host.rules.v4 = rules;
        of_host(&host, Family::V4).expect("it serves")
    };
    let found = changes(&of_rules(whole), &of_rules(cut));
    assert!(!found.changes.is_empty());
    let sentences: Vec<&String> = found
        .changes
        .iter()
        .flat_map(|change| &change.sentences)
        .collect();
    assert!(
        sentences
            .iter()
            .all(|sentence| sentence.contains("no longer masqueraded")),
        "{sentences:#?}"
    );
}

#[test]
fn source_ranges_are_told_as_narrowed_widened_and_lifted() {
    let of = world("loadbalancer");
    let behaviour = of_desired(&of.desired.v4, Refusing::OnMostWays);
    let (owner, title) = behaviour
        .ports
        .iter()
        .find_map(|(owner, port)| {
            let (title, _) = port
                .frontends
                .iter()
                .find(|(_, frontend)| frontend.admitted.is_some())?;
            Some((owner.clone(), title.clone()))
        })
        .expect("a load balancer with source ranges");
    let with = |nets: Option<&[&str]>| {
        let mut changed = behaviour.clone();
        let port = changed.ports.get_mut(&owner).expect("the port");
        let frontend = port.frontends.get_mut(&title).expect("the frontend");
        frontend.admitted = nets.map(|nets| nets.iter().map(|net| net.parse().expect("a network")).collect());
        changed
    };
    for (before, after, word) in [
        (Some(&["10.0.0.0/8"][..]), Some(&["10.1.0.0/16"][..]), "narrowed"),
        (
            Some(&["10.0.0.0/9", "10.128.0.0/9"]),
            Some(&["10.0.0.0/8", "192.0.2.0/24"]),
            "widened",
        ),
        (Some(&["10.0.0.0/8"]), Some(&["192.0.2.0/24"]), "changed"),
        (Some(&["10.0.0.0/8"]), None, "lifted"),
        (None, Some(&["10.0.0.0/8"]), "narrowed"),
    ] {
        let found = changes(&with(before), &with(after));
        let sentence = &found.changes[0].sentences[0];
        assert!(sentence.contains(&format!("source ranges {word}")), "{sentence}");
    }
    let same = changes(
        &with(Some(&["10.0.0.0/9", "10.128.0.0/9"])),
        &with(Some(&["10.0.0.0/8"])),
    );
    assert!(same.changes.is_empty(), "{same:#?}");
}

#[test]
fn changes_fit_a_terminal_and_cannot_steer_it() {
    let of = scenario::transitions().remove(0);
    let mut after = desired(&of, &of.after);
    let port = after.ports.values().next().expect("a port").clone();
    after.ports.insert("evil/\u{1b}[2J\u{7}:http".to_owned(), port);
    let found = [changes(&desired(&of, &of.before), &after)];
    let text = screen(&found, "a test", 60, Extent::Some);
    assert!(!text.contains("\u{1b}[2J") && !text.contains('\u{7}'), "{text:?}");
    let words = |line: &str| line.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
    assert!(
        text.lines().skip(1).all(|line| words(line).chars().count() <= 60),
        "{text}"
    );
}
