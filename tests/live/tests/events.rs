//! What an operator should know is on the API: about objects, the host, and those who change our rules.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::live::available;
use lab::{Lab, LabProcess, Proto};
use live::api::{Api, Writes};
use live::cluster::{self, NODE, web};
use live::daemon::binary;
use live::manifests::service;
use live::{within, within_or};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::Duration;

/// A busy machine, and looks that come every few seconds.
const PATIENCE: Duration = Duration::from_mins(1);

fn daemon(lab: &Lab, api: &Api, more: &[&str]) -> LabProcess {
    let (program, url) = (binary().to_string_lossy().into_owned(), api.url());
    let mut argv = vec![
        "env",
        "NO_COLOR=1",
        &*program,
        "--master",
        &url,
        "--hostname-override",
        NODE,
    ];
    argv.extend(more);
    lab.spawn(NODE, &argv, "events")
        .unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// Waits for an Event with this reason, about this object, whose note has all these words.
#[track_caller]
fn told(api: &Api, daemon: &LabProcess, reason: &str, about: (&str, &str), words: &[&str]) -> Value {
    let mut found = None;
    let look = || {
        let events = api.events(reason);
        found = events
            .iter()
            .find(|event| {
                let (regarding, note) = (&event["regarding"], event["note"].as_str().unwrap_or_default());
                regarding["kind"] == about.0
                    && regarding["name"] == about.1
                    && words.iter().all(|word| note.contains(word))
            })
            .cloned();
        match &found {
            Some(_) => Ok(()),
            None => Err(format!(
                "no {reason} about {about:?} with {words:?} in {events:#?}"
            )),
        }
    };
    within_or(PATIENCE, look).unwrap_or_else(|wrong| panic!("{wrong}\nlog of the daemon:\n{}", daemon.log()));
    found.unwrap()
}

#[test]
fn bad_objects_and_damaged_rules_are_told_of() {
    if !available(&["iptables"]) {
        return;
    }
    let lab = cluster::up("events");
    let mut half = service("half", "10.1.0.81", 80, 8080);
    half["spec"]["externalIPs"] = json!(["203.0.113.9", "nonsense", "198.51.100.9"]);
    let mut objects = web(4);
    objects.push(half);
    let api = Api::start(&lab, NODE, &objects, Writes::Taken);
    let daemon = daemon(
        &lab,
        &api,
        &[
            "--external-ip-allowed-cidrs",
            "198.51.100.0/24",
            "--iptables-min-sync-period",
            "50ms",
        ],
    );
    let starting = told(&api, &daemon, "Starting", ("Node", NODE), &[]);
    assert_eq!(starting["reportingController"], "kube-proxy");
    let about = ("Service", "half");
    told(
        &api,
        &daemon,
        "InvalidService",
        about,
        &["spec.externalIPs[1]", "nonsense"],
    );
    told(&api, &daemon, "ExternalIPNotAllowed", about, &["203.0.113.9"]);
    // What was left out did not take the rest with it.
    let rules = || live::rules::saved(&lab, NODE, model::Family::V4);
    let there = within(PATIENCE, || {
        rules().contains("198.51.100.9") && rules().contains("-A PREROUTING")
    });
    assert!(there.is_some(), "{}\n{}", rules(), daemon.log());
    assert!(!rules().contains("203.0.113.9"), "{}", rules());

    lab.must_exec(NODE, &["iptables", "-t", "nat", "-D", "PREROUTING", "1"])
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    told(
        &api,
        &daemon,
        "RulesRepaired",
        ("Node", NODE),
        &["iptables (pid ", "PREROUTING"],
    );
}

#[test]
fn what_listens_on_a_node_port_is_told_of_with_service_address_and_process() {
    if !available(&["iptables"]) {
        return;
    }
    let lab = cluster::up("eventsp");
    let api = Api::start(&lab, NODE, &web(4), Writes::Taken);
    let at = "192.168.50.238:30080".parse().unwrap();
    let squatter = lab.serve(NODE, "squatter", &[(Proto::Tcp, at)]);
    let _squatter = squatter.unwrap_or_else(|error| panic!("{}", error.chain()));
    let daemon = daemon(&lab, &api, &[]);
    let words = ["192.168.50.238:30080/TCP", "default/web", "(pid "];
    told(&api, &daemon, "NodePortConflict", ("Service", "web"), &words);
    let at = "127.0.0.1:10249".parse().unwrap();
    let metrics = lab
        .http_get(NODE, at, "/metrics", Duration::from_secs(5))
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    assert!(
        metrics.body.contains("\nkubeproxy_rs_node_port_conflicts 1\n"),
        "{}",
        metrics.body
    );
    let said = |line: &str| {
        words
            .iter()
            .all(|word| line.contains(word.trim_end_matches("/TCP")))
    };
    assert!(daemon.log().lines().any(said), "{}", daemon.log());
}

#[test]
fn the_event_about_a_port_that_must_open_is_sent_before_the_process_ends() {
    if !available(&["iptables"]) {
        return;
    }
    let lab = cluster::up("eventsx");
    for (taken, reason) in [
        ("0.0.0.0:10256", "FailedToStartProxierHealthcheck"),
        ("127.0.0.1:10249", "FailedToStartMetricServer"),
    ] {
        let namespace = lab.namespace(NODE).unwrap();
        let holder = namespace.run(|| TcpListener::bind(taken)).unwrap().unwrap();
        for writes in [Writes::Taken, Writes::Unanswered] {
            let api = Api::start(&lab, NODE, &web(1), writes);
            let mut daemon = daemon(&lab, &api, &["--bind-address-hard-fail"]);
            // A server that never answers does not keep it.
            let status = daemon.wait(PATIENCE).unwrap();
            assert_eq!(
                status.and_then(|status| status.code()),
                Some(1),
                "{}",
                daemon.log()
            );
            told(&api, &daemon, reason, ("Node", NODE), &["in use"]);
        }
        drop(holder);
    }
}

#[test]
fn events_that_the_server_refuses_are_named_once_and_all_else_goes_on() {
    if !available(&["iptables"]) {
        return;
    }
    let lab = cluster::up("eventsr");
    let mut objects = web(4);
    for name in ["one", "two", "three"] {
        let mut bad = service(name, &format!("10.1.0.{}", 90 + name.len()), 80, 8080);
        bad["spec"]["externalIPs"] = json!(["nonsense"]);
        objects.push(bad);
    }
    let api = Api::start(&lab, NODE, &objects, Writes::Refused);
    let daemon = daemon(&lab, &api, &[]);
    told(
        &api,
        &daemon,
        "InvalidService",
        ("Service", "three"),
        &["nonsense"],
    );
    told(&api, &daemon, "Starting", ("Node", NODE), &[]);
    let served = within(PATIENCE, || {
        live::rules::saved(&lab, NODE, model::Family::V4).contains("default/web")
    });
    assert!(served.is_some(), "{}", daemon.log());
    let log = daemon.log();
    let said: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("an Event was not written"))
        .collect();
    assert_eq!(said.len(), 1, "{log}");
    assert!(
        said[0].contains("events is forbidden") && said[0].contains("create and patch"),
        "{}",
        said[0]
    );
}
