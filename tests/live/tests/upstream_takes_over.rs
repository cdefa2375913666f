//! Upstream's binary in nftables mode starts over our table and ours over its, under traffic, both ways.
//!
//! `KPRS_UPSTREAM_KUBE_PROXY` names upstream's binary; without it this is skipped, aloud.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use apiserver::{Options, Server};
use lab::live::available;
use lab::{Lab, LabProcess};
use live::cluster::{self, CLIENT, NODE, PODS, WEB, shell, tcp};
use live::daemon::{PATIENCE, binary, configuration};
use live::everybody::{Everybody, objects, pods_of_web};
use live::server::offered;
use live::within;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Upstream deletes a chain when it has been nobody's for a second, at the sync after that.
const STALE: Duration = Duration::from_millis(1500);

/// A proxy after another, on one node, with one API server and one configuration.
struct Stage {
    lab: Lab,
    server: Server,
    config: PathBuf,
    upstream: String,
    _folder: tempfile::TempDir,
}

impl Stage {
    fn set(upstream: String) -> Stage {
        let lab = cluster::up("upstream");
        // Its thread is in the node's network, as the proxies are.
        let start = || Server::start(Options::default());
        let server = lab.namespace(NODE).unwrap().run(start).unwrap();
        for object in objects(2) {
            server.apply(object);
        }
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, server.kubeconfig(None)).unwrap();
        let config = folder.path().join("config.json");
        let text = configuration(&json!({
            "mode": "nftables",
            "hostnameOverride": NODE,
            "clientConnection": {"kubeconfig": kubeconfig, "contentType": "application/json"},
            "nftables": {"minSyncPeriod": "50ms", "syncPeriod": "30s"},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }));
        fs::write(&config, text.to_string()).unwrap();
        Stage {
            lab,
            server,
            config,
            upstream,
            _folder: folder,
        }
    }

    fn start(&self, program: &str, name: &str) -> LabProcess {
        let argv = [
            "env",
            "NO_COLOR=1",
            program,
            "--config",
            &self.config.to_string_lossy(),
        ];
        self.lab
            .spawn(NODE, &argv, name)
            .unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    fn ours(&self, name: &str) -> LabProcess {
        let process = self.start(&binary().to_string_lossy(), name);
        waits("ours is not in sync", &process, || {
            process.log().matches("rules are in sync").count() >= 2
        });
        process
    }

    fn table(&self) -> String {
        shell(&self.lab, "nft list table ip kube-proxy")
    }

    /// `web` has so many pods from now on.
    fn has(&self, pods: usize) {
        let mut slice = pods_of_web(pods);
        let now = jiff::Timestamp::now().to_string();
        slice["metadata"]["annotations"] = json!({"endpoints.kubernetes.io/last-change-trigger-time": now});
        self.server.apply(slice);
    }

    /// Upstream's own families of metrics, by name.
    fn families(&self) -> Vec<String> {
        let address = "127.0.0.1:10249".parse().unwrap();
        let page = self
            .lab
            .http_get(NODE, address, "/metrics", Duration::from_secs(5))
            .unwrap();
        let names = page.body.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        // Ours goes through the connection table without a change of UDP services as well (ADR 34).
        let other = ["kubeproxy_rs_", "kubeproxy_conntrack_"];
        let own = names.filter(|name| name.starts_with("kubeproxy_"));
        let own = own.filter(|name| !other.iter().any(|start| name.starts_with(start)));
        own.map(str::to_owned).collect()
    }

    /// Names of a kind of object in the table.
    fn names(&self, kind: &str) -> Vec<String> {
        let table = self.table();
        let lines = table.lines().filter_map(|line| line.trim().strip_prefix(kind));
        lines
            .map(|line| line.trim_matches([' ', '{']).to_owned())
            .collect()
    }
}

fn waits(what: &str, process: &LabProcess, is_true: impl FnMut() -> bool) {
    let reached = within(PATIENCE * 2, is_true);
    assert!(reached.is_some(), "{what}; log:\n{}", process.log());
}

