//! Others who undo our work again and again are named and not fought for ever; another of ours is no rival.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use kernel::Backend;
use kernel::table_sizes::{SizeReader, TableSizes};
use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, crowd, web};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::manifests::Manifests;
use live::rules::{differences_in_words, saved_by};
use live::traffic::{commits, settled, watch, web_answers};
use live::within;
use model::Family;
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

/// The time until something happens that happens; a busy machine takes its time.
const SOON: Duration = Duration::from_mins(1);

fn lock(lab: &Lab) -> String {
    lab.folder().join("xtables.lock").to_string_lossy().into_owned()
}

/// Runs `iptables` of a backend on the node.
fn iptables(lab: &Lab, backend: Backend, words: &str) {
    let tool = match backend {
        Backend::NfTables => "iptables-nft",
        Backend::Legacy => "iptables-legacy",
    };
    let lock = format!("XTABLES_LOCKFILE={}", lock(lab));
    let words: Vec<&str> = ["env", &lock, tool].into_iter().chain(words.split(' ')).collect();
    lab.must_exec(NODE, &words)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
}

/// A proxy that looks by itself once in ten minutes, and says more than it does as a rule.
fn start(lab: &Lab, manifests: &Manifests, parts: &serde_json::Value) -> Daemon {
    let mut setup = Setup::new(lab, NODE, manifests);
    setup.config = configuration(&json!({
        "iptables": {"minSyncPeriod": "10ms", "syncPeriod": "10m"},
        "logging": {"verbosity": 4},
    }));
    for (field, value) in parts.as_object().unwrap() {
        setup.config[field] = value.clone();
    }
    setup.environment = vec![("XTABLES_LOCKFILE", lock(lab))];
    let daemon = setup.start();
    web_answers(lab, &daemon);
    let both = within(PATIENCE, || {
        daemon.log().matches("rules are in sync").count() >= 2
    });
    assert!(both.is_some(), "not both families are in sync:\n{}", daemon.log());
    daemon
}

/// Whether a line tells of a repair after which the next one waits.
fn waits(line: &str) -> bool {
    line.contains("waitS=") && !line.contains("waitS=0")
}

/// Flushes our chain again and again until the daemon has taken it for a rival; each repair and what it said of it.
fn rival(stem: &str, backend: Backend, by: &str) {
    let (lab, manifests) = (cluster::up(stem), Manifests::new());
    if backend == Backend::Legacy {
        iptables(&lab, backend, "-t mangle -N KUBE-IPTABLES-HINT");
    }
    manifests.put("web.json", &web(4));
    let daemon = start(&lab, &manifests, &json!({}));
    let begun = Instant::now();
    let mut rounds = 0;
    let told = |log: &str| -> Vec<String> {
        let lines = log
            .lines()
            .filter(|line| line.contains("changed by somebody else"));
        lines.map(str::to_owned).collect()
    };
    let is_rival = |line: &String| line.contains("again and again");
    let waits = |log: &str| told(log).iter().filter(|line| waits(line)).count();
    while begun.elapsed() < SOON && waits(&daemon.log()) < 3 {
        iptables(&lab, backend, "-t nat -F KUBE-SERVICES");
        rounds += 1;
        thread::sleep(Duration::from_millis(50));
    }
    let log = daemon.log();
    let lines = told(&log);
    println!(
        "{backend}: {rounds} rounds in {:?}, told:\n{}",
        begun.elapsed(),
        lines.join("\n")
    );
    assert!(lines.iter().any(is_rival), "no rival was told of:\n{log}");
    // Five at once, and then each wait is twice as long as the one before.
    assert!(
        lines.len() <= 9 && rounds > lines.len(),
        "{rounds} rounds, {} repairs:\n{log}",
        lines.len()
    );
    assert!(lines.iter().all(|line| line.contains(by)), "{lines:#?}");
    // Nobody flushes any more, and the repair comes when its wait is over.
    web_answers(&lab, &daemon);
}

#[test]
fn a_rival_is_named_and_not_fought_for_ever() {
    if available(&["iptables-nft"]) {
        rival("rivn", Backend::NfTables, "iptables-nft (pid ");
    }
}

