//! Tools fail, files are half written, strangers commit: the rules in place stay, and what can be served is served.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, endpoints, web};
use live::daemon::{Daemon, Setup};
use live::manifests::{Manifests, service};
use live::stubs::{Misbehaviour, Stubs};
use live::traffic::{all_answered, commits, on_web, rules_say, settled, watch, web_answers};
use live::{health, rules, within};
use model::Family;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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
        !rules::saved(&lab, NODE, Family::V6).contains("KUBE-POSTROUTING"),
        "the stub wrote rules"
    );

    // Health names the family, and speaks well of the other one.
    let said = health::healthz_becomes(&lab, 503, &daemon);
    let of = |said: &health::Said| [said.of_family("IPv4"), said.of_family("IPv6")];
    assert_eq!(of(&said), [Some(true), Some(false)], "{said:?}");
    let said = health::livez_becomes(&lab, 503, &daemon);
    assert_eq!(of(&said), [Some(true), Some(false)], "{said:?}");

    // Mended, IPv6 follows by itself.
    stubs.off(RESTORE_V6);
    let six = within(live::daemon::PATIENCE, || {
        rules::saved(&lab, NODE, Family::V6).contains("KUBE-POSTROUTING")
    });
    assert!(
        six.is_some(),
        "no IPv6 rules; log of the daemon:\n{}",
        daemon.log()
    );
    println!("IPv6 is served {six:?} after its tool was mended");
    health::healthz_becomes(&lab, 200, &daemon);
    health::livez_becomes(&lab, 200, &daemon);
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
    // Events that go on and on do not make it look better, and its rules are still there.
    let steady = steady_events(&manifests);
    health::healthz_becomes(&lab, 503, &daemon);
    // The other page asks whether a restart would help. It would not where each service has been refused by itself, so
    // nothing is asked of it here.
    let looked = Instant::now();
    while looked.elapsed() < LONG_ENOUGH {
        assert_eq!(health::healthz(&lab).unwrap().status, 503, "{}", daemon.log());
        thread::sleep(Duration::from_millis(50));
    }
    assert!(health::metric(&lab, "kubeproxy_rs_oldest_pending_seconds", &["IPv4"]).unwrap() > 1.0);
    steady.store(true, Ordering::Relaxed);
    stubs.off(RESTORE);
    let took = rules_say(&lab, "default/more", &daemon);
    println!("recovered after {took:?}");
    assert!(
        daemon.log().contains("made to fail"),
        "the log lacks the tool's words:\n{}",
        daemon.log()
    );
    health::healthz_becomes(&lab, 200, &daemon);
    health::livez_becomes(&lab, 200, &daemon);
    all_answered(prober, 200);
}

/// A service changes all the time, until the switch is set.
fn steady_events(manifests: &Manifests) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let (file, stopped) = (manifests.file("steady.json"), stop.clone());
    thread::spawn(move || {
        for turn in 0..10_000 {
            if stopped.load(Ordering::Relaxed) {
                return;
            }
            let address = format!("10.1.77.{}", 1 + turn % 200);
            // The folder may be gone with the test, if that failed.
            let _ = std::fs::write(&file, service("steady", &address, 80, 8080).to_string());
            thread::sleep(Duration::from_millis(300));
        }
    });
    stop
}

#[test]
fn a_restore_that_is_slow_and_gets_on_is_alive() {
    if !available(&["iptables"]) {
        return;
    }
    let stubs = Stubs::new(&[RESTORE], Misbehaviour::Crawls);
    let (lab, manifests) = (cluster::up("crawls"), Manifests::new());
    manifests.put("web.json", &web(4));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.environment = vec![("PATH", stubs.path())];
    let daemon = started(&setup, &lab);
    health::healthz_becomes(&lab, 200, &daemon);
    let prober = on_web(&lab);
    stubs.on(RESTORE);
    manifests.put("more.json", &[service("more", "10.1.0.99", 80, 8080)]);
    let begun = within(live::daemon::PATIENCE, || stubs.calls(RESTORE) > 0);
    assert!(begun.is_some(), "{}", daemon.log());
    stubs.off(RESTORE);
    // Load balancers are told that a change waits for longer than twice the sync period; nobody kills a process that works.
    health::healthz_becomes(&lab, 503, &daemon);
    let lives = || health::livez(&lab).unwrap();
    let mut looks = 0;
    let written = within(live::daemon::PATIENCE, || {
        let said = lives();
        assert_eq!(said.status, 200, "{said:?}\n{}", daemon.log());
        looks += 1;
        rules::saved(&lab, NODE, Family::V4).contains("default/more")
    });
    assert!(written.is_some() && looks > 3, "{looks} looks\n{}", daemon.log());
    health::healthz_becomes(&lab, 200, &daemon);
    all_answered(prober, 400);
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
