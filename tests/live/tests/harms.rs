//! Whatever harm is done to our rules, they are put right soon, on both backends.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use kernel::Backend;
use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, web};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::manifests::Manifests;
use live::traffic::web_answers;
use live::{rules, within};
use model::Family;
use serde_json::json;
use std::time::Duration;

/// The time until a repair; most take less than a second or two, and a busy machine takes its time.
const SOON: Duration = Duration::from_secs(40);

/// A period with which no look comes by itself before [`SOON`] is over.
const NO_LOOKS: &str = "10m";

/// So many repairs in a short time are made at once; whoever does more harm is taken for a rival.
const PROMPT: usize = 4;

/// A name that is nobody's.
const ELSEWHERE: &str = "ELSEWHERE";

/// A daemon on a backend of a lab.
struct Site<'a> {
    lab: &'a Lab,
    backend: Backend,
    lock: String,
    manifests: &'a Manifests,
    sync_period: &'a str,
    daemon: Option<Daemon>,
}

impl<'a> Site<'a> {
    fn start(lab: &'a Lab, manifests: &'a Manifests, backend: Backend, sync_period: &'a str) -> Site<'a> {
        manifests.put("web.json", &web(4));
        let lock = lab.folder().join("xtables.lock").to_string_lossy().into_owned();
        let mut site = Site {
            lab,
            backend,
            lock,
            manifests,
            sync_period,
            daemon: None,
        };
        if backend == Backend::Legacy {
            site.run("iptables -t mangle -N KUBE-IPTABLES-HINT");
        }
        site.start_anew();
        site
    }

    /// A process that remembers no harm.
    fn start_anew(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.kill();
        }
        let mut setup = Setup::new(self.lab, NODE, self.manifests);
        setup.config =
            configuration(&json!({"iptables": {"minSyncPeriod": "10ms", "syncPeriod": self.sync_period}}));
        setup.environment = vec![("XTABLES_LOCKFILE", self.lock.clone())];
        let daemon = self.daemon.insert(setup.start());
        web_answers(self.lab, daemon);
        let both = within(PATIENCE, || {
            daemon.log().matches("rules are in sync").count() >= 2
        });
        assert!(both.is_some(), "not both families are in sync:\n{}", daemon.log());
    }

    fn log(&self) -> String {
        self.daemon.as_ref().unwrap().log()
    }

    /// Runs a command line on the node; `iptables` is that of the backend.
    fn run(&self, words: &str) {
        let tool = match self.backend {
            Backend::NfTables => "iptables-nft",
            Backend::Legacy => "iptables-legacy",
        };
        let lock = format!("XTABLES_LOCKFILE={}", self.lock);
        let words = words
            .split(' ')
            .map(|word| if word == "iptables" { tool } else { word });
        let words: Vec<&str> = ["env", lock.as_str()].into_iter().chain(words).collect();
        self.lab
            .must_exec(NODE, &words)
            .unwrap_or_else(|error| panic!("{}", error.chain()));
    }

    /// What is there, less the chain of nobody's.
    fn saved(&self) -> String {
        let text = rules::saved_by(self.lab, NODE, Family::V4, self.backend);
        let theirs = [format!(":{ELSEWHERE} "), format!("-A {ELSEWHERE} ")];
        let ours = text
            .lines()
            .filter(|line| !theirs.iter().any(|begin| line.starts_with(begin)));
        ours.collect::<Vec<_>>().join("\n") + "\n"
    }

    /// Does harm and waits until the rules are whole again.
    fn repairs(&self, whole: &str, harm: &str) {
        self.run(harm);
        let mut differences = String::new();
        let took = within(SOON, || {
            differences = rules::differences_in_words(whole, &self.saved(), Family::V4);
            differences.is_empty()
        });
        let backend = self.backend;
        let log = || self.log();
        let took = took.unwrap_or_else(|| {
            panic!(
                "{backend}: not repaired after {harm}:\n{differences}\nlog of the daemon:\n{}",
                log()
            )
        });
        println!("{backend}: {harm}: repaired after {took:?}");
    }

    /// Whether the log tells of this harm.
    fn told(&self, what: &str) -> bool {
        let log = self.log();
        log.lines()
            .any(|line| line.contains("changed by somebody else") && line.contains(what))
    }
}

