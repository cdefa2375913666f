//! The API server goes, says nothing, or has forgotten the past, while there is traffic: the rules stay, health tells what is
//! so, and what changed meanwhile comes with the end of it.
//!
//! `KPRS_OUTAGE_SECONDS` says how long each lasts: 5 unless set.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use apiserver::{Options, Resource, Server};
use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, web};
use live::daemon::{Daemon, Setup};
use live::manifests::service;
use live::traffic::{all_answered, on_web, rules_say, web_answers};
use live::{health, rules};
use model::Family;
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

fn lasts() -> Duration {
    let seconds = std::env::var("KPRS_OUTAGE_SECONDS").ok();
    Duration::from_secs(seconds.map_or(5, |seconds| seconds.parse().expect("a number of seconds")))
}

/// Something that happens to the server, or to the way there.
struct Outage {
    what: &'static str,
    begins: fn(&Lab, &Server),
    ends: fn(&Lab, &Server),
    sight: Sight,
}

/// Whether changes are seen meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// They are.
    Sees,
    /// The watches fail.
    Fails,
    /// Nothing comes, and for a while nothing looks wrong but the age of what was last heard.
    Ages,
}

const OUTAGES: [Outage; 3] = [
    Outage {
        what: "the server has gone",
        begins: |_, server| server.close(),
        ends: |_, server| server.open(),
        sight: Sight::Fails,
    },
    Outage {
        what: "packets to and from the server are lost",
        begins: |lab, server| {
            let port = server.url.rsplit(':').next().unwrap();
            let hole = format!(
                "table inet hole {{ chain in {{ type filter hook input priority 0; \
                 tcp dport {port} drop; tcp sport {port} drop; }}; }}"
            );
            lab.must_exec(NODE, &["nft", &hole]).unwrap();
        },
        ends: |lab, _| {
            lab.must_exec(NODE, &["nft", "delete", "table", "inet", "hole"])
                .unwrap();
        },
        sight: Sight::Ages,
    },
    Outage {
        what: "the server has forgotten the past (410)",
        begins: |_, server| {
            server.expire(Resource::Services);
            server.expire(Resource::EndpointSlices);
        },
        ends: |_, _| {},
        sight: Sight::Sees,
    },
];

/// What `/livez` tells of the watches, in its detail.
fn watches(lab: &Lab) -> Value {
    health::livez(lab).unwrap().body["detail"]["watches"].clone()
}

/// The rules are there, and health says what is so, for as long as it lasts.
fn goes_on(lab: &Lab, outage: &Outage, news: &str, daemon: &mut Daemon) {
    let begun = Instant::now();
    while begun.elapsed() < lasts() {
        assert!(daemon.runs(), "{}: it ended:\n{}", outage.what, daemon.log());
        let saved = rules::saved(lab, NODE, Family::V4);
        assert!(
            saved.contains("default/web"),
            "{}: no rules\n{}",
            outage.what,
            daemon.log()
        );
        assert!(
            outage.sight == Sight::Sees || !saved.contains(news),
            "{}: there is no outage",
            outage.what
        );
        for said in [health::healthz(lab), health::livez(lab)] {
            let said = said.expect("it answers");
            // What the kernel has is what was last heard, and a restart would not help.
            assert_eq!(said.status, 200, "{}: {said:?}\n{}", outage.what, daemon.log());
        }
        thread::sleep(Duration::from_millis(100));
    }
    let watches = watches(lab);
    let age = watches["Service"]["ageSeconds"].as_f64().unwrap();
    let counted = health::metric(lab, "kubeproxy_rs_watch_age_seconds", &["Service"]).unwrap();
    match outage.sight {
        Sight::Sees => {}
        Sight::Fails => {
            // What they share is said by one of them.
            let mut each = watches.as_object().unwrap().values();
            assert!(each.any(|watch| watch["failing"].is_string()), "{watches}");
            let failures = health::metric(lab, "kubeproxy_rs_watch_failures_total", &[]);
            assert!(failures.unwrap() >= 1.0);
        }
        Sight::Ages => {
            let least = lasts().as_secs_f64() - 1.0;
            assert!(
                age >= least && counted >= least,
                "{age} and {counted}, not {least}"
            );
        }
    }
}

#[test]
fn rules_outlast_what_the_server_does_and_follow_when_it_is_over() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let lab = cluster::up("apiout");
    // Its thread is in the node's network, as the daemon is.
    let start = || Server::start(Options::default());
    let server = lab.namespace(NODE).unwrap().run(start).unwrap();
    for object in web(4) {
        server.apply(object);
    }
    let mut daemon = Setup::of_server(&lab, NODE, &server.url).start();
    web_answers(&lab, &daemon);
    health::healthz_becomes(&lab, 200, &daemon);
    for (number, outage) in OUTAGES.iter().enumerate() {
        let prober = on_web(&lab);
        let asked = server.requests("services").len();
        (outage.begins)(&lab, &server);
        let name = format!("news-{number}");
        server.apply(service(&name, &format!("10.1.9.{number}"), 80, 8080));
        goes_on(&lab, outage, &name, &mut daemon);
        (outage.ends)(&lab, &server);
        let took = rules_say(&lab, &format!("default/{name}"), &daemon);
        // All but lost packets end the watch, and another one is opened.
        let opened = server.requests("services").len() - asked;
        assert!(
            opened > 0 || outage.sight == Sight::Ages,
            "{}: {opened}",
            outage.what
        );
        println!("{}: {took:?} after its end, news are in the rules", outage.what);
        health::healthz_becomes(&lab, 200, &daemon);
        all_answered(prober, 100);
    }
    let log = daemon.log();
    assert!(log.lines().count() < 60, "it floods the log:\n{log}");
}