fn kill(mut process: LabProcess) {
    process.kill().unwrap_or_else(|error| panic!("{}", error.chain()));
}

/// What upstream says when the kernel does not take what it writes.
fn complaints(log: &str) -> Vec<&str> {
    let words = [
        "sync failed",
        "Unable to delete stale",
        "File exists",
        "could not",
        "Failed to",
    ];
    let lines = log
        .lines()
        .filter(|line| line.starts_with('E') || words.iter().any(|word| line.contains(word)));
    lines.collect()
}

/// Only these pods answer, once what was changed last is in the kernel.
fn answered_by(lab: &Lab, pods: usize) {
    let probe = tcp(WEB).within(Duration::from_secs(3));
    let known = |name: &str| PODS.iter().take(pods).any(|(pod, ..)| *pod == name);
    let mut outcomes = Vec::new();
    let all = within(PATIENCE, || {
        outcomes = lab.probe_many(CLIENT, probe, 60).unwrap();
        let mut each = outcomes.iter();
        each.all(|outcome| outcome.answered_by().is_some_and(known))
    });
    assert!(all.is_some(), "{outcomes:?}");
}

#[test]
fn upstreams_binary_starts_over_our_table_and_ours_over_its_under_traffic() {
    if !available(&["nft"]) {
        return;
    }
    let Some(upstream) = offered("KPRS_UPSTREAM_KUBE_PROXY") else {
        return;
    };
    let stage = Stage::set(upstream);
    let first = stage.ours("ours-1");
    stage.has(1);
    let mut everybody = Everybody::start(&stage.lab, &|| first.log());
    stage.has(2);
    std::thread::sleep(Duration::from_secs(1));
    let ours: Vec<String> = stage.families();
    kill(first);

    let theirs = stage.start(&stage.upstream, "upstream");
    let element = "10.1.0.80 . tcp . 80 : goto service-";
    waits("upstream does not serve", &theirs, || {
        stage.table().contains(element)
    });
    for pods in [1, 2, 1] {
        std::thread::sleep(STALE);
        stage.has(pods);
    }
    let ours_alone = ["service/", "local/", "nodeport/", "nodeport-local/"];
    waits("chains of ours stay", &theirs, || {
        let chains = stage.names("chain ");
        !chains
            .iter()
            .any(|name| ours_alone.iter().any(|start| name.starts_with(start)))
    });
    assert_eq!(complaints(&theirs.log()), [""; 0], "{}", theirs.log());
    assert_eq!(stage.families(), ours, "families of metrics, upstream's first");
    answered_by(&stage.lab, 1);
    everybody.goes_on("upstream's binary came");
    harmless(&stage);
    kill(theirs);

    stage.has(2);
    let again = stage.ours("ours-2");
    let gone = |name: &String| name.starts_with("service-") && name.contains('/') || name == "service-ips";
    waits("upstream's chains stay", &again, || {
        let both = [stage.names("chain "), stage.names("map ")].concat();
        !both.iter().any(gone)
    });
    answered_by(&stage.lab, 2);
    stage.has(1);
    std::thread::sleep(Duration::from_secs(1));
    answered_by(&stage.lab, 1);
    everybody.stop(&|| again.log());
}

/// What stays of ours beside upstream is named by no rule.
fn harmless(stage: &Stage) {
    let shared = [
        "cluster-ips",
        "hairpin-connections",
        "nodeport-ips",
        "service-ips",
        "service-nodeports",
    ];
    let upstreams = |name: &String| {
        shared.contains(&name.as_str()) || name.starts_with("no-endpoint") || name.starts_with("firewall-ips")
    };
    let all = [stage.names("set "), stage.names("map ")].concat();
    let left: Vec<String> = all.into_iter().filter(|name| !upstreams(name)).collect();
    println!("of ours stay beside upstream: {}", left.join(" "));
    let table = stage.table();
    for name in &left {
        let used = table
            .lines()
            .find(|line| line.contains(&format!("@{name} ")) || line.ends_with(&format!("@{name}")));
        assert_eq!(used, None, "{name} is in use:\n{table}");
    }
}
