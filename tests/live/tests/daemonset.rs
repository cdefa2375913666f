//! The daemon as `deploy/daemonset.yaml` runs it: first in its pid namespace, in the node's network, with read-only
//! files and the capabilities that the manifest names and no others.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use kernel::Backend;
use lab::Lab;
use lab::live::available;
use live::cluster::{self, CLIENT, NODE, web};
use live::container::{self, inner, is_held, listed, manifest, status};
use live::daemon::{Daemon, PATIENCE, Setup, binary, configuration};
use live::flow::{Flow, from};
use live::manifests::{Manifests, service};
use live::traffic::{all_answered, on_web, rules_say, web_answers};
use live::{health, rules, within};
use model::Family;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::time::Duration;

const TOOLS: [&str; 5] = ["iptables", "ip6tables", "setpriv", "unshare", "capsh"];

/// The bits of `/proc/PID/status`.
const NET_ADMIN: u64 = 1 << 12;
const SYS_RESOURCE: u64 = 1 << 24;

fn started(lab: &Lab, manifests: &Manifests, capabilities: &[String]) -> Daemon {
    let mut setup = Setup::new(lab, NODE, manifests);
    setup.config = configuration(&json!({"iptables": {"minSyncPeriod": "50ms", "syncPeriod": "60s"}}));
    setup.before = container::start(capabilities);
    setup.start()
}

/// The daemon's own process, once it runs.
fn process(daemon: &Daemon) -> u32 {
    let is_daemon = |pid: &u32| status(*pid, "Name") == "kube-proxy";
    let mut found = None;
    let there = within(PATIENCE, || {
        found = inner(daemon.pid()).filter(is_daemon);
        found.is_some()
    });
    there.unwrap_or_else(|| panic!("it does not start:\n{}", daemon.log()));
    found.unwrap()
}

/// Ends it as the kubelet does.
fn terminated(mut daemon: Daemon) -> String {
    let pid = i32::try_from(process(&daemon)).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let ended = daemon.wait(PATIENCE);
    let ended = ended.unwrap_or_else(|| panic!("SIGTERM does not end it:\n{}", daemon.log()));
    // `unshare` ends as its child does.
    assert_eq!(ended.code(), Some(128 + 15), "{}", daemon.log());
    daemon.log()
}

fn repaired(lab: &Lab, whole: &str, daemon: &Daemon) {
    let mut differences = String::new();
    let look = || {
        differences = rules::differences_in_words(whole, &rules::saved(lab, NODE, Family::V4), Family::V4);
        differences.is_empty()
    };
    let took = within(PATIENCE, look);
    assert!(took.is_some(), "{differences}\n{}", daemon.log());
}

fn dns(pod: &str) -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "dns"},
            "spec": {"clusterIP": "10.1.0.53", "ports": [{"name": "p", "protocol": "UDP", "port": 53, "targetPort": 53}]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "default", "name": "dns-1", "labels": {"kubernetes.io/service-name": "dns"}},
            "addressType": "IPv4", "ports": [{"name": "p", "protocol": "UDP", "port": 53}],
            "endpoints": [{"addresses": [pod], "nodeName": NODE}],
        }),
    ]
}

/// The daemon is confined as it should be; otherwise these tests would prove nothing.
fn is_confined(daemon: &Daemon, wanted: u64) {
    let pid = process(daemon);
    let effective = u64::from_str_radix(&status(pid, "CapEff"), 16).unwrap();
    assert_eq!(effective, wanted, "{}", daemon.log());
    assert_eq!(status(pid, "NSpid").split('\t').next_back(), Some("1"));
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let is_read_only = |at: &str| {
        let last = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some(at));
        last.is_some_and(|line| {
            line.split(' ')
                .nth(5)
                .unwrap()
                .split(',')
                .any(|word| word == "ro")
        })
    };
    assert!(is_read_only("/") && is_read_only("/proc/sys"), "{mounts}");
    assert!(!is_read_only("/run/xtables.lock"), "{mounts}");
}

#[test]
fn manifest_asks_for_what_these_tests_give_and_no_more() {
    let manifest = manifest();
    assert_eq!(listed(&manifest, "drop:"), ["ALL"]);
    assert_eq!(listed(&manifest, "add:"), ["NET_ADMIN", "SYS_RESOURCE"]);
    for line in [
        "hostNetwork: true",
        "readOnlyRootFilesystem: true",
        "allowPrivilegeEscalation: false",
        "- --init-only",
    ] {
        let there = manifest.lines().any(|each| each.trim() == line);
        assert!(there, "{line} is not in the manifest");
    }
    // The one that prepares the host, and ends.
    assert_eq!(manifest.matches("privileged: true").count(), 1);
}

