//! Others write into the tables while there is traffic: nobody is refused, and changes get in.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::live::available;
use lab::{Lab, ProbeOutcome, ProberReport};
use live::cluster::{self, NODE, web};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::manifests::{Manifests, service};
use live::traffic::{all_answered, by_a_pod, commits, on_web, rules_say, settled, watch, web_answers};
use live::{health, rules, within};
use model::Family;
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

/// Repairs come by what the kernel tells: no look of its own is due meanwhile.
fn start(lab: &Lab, manifests: &Manifests) -> Daemon {
    let mut setup = Setup::new(lab, NODE, manifests);
    setup.config = configuration(&json!({"iptables": {"minSyncPeriod": "50ms", "syncPeriod": "60s"}}));
    let daemon = setup.start();
    web_answers(lab, &daemon);
    rules_say(lab, "KUBE-POSTROUTING", &daemon);
    settled(&mut watch(lab));
    daemon
}

#[test]
fn a_writer_that_never_stops_keeps_no_change_out() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("storm"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = start(&lab, &manifests);
    let prober = on_web(&lab);
    let mut watch = watch(&lab);
    // Each is a commit, and each makes the tools of others begin anew.
    let storm = "while :; do nft add table ip stranger; nft delete table ip stranger; done";
    let storm = lab.spawn(NODE, &["sh", "-c", storm], "storm").unwrap();
    let mut total = 0;
    let mut blows = |watch: &mut _| {
        // Taken as they come, or they are lost.
        total += commits(watch).len();
        total
    };
    let is_blowing = within(PATIENCE, || blows(&mut watch) > 20);
    assert!(is_blowing.is_some(), "there is no storm: {}", storm.log());
    for turn in 0..10 {
        let name = format!("more-{turn}");
        manifests.put(
            "more.json",
            &[service(&name, &format!("10.1.9.{turn}"), 80, 8080)],
        );
        let before = blows(&mut watch);
        let took = rules_say(&lab, &format!("default/{name}"), &daemon);
        println!(
            "written after {took:?}, among {} commits",
            blows(&mut watch) - before
        );
    }
    health::healthz_becomes(&lab, 200, &daemon);
    drop(storm);
    assert!(!daemon.log().contains("somebody else"), "{}", daemon.log());
    all_answered(prober, 200);
}

/// What somebody does, and whether service traffic passes meanwhile.
struct Harm {
    does: &'static str,
    traffic: Traffic,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Traffic {
    /// Nothing of it is noticed.
    Passes,
    /// New connections may find no way to a pod until the repair: the sink answers, or a second try gets there later.
    Misses,
}

const HARMS: [Harm; 6] = [
    Harm {
        does: "iptables -F",
        traffic: Traffic::Passes,
    },
    Harm {
        does: "iptables -t nat -D POSTROUTING 1",
        traffic: Traffic::Misses,
    },
    Harm {
        does: "iptables -t nat -D PREROUTING 1",
        traffic: Traffic::Misses,
    },
    Harm {
        does: "iptables -t nat -D KUBE-SERVICES 1",
        traffic: Traffic::Misses,
    },
    Harm {
        does: "iptables -t nat -F",
        traffic: Traffic::Misses,
    },
    Harm {
        does: "nft flush ruleset",
        traffic: Traffic::Misses,
    },
];

/// From the first to the last connection that got to no pod, and how many; nobody may have been refused.
fn gap(report: &ProberReport, harm: &str) -> (Duration, usize) {
    let missed: Vec<_> = report
        .samples
        .iter()
        .filter(|sample| !by_a_pod(&sample.outcome))
        .collect();
    let refused = missed
        .iter()
        .filter(|sample| matches!(sample.outcome, ProbeOutcome::Refused(_)));
    assert_eq!(refused.count(), 0, "{harm}: {}", report.describe());
    let times = || missed.iter().map(|sample| sample.at);
    let length = times().max().zip(times().min());
    let length = length.map_or(Duration::ZERO, |(last, first)| last - first);
    (length, missed.len())
}

#[test]
fn nobody_is_refused_while_others_harm_the_rules() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("harm"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = start(&lab, &manifests);
    let whole = rules::saved(&lab, NODE, Family::V4);
    for harm in &HARMS {
        let prober = on_web(&lab);
        thread::sleep(Duration::from_millis(200));
        let words: Vec<&str> = harm.does.split(' ').collect();
        let begun = Instant::now();
        lab.must_exec(NODE, &words).unwrap();
        let mut differences = String::new();
        let repaired = within(PATIENCE, || {
            let now = rules::saved(&lab, NODE, Family::V4);
            differences = rules::differences_in_words(&whole, &now, Family::V4);
            differences.is_empty()
        });
        assert!(
            repaired.is_some(),
            "{}: {differences}\n{}",
            harm.does,
            daemon.log()
        );
        let took = begun.elapsed();
        thread::sleep(Duration::from_millis(200));
        let report = prober.stop();
        let (length, count) = gap(&report, harm.does);
        println!(
            "{}: repaired after {took:?}; {count} of {} connections missed within {length:?}",
            harm.does,
            report.total()
        );
        if harm.traffic == Traffic::Passes {
            assert_eq!(count, 0, "{}: {}", harm.does, report.describe());
        }
        let last = report.samples.iter().max_by_key(|sample| sample.at).unwrap();
        assert!(by_a_pod(&last.outcome), "{}: {}", harm.does, report.describe());
    }
    assert!(health::metric(&lab, "kubeproxy_rs_repairs_total", &[]).unwrap() >= 6.0);
    health::healthz_becomes(&lab, 200, &daemon);
}