/// Nothing tells there who it was.
#[test]
fn a_rival_on_legacy_is_told_of_without_a_name_and_not_fought_for_ever() {
    if available(&["iptables-legacy"]) {
        rival("rivl", Backend::Legacy, "unknown");
    }
}

/// A second proxy beside the first, as in a rolling update that does not wait; its ports are its own.
fn second(lab: &Lab, manifests: &Manifests) -> Daemon {
    let ports = json!({"healthzBindAddress": "0.0.0.0:10266", "metricsBindAddress": "127.0.0.1:10259"});
    start(lab, manifests, &ports)
}

/// Waits until the rules are those of a proxy alone.
fn whole(lab: &Lab, backend: Backend, alone: &str, daemons: &[&Daemon]) {
    let mut differences = String::new();
    let took = within(SOON, || {
        differences = differences_in_words(alone, &saved_by(lab, NODE, Family::V4, backend), Family::V4);
        differences.is_empty()
    });
    let logs: Vec<String> = daemons.iter().map(|daemon| daemon.log()).collect();
    assert!(took.is_some(), "{differences}\n{}", logs.join("\n---\n"));
    println!("{backend}: whole after {took:?}");
}

/// What the rules are when one proxy alone has written them, with this many services besides `web`.
fn alone(backend: Backend, stem: &str, services: usize) -> String {
    let (lab, manifests) = (cluster::up(stem), Manifests::new());
    if backend == Backend::Legacy {
        iptables(&lab, backend, "-t mangle -N KUBE-IPTABLES-HINT");
    }
    manifests.put("web.json", &web(4));
    manifests.put("crowd.json", &crowd(services));
    let daemon = start(&lab, &manifests, &json!({}));
    let saved = saved_by(&lab, NODE, Family::V4, backend);
    daemon.kill();
    saved
}

#[test]
fn two_of_ours_settle_and_write_nothing_on_nf_tables() {
    if !available(&["iptables-nft"]) {
        return;
    }
    let after = alone(Backend::NfTables, "alon", 20);
    let (lab, manifests) = (cluster::up("twon"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemons = [&start(&lab, &manifests, &json!({})), &second(&lab, &manifests)];
    let mut watch = watch(&lab);
    settled(&mut watch);
    manifests.put("crowd.json", &crowd(20));
    whole(&lab, Backend::NfTables, &after, &daemons);
    // Each looks at what the other wrote, and on a busy machine they take turns for a while.
    let quiet = within(SOON, || {
        thread::sleep(Duration::from_secs(3));
        commits(&mut watch).is_empty()
    });
    assert!(quiet.is_some(), "{}\n---\n{}", daemons[0].log(), daemons[1].log());
    whole(&lab, Backend::NfTables, &after, &daemons);
}

#[test]
fn two_of_ours_settle_and_write_nothing_on_legacy() {
    if !available(&["iptables-legacy"]) {
        return;
    }
    let after = alone(Backend::Legacy, "alol", 20);
    let (lab, manifests) = (cluster::up("twol"), Manifests::new());
    iptables(&lab, Backend::Legacy, "-t mangle -N KUBE-IPTABLES-HINT");
    manifests.put("web.json", &web(4));
    let daemons = [&start(&lab, &manifests, &json!({})), &second(&lab, &manifests)];
    manifests.put("crowd.json", &crowd(20));
    whole(&lab, Backend::Legacy, &after, &daemons);
    let quiet = within(SOON, || {
        let before = sizes(&lab);
        thread::sleep(Duration::from_secs(3));
        sizes(&lab) == before
    });
    assert!(quiet.is_some(), "{}\n---\n{}", daemons[0].log(), daemons[1].log());
    whole(&lab, Backend::Legacy, &after, &daemons);
    let written = |daemon: &Daemon| daemon.log().matches("rules written").count();
    let before = daemons.map(written);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(
        daemons.map(written),
        before,
        "{}\n---\n{}",
        daemons[0].log(),
        daemons[1].log()
    );
}

fn sizes(lab: &Lab) -> TableSizes {
    let namespace = lab
        .namespace(NODE)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    namespace
        .run(|| SizeReader::new(Family::V4).unwrap().read().unwrap())
        .unwrap_or_else(|error| panic!("{}", error.chain()))
}
