//! What `render` prints, given to the tools that read dumps: rules of both families in one text.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Exit status, standard output and what was said beside.
fn kube_proxy(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn cluster() -> Vec<String> {
    let manifests = scenario::root().join("golden/dual-stack/cluster.json");
    let words = [
        "--node",
        "node-a",
        "--cluster-cidr",
        "10.244.0.0/16,fd00:10:244::/48",
    ];
    let manifests = ["--manifests".to_owned(), manifests.to_string_lossy().into_owned()];
    manifests.into_iter().chain(words.map(str::to_owned)).collect()
}

fn of_cluster<'a>(tool: &'a str, cluster: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let words = cluster.iter().map(String::as_str);
    [tool]
        .into_iter()
        .chain(words)
        .chain(more.iter().copied())
        .collect()
}

fn rendered(folder: &Path, mode: &str) -> String {
    let cluster = cluster();
    let (code, text, _) = kube_proxy(&of_cluster("render", &cluster, &["--proxy-mode", mode]));
    assert_eq!(code, Some(0));
    let path = folder.join(format!("{mode}.txt"));
    fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

/// A Service of each family of the cluster, and one of its endpoints.
const SERVICES: [[&str; 3]; 2] = [
    ["10.244.1.9", "10.96.70.1:80", "10.244.1.10:8080"],
    [
        "fd00:10:244:1::9",
        "[fd00:10:96::1:1]:80",
        "[fd00:10:244:1::10]:8080",
    ],
];

#[test]
fn what_render_prints_of_both_families_is_read_by_every_tool_that_takes_dumps() {
    let folder = tempfile::tempdir().unwrap();
    for mode in ["iptables", "nftables"] {
        let dump = rendered(folder.path(), mode);
        for [from, to, endpoint] in SERVICES {
            let packet = ["--dump", &dump, "--from", from, "--to", to];
            for tool in ["trace", "explain"] {
                let (code, out, err) = kube_proxy(&[&[tool], &packet[..]].concat());
                assert_eq!((code, err.as_str()), (Some(0), ""), "{mode} {tool} {to}: {out}");
                assert!(out.contains(endpoint), "{mode} {tool} {to}: {out}");
            }
        }
        let cluster = cluster();
        let (code, out, _) = kube_proxy(&of_cluster(
            "verify",
            &cluster,
            &["--proxy-mode", mode, "--dump", &dump],
        ));
        assert_eq!(code, Some(0), "{mode}: {out}");
        let (code, out, err) = kube_proxy(&["diff", &dump, &dump]);
        assert_eq!(code, Some(0), "{mode}: {out}{err}");
    }
}

#[test]
fn doctor_counts_the_rules_of_each_family_in_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let rules = rendered(folder.path(), "iptables");
    let mailed = tempfile::tempdir().unwrap();
    fs::copy(rules, mailed.path().join("iptables-save.txt")).unwrap();
    let path = mailed.path().to_string_lossy();
    let (_, out, _) = kube_proxy(&["doctor", "--from", &path]);
    for words in ["rules of IPv4", "rules of IPv6"] {
        assert!(out.contains(words), "{out}");
    }
}

#[test]
fn a_packet_of_a_family_without_rules_is_not_answered() {
    let dump = scenario::root().join("golden/dual-stack/iptables.txt");
    let dump = dump.to_string_lossy();
    let [_, [from, to, _]] = SERVICES;
    let asked = ["trace", "--dump", &dump, "--from", from, "--to", to];
    let (code, out, err) = kube_proxy(&asked);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("IPv6") && err.contains("ip6tables-save"), "{err}");
}

#[test]
fn rules_whose_family_nothing_tells_are_said_to_be_taken_for_ipv4s_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let same = "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (once, twice) = (path("once"), path("twice"));
    fs::write(&once, same).unwrap();
    fs::write(&twice, format!("{same}{same}")).unwrap();
    let packet = ["--from", "10.244.1.9", "--to", "10.96.0.10:53"];
    let (_, _, err) = kube_proxy(&[&["explain", "--dump", &once], &packet[..]].concat());
    assert!(err.contains("taken for IPv4's"), "{err}");
    for tool in ["explain", "trace"] {
        let (code, _, err) = kube_proxy(&[&[tool, "--dump", &twice], &packet[..]].concat());
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("which are of IPv4 and which of IPv6"), "{err}");
    }
}
