//! Nftables mode on a node: harm is repaired, a restart writes nothing, and another's table becomes ours while it serves.

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NFTABLES_MODE, NODE, shell, web};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::manifests::Manifests;
use live::traffic::{all_answered, commits, on_web, settled, watch, web_answers};
use live::within;
use serde_json::json;

/// A daemon that looks at its table by itself only after the test is over.
fn start(lab: &Lab, manifests: &Manifests) -> Daemon {
    let mut setup = Setup::new(lab, NODE, manifests);
    setup.config = configuration(
        &json!({"mode": "nftables", "nftables": {"minSyncPeriod": "10ms", "syncPeriod": "10m"}}),
    );
    let daemon = setup.start();
    in_sync(&daemon);
    daemon
}

fn in_sync(daemon: &Daemon) {
    let both = within(PATIENCE, || {
        daemon.log().matches("rules are in sync").count() >= 2
    });
    assert!(both.is_some(), "not both families are in sync:\n{}", daemon.log());
}

/// The table's rules and elements, in any order: the kernel hashes elements.
fn table(lab: &Lab) -> Vec<String> {
    let listed = shell(lab, "nft list table ip kube-proxy || true");
    let parts = listed.split(['\n', ',']).map(|part| {
        let part = part
            .trim()
            .trim_start_matches("elements = {")
            .trim_end_matches('}');
        part.trim().to_owned()
    });
    let mut parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    parts.sort();
    parts
}

/// What is done to the table, and words of the line that tells of it.
const HARMS: [(&str, &str); 6] = [
    (
        "nft delete element ip kube-proxy service-slot-0 '{ 10.1.0.80 . tcp . 80 }'",
        "service-slot-0",
    ),
    ("nft flush set ip kube-proxy cluster-ips", "cluster-ips"),
    ("nft flush chain ip kube-proxy services", "chain services changed"),
    (
        "nft add rule ip kube-proxy nat-prerouting counter accept",
        "chain nat-prerouting changed",
    ),
    ("nft delete table ip kube-proxy", "the table missing"),
    ("nft flush ruleset", "the table missing"),
];

#[test]
fn whatever_is_done_to_the_table_is_put_right_and_its_doer_named() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftharm"), Manifests::new());
    manifests.put("web.json", &web(2));
    for (harm, words) in HARMS {
        // A process that remembers no harm: many repairs in a row are made less and less often.
        let daemon = start(&lab, &manifests);
        web_answers(&lab, &daemon);
        let whole = table(&lab);
        shell(&lab, harm);
        let repaired = within(PATIENCE, || table(&lab) == whole);
        assert!(
            repaired.is_some(),
            "after {harm}: {:#?}\n{}",
            table(&lab),
            daemon.log()
        );
        web_answers(&lab, &daemon);
        let told = within(PATIENCE, || {
            let log = daemon.log();
            log.lines()
                .any(|line| line.contains(words) && line.contains("nft (pid"))
        });
        assert!(
            told.is_some(),
            "{harm} is not told of with {words:?}:\n{}",
            daemon.log()
        );
    }
}

#[test]
fn a_restart_of_nftables_mode_writes_nothing_and_loses_no_connection() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftagain"), Manifests::new());
    manifests.put("web.json", &web(3));
    let daemon = start(&lab, &manifests);
    web_answers(&lab, &daemon);
    let prober = on_web(&lab);
    let mut generations = watch(&lab);
    settled(&mut generations);
    daemon.kill();
    let daemon = start(&lab, &manifests);
    let written = commits(&mut generations);
    assert!(written.is_empty(), "{written:?}\n{}", daemon.log());
    all_answered(prober, 100);
}

#[test]
fn the_table_of_another_becomes_ours_while_it_serves() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nfttake"), Manifests::new());
    shell(&lab, &format!("nft -f - <<'EOF'\n{NFTABLES_MODE}\nEOF"));
    let prober = on_web(&lab);
    manifests.put("web.json", &web(2));
    let daemon = start(&lab, &manifests);
    web_answers(&lab, &daemon);
    let listed = shell(&lab, "nft list table ip kube-proxy");
    for gone in ["service-ips", "endpoint-a", "service-web"] {
        assert!(!listed.contains(gone), "{gone} in:\n{listed}");
    }
    assert!(listed.contains("service/endpoints"), "{listed}");
    let strangers = shell(&lab, "nft list tables");
    assert!(strangers.contains("table inet strangers"), "{strangers}");
    all_answered(prober, 20);
}
