//! What somebody else does to our rules is put right within a moment, with a name, and not for ever.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, web};
use live::daemon::{Daemon, Setup, configuration};
use live::manifests::Manifests;
use live::traffic::{commits, rules_say, settled, watch, web_answers};
use live::{rules, within};
use model::Family;
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

/// The time until a repair; most take less than half a second, and a busy machine takes its time.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Nothing is found by a look that comes by itself: the period is much longer than [`AT_ONCE`].
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

/// How long until the rules are whole again.
fn repaired(lab: &Lab, whole: &str, daemon: &Daemon, harm: &str) -> Duration {
    let mut differences = String::new();
    let took = within(AT_ONCE, || {
        differences = rules::differences_in_words(whole, &rules::saved(lab, NODE, Family::V4), Family::V4);
        differences.is_empty()
    });
    took.unwrap_or_else(|| {
        panic!(
            "not repaired after {harm}:\n{differences}\nlog of the daemon:\n{}",
            daemon.log()
        )
    })
}

/// The first chain of `web` whose name begins so.
fn chain(saved: &str, prefix: &str) -> String {
    let declared = format!(":{prefix}");
    let line = saved.lines().find(|line| line.starts_with(&declared)).unwrap();
    line[1..].split(' ').next().unwrap().to_owned()
}

#[test]
fn each_harm_is_repaired_at_once_and_its_author_is_named() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("drift"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = start(&lab, &manifests);
    let whole = rules::saved(&lab, NODE, Family::V4);
    let (service, endpoint) = (chain(&whole, "KUBE-SVC-"), chain(&whole, "KUBE-SEP-"));
    for harm in [
        format!("iptables -t nat -D {service} 2"),
        format!("iptables -t nat -F {endpoint}"),
        "iptables -t nat -D PREROUTING 1".to_owned(),
        "iptables -t filter -D FORWARD 1".to_owned(),
    ] {
        run(&lab, &harm);
        assert_ne!(rules::saved(&lab, NODE, Family::V4), whole, "{harm} did nothing");
        println!("{harm}: repaired after {:?}", repaired(&lab, &whole, &daemon, &harm));
    }
    let log = daemon.log();
    let told = |what: &str| {
        log.lines()
            .any(|line| line.contains("changed by somebody else") && line.contains("iptables") && line.contains(what))
    };
    assert!(told(&service) && told(&endpoint) && told("PREROUTING"), "{log}");
    web_answers(&lab, &daemon);
}

#[test]
fn a_flushed_table_and_a_flushed_ruleset_are_repaired_at_once() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("driftf"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = start(&lab, &manifests);
    let whole = rules::saved(&lab, NODE, Family::V4);
    for harm in [
        "iptables -t nat -F",
        "iptables -t nat -F KUBE-SERVICES",
        "nft delete table ip nat",
        "nft flush ruleset",
    ] {
        run(&lab, harm);
        println!("{harm}: repaired after {:?}", repaired(&lab, &whole, &daemon, harm));
    }
    web_answers(&lab, &daemon);
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
fn a_rival_is_named_and_not_fought_for_ever() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("driftr"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = start(&lab, &manifests);
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < Duration::from_secs(12) {
        run(&lab, "iptables -t nat -F KUBE-SERVICES");
        rounds += 1;
        thread::sleep(Duration::from_millis(50));
    }
    let log = daemon.log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("somebody else")).collect();
    println!("{rounds} rounds, told:\n{}", told.join("\n"));
    assert!(rounds > 30, "only {rounds} rounds");
    // Five at once, and then after 1, 2, 4 and 8 seconds.
    assert!((6..=10).contains(&told.len()), "{} lines:\n{log}", told.len());
    let last = told.last().unwrap();
    assert!(last.contains("again and again") && last.contains("iptables (pid "), "{last}");
}
