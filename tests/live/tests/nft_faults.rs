//! What goes wrong in nftables mode in a cluster of some size, with new connections all the while: how long until all is
//! right again, and what was missed meanwhile.
//!
//! `KPRS_FAULT_SERVICES` makes it larger, with `KUBE_PROXY_BIN` a release build; by itself the cluster is small. What is
//! asked is that all is right in the end, and that nobody was without rules while it was killed; the times are printed.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use kernel::{GenerationWatch, NftTable};
use lab::live::available;
use lab::{Lab, ProbeOutcome, Prober, ProberReport, Signal};
use live::cluster::{self, NFTABLES_MODE, NODE, shell, web};
use live::daemon::{Daemon, Setup, configuration};
use live::manifests::{Manifests, service, slice};
use live::traffic::{all_answered, by_a_pod, commits, on_web, watch, web_answers};
use live::within;
use model::{Family, Protocol};
use nftables::ast::{ElementKey, Value as Part};
use nftables::names::Kind;
use nftables::pool::Pool;
use nftables::step::{Observation, Reading};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

/// Until everything is in; 40,000 services on a busy machine take their time.
const LOADED: Duration = Duration::from_mins(3);

/// No commits for so long: the repair is over.
const QUIET: Duration = Duration::from_secs(2);

fn size() -> u32 {
    let given = std::env::var("KPRS_FAULT_SERVICES").ok();
    given.map_or(300, |given| {
        given.parse().expect("KPRS_FAULT_SERVICES is a number")
    })
}

/// Services that nobody talks to, with ten endpoints each.
fn put_crowd(manifests: &Manifests, count: u32) {
    const A_FILE: u32 = 1000;
    for first in (0..count).step_by(1000) {
        let all = first..count.min(first + A_FILE);
        let objects: Vec<Value> = all.flat_map(member).collect();
        manifests.put(&format!("crowd-{first}.json"), &objects);
    }
}

fn member(number: u32) -> [Value; 2] {
    let name = format!("crowd-{number}");
    let at = |net: Ipv4Addr, host: u32| Ipv4Addr::from(u32::from(net) + host).to_string();
    let address = at(Ipv4Addr::new(10, 64, 0, 1), number);
    let endpoints: Vec<String> = (0..10)
        .map(|k| at(Ipv4Addr::new(11, 0, 0, 0), number * 16 + k))
        .collect();
    let endpoints: Vec<(&str, &str)> = endpoints.iter().map(|ip| (ip.as_str(), "node-b")).collect();
    [service(&name, &address, 80, 8080), slice(&name, 8080, &endpoints)]
}

/// A node, a daemon and its table.
struct Site<'a> {
    lab: &'a Lab,
    manifests: &'a Manifests,
    watch: GenerationWatch,
    whole: Pool,
}

impl<'a> Site<'a> {
    fn setup(lab: &'a Lab, manifests: &'a Manifests) -> Setup<'a> {
        let mut setup = Setup::new(lab, NODE, manifests);
        // No look of its own is due meanwhile: repairs come by what the kernel tells.
        setup.config = configuration(&json!({
            "mode": "nftables", "nftables": {"minSyncPeriod": "10ms", "syncPeriod": "10m"},
            "logging": {"verbosity": 2},
        }));
        setup
    }

    fn start(&self) -> Daemon {
        let daemon = Site::setup(self.lab, self.manifests).start();
        in_sync(&daemon);
        daemon
    }

    /// The elements of IPv4.
    fn elements(&self) -> Pool {
        elements(self.lab)
    }

    /// Does something, and waits until nobody commits any more. How long that took, and what connections met.
    fn after(&mut self, what: &str, daemon: &Daemon, does: impl FnOnce() + Send) {
        let prober = on_web(self.lab);
        thread::sleep(Duration::from_millis(500));
        commits(&mut self.watch);
        let watch = &mut self.watch;
        let took = thread::scope(|scope| {
            let doing = scope.spawn(does);
            // The first commit is the harm: the tool takes its time before, to read a large table.
            let begun = Instant::now();
            while watch.wait(LOADED).unwrap_or_default().is_empty() {
                assert!(begun.elapsed() < LOADED, "{what}: nothing was done");
            }
            let took = last_commit(watch, Instant::now());
            doing.join().unwrap();
            took
        });
        let report = prober.stop();
        println!(
            "{what}: last commit before two quiet seconds {} ms after it was done; {}",
            took.as_millis(),
            misses(&report)
        );
        let is_whole = within(LOADED, || self.elements() == self.whole);
        assert!(
            is_whole.is_some(),
            "{what}: elements are not as they were\n{}",
            daemon.log()
        );
        web_answers(self.lab, daemon);
    }
}

