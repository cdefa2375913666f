//! Balancing by the client's address: the same pod on every node and every address of the service, and a pod that goes
//! moves nobody but its clients.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::live::available;
use lab::{Lab, Probe, seed};
use live::cluster::{self, CLIENT, NODE, PODS, WEB, endpoints, tcp, web};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::manifests::{Manifests, node};
use live::within;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

const OTHER_NODE: &str = seed::NODE_B;
const NODE_PORTS: [&str; 2] = ["192.168.50.238:30080", "192.168.50.239:30080"];
const CLIENTS: u32 = 520;

/// Gives the outside client a network, and everybody a way back there.
fn many_clients(lab: &Lab) -> Vec<IpAddr> {
    lab.must_exec(
        CLIENT,
        &["ip", "route", "add", "local", "198.18.0.0/20", "dev", "lo"],
    )
    .unwrap();
    for node in [NODE, OTHER_NODE] {
        let back = ["ip", "route", "add", "198.18.0.0/20", "via", "192.168.50.10"];
        lab.must_exec(node, &back).unwrap();
    }
    (0..CLIENTS)
        .map(|number| {
            format!("198.18.{}.{}", number / 250, 1 + number % 250)
                .parse()
                .unwrap()
        })
        .collect()
}

/// Who answers each client at an address; nobody may be left alone.
fn answers(lab: &Lab, clients: &[IpAddr], to: &str) -> BTreeMap<IpAddr, String> {
    let patient = tcp(to).within(Duration::from_secs(3));
    let probes: Vec<Probe> = clients.iter().map(|client| patient.from(*client)).collect();
    let outcomes = lab.probe_each(CLIENT, &probes).unwrap();
    let names = outcomes.iter().map(|outcome| {
        let name = outcome.answered_by();
        name.unwrap_or_else(|| panic!("{to}: {outcome:?}")).to_owned()
    });
    clients.iter().copied().zip(names).collect()
}

fn objects(annotation: &str, pods: usize) -> Vec<Value> {
    let mut objects = web(pods);
    objects[1]["metadata"]["annotations"] = json!({"kube-proxy-rs.io/balancing": annotation});
    objects.push(node(OTHER_NODE, &["192.168.50.239"]));
    objects
}

fn start(lab: &Lab, node: &str, manifests: &Manifests) -> Daemon {
    let mut setup = Setup::new(lab, node, manifests);
    setup.config = configuration(
        &json!({"mode": "nftables", "nftables": {"minSyncPeriod": "10ms", "syncPeriod": "10m"}}),
    );
    let daemon = setup.start();
    let both = within(PATIENCE, || {
        daemon.log().matches("rules are in sync").count() >= 2
    });
    assert!(both.is_some(), "not both families are in sync:\n{}", daemon.log());
    daemon
}

/// Waits until a node's table has the service's pods in the buckets, or no longer has one.
fn knows(lab: &Lab, pod: &str, there: bool, daemons: &[Daemon]) {
    for node in [NODE, OTHER_NODE] {
        let as_wanted = within(PATIENCE, || {
            let listed = lab
                .must_exec(node, &["nft", "list", "table", "ip", "kube-proxy"])
                .unwrap();
            listed.contains(&format!(": {pod} . 8080")) == there
        });
        let logs: Vec<String> = daemons.iter().map(Daemon::log).collect();
        assert!(as_wanted.is_some(), "{pod} on {node}:\n{}", logs.join("\n---\n"));
    }
}

#[test]
fn a_client_meets_the_same_pod_on_every_node_and_only_the_clients_of_changed_pods_move() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("balan"), Manifests::new());
    let clients = many_clients(&lab);
    manifests.put("web.json", &objects("client-hash", 4));
    let daemons = [NODE, OTHER_NODE].map(|node| start(&lab, node, &manifests));
    knows(&lab, PODS[3].1, true, &daemons);
    let four = answers(&lab, &clients, NODE_PORTS[0]);
    assert_eq!(four, answers(&lab, &clients, NODE_PORTS[1]), "another node");
    assert_eq!(four, answers(&lab, &clients, WEB), "another address");

    let gone = PODS[3];
    manifests.put("web.json", &objects("client-hash", 3));
    knows(&lab, gone.1, false, &daemons);
    let three = answers(&lab, &clients, NODE_PORTS[1]);
    assert_eq!(
        three,
        answers(&lab, &clients, NODE_PORTS[0]),
        "without {}",
        gone.0
    );
    for (client, before) in &four {
        assert_eq!(
            before == gone.0,
            three[client] != *before,
            "{client} was at {before}"
        );
    }

    manifests.put("web.json", &objects("client-hash", 4));
    knows(&lab, gone.1, true, &daemons);
    let again = answers(&lab, &clients, WEB);
    assert_eq!(again, four, "it is back, and so are its clients alone");
    let moved = four.values().filter(|name| *name == gone.0).count();
    let fourth = clients.len() / 4;
    assert!(
        (fourth / 2..fourth * 2).contains(&moved),
        "{moved} of {}",
        clients.len()
    );
    println!("{moved} of {} clients moved with one of four pods", clients.len());
}

