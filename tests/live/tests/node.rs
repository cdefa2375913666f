//! The Node and the host's addresses: late, misnamed, changed.

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, shell, web};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::manifests::{Manifests, node, node_port_service, slice};
use live::traffic::rules_say;
use live::{rules, within};
use model::Family;
use serde_json::{Value, json};
use std::time::Duration;

fn waits(what: &str, daemon: &Daemon, is_true: impl FnMut() -> bool) {
    let reached = within(PATIENCE, is_true);
    assert!(reached.is_some(), "{what}; log of the daemon:\n{}", daemon.log());
}

fn page(lab: &Lab, url: &str) -> String {
    let words = ["curl", "-s", "--max-time", "5", url];
    lab.exec(NODE, &words)
        .map(|finished| finished.stdout)
        .unwrap_or_default()
}

fn saved(lab: &Lab) -> String {
    rules::saved(lab, NODE, Family::V4)
}

fn with(parts: &Value, setup: &mut Setup<'_>) {
    setup.config = configuration(parts);
}

#[test]
fn a_name_that_no_node_has_is_told_with_the_ones_there_are_and_the_node_is_taken_in_when_it_comes() {
    if !available(&["iptables-nft", "curl"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("named"), Manifests::new());
    // Policy Local: without a name nothing is local.
    let mut service = node_port_service("web", "10.1.0.80", 80, 8080, 30080);
    service["spec"]["externalTrafficPolicy"] = json!("Local");
    manifests.put(
        "web.json",
        &[service, slice("web", 8080, &[("10.244.1.3", "vm.example")])],
    );
    let daemon = Setup::new(&lab, NODE, &manifests).start_as("VM");
    rules_say(&lab, "default/web", &daemon);
    let log = daemon.log();
    let line = log
        .lines()
        .find(|line| line.contains("no Node is named"))
        .unwrap_or_default();
    for part in ["vm", "--hostname-override", "vm.example", "counts as local"] {
        assert!(line.contains(part), "{part} is not in {line:?} of:\n{log}");
    }
    let health = page(&lab, "http://127.0.0.1:10256/healthz?verbose");
    assert!(health.contains("no Node is named"), "{health}");
    let metrics = "http://127.0.0.1:10249/metrics";
    assert!(page(&lab, metrics).contains("\nkubeproxy_rs_node_found 0\n"));
    assert!(!saved(&lab).contains("KUBE-SVL-"), "{}", saved(&lab));

    // The Node comes, and the endpoint is on it.
    manifests.put("node.json", &[node("vm", &["192.168.50.238"])]);
    manifests.put("z.json", &[slice("web", 8080, &[("10.244.1.3", "vm")])]);
    waits("nothing is local", &daemon, || saved(&lab).contains("KUBE-SVL-"));
    assert!(page(&lab, metrics).contains("\nkubeproxy_rs_node_found 1\n"));
    let health = page(&lab, "http://127.0.0.1:10256/healthz?verbose");
    assert!(!health.contains("no Node"), "{health}");
    assert!(daemon.log().contains("the Node is there now"), "{}", daemon.log());
}

#[test]
fn a_node_address_that_changes_is_where_primary_node_ports_are_served_next() {
    if !available(&["iptables-nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("moved"), Manifests::new());
    manifests.put("web.json", &web(2));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    with(&json!({"nodePortAddresses": ["primary"]}), &mut setup);
    let mut daemon = setup.start();
    let tail = |address: &str| {
        format!("-A KUBE-SERVICES -d {address}/32 -m comment --comment \"kubernetes service nodeports")
    };
    rules_say(&lab, &tail("192.168.50.238"), &daemon);
    // A family in which the node has no address serves no node port (ADR 42).
    let v6 = rules::saved(&lab, NODE, Family::V6);
    assert!(!v6.contains("service nodeports"), "{v6}");

    shell(&lab, "ip addr add 192.168.77.9/32 dev lo");
    let mut objects = web(2);
    objects[0] = node(NODE, &["192.168.77.9"]);
    manifests.put("web.json", &objects);
    waits("the old address stays", &daemon, || {
        let saved = saved(&lab);
        saved.contains(&tail("192.168.77.9")) && !saved.contains(&tail("192.168.50.238"))
    });
    assert!(
        daemon.log().contains("the node's address changed"),
        "{}",
        daemon.log()
    );
    assert!(daemon.runs());
}

#[test]
fn a_deleted_node_is_remembered_and_another_pod_cidr_ends_the_process_with_1() {
    if !available(&["iptables-nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("cidr"), Manifests::new());
    let ours = |cidr: &str| {
        let mut node = node(NODE, &["192.168.50.238"]);
        node["spec"] = json!({"podCIDRs": [cidr]});
        node
    };
    let objects = web(2);
    manifests.put("node.json", &[ours("10.244.1.0/24")]);
    manifests.put("web.json", &objects[1..]);
    let mut setup = Setup::new(&lab, NODE, &manifests);
    with(
        &json!({"detectLocalMode": "NodeCIDR", "clusterCIDR": ""}),
        &mut setup,
    );
    let mut daemon = setup.start();
    rules_say(&lab, "! -s 10.244.1.0/24", &daemon);

    manifests.remove("node.json");
    waits("the deletion is not told", &daemon, || {
        daemon.log().contains("the Node was deleted")
    });
    manifests.put(
        "more.json",
        &[node_port_service("more", "10.1.0.81", 80, 8080, 30081)],
    );
    rules_say(&lab, "default/more", &daemon);
    assert!(saved(&lab).contains("! -s 10.244.1.0/24"));

    manifests.put("node.json", &[ours("10.244.9.0/24")]);
    let ended = daemon.wait(PATIENCE);
    let log = daemon.log();
    assert_eq!(ended.and_then(|status| status.code()), Some(1), "{log}");
    assert!(
        log.contains("changed from 10.244.1.0/24 to 10.244.9.0/24"),
        "{log}"
    );
    assert!(saved(&lab).contains("default/web"), "rules stay");
}

#[test]
fn an_address_of_an_interface_serves_node_ports_as_soon_as_it_is_there_and_health_ports_move_along() {
    if !available(&["iptables-nft", "curl"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("addr"), Manifests::new());
    let mut objects = web(2);
    objects[1]["spec"]["type"] = json!("LoadBalancer");
    objects[1]["spec"]["externalTrafficPolicy"] = json!("Local");
    objects[1]["spec"]["healthCheckNodePort"] = json!(31080);
    manifests.put("web.json", &objects);
    let mut setup = Setup::new(&lab, NODE, &manifests);
    with(
        &json!({"nodePortAddresses": ["192.168.50.0/24", "192.168.78.0/24"]}),
        &mut setup,
    );
    let daemon = setup.start();
    rules_say(&lab, "-d 192.168.50.238/32", &daemon);
    let health = |address: &str| page(&lab, &format!("http://{address}:31080/"));
    waits("no health port", &daemon, || {
        health("192.168.50.238").contains("localEndpoints")
    });

    shell(&lab, "ip addr add 192.168.78.9/32 dev lo");
    let took = rules_say(&lab, "-d 192.168.78.9/32", &daemon);
    println!("an address was in the rules after {took:?}");
    waits("the health port is not there", &daemon, || {
        health("192.168.78.9").contains("localEndpoints")
    });
    assert!(health("192.168.50.238").contains("localEndpoints"));

    shell(&lab, "ip addr del 192.168.78.9/32 dev lo");
    waits("the address stays", &daemon, || {
        !saved(&lab).contains("192.168.78.9")
    });
    assert!(health("192.168.50.238").contains("localEndpoints"));
}

/// A dozen changes, one after the other: by the look alone each would come five seconds after the one before.
#[test]
fn addresses_are_followed_without_waiting_for_the_look() {
    if !available(&["iptables-nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("soon"), Manifests::new());
    manifests.put("web.json", &web(2));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    with(&json!({"nodePortAddresses": ["192.168.78.0/24"]}), &mut setup);
    let daemon = setup.start();
    rules_say(&lab, "default/web", &daemon);
    let mut took = Duration::ZERO;
    for last in 1..=12 {
        shell(&lab, &format!("ip addr add 192.168.78.{last}/32 dev lo"));
        took += rules_say(&lab, &format!("-d 192.168.78.{last}/32"), &daemon);
    }
    println!("twelve addresses took {took:?}");
    assert!(took < Duration::from_secs(50), "{took:?}; log:\n{}", daemon.log());
}