fn in_sync(daemon: &Daemon) {
    let both = within(LOADED, || daemon.log().matches("rules are in sync").count() >= 2);
    assert!(both.is_some(), "not both families are in sync:\n{}", daemon.log());
}

fn elements(lab: &Lab) -> Pool {
    let namespace = lab
        .namespace(NODE)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let read = namespace.run(|| {
        NftTable::new(Family::V4)
            .unwrap()
            .observe(&Reading::Everything)
            .unwrap()
    });
    match read.unwrap_or_else(|error| panic!("{}", error.chain())) {
        Observation::Everything(Some(seen)) => seen.elements,
        _ => Pool::default(),
    }
}

/// The time from `begun` to the last commit before it was quiet.
fn last_commit(watch: &mut GenerationWatch, begun: Instant) -> Duration {
    let mut last = begun.elapsed();
    while begun.elapsed() < last + QUIET {
        if !watch
            .wait(Duration::from_millis(20))
            .unwrap_or_default()
            .is_empty()
        {
            last = begun.elapsed();
        }
    }
    last
}

/// How many connections got to no pod, and within which time.
fn misses(report: &ProberReport) -> String {
    let missed: Vec<_> = report
        .samples
        .iter()
        .filter(|sample| !by_a_pod(&sample.outcome))
        .collect();
    let refused = missed
        .iter()
        .filter(|sample| matches!(sample.outcome, ProbeOutcome::Refused(_)));
    let times = || missed.iter().map(|sample| sample.at);
    let gap = times()
        .max()
        .zip(times().min())
        .map_or(Duration::ZERO, |(last, first)| last - first);
    format!(
        "{} of {} connections missed within {} ms, {} of them refused",
        missed.len(),
        report.total(),
        gap.as_millis(),
        refused.count()
    )
}

/// What is done, and whether connections to a service that it does not concern notice.
const HARMS: [(&str, &str); 6] = [
    (
        "one element deleted",
        "nft delete element ip kube-proxy service-slot-0 '{ 10.1.0.80 . tcp . 80 }'",
    ),
    (
        "one element changed",
        "printf 'delete element ip kube-proxy service-slot-0 { 10.1.0.80 . tcp . 80 }\nadd element ip kube-proxy service-slot-0 { 10.1.0.80 . tcp . 80 : 192.0.2.1 . 9 }' | nft -f -",
    ),
    (
        "a set of endpoints flushed",
        "nft flush map ip kube-proxy service-slot-0",
    ),
    (
        "the set of cluster IPs flushed",
        "nft flush set ip kube-proxy cluster-ips",
    ),
    ("a chain flushed", "nft flush chain ip kube-proxy services"),
    ("the table deleted", "nft delete table ip kube-proxy"),
];

#[test]
fn all_is_right_again_after_every_harm_in_a_cluster_of_some_size() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftfault"), Manifests::new());
    manifests.put("web.json", &web(2));
    put_crowd(&manifests, size());
    let begun = Instant::now();
    let mut site = Site {
        lab: &lab,
        manifests: &manifests,
        watch: watch(&lab),
        whole: Pool::default(),
    };
    let daemon = site.start();
    println!(
        "{} services: in sync {} ms after the start",
        size(),
        begun.elapsed().as_millis()
    );
    last_commit(&mut site.watch, Instant::now());
    site.whole = site.elements();
    assert!(
        site.whole.len() > 10 * size() as usize,
        "{} elements",
        site.whole.len()
    );
    let mut daemon = daemon;
    for (at, (what, harm)) in HARMS.into_iter().enumerate() {
        if at == 4 {
            // Who does more harm in a short time is taken for a rival.
            daemon.kill();
            daemon = site.start();
        }
        site.after(what, &daemon, || drop(shell(&lab, harm)));
    }
    daemon.kill();
    daemon = site.start();
    notifications_lost(&mut site, &mut daemon);
}

