//! Clients of a service with `ClientIP` affinity keep their endpoint: over a restart, and when the time is changed.
//!
//! The kernel's list of clients (`xt_recent`) lives as long as a rule names it. Chains of endpoints name it, and neither a
//! restart nor another time changes those.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::Lab;
use lab::live::available;
use live::cluster::{self, CLIENT, NODE, WEB, tcp, web};
use live::daemon::{PATIENCE, Setup};
use live::manifests::{Manifests, service};
use live::traffic::{commits, rules_say, settled, watch, web_answers};
use live::{rules, within};
use model::Family;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

/// With four endpoints, chance does this once in 10^12.
const TIMES: usize = 20;

fn sticky(seconds: u32) -> Vec<Value> {
    let mut objects = web(4);
    objects[1]["spec"]["sessionAffinity"] = json!("ClientIP");
    objects[1]["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
    objects
}

/// Who answered the client's next connection.
fn endpoint(lab: &Lab) -> String {
    let mut name = None;
    let answered = within(PATIENCE, || {
        let outcome = lab.probe(CLIENT, tcp(WEB).within(Duration::from_secs(3)));
        name = outcome
            .ok()
            .and_then(|outcome| outcome.answered_by().map(str::to_owned));
        name.is_some()
    });
    assert!(answered.is_some(), "web does not answer");
    name.unwrap()
}

#[track_caller]
fn all_go_to(lab: &Lab, first: &str, when: &str) {
    for _ in 0..TIMES {
        assert_eq!(endpoint(lab), first, "{when}");
    }
}

/// The lists of clients in the kernel, by chain.
fn lists(lab: &Lab) -> String {
    lab.must_exec(
        NODE,
        &[
            "sh",
            "-c",
            "cd /proc/net/xt_recent && grep -H . KUBE-SEP-* || true",
        ],
    )
    .unwrap_or_else(|error| panic!("{}", error.chain()))
}

#[test]
fn a_client_keeps_its_endpoint_while_the_daemon_is_killed_and_after_it_is_back() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("affin"), Manifests::new());
    manifests.put("web.json", &sticky(10_800));
    let setup = Setup::new(&lab, NODE, &manifests);
    let daemon = setup.start();
    web_answers(&lab, &daemon);
    rules_say(&lab, "--rcheck --seconds 10800", &daemon);
    let first = endpoint(&lab);
    all_go_to(&lab, &first, "before");
    let mut watch = watch(&lab);
    settled(&mut watch);
    daemon.kill();
    all_go_to(&lab, &first, "without a daemon");
    let daemon = setup.start();
    // It has looked at everything once it writes what is new.
    manifests.put("more.json", &[service("more", "10.1.0.99", 80, 8080)]);
    rules_say(&lab, "default/more", &daemon);
    assert!(!commits(&mut watch).is_empty(), "the watch sees nothing");
    all_go_to(&lab, &first, "after the restart");
}

#[test]
fn another_timeout_on_a_live_service_counts_at_once_and_forgets_nobody() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("affint"), Manifests::new());
    manifests.put("web.json", &sticky(10_800));
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    web_answers(&lab, &daemon);
    rules_say(&lab, "--rcheck --seconds 10800", &daemon);
    let first = endpoint(&lab);
    all_go_to(&lab, &first, "before");
    let before = lists(&lab);
    assert!(before.contains("src=192.168.50.10"), "{before}");

    manifests.put("web.json", &sticky(3600));
    rules_say(&lab, "--rcheck --seconds 3600", &daemon);
    assert!(
        lists(&lab).contains("src=192.168.50.10"),
        "the list was thrown away"
    );
    all_go_to(&lab, &first, "after the change");

    // The new time counts for clients that were there before: after silence they may go elsewhere.
    manifests.put("web.json", &sticky(1));
    rules_say(&lab, "--rcheck --seconds 1 ", &daemon);
    let goes_elsewhere = (0..20).any(|_| {
        thread::sleep(Duration::from_millis(2100));
        endpoint(&lab) != first
    });
    assert!(
        goes_elsewhere,
        "always {first}; the kernel's lists:\n{}",
        lists(&lab)
    );
    let saved = rules::saved(&lab, NODE, Family::V4);
    assert!(!saved.contains("--seconds 3600"), "{saved}");
}
