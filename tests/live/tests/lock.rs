//! On legacy, whoever holds the lock is waited for.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use kernel::Backend;
use lab::live::available;
use live::cluster::{self, NODE, web};
use live::daemon::{PATIENCE, Setup};
use live::manifests::{Manifests, service};
use live::rules::saved_by;
use live::within;
use model::Family;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

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
    let says = |text: &str| saved_by(&lab, NODE, Family::V4, Backend::Legacy).contains(text);
    assert!(
        within(PATIENCE, || says("default/web")).is_some(),
        "{}",
        daemon.log()
    );
    thread::sleep(Duration::from_secs(1));

    let held = File::create(&lock).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let begun = Instant::now();
    manifests.put("more.json", &[service("more", "10.1.0.99", 80, 8080)]);
    while begun.elapsed() < Duration::from_secs(2) {
        assert!(
            !says("default/more"),
            "written after {:?}, under another's lock",
            begun.elapsed()
        );
        thread::sleep(Duration::from_millis(20));
    }
    drop(held);
    let took = within(PATIENCE, || says("default/more"));
    let took = took.unwrap_or_else(|| panic!("never written; log of the daemon:\n{}", daemon.log()));
    println!("written {took:?} after the lock was let go");
    // The tool looks for the lock once a second.
    assert!(took < Duration::from_secs(3), "written only {took:?} after");
}
