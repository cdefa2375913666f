//! On legacy, whoever holds the lock is waited for, under traffic and for as long as it takes.
//!
//! `KPRS_LOCK_SECONDS` says how long the lock is held: 12 unless set, which is longer than a tool waits for it.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use kernel::Backend;
use lab::live::available;
use live::cluster::{self, NODE, web};
use live::daemon::{PATIENCE, Setup};
use live::manifests::{Manifests, service};
use live::rules::saved_by;
use live::traffic::{all_answered, on_web, web_answers};
use live::{health, within};
use model::Family;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

fn held_for() -> Duration {
    let seconds = std::env::var("KPRS_LOCK_SECONDS").ok();
    Duration::from_secs(seconds.map_or(12, |seconds| seconds.parse().expect("a number of seconds")))
}

#[test]
fn change_waits_for_whoever_holds_the_lock_of_legacy() {
    if !available(&["iptables-legacy"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("lock"), Manifests::new());
    let lock = lab.folder().join("xtables.lock");
    let variable = format!("XTABLES_LOCKFILE={}", lock.display());
    let hint = [
        "env",
        &variable,
        "iptables-legacy",
        "-t",
        "mangle",
        "-N",
        "KUBE-IPTABLES-HINT",
    ];
    lab.must_exec(NODE, &hint).unwrap();
    manifests.put("web.json", &web(4));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.environment = vec![("XTABLES_LOCKFILE", lock.to_string_lossy().into_owned())];
    let daemon = setup.start();
    web_answers(&lab, &daemon);
    health::healthz_becomes(&lab, 200, &daemon);
    let prober = on_web(&lab);

    let held = File::create(&lock).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let begun = Instant::now();
    manifests.put("more.json", &[service("more", "10.1.0.99", 80, 8080)]);
    let says = |text: &str| saved_by(&lab, NODE, Family::V4, Backend::Legacy).contains(text);
    while begun.elapsed() < held_for() {
        assert!(says("default/web"), "rules are lost\n{}", daemon.log());
        assert!(
            !says("default/more"),
            "written after {:?}, under another's lock",
            begun.elapsed()
        );
        thread::sleep(Duration::from_millis(100));
    }
    let said = health::healthz(&lab).unwrap();
    assert_eq!(said.status, 503, "{said:?}\n{}", daemon.log());
    drop(held);
    let took = within(PATIENCE, || says("default/more"));
    let took = took.unwrap_or_else(|| panic!("never written; log of the daemon:\n{}", daemon.log()));
    println!("written {took:?} after the lock was let go");
    health::healthz_becomes(&lab, 200, &daemon);
    // A tool looks for the lock once a second and gives up after five, and the next one comes a second later.
    assert!(
        took < Duration::from_secs(5),
        "written only {took:?} after:\n{}",
        daemon.log()
    );
    all_answered(prober, 1000);
}
