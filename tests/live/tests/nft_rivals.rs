//! Nftables mode beside others who write into its table: rivals are named and not fought for ever, another of ours is
//! none, and somebody who commits all the time keeps no change out.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, crowd, endpoints, shell, web};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::manifests::{Manifests, service};
use live::traffic::{all_answered, commits, on_web, settled, watch, web_answers};
use live::within;
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// The time until something happens that happens; a busy machine takes its time.
const SOON: Duration = Duration::from_mins(1);

fn start(lab: &Lab, manifests: &Manifests, parts: &Value) -> Daemon {
    let mut setup = Setup::new(lab, NODE, manifests);
    setup.config = configuration(&json!({
        "mode": "nftables", "nftables": {"minSyncPeriod": "10ms", "syncPeriod": "10m"},
        "logging": {"verbosity": 4},
    }));
    for (field, value) in parts.as_object().unwrap() {
        setup.config[field] = value.clone();
    }
    let daemon = setup.start();
    // Whoever asks before leaves a connection that nobody translates, and the kernel keeps it for two minutes.
    let both = within(PATIENCE, || {
        daemon.log().matches("rules are in sync").count() >= 2
    });
    assert!(both.is_some(), "not both families are in sync:\n{}", daemon.log());
    web_answers(lab, &daemon);
    daemon
}

/// Its ports are its own.
fn second(lab: &Lab, manifests: &Manifests) -> Daemon {
    let ports = json!({"healthzBindAddress": "0.0.0.0:10266", "metricsBindAddress": "127.0.0.1:10259"});
    start(lab, manifests, &ports)
}

/// How many frontends have an endpoint in the first slot.
fn served(lab: &Lab) -> usize {
    let listed = shell(lab, "nft list map ip kube-proxy service-slot-0");
    listed.matches(" : 10.244.").count()
}

#[test]
fn a_rival_of_nftables_mode_is_named_and_not_fought_for_ever() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftriv"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = start(&lab, &manifests, &json!({}));
    let told = |log: &str| -> Vec<String> {
        let lines = log
            .lines()
            .filter(|line| line.contains("changed by somebody else"));
        lines.map(str::to_owned).collect()
    };
    let waits = |line: &&String| line.contains("waitS=") && !line.contains("waitS=0");
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < SOON && told(&daemon.log()).iter().filter(waits).count() < 3 {
        shell(&lab, "nft flush map ip kube-proxy service-slot-0");
        rounds += 1;
        thread::sleep(Duration::from_millis(50));
    }
    let log = daemon.log();
    let lines = told(&log);
    println!(
        "{rounds} rounds in {:?}, told:\n{}",
        begun.elapsed(),
        lines.join("\n")
    );
    assert!(
        lines.iter().any(|line| line.contains("again and again")),
        "no rival was told of:\n{log}"
    );
    // Five at once, and then each wait is twice as long as the one before.
    assert!(
        lines.len() <= 9 && rounds > lines.len(),
        "{rounds} rounds, {} repairs:\n{log}",
        lines.len()
    );
    assert!(lines.iter().all(|line| line.contains("nft (pid ")), "{lines:#?}");
    // Nobody flushes any more, and the repair comes when its wait is over.
    web_answers(&lab, &daemon);
}

#[test]
fn two_of_ours_in_nftables_mode_settle_and_write_nothing() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nfttwo"), Manifests::new());
    manifests.put("web.json", &web(2));
    let mut watch = watch(&lab);
    let daemons = [&start(&lab, &manifests, &json!({})), &second(&lab, &manifests)];
    let logs = || format!("{}\n---\n{}", daemons[0].log(), daemons[1].log());
    settled(&mut watch);
    let prober = on_web(&lab);
    let mut quiet = |what: &str| {
        let quiet = within(SOON, || {
            thread::sleep(Duration::from_secs(3));
            commits(&mut watch).is_empty()
        });
        assert!(quiet.is_some(), "{what}: they write without an end\n{}", logs());
    };
    manifests.put("crowd.json", &crowd(50));
    quiet("services come");
    assert_eq!(served(&lab), 51, "{}", logs());
    for count in [4, 1, 3] {
        manifests.put("web.json", &web(count));
        quiet("endpoints change");
    }
    manifests.remove("crowd.json");
    quiet("services go");
    assert_eq!(served(&lab), 1, "{}", logs());
    println!("{}", logs());
    all_answered(prober, 100);
    let rivals = daemons.map(|daemon| daemon.log().matches("again and again").count());
    assert_eq!(
        rivals,
        [0, 0],
        "one of ours took the other for a rival\n{}",
        logs()
    );
}

/// Two that start at the same time on a host without a table: neither deletes what the other has made.
#[test]
fn two_of_ours_that_start_together_settle() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftduo"), Manifests::new());
    manifests.put("web.json", &web(2));
    manifests.put("crowd.json", &crowd(100));
    let mut watch = watch(&lab);
    thread::scope(|scope| {
        let first = scope.spawn(|| start(&lab, &manifests, &json!({})));
        let second = second(&lab, &manifests);
        let first = first.join().unwrap();
        settled(&mut watch);
        assert_eq!(served(&lab), 101, "{}\n---\n{}", first.log(), second.log());
    });
}

#[test]
fn a_writer_that_never_stops_keeps_no_change_of_nftables_mode_out() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftstorm"), Manifests::new());
    manifests.put("web.json", &web(4));
    let mut watch = watch(&lab);
    let storm = "while :; do nft add table ip stranger; nft delete table ip stranger; done";
    let storm = lab.spawn(NODE, &["sh", "-c", storm], "storm").unwrap();
    let is_blowing = within(PATIENCE, || commits(&mut watch).len() > 2);
    assert!(is_blowing.is_some(), "there is no storm: {}", storm.log());
    let daemon = start(&lab, &manifests, &json!({}));
    let prober = on_web(&lab);
    for turn in 0..10 {
        let address = format!("10.1.9.{turn}");
        manifests.put(
            "more.json",
            &[service("more", &address, 80, 8080), endpoints("more", 2)],
        );
        let there = within(PATIENCE, || {
            shell(&lab, "nft list map ip kube-proxy service-slot-0").contains(&address)
        });
        assert!(there.is_some(), "{address} is not written\n{}", daemon.log());
    }
    drop(storm);
    assert!(!daemon.log().contains("somebody else"), "{}", daemon.log());
    all_answered(prober, 100);
}
