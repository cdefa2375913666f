//! Clients of a service with `ClientIP` affinity keep their endpoint in nftables mode: whatever other endpoints do, over a
//! restart, and with another time; and who loses its endpoint stays with the next one at once.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::Lab;
use lab::live::available;
use live::cluster::{self, CLIENT, NODE, PODS, WEB, WEB_NODE_PORT, shell, tcp, web};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::health::metric;
use live::manifests::{Manifests, slice};
use live::traffic::web_answers;
use live::within;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

/// With four endpoints, chance does this once in 10^12.
const TIMES: usize = 20;

/// `web` with affinity for so long, in front of these of [`PODS`].
fn sticky(seconds: u32, pods: &[usize]) -> Vec<Value> {
    let mut objects = web(0);
    objects[1]["spec"]["sessionAffinity"] = json!("ClientIP");
    objects[1]["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
    let pods: Vec<(&str, &str)> = pods.iter().map(|at| (PODS[*at].1, PODS[*at].2)).collect();
    objects[2] = slice("web", 8080, &pods);
    objects
}

fn start(lab: &Lab, manifests: &Manifests) -> Daemon {
    let mut setup = Setup::new(lab, NODE, manifests);
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

/// Which of [`PODS`] answers the client's next connection.
fn pod_at(lab: &Lab, to: &str) -> usize {
    let outcome = lab.probe(CLIENT, tcp(to).within(Duration::from_secs(3))).unwrap();
    let name = outcome.answered_by();
    let at = PODS.iter().position(|(pod, ..)| Some(*pod) == name);
    at.unwrap_or_else(|| panic!("{to}: {outcome:?}"))
}

#[track_caller]
fn all_go_to(lab: &Lab, first: usize, when: &str) {
    for _ in 0..TIMES {
        assert_eq!(pod_at(lab, WEB), first, "{when}");
    }
}

/// Waits until the table has exactly these pods for `web`.
#[track_caller]
fn serves(lab: &Lab, pods: &[usize], daemon: &Daemon) {
    let as_wanted = within(PATIENCE, || {
        let listed = shell(lab, "nft list table ip kube-proxy");
        (0..PODS.len()).all(|at| listed.contains(&format!(": {} . 8080", PODS[at].1)) == pods.contains(&at))
    });
    assert!(as_wanted.is_some(), "not {pods:?}:\n{}", daemon.log());
}

#[test]
fn a_client_stays_whatever_other_endpoints_do_and_over_a_restart_and_moves_once_when_its_own_goes() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftaff"), Manifests::new());
    manifests.put("web.json", &sticky(10_800, &[0, 1, 2, 3]));
    let daemon = start(&lab, &manifests);
    web_answers(&lab, &daemon);
    let first = pod_at(&lab, WEB);
    all_go_to(&lab, first, "before");

    // Others go one by one, and come back.
    let others: Vec<usize> = (0..4).filter(|at| *at != first).collect();
    for gone in 1..=3 {
        let mut rest: Vec<usize> = others[gone..].to_vec();
        rest.push(first);
        manifests.put("web.json", &sticky(10_800, &rest));
        serves(&lab, &rest, &daemon);
        all_go_to(&lab, first, "while others go");
    }
    manifests.put("web.json", &sticky(10_800, &[0, 1, 2, 3]));
    serves(&lab, &[0, 1, 2, 3], &daemon);
    all_go_to(&lab, first, "when others have come");

    daemon.kill();
    all_go_to(&lab, first, "without a daemon");
    let daemon = start(&lab, &manifests);
    all_go_to(&lab, first, "after the restart");

    // Its own goes: it stays with the next one from the first connection on.
    manifests.put("web.json", &sticky(10_800, &others));
    serves(&lab, &others, &daemon);
    let second = pod_at(&lab, WEB);
    assert_ne!(second, first);
    all_go_to(&lab, second, "at its second endpoint");
    // The first is back, maybe in the slot that the client was known by.
    manifests.put("web.json", &sticky(10_800, &[0, 1, 2, 3]));
    serves(&lab, &[0, 1, 2, 3], &daemon);
    all_go_to(&lab, second, "when its first endpoint is back");
    // Deviation: affinity is kept for each address (ADR 50), so the node port has a memory of its own.
    let there = pod_at(&lab, WEB_NODE_PORT);
    for _ in 0..TIMES {
        assert_eq!(pod_at(&lab, WEB_NODE_PORT), there, "at the node port");
    }
}

#[test]
fn another_timeout_on_a_live_service_counts_at_once_and_forgets_nobody() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftafft"), Manifests::new());
    let all = [0, 1, 2, 3];
    manifests.put("web.json", &sticky(10_800, &all));
    let daemon = start(&lab, &manifests);
    web_answers(&lab, &daemon);
    let first = pod_at(&lab, WEB);
    let known_within = |seconds: u32| {
        let set = format!("service-within-4-sticky-{seconds}s");
        let known = within(PATIENCE, || {
            shell(&lab, &format!("nft list set ip kube-proxy {set} || true")).contains("10.1.0.80")
        });
        assert!(known.is_some(), "not in {set}:\n{}", daemon.log());
    };
    manifests.put("web.json", &sticky(3600, &all));
    known_within(3600);
    all_go_to(&lab, first, "after the change");
    manifests.put("web.json", &sticky(1, &all));
    known_within(1);
    // The old time stops to count within seconds, with the next connection of the client.
    thread::sleep(Duration::from_secs(3));
    let goes_elsewhere = (0..20).any(|_| {
        let now = pod_at(&lab, WEB);
        thread::sleep(Duration::from_millis(2100));
        pod_at(&lab, WEB) != now
    });
    assert!(goes_elsewhere, "{}", shell(&lab, "nft list table ip kube-proxy"));
}

#[test]
fn the_fill_of_the_sets_of_clients_is_a_metric() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftafff"), Manifests::new());
    manifests.put("web.json", &sticky(10_800, &[0, 1]));
    let daemon = start(&lab, &manifests);
    web_answers(&lab, &daemon);
    all_go_to(&lab, pod_at(&lab, WEB), "at all");
    // The client has an element for the cluster IP, and nobody else has connected.
    let v4 = ["ip_family=\"IPv4\""];
    let Some(clients) = metric(&lab, "kubeproxy_rs_affinity_clients", &v4) else {
        let listed = kernel_counts(&lab);
        assert!(!listed, "the kernel counts elements and the metric is not there");
        return println!("this kernel does not count elements");
    };
    assert!((clients - 1.0).abs() < 1e-9, "{clients} clients");
    let ratio = metric(&lab, "kubeproxy_rs_affinity_fullest_set_ratio", &v4).unwrap();
    assert!((1e-6..1e-3).contains(&ratio), "{ratio}");
}

/// From 6.16 on.
fn kernel_counts(lab: &Lab) -> bool {
    let release = shell(lab, "uname -r");
    let mut numbers = release.split('.').map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(16))
}
