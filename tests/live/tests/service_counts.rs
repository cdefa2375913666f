//! Connections to a Service are counted exactly, by the kernel's own counters, while endpoints come and go; and no more
//! service ports have series than the operator allows.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use kernel::Backend;
use lab::Lab;
use lab::live::available;
use live::cluster::{self, CLIENT, NODE, WEB, WEB_NODE_PORT, crowd, shell, tcp, web};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::health::metric;
use live::manifests::{Manifests, service};
use live::traffic::{by_a_pod, web_answers};
use live::{rules, within};
use model::Family;
use serde_json::{Value, json};
use std::time::Duration;

const CONNECTIONS: &str = "kubeproxy_rs_service_connections_total";
const REFUSED: &str = "kubeproxy_rs_service_refused_packets_total";
const LEFT_OUT: &str = "kubeproxy_rs_service_ports_left_out";
/// Of IPv4; the labels are in order of their names.
const ON_WEB: &str = r#"ip_family="IPv4",namespace="default",port="p",service="web""#;
const ON_EMPTY: &str = r#"action="reject",ip_family="IPv4",namespace="default",port="p",service="empty""#;

/// What makes a node one with legacy iptables.
const LEGACY: &str = "iptables-legacy -t mangle -N KUBE-IPTABLES-HINT";

fn lock(lab: &Lab) -> String {
    lab.folder().join("xtables.lock").to_string_lossy().into_owned()
}

fn start(lab: &Lab, manifests: &Manifests, parts: &Value, most: usize) -> Daemon {
    let mut setup = Setup::new(lab, NODE, manifests);
    setup.config = configuration(parts);
    setup.environment = vec![("XTABLES_LOCKFILE", lock(lab))];
    setup.flags = vec![format!("--service-metrics={most}"), "--explorer".to_owned()];
    setup.start()
}

/// A Service that has no endpoint.
fn empty() -> Value {
    service("empty", "10.1.0.90", 80, 8080)
}

/// So many connections, each answered by a pod at its first packet.
#[track_caller]
fn connect(lab: &Lab, to: &str, times: usize) {
    let probe = tcp(to).within(Duration::from_secs(3));
    let outcomes = lab.probe_many(CLIENT, probe, times).unwrap();
    assert!(outcomes.iter().all(by_a_pod), "{outcomes:?}");
}

/// Waits until a series says this, and makes sure that it says no more at the reading after.
#[track_caller]
fn counts(lab: &Lab, name: &str, labels: &str, expected: f64, daemon: &Daemon) {
    let mut last = None;
    let reached = within(PATIENCE, || {
        last = metric(lab, name, &[labels]);
        last.is_some_and(|count| count >= expected)
    });
    assert!(
        reached.is_some() && last == Some(expected),
        "{name} {labels}: {last:?} and not {expected}\n{}",
        daemon.log()
    );
}

/// What was counted for `web` so far, once it is counted at all: connections were made to see whether it serves.
fn already(lab: &Lab, daemon: &Daemon) -> f64 {
    let mut last = None;
    let counted = within(PATIENCE * 3, || {
        connect(lab, WEB, 1);
        std::thread::sleep(Duration::from_secs(1));
        last = metric(lab, CONNECTIONS, &[ON_WEB]);
        last.is_some()
    });
    assert!(counted.is_some(), "nothing is counted\n{}", daemon.log());
    // Two readings that agree have all of them.
    let settled = within(PATIENCE * 3, || {
        std::thread::sleep(Duration::from_secs(11));
        let now = metric(lab, CONNECTIONS, &[ON_WEB]);
        std::mem::replace(&mut last, now) == now
    });
    assert!(settled.is_some(), "{last:?}\n{}", daemon.log());
    last.unwrap()
}

fn exact(lab: &Lab, manifests: &Manifests, parts: &Value, memory: Memory) {
    manifests.put("web.json", &web(2));
    manifests.put("empty.json", &[empty()]);
    let daemon = start(lab, manifests, parts, 10);
    web_answers(lab, &daemon);
    let begun = already(lab, &daemon);

    connect(lab, WEB, 37);
    counts(lab, CONNECTIONS, ON_WEB, begun + 37.0, &daemon);
    // Rules of endpoints are written anew, and one goes; connections follow each other through that.
    for (count, round) in [3, 1, 4].into_iter().zip(1_u32..) {
        manifests.put("web.json", &web(count));
        connect(lab, WEB, 10);
        connect(lab, WEB_NODE_PORT, 3);
        counts(
            lab,
            CONNECTIONS,
            ON_WEB,
            begun + 37.0 + 13.0 * f64::from(round),
            &daemon,
        );
    }
    let outcomes = lab
        .probe_many(CLIENT, tcp("10.1.0.90:80").within(Duration::from_secs(3)), 5)
        .unwrap();
    assert!(!outcomes.iter().any(by_a_pod), "{outcomes:?}");
    counts(lab, REFUSED, ON_EMPTY, 5.0, &daemon);
    assert_eq!(metric(lab, LEFT_OUT, &[]), Some(0.0));

    // The explorer says the same.
    let page = lab.http_get(
        NODE,
        "127.0.0.1:10249".parse().unwrap(),
        "/explore/api/service?name=default/web",
        Duration::from_secs(5),
    );
    let page: Value = serde_json::from_str(&page.unwrap().body).unwrap();
    let found = &page["counters"][0];
    assert_eq!(found["connections"].as_f64(), Some(begun + 76.0), "{found}");
    assert_eq!(
        (found["port"].as_str(), found["rejected"].as_u64()),
        (Some("p"), Some(0))
    );

    daemon.kill();
    connect(lab, WEB, 4);
    if let Memory::OfTheRules(tool) = memory {
        // Who starts again counts on where the kernel is.
        let daemon = start(lab, manifests, parts, 10);
        counts(lab, CONNECTIONS, ON_WEB, begun + 80.0, &daemon);
        // Somebody takes the rules away, and with them what they had counted: repaired, they begin at zero.
        shell(
            lab,
            &format!("XTABLES_LOCKFILE={} {tool} -t nat -F KUBE-SERVICES", lock(lab)),
        );
        web_answers(lab, &daemon);
        connect(lab, WEB, 5);
        counts(lab, CONNECTIONS, ON_WEB, begun + 86.0, &daemon);
    }
}

