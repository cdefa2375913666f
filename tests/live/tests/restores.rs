//! Restores that hang, that fail again and again, or that only pretend: what is told of them, and what is kept.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, web};
use live::daemon::{Daemon, Setup};
use live::manifests::{Manifests, service};
use live::stubs::{Misbehaviour, Stubs};
use live::told;
use live::traffic::{rules_say, web_answers};
use std::time::Duration;

const RESTORE: &str = "iptables-nft-restore";

/// The time until something is told that is told; a busy machine takes its time.
const SOON: Duration = Duration::from_mins(1);

/// A daemon whose tool misbehaves from the moment that there is something new to write.
fn misbehaving<'a>(lab: &'a Lab, manifests: &'a Manifests, stubs: &Stubs) -> Daemon {
    manifests.put("web.json", &web(4));
    let mut setup = Setup::new(lab, NODE, manifests);
    setup.environment = vec![("PATH", stubs.path())];
    let daemon = setup.start();
    web_answers(lab, &daemon);
    stubs.on(RESTORE);
    manifests.put("more.json", &[service("more", "10.1.0.99", 80, 8080)]);
    daemon
}

#[track_caller]
fn waits_for(daemon: &Daemon, words: &str) {
    told(SOON, || daemon.log(), words);
}

/// What the failing restore was given, as the metrics port shows it.
fn failed_input(lab: &Lab, family: &str) -> String {
    let request = format!("GET /kubeproxy_rs/failed/{family} HTTP/1.0\r\n\r\n");
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/10249; printf '{request}' >&3; cat <&3");
    lab.must_exec(NODE, &["bash", "-c", &script])
        .unwrap_or_else(|error| panic!("{}", error.chain()))
}

#[test]
fn a_restore_that_hangs_is_told_of_while_it_does() {
    if !available(&["iptables"]) {
        return;
    }
    let stubs = Stubs::new(&[RESTORE], Misbehaviour::Hangs);
    let (lab, manifests) = (cluster::up("hang"), Manifests::new());
    let daemon = misbehaving(&lab, &manifests, &stubs);
    waits_for(&daemon, "still running");
    stubs.off(RESTORE);
    rules_say(&lab, "default/more", &daemon);
    waits_for(&daemon, "the tool has ended");
}

#[test]
fn a_restore_that_fails_again_and_again_is_summed_up_and_its_input_is_kept() {
    if !available(&["iptables", "bash"]) {
        return;
    }
    let stubs = Stubs::new(&[RESTORE], Misbehaviour::Fails);
    let (lab, manifests) = (cluster::up("sums"), Manifests::new());
    let daemon = misbehaving(&lab, &manifests, &stubs);
    waits_for(&daemon, "for the same reason");
    let tries = stubs.calls(RESTORE);
    let log = daemon.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("stay as they were"))
        .count();
    assert!(lines < tries, "{tries} tries and {lines} lines:\n{log}");
    let page = failed_input(&lab, "ipv4");
    assert!(
        page.contains("200 OK") && page.contains("made to fail") && page.contains("default/more"),
        "{page}"
    );
    let page = failed_input(&lab, "ipv6");
    assert!(
        page.contains("404") && page.contains("no restore of IPv6 has failed"),
        "{page}"
    );
    stubs.off(RESTORE);
    rules_say(&lab, "default/more", &daemon);
    waits_for(&daemon, "written again");
}

#[test]
fn a_restore_that_only_pretends_is_a_failure_and_tried_again() {
    if !available(&["iptables"]) {
        return;
    }
    let stubs = Stubs::new(&[RESTORE], Misbehaviour::Pretends);
    let (lab, manifests) = (cluster::up("pret"), Manifests::new());
    let daemon = misbehaving(&lab, &manifests, &stubs);
    waits_for(&daemon, "the kernel's rules are as they were");
    stubs.off(RESTORE);
    rules_say(&lab, "default/more", &daemon);
}