/// More notifications than the socket holds come while the process sleeps, and harm among them.
fn notifications_lost(site: &mut Site<'_>, daemon: &mut Daemon) {
    let flood = "
        nft add table ip flood
        nft 'add map ip flood m { type ipv4_addr . inet_service : ipv4_addr; }'
        for round in 1 2 3 4 5 6; do
            { seq 1 60000 | sed 's/.*/add element ip flood m { 10.0.0.1 . & : 10.0.0.2 }/'; } | nft -f -
            nft flush map ip flood m
        done
        nft delete table ip flood
        nft delete element ip kube-proxy service-slot-0 '{ 10.1.0.80 . tcp . 80 }'
    ";
    let lab = site.lab;
    let prober = on_web(lab);
    daemon.signal(Signal::STOP);
    shell(lab, flood);
    let begun = Instant::now();
    daemon.signal(Signal::CONT);
    let is_back = within(LOADED, || {
        lab.namespace(NODE).unwrap().run(has_slot_of_web).unwrap()
    });
    assert!(is_back.is_some(), "the element is not back\n{}", daemon.log());
    println!(
        "notifications lost while an element was deleted: it is back {} ms after the process went on; {}",
        begun.elapsed().as_millis(),
        misses(&prober.stop())
    );
    let is_whole = within(LOADED, || site.elements() == site.whole);
    assert!(
        is_whole.is_some(),
        "elements are not as they were\n{}",
        daemon.log()
    );
}

/// Whether the first endpoint of `web` is there, read by its key: to read everything takes a second in a large cluster.
fn has_slot_of_web() -> bool {
    let ip = Ipv4Addr::new(10, 1, 0, 80);
    let values = [
        Part::Address(ip.into()),
        Part::Protocol(Protocol::Tcp),
        Part::Port(80),
    ];
    let key = ElementKey {
        set: Kind::Service.slot(0),
        key: values.into(),
    };
    let reading = Reading::Elements(vec![key]);
    let read = NftTable::new(Family::V4).unwrap().observe(&reading).unwrap();
    matches!(read, Observation::Elements(read) if read.iter().any(|(_, element)| element.is_some()))
}

#[test]
fn killed_in_its_first_load_and_in_a_takeover_it_gets_there_and_who_was_served_stays_served() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftkill"), Manifests::new());
    manifests.put("web.json", &web(2));
    put_crowd(&manifests, size());
    // Another's table serves `web` until ours does.
    shell(&lab, &format!("nft -f - <<'EOF'\n{NFTABLES_MODE}\nEOF"));
    let prober: Prober = on_web(&lab);
    let kills = killed_again_and_again(&lab, &manifests);
    let daemon = Site::setup(&lab, &manifests).start();
    in_sync(&daemon);
    let listed = shell(&lab, "nft -t list table ip kube-proxy");
    for gone in ["service-ips", "endpoint-a", "service-web"] {
        assert!(!listed.contains(gone), "{gone} in:\n{listed}");
    }
    let elements = elements(&lab).len();
    assert!(elements > 10 * size() as usize, "{elements} elements");
    println!("killed {kills} times in the middle; {elements} elements in the end");
    all_answered(prober, 20);
}

/// Kills the daemon after ever longer pauses until a load was over; how often that was in the middle of one.
fn killed_again_and_again(lab: &Lab, manifests: &Manifests) -> usize {
    let (mut midway, mut before) = (0, 0);
    let step = u64::from(size() / 100).max(20);
    for pause in (20..).step_by(usize::try_from(step).unwrap()).take(40) {
        let daemon = Site::setup(lab, manifests).start();
        thread::sleep(Duration::from_millis(pause));
        let done = daemon.log().contains("rules are in sync");
        daemon.kill();
        if done {
            break;
        }
        let now = elements(lab).len();
        midway += usize::from(now > before);
        before = now;
    }
    midway
}
