//! Which commits are taken for somebody else's, on `nf_tables`.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, crowd, web};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::manifests::Manifests;
use live::traffic::{commits, rules_say, settled, watch, web_answers};
use live::{rules, within};
use model::Family;
use serde_json::json;
use std::thread;
use std::time::Duration;

/// The time until a commit is told of; most take less than half a second, and a busy machine takes its time.
const SOON: Duration = Duration::from_secs(30);

/// Nothing is found by a look that comes by itself: the period is much longer than [`SOON`].
fn start(lab: &Lab, manifests: &Manifests) -> Daemon {
    let mut setup = Setup::new(lab, NODE, manifests);
    setup.config = configuration(&json!({"iptables": {"minSyncPeriod": "10ms", "syncPeriod": "60s"}}));
    let daemon = setup.start();
    web_answers(lab, &daemon);
    rules_say(lab, "KUBE-POSTROUTING", &daemon);
    settled(&mut watch(lab));
    daemon
}

fn run(lab: &Lab, words: &str) {
    lab.must_exec(NODE, &words.split(' ').collect::<Vec<_>>())
        .unwrap_or_else(|error| panic!("{}", error.chain()));
}

#[test]
fn commits_that_touch_nothing_of_ours_make_us_write_nothing() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("driftn"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = start(&lab, &manifests);
    let mut watch = watch(&lab);
    let mut theirs = 0;
    for words in [
        "-N STRANGER",
        "-A STRANGER -m mark --mark 0x78 -j RETURN",
        "-I PREROUTING 1 -j STRANGER",
        "-D PREROUTING -j STRANGER",
        "-F STRANGER",
        "-X STRANGER",
    ] {
        run(&lab, &format!("iptables -t nat {words}"));
        theirs += 1;
    }
    thread::sleep(Duration::from_secs(2));
    let seen = commits(&mut watch);
    let ours: Vec<_> = seen
        .iter()
        .filter(|commit| commit.process_name.as_deref() != Some("iptables"))
        .collect();
    assert!(seen.len() >= theirs, "{seen:?}");
    assert!(ours.is_empty(), "{ours:?}\n{}", daemon.log());
    assert!(!daemon.log().contains("somebody else"), "{}", daemon.log());
}

#[test]
fn our_own_writes_are_not_taken_for_anothers() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("drifto"), Manifests::new());
    manifests.put("web.json", &web(4));
    manifests.put("crowd.json", &crowd(300));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.config = configuration(&json!({
        "iptables": {"minSyncPeriod": "10ms", "syncPeriod": "60s"},
        "logging": {"verbosity": 4},
    }));
    let daemon = setup.start();
    web_answers(&lab, &daemon);
    rules_say(&lab, "default/crowd-299", &daemon);
    // Rules and chains are deleted by netlink, and written by a tool.
    manifests.put("crowd.json", &crowd(100));
    let gone = within(PATIENCE, || {
        !rules::saved(&lab, NODE, Family::V4).contains("default/crowd-299")
    });
    assert!(gone.is_some(), "{}", daemon.log());
    thread::sleep(Duration::from_secs(1));
    let log = daemon.log();
    assert!(log.contains("rules written"), "{log}");
    assert!(
        !log.contains("others wrote") && !log.contains("were lost"),
        "{log}"
    );
    // The test can fail: this is how the log tells of somebody else.
    run(&lab, "iptables -t nat -Z KUBE-SERVICES");
    run(
        &lab,
        "iptables -t nat -A KUBE-MARK-MASQ -m mark --mark 0x99 -j RETURN",
    );
    let told = within(SOON, || daemon.log().contains("others wrote into our chains"));
    assert!(told.is_some(), "{}", daemon.log());
}