#[test]
fn with_its_few_rights_it_serves_on_nf_tables_and_ends_when_it_is_told_to() {
    if !available(&TOOLS) {
        return;
    }
    let (lab, manifests) = (cluster::up("dset"), Manifests::new());
    manifests.put("web.json", &web(4));
    manifests.put("dns.json", &dns("10.244.1.2"));
    let capabilities = listed(&manifest(), "add:");
    nobody_prepared_the_host(&lab, &manifests, &capabilities);
    // As the manifest has it: the first container prepares the host.
    let program = binary().to_string_lossy().into_owned();
    lab.must_exec(NODE, &[&program, "--init-only"]).unwrap();
    let daemon = started(&lab, &manifests, &capabilities);
    health::healthz_becomes(&lab, 200, &daemon);
    all_works(&lab, &manifests, &daemon);
    let score = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", process(&daemon))).unwrap();
    if is_held("SYS_RESOURCE") {
        assert_eq!(score.trim(), "-999");
    } else {
        assert!(daemon.log().contains("oom_score_adj stays"), "{}", daemon.log());
    }
    let log = terminated(daemon);
    assert!(!log.contains("loopback"), "{log}");
    // What is said of the configuration is no matter of the rights.
    let is_fault = |line: &&str| line.starts_with('E') && !line.contains("Kube-proxy configuration may be");
    let faults: Vec<&str> = log.lines().filter(is_fault).collect();
    assert!(faults.is_empty(), "{faults:?}");
    // The rules outlive it.
    let prober = on_web(&lab);
    std::thread::sleep(Duration::from_secs(1));
    all_answered(prober, 100);
}

/// Each thing that cannot be is a line, and all else is served.
fn nobody_prepared_the_host(lab: &Lab, manifests: &Manifests, capabilities: &[String]) {
    let mut wanted = NET_ADMIN;
    if is_held("SYS_RESOURCE") {
        wanted |= SYS_RESOURCE;
    }
    let daemon = started(lab, manifests, capabilities);
    web_answers(lab, &daemon);
    is_confined(&daemon, wanted);
    let log = daemon.log();
    for words in [
        ["not served on loopback", "route_localnet", "Read-only"],
        ["conntrack setting stays", "tcp_timeout_established", "Read-only"],
    ] {
        let is_told = |line: &str| words.iter().all(|word| line.contains(word));
        assert!(log.lines().any(is_told), "no line with {words:?}:\n{log}");
    }
    let saved = rules::saved(lab, NODE, Family::V4);
    let is_tail = |line: &&str| line.contains("NOTE: this must be the last rule");
    let tail = saved.lines().find(is_tail);
    assert!(tail.unwrap().contains("! -d 127.0.0.0/8"), "{tail:?}");
    assert!(!log.contains("panicked"), "{log}");
    terminated(daemon);
}

/// Rules, entries of the connection table, what others do, and the kernel's counters.
fn all_works(lab: &Lab, manifests: &Manifests, daemon: &Daemon) {
    let prober = on_web(lab);
    let flow = Flow::new(lab, CLIENT, "10.1.0.53:53");
    flow.until(&from("kube-dns-a1"), daemon);
    manifests.put("dns.json", &dns("10.244.1.4"));
    flow.until(&from("kube-dns-a2"), daemon);
    manifests.put("more.json", &[service("more", "10.1.0.99", 80, 8080)]);
    rules_say(lab, "default/more", daemon);
    all_answered(prober, 100);
    // Nothing but the kernel's word brings this back within a minute.
    let whole = rules::saved(lab, NODE, Family::V4);
    lab.must_exec(NODE, &["iptables", "-t", "nat", "-F", "KUBE-SERVICES"])
        .unwrap();
    repaired(lab, &whole, daemon);
    let dropped = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total";
    let is_counted = health::metric(lab, dropped, &[]).is_some();
    assert_eq!(is_counted, whole.contains("-m nfacct"), "{whole}");
}

#[test]
fn on_legacy_it_says_that_it_needs_raw_sockets_and_serves_with_them() {
    if !available(&TOOLS) || !available(&["iptables-legacy"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("dslg"), Manifests::new());
    manifests.put("web.json", &web(4));
    lab.must_exec(
        NODE,
        &["iptables-legacy", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"],
    )
    .unwrap();
    let mut capabilities = listed(&manifest(), "add:");
    let daemon = started(&lab, &manifests, &capabilities);
    web_answers(&lab, &daemon);
    let told = |log: &str| {
        log.lines()
            .any(|line| line.starts_with('W') && line.contains("CAP_NET_RAW"))
    };
    assert!(told(&daemon.log()), "{}", daemon.log());
    terminated(daemon);
    lab.must_exec(NODE, &["nft", "flush", "ruleset"]).unwrap();

    capabilities.push("NET_RAW".to_owned());
    let daemon = started(&lab, &manifests, &capabilities);
    web_answers(&lab, &daemon);
    assert!(!told(&daemon.log()), "{}", daemon.log());
    let saved = rules::saved_by(&lab, NODE, Family::V4, Backend::Legacy);
    assert!(saved.contains("default/web"), "{saved}");
    terminated(daemon);
}