#[test]
fn under_policy_local_a_client_meets_one_pod_of_each_node() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("balanl"), Manifests::new());
    let clients = many_clients(&lab);
    let mut local = objects("client-hash", 4);
    local[1]["spec"]["externalTrafficPolicy"] = json!("Local");
    manifests.put("web.json", &local);
    let daemons = [NODE, OTHER_NODE].map(|node| start(&lab, node, &manifests));
    knows(&lab, PODS[3].1, true, &daemons);
    let everywhere = answers(&lab, &clients, WEB);
    for (node, to) in [NODE, OTHER_NODE].into_iter().zip(NODE_PORTS) {
        let here: Vec<&str> = PODS
            .iter()
            .filter(|(.., on)| *on == node)
            .map(|(pod, ..)| *pod)
            .collect();
        let first = answers(&lab, &clients, to);
        assert!(
            first.values().all(|name| here.contains(&name.as_str())),
            "{node}: {first:?}"
        );
        assert_eq!(first, answers(&lab, &clients, to), "{node}, asked again");
        // Whose pod of all is on this node meets it here too.
        for (client, name) in everywhere
            .iter()
            .filter(|(_, name)| here.contains(&name.as_str()))
        {
            assert_eq!(first[client], *name, "{client} on {node}");
        }
    }
}

#[test]
fn in_iptables_mode_the_annotation_changes_nothing_and_one_line_says_so() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("balani"), Manifests::new());
    manifests.put("web.json", &objects("client-hash", 4));
    manifests.put("more.json", &[endpoints("nobody", 1)]);
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    live::traffic::web_answers(&lab, &daemon);
    let words = "annotation kube-proxy-rs.io/balancing has no effect: only nftables mode balances";
    let told = within(PATIENCE, || daemon.log().contains(words));
    assert!(told.is_some(), "{}", daemon.log());
    manifests.put("web.json", &objects("client-hash", 3));
    live::traffic::rules_say(&lab, "default/web", &daemon);
    let log = daemon.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(words)).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let mut met: Vec<String> = (0..40)
        .filter_map(|_| {
            let outcome = lab
                .probe(CLIENT, tcp(WEB).within(Duration::from_secs(3)))
                .unwrap();
            outcome.answered_by().map(str::to_owned)
        })
        .collect();
    met.sort();
    met.dedup();
    assert!(met.len() > 1, "one client always meets {met:?}");
}

#[test]
fn under_affinity_and_with_a_bad_value_pods_are_chosen_at_random_and_a_line_says_so() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("balana"), Manifests::new());
    let mut sticky = objects("client-hash", 4);
    sticky[1]["spec"]["sessionAffinity"] = json!("ClientIP");
    manifests.put("web.json", &sticky);
    let daemon = start(&lab, NODE, &manifests);
    let listed = |words: &str| {
        let found = within(PATIENCE, || {
            cluster::shell(&lab, "nft list table ip kube-proxy").contains(words)
        });
        assert!(found.is_some(), "no {words}:\n{}", daemon.log());
    };
    listed("service-within-4-sticky-10800s");
    let says = |words: &str| {
        let told = within(PATIENCE, || daemon.log().contains(words));
        assert!(told.is_some(), "{words} is not told:\n{}", daemon.log());
    };
    says("has no effect: under sessionAffinity ClientIP");
    manifests.put("web.json", &objects("by-moonlight", 4));
    says("is neither random nor client-hash");
    listed("set service-within-4 ");
    live::traffic::web_answers(&lab, &daemon);
    assert!(!cluster::shell(&lab, "nft list table ip kube-proxy").contains("service-hashed"));
}
