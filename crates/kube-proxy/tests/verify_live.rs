//! `kube-proxy verify` of hosts that hold the rules of golden clusters, whoever loaded them: in iptables mode with
//! `iptables-restore`, in nftables mode with `nft`.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use scenario::GoldenCase;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// In a network namespace of its own. `$0` is the binary under test.
fn sh(script: &str, folder: &Path) -> Output {
    let root = rustix::process::geteuid().is_root();
    Command::new("unshare")
        .args([if root { "-n" } else { "-Urn" }, "sh", "-euc", script])
        .arg(env!("CARGO_BIN_EXE_kube-proxy"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Whether `nft` and `iptables` can be run in a namespace here. With `KPRS_REQUIRE_LIVE` set they must.
fn available() -> bool {
    let works = sh(
        "nft list ruleset && iptables-nft -S && ip6tables-nft -S",
        &std::env::temp_dir(),
    )
    .status
    .success();
    assert!(
        works || std::env::var_os("KPRS_REQUIRE_LIVE").is_none(),
        "nft and iptables-nft cannot be run in a namespace"
    );
    if !works {
        // Past the capture of the test harness: a skip has to be seen.
        let mut out = std::io::stderr().lock();
        let _ = writeln!(out, "SKIPPED: nft and iptables-nft cannot be run in a namespace");
    }
    works
}

/// What every command is told of the cluster.
fn cluster(case: &GoldenCase, folder: &Path) -> String {
    fs::write(folder.join("config.yaml"), config::to_yaml(&case.config)).unwrap();
    let objects = scenario::root()
        .join("golden")
        .join(&case.name)
        .join("cluster.json");
    let addresses = case
        .addresses
        .iter()
        .chain(case.interfaces.iter().map(|(_, net)| net));
    let addresses: Vec<String> = addresses.map(|net| format!("--node-address {net}")).collect();
    format!(
        "--manifests {} --node node-a --config config.yaml {}",
        objects.display(),
        addresses.join(" ")
    )
}

/// A cluster of ten thousand rules takes the tools seconds.
fn cases() -> impl Iterator<Item = GoldenCase> {
    scenario::golden_cases()
        .into_iter()
        .filter(|case| case.name != "large-cluster")
}

fn says_same(case: &GoldenCase, output: &Output, folder: &Path) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{} in {}: {text}\n{error}",
        case.name,
        folder.display()
    );
    assert!(text.starts_with("SAME"), "{}: {text}", case.name);
    text
}

#[test]
fn a_host_with_the_rules_of_any_golden_cluster_is_as_wanted_in_iptables_mode() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for case in cases() {
        let cluster = cluster(&case, folder.path());
        let render = format!(
            "\"$0\" render {cluster} --proxy-mode iptables --without-nfacct 2>/dev/null --form restore --family"
        );
        let script = format!(
            "{render} ipv4 >4; {render} ipv6 >6; iptables-nft-restore --noflush <4; ip6tables-nft-restore --noflush <6; \
             iptables-nft-save >dump4; ip6tables-nft-save >dump6; \
             \"$0\" verify {cluster} --proxy-mode iptables 2>/dev/null; \
             exec \"$0\" verify {cluster} --dump dump4 --dump dump6"
        );
        says_same(&case, &sh(&script, folder.path()), folder.path());
    }
}

#[test]
fn a_host_with_the_table_of_any_golden_cluster_is_as_wanted_in_nftables_mode() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for case in cases() {
        let cluster = cluster(&case, folder.path());
        let script = format!(
            "\"$0\" render {cluster} --proxy-mode nftables 2>/dev/null | nft -f -; nft list ruleset >text; \
             nft -j list ruleset >json; for dump in text json; do \
             \"$0\" verify {cluster} --proxy-mode nftables --dump $dump 2>/dev/null; done; \
             exec \"$0\" verify {cluster} --proxy-mode nftables"
        );
        says_same(&case, &sh(&script, folder.path()), folder.path());
    }
}

/// Case 48: names of 128 bytes and more are cut on both sides alike.
#[test]
fn names_that_are_cut_in_the_kernel_are_no_drift() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let objects = scenario::root().join("cases/48-very-long-names/objects.yaml");
    let cluster = format!(
        "--manifests {} --node node-a --node-address 192.0.2.11 --cluster-cidr 10.244.0.0/16",
        objects.display()
    );
    for (mode, load) in [
        ("nftables", "nft -f -"),
        ("iptables", "iptables-nft-restore --noflush"),
    ] {
        let form = match mode {
            "iptables" => "--form restore --without-nfacct --family ipv4",
            _ => "",
        };
        let script = format!(
            "\"$0\" render {cluster} --proxy-mode {mode} {form} 2>/dev/null | {load}; \
             exec \"$0\" verify {cluster} --proxy-mode {mode} --family ipv4"
        );
        let output = sh(&script, folder.path());
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{mode}: {text}{error}");
        assert!(text.starts_with("SAME"), "{mode}: {text}");
    }
}
