//! Endpoints come and go, and traffic follows.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::live::available;
use lab::{Lab, ProbeOutcome, Refusal};
use live::cluster::{self, CLIENT, NODE, PODS, WEB, WEB_NODE_PORT, endpoints, tcp, web};
use live::daemon::{Daemon, PATIENCE, Setup};
use live::manifests::{Manifests, service};
use live::traffic::{all_answered, on, on_web};
use live::truth::judge::tries;
use live::within_or;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Who answers there, from the client, in enough tries to see each of `count`; `None` for a refusal by ICMP.
fn answering(lab: &Lab, to: &str, count: usize) -> BTreeSet<Option<String>> {
    let probe = tcp(to).within(Duration::from_secs(3));
    let outcomes = lab
        .probe_many(CLIENT, probe, tries(count))
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let told = |outcome: ProbeOutcome| match outcome {
        ProbeOutcome::Answered { name, .. } => Some(name),
        ProbeOutcome::Refused(Refusal::PortUnreachable) => None,
        // Before the first rules, and while they change, connections may be lost between sink and pods.
        other => Some(format!("{other:?}")),
    };
    outcomes.into_iter().map(told).collect()
}

/// Waits until exactly these answer.
fn follow(lab: &Lab, to: &str, want: &BTreeSet<Option<String>>, daemon: &Daemon) -> Duration {
    let look = || {
        let seen = answering(lab, to, want.len());
        if seen == *want {
            Ok(())
        } else {
            Err(format!("{to}: {seen:?}, wanted {want:?}"))
        }
    };
    within_or(PATIENCE, look).unwrap_or_else(|wrong| panic!("{wrong}\nlog of the daemon:\n{}", daemon.log()))
}

fn first(count: usize) -> BTreeSet<Option<String>> {
    match count {
        0 => BTreeSet::from([None]),
        _ => PODS
            .iter()
            .take(count)
            .map(|(name, _, _)| Some((*name).to_owned()))
            .collect(),
    }
}

#[test]
fn traffic_follows_from_none_to_all_and_back_and_without_any_it_is_refused_at_once() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("scale"), Manifests::new());
    manifests.put("web.json", &web(0));
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    let mut prober = None;
    for count in [0, 1, 4, 2, 3, 0, 3, 0] {
        // While there are any, nobody is refused: the pods that leave the service serve on.
        if count == 0 {
            prober
                .take()
                .into_iter()
                .for_each(|prober| all_answered(prober, 0));
        }
        manifests.put("web.json", &web(count));
        for to in [WEB, WEB_NODE_PORT] {
            let took = follow(&lab, to, &first(count), &daemon);
            println!("{count} endpoints at {to} after {took:?}");
        }
        if count > 0 && prober.is_none() {
            prober = Some(on_web(&lab));
        }
    }
    // A service that goes takes its refusal with it.
    manifests.put("web.json", &web(0)[..1]);
    let look = || {
        lab.take_seen();
        let outcome = lab.probe(CLIENT, tcp(WEB).within(Duration::from_millis(300)));
        let target = WEB.parse::<SocketAddr>().expect("a socket address");
        let seen = lab.take_seen().iter().any(|seen| seen.dst == target);
        seen.then_some(())
            .ok_or_else(|| format!("{outcome:?}, and the sink saw nothing"))
    };
    within_or(PATIENCE, look).unwrap_or_else(|wrong| panic!("{wrong}\n{}", daemon.log()));
}

/// A service at an external address that another one wants as well, born at `when`.
fn claimant(name: &str, cluster_ip: &str, when: &str) -> Value {
    let mut object = service(name, cluster_ip, 80, 8080);
    object["metadata"]["creationTimestamp"] = json!(when);
    object["spec"]["externalIPs"] = json!(["10.1.200.1"]);
    object
}

#[test]
fn of_two_claims_to_one_address_the_older_wins_and_when_it_goes_the_other_does() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("claims"), Manifests::new());
    let older = [claimant("older", "10.1.0.11", "2020-01-01T00:00:00Z")];
    let mut slice = endpoints("newer", 2);
    slice["endpoints"].as_array_mut().unwrap().remove(0);
    let newer = [claimant("newer", "10.1.0.12", "2021-01-01T00:00:00Z"), slice];
    manifests.put("node.json", &web(0)[..1]);
    // Endpoints first: a service that wins without any is refused, as one without a rival is.
    manifests.put("older-slice.json", &[endpoints("older", 1)]);
    manifests.put("newer.json", &newer);
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    let disputed = "10.1.200.1:80";
    let only = |index: usize| BTreeSet::from([Some(PODS[index].0.to_owned())]);
    follow(&lab, disputed, &only(1), &daemon);
    let prober = on(&lab, disputed);
    manifests.put("older.json", &older);
    follow(&lab, disputed, &only(0), &daemon);
    // Each keeps what nobody disputes.
    follow(&lab, "10.1.0.11:80", &only(0), &daemon);
    follow(&lab, "10.1.0.12:80", &only(1), &daemon);
    manifests.remove("older.json");
    follow(&lab, disputed, &only(1), &daemon);
    all_answered(prober, 1);
}

#[test]
fn service_that_comes_in_one_file_with_its_endpoints_is_never_refused() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("onefile"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    follow(&lab, WEB, &first(4), &daemon);
    let prober = on(&lab, "10.1.0.60:80");
    manifests.put(
        "fresh.json",
        &[service("fresh", "10.1.0.60", 80, 8080), endpoints("fresh", 2)],
    );
    follow(&lab, "10.1.0.60:80", &first(2), &daemon);
    let report = prober.stop();
    let refused = ProbeOutcome::Refused(Refusal::PortUnreachable);
    let refusals = report
        .samples
        .iter()
        .filter(|sample| sample.outcome == refused)
        .count();
    assert_eq!(refusals, 0, "{}", report.describe());
}