/// How long counters live.
#[derive(Clone, Copy)]
enum Memory {
    /// As long as their rules, which this tool writes.
    OfTheRules(&'static str),
    /// As long as the process.
    OfTheProcess,
}

#[test]
fn connections_are_counted_exactly_while_endpoints_change_on_nf_tables() {
    if available(&["iptables"]) {
        let (lab, manifests) = (cluster::up("countn"), Manifests::new());
        exact(&lab, &manifests, &json!({}), Memory::OfTheRules("iptables-nft"));
        let saved = rules::saved_by(&lab, NODE, Family::V4, Backend::NfTables);
        assert!(saved.contains("default/web"), "{saved}");
    }
}

#[test]
fn connections_are_counted_exactly_while_endpoints_change_on_legacy() {
    if available(&["iptables-legacy", "ip6tables-legacy"]) {
        let (lab, manifests) = (cluster::up("countl"), Manifests::new());
        shell(&lab, &format!("XTABLES_LOCKFILE={} {LEGACY}", lock(&lab)));
        exact(
            &lab,
            &manifests,
            &json!({}),
            Memory::OfTheRules("iptables-legacy"),
        );
        let saved = rules::saved_by(&lab, NODE, Family::V4, Backend::Legacy);
        assert!(saved.contains("default/web"), "{saved}");
    }
}

#[test]
fn connections_are_counted_exactly_while_endpoints_change_in_nftables_mode() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("countt"), Manifests::new());
    let parts = json!({"mode": "nftables", "nftables": {"minSyncPeriod": "50ms", "syncPeriod": "1s"}});
    exact(&lab, &manifests, &parts, Memory::OfTheProcess);
    // The table of counters went with the process that made it.
    let tables = shell(&lab, "nft list tables");
    assert!(
        tables.contains("kube-proxy") && !tables.contains("counters"),
        "{tables}"
    );
}

#[test]
fn more_services_with_traffic_than_are_allowed_have_no_series_and_are_counted() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("countm"), Manifests::new());
    manifests.put("web.json", &web(2));
    manifests.put("crowd.json", &crowd(5));
    let daemon = start(&lab, &manifests, &json!({}), 2);
    web_answers(&lab, &daemon);
    rules_of_crowd(&lab, &daemon);
    // The most of all is the last to come, and takes nobody's place.
    for (index, times) in [3, 2, 1, 1, 9].into_iter().enumerate() {
        connect(&lab, &format!("10.1.100.{}:80", index + 1), times);
    }
    let left = within(PATIENCE * 2, || metric(&lab, LEFT_OUT, &[]) == Some(4.0));
    assert!(
        left.is_some(),
        "{:?}\n{}",
        metric(&lab, LEFT_OUT, &[]),
        daemon.log()
    );
    let with_series: Vec<usize> = (0..5)
        .filter(|index| metric(&lab, CONNECTIONS, &[&format!(r#"service="crowd-{index}""#)]).is_some())
        .collect();
    let web = usize::from(metric(&lab, CONNECTIONS, &[ON_WEB]).is_some());
    assert_eq!(with_series.len() + web, 2, "{with_series:?}");
    // They keep them, whatever others do.
    connect(&lab, "10.1.100.4:80", 30);
    std::thread::sleep(Duration::from_secs(12));
    for index in &with_series {
        assert!(metric(&lab, CONNECTIONS, &[&format!(r#"service="crowd-{index}""#)]).is_some());
    }
    assert_eq!(metric(&lab, LEFT_OUT, &[]), Some(4.0));
}

#[track_caller]
fn rules_of_crowd(lab: &Lab, daemon: &Daemon) {
    let all = within(PATIENCE, || {
        let saved = rules::saved(lab, NODE, Family::V4);
        (0..5).all(|index| saved.contains(&format!("default/crowd-{index}:p cluster IP")))
    });
    assert!(all.is_some(), "{}", daemon.log());
}

#[test]
fn without_the_flag_nothing_is_counted() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("counto"), Manifests::new());
    manifests.put("web.json", &web(2));
    let daemon = start(&lab, &manifests, &json!({}), 0);
    web_answers(&lab, &daemon);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(metric(&lab, "kubeproxy_rs_node_found", &[]), Some(1.0));
    for name in [CONNECTIONS, REFUSED, LEFT_OUT] {
        assert_eq!(metric(&lab, name, &[]), None, "{name}");
    }
}
