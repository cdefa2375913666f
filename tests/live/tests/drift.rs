//! What somebody else does to our rules is put right within a moment, with a name, and not for ever.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use kernel::Backend;
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
use std::time::{Duration, Instant};

/// The time until a repair; most take less than half a second, and a busy machine takes its time.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Every look there reads all of our tables.
const SYNC_PERIOD_OF_LEGACY: Duration = Duration::from_secs(2);

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
        println!(
            "{harm}: repaired after {:?}",
            repaired(&lab, &whole, &daemon, &harm)
        );
    }
    let log = daemon.log();
    let told = |what: &str| {
        log.lines().any(|line| {
            line.contains("changed by somebody else") && line.contains("iptables") && line.contains(what)
        })
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
        println!(
            "{harm}: repaired after {:?}",
            repaired(&lab, &whole, &daemon, harm)
        );
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
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("somebody else"))
        .collect();
    println!("{rounds} rounds, told:\n{}", told.join("\n"));
    assert!(rounds > 30, "only {rounds} rounds");
    // Five at once, and then after 1, 2, 4 and 8 seconds.
    assert!((6..=10).contains(&told.len()), "{} lines:\n{log}", told.len());
    let last = told.last().unwrap();
    assert!(
        last.contains("again and again") && last.contains("iptables (pid "),
        "{last}"
    );
}

#[test]
fn a_rule_lost_on_legacy_is_repaired_within_the_sync_period() {
    if !available(&["iptables-legacy"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("driftl"), Manifests::new());
    let lock = lab.folder().join("xtables.lock").to_string_lossy().into_owned();
    let legacy = |words: &str| {
        run(
            &lab,
            &format!("env XTABLES_LOCKFILE={lock} iptables-legacy {words}"),
        );
    };
    legacy("-t mangle -N KUBE-IPTABLES-HINT");
    manifests.put("web.json", &web(4));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.config = configuration(&json!({"iptables": {"minSyncPeriod": "10ms", "syncPeriod": "2s"}}));
    setup.environment = vec![("XTABLES_LOCKFILE", lock.clone())];
    let daemon = setup.start();
    web_answers(&lab, &daemon);
    thread::sleep(Duration::from_secs(1));
    let saved = || rules::saved_by(&lab, NODE, Family::V4, Backend::Legacy);
    let whole = saved();
    let service = chain(&whole, "KUBE-SVC-");
    legacy(&format!("-t nat -D {service} 2"));
    let mut differences = String::new();
    let took = within(SYNC_PERIOD_OF_LEGACY + Duration::from_secs(2), || {
        differences = rules::differences_in_words(&whole, &saved(), Family::V4);
        differences.is_empty()
    });
    println!("repaired after {took:?}");
    assert!(took.is_some(), "{differences}\n{}", daemon.log());
    assert!(daemon.log().contains(&service), "{}", daemon.log());
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
    let told = within(AT_ONCE, || daemon.log().contains("others wrote into our chains"));
    assert!(told.is_some(), "{}", daemon.log());
}
