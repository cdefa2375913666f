//! Tools fail, files are half written, strangers commit: the rules in place stay, and what can be served is served.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, endpoints, web};
use live::daemon::{Daemon, Setup};
use live::manifests::{Manifests, service};
use live::stubs::{Misbehaviour, Stubs};
use live::traffic::{all_answered, commits, on_web, rules_say, settled, watch, web_answers};
use live::{rules, within};
use model::Family;
use serde_json::json;
use std::thread;
use std::time::Duration;

const RESTORE: &str = "iptables-nft-restore";
const RESTORE_V6: &str = "ip6tables-nft-restore";

/// A fault lasts longer than the daemon's period of repairs.
const LONG_ENOUGH: Duration = Duration::from_millis(1500);

fn started(setup: &Setup<'_>, lab: &Lab) -> Daemon {
    let daemon = setup.start();
    web_answers(lab, &daemon);
    daemon
}

#[test]
fn broken_ip6tables_does_not_harm_ipv4() {
    if !available(&["iptables", "ip6tables"]) {
        return;
    }
    let stubs = Stubs::new(&[RESTORE_V6], Misbehaviour::Fails);
    stubs.on(RESTORE_V6);
    let (lab, manifests) = (cluster::up("nosix"), Manifests::new());
    manifests.put("web.json", &web(4));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.environment = vec![("PATH", stubs.path())];
    let mut daemon = started(&setup, &lab);
    let prober = on_web(&lab);
    assert!(
        within(live::daemon::PATIENCE, || stubs.calls(RESTORE_V6) > 0).is_some(),
        "ip6tables was not asked"
    );

    manifests.put("more.json", &[service("more", "10.1.0.99", 80, 8080)]);
    rules_say(&lab, "default/more", &daemon);
    assert!(daemon.runs(), "it ended:\n{}", daemon.log());
    assert!(
        !rules::saved(&lab, NODE, Family::V6).contains("KUBE-SVC"),
        "the stub wrote rules"
    );

    thread::sleep(LONG_ENOUGH);

    // Mended, IPv6 follows by itself.
    stubs.off(RESTORE_V6);
    let six = within(live::daemon::PATIENCE, || {
        rules::saved(&lab, NODE, Family::V6).contains("KUBE-SERVICES")
    });
    assert!(
        six.is_some(),
        "no IPv6 rules; log of the daemon:\n{}",
        daemon.log()
    );
    all_answered(prober, 200);
}

#[test]
fn failing_iptables_restore_is_tried_again_and_the_rules_in_place_serve_on() {
    if !available(&["iptables"]) {
        return;
    }
    let stubs = Stubs::new(&[RESTORE], Misbehaviour::Fails);
    let (lab, manifests) = (cluster::up("fails"), Manifests::new());
    manifests.put("web.json", &web(4));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.environment = vec![("PATH", stubs.path())];
    let mut daemon = started(&setup, &lab);
    let prober = on_web(&lab);
    stubs.on(RESTORE);
    manifests.put("more.json", &[service("more", "10.1.0.99", 80, 8080)]);
    let tried = within(live::daemon::PATIENCE, || stubs.calls(RESTORE) >= 3);
    assert!(
        tried.is_some(),
        "{} tries; log of the daemon:\n{}",
        stubs.calls(RESTORE),
        daemon.log()
    );
    assert!(daemon.runs(), "it ended:\n{}", daemon.log());
    assert!(
        !rules::saved(&lab, NODE, Family::V4).contains("default/more"),
        "the stub wrote rules"
    );
    thread::sleep(LONG_ENOUGH);
    stubs.off(RESTORE);
    let took = rules_say(&lab, "default/more", &daemon);
    println!("recovered after {took:?}");
    assert!(
        daemon.log().contains("made to fail"),
        "the log lacks the tool's words:\n{}",
        daemon.log()
    );
    all_answered(prober, 200);
}

#[test]
fn half_written_and_malformed_manifests_change_nothing() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("half"), Manifests::new());
    manifests.put("web.json", &web(4));
    let mut daemon = started(&Setup::new(&lab, NODE, &manifests), &lab);
    let mut watch = watch(&lab);
    settled(&mut watch);
    let whole = std::fs::read_to_string(manifests.file("web.json")).unwrap();
    let prober = on_web(&lab);
    for text in [
        &whole[..whole.len() / 2],
        "",
        "{",
        "kind: [",
        &whole[..whole.len() - 1],
        "\u{0}\u{1}",
    ] {
        manifests.scribble("web.json", text);
        thread::sleep(Duration::from_millis(1500));
    }
    // A Service cut off in the middle of a number would be another port.
    let written = commits(&mut watch);
    assert!(
        written.is_empty(),
        "{written:?}\nlog of the daemon:\n{}",
        daemon.log()
    );
    assert!(
        daemon.log().contains("web.json"),
        "the log does not name the file:\n{}",
        daemon.log()
    );
    assert!(daemon.runs(), "it ended:\n{}", daemon.log());

    // One bad object harms only itself.
    let bad = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "bad"},
                     "spec": {"clusterIP": "10.1.0.300", "ports": [{"port": 99999}]}});
    manifests.put(
        "bad.json",
        &[bad, service("good", "10.1.0.98", 80, 8080), endpoints("good", 1)],
    );
    rules_say(&lab, "default/good", &daemon);
    manifests.put("web.json", &web(3));
    let shrunk = within(live::daemon::PATIENCE, || {
        !rules::saved(&lab, NODE, Family::V4).contains("10.244.2.7:8080")
    });
    assert!(
        shrunk.is_some(),
        "the mended file was not read; log of the daemon:\n{}",
        daemon.log()
    );
    all_answered(prober, 1000);
}

#[test]
fn strangers_commits_make_us_write_nothing() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("bumps"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = started(&Setup::new(&lab, NODE, &manifests), &lab);
    let mut watch = watch(&lab);
    settled(&mut watch);
    let prober = on_web(&lab);
    for number in 0..20 {
        let table = format!("stranger{number}");
        lab.must_exec(NODE, &["nft", "add", "table", "ip", &table])
            .unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(Duration::from_secs(2));
    let commits = commits(&mut watch);
    let ours: Vec<_> = commits
        .iter()
        .filter(|one| one.process_name.as_deref() != Some("nft"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}\nlog of the daemon:\n{}", daemon.log());
    assert_eq!(commits.len(), 20);
    all_answered(prober, 400);
}