/// The first chain of `web` whose name begins so.
fn chain(saved: &str, prefix: &str) -> String {
    let declared = format!(":{prefix}");
    let line = saved.lines().find(|line| line.starts_with(&declared)).unwrap();
    line[1..].split(' ').next().unwrap().to_owned()
}

/// Where a harm can be done, or seen soon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Both,
    NfTables,
}

/// What is done, and what the log then names. `SERVICE` and `ENDPOINT` are chains of `web`.
const HARMS: [(On, &str, &str); 12] = [
    (On::Both, "iptables -t nat -D SERVICE 2", "SERVICE"),
    (On::Both, "iptables -t nat -D PREROUTING 1", "PREROUTING"),
    (On::Both, "iptables -t filter -D FORWARD 1", "FORWARD"),
    (On::Both, "iptables -t nat -F ENDPOINT", "ENDPOINT"),
    (On::Both, "iptables -t nat -F KUBE-SERVICES", "KUBE-SERVICES"),
    (On::Both, "iptables -t nat -F", "PREROUTING"),
    (On::Both, "iptables -t filter -F", "KUBE-FORWARD"),
    // A rename keeps number and length of entries, so legacy's table has the size it had.
    (On::NfTables, "iptables -t nat -E SERVICE ELSEWHERE", "SERVICE"),
    (On::NfTables, "iptables -t nat -E ENDPOINT ELSEWHERE", "ENDPOINT"),
    // There are no whole tables to be deleted on legacy.
    (On::NfTables, "nft delete table ip nat", "KUBE-POSTROUTING"),
    (On::NfTables, "nft delete table ip filter", "KUBE-FORWARD"),
    (On::NfTables, "nft flush ruleset", "KUBE-POSTROUTING"),
];

fn every_harm_is_repaired_soon(stem: &str, backend: Backend) {
    let (lab, manifests) = (cluster::up(stem), Manifests::new());
    let mut site = Site::start(&lab, &manifests, backend, NO_LOOKS);
    let whole = site.saved();
    let (service, endpoint) = (chain(&whole, "KUBE-SVC-"), chain(&whole, "KUBE-SEP-"));
    let named = |words: &str| {
        words
            .replace("SERVICE ", &format!("{service} "))
            .replace("ENDPOINT", &endpoint)
    };
    let mut harms = 0;
    for (on, harm, what) in HARMS {
        if on == On::NfTables && backend == Backend::Legacy {
            continue;
        }
        if harms > 0 && harms % PROMPT == 0 {
            site.start_anew();
        }
        let harm = named(&format!("{harm} "));
        site.repairs(&whole, harm.trim_end());
        let what = named(&format!("{what} "));
        assert!(site.told(what.trim_end()), "{harm}: not told:\n{}", site.log());
        if harm.contains(ELSEWHERE) {
            site.run(&format!("iptables -t nat -F {ELSEWHERE}"));
            site.run(&format!("iptables -t nat -X {ELSEWHERE}"));
        }
        harms += 1;
    }
    assert!(harms >= 7, "{harms} harms");
    web_answers(&lab, site.daemon.as_ref().unwrap());
}

#[test]
fn every_harm_is_repaired_soon_on_nf_tables() {
    if available(&["iptables-nft", "nft"]) {
        every_harm_is_repaired_soon("harmn", Backend::NfTables);
    }
}

#[test]
fn every_harm_is_repaired_soon_on_legacy() {
    if available(&["iptables-legacy"]) {
        every_harm_is_repaired_soon("harml", Backend::Legacy);
    }
}

#[test]
fn an_edit_that_keeps_the_size_of_a_table_of_legacy_is_repaired_by_the_look_of_each_sync_period() {
    if !available(&["iptables-legacy"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("harms"), Manifests::new());
    let site = Site::start(&lab, &manifests, Backend::Legacy, "2s");
    let whole = site.saved();
    let service = chain(&whole, "KUBE-SVC-");
    for harm in [
        "iptables -t nat -R KUBE-MARK-MASQ 1 -j MARK --or-mark 0x8000",
        &format!("iptables -t nat -E {service} {ELSEWHERE}"),
    ] {
        site.repairs(&whole, harm);
    }
}
