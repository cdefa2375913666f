//! What we render is what the real `nft` takes, lists as text and as JSON, and takes again.

use ipnet::IpNet;
use model::{Balancing, Desired, Family};
use nftables::build;
use nftables::render;
use std::io::Write;
use std::process::{Command, Stdio};

const SCRIPT: &str = "set -e
nft -f /dev/stdin
nft list ruleset > \"$0/listed\"
nft -j list ruleset > \"$0/json\"
nft flush ruleset
nft -f \"$0/listed\"
nft list ruleset | cmp - \"$0/listed\"";

/// Loads a file in a namespace of its own, lists it, and loads what was listed, which must give the same list.
fn load_and_list(file: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let unshare: &[&str] = if rustix::process::geteuid().is_root() {
        &["-n"]
    } else {
        &["-Urn"]
    };
    let mut child = Command::new("unshare")
        .args(unshare)
        .args(["sh", "-c", SCRIPT])
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare runs");
    let mut stdin = child.stdin.take().expect("invariant: piped");
    stdin.write_all(file.as_bytes()).expect("nft reads");
    drop(stdin);
    let output = child.wait_with_output().expect("nft ends");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}\n{}", first_lines(file));
}

/// Whether `nft` can be run in a namespace here. With `KPRS_REQUIRE_LIVE` set it must.
fn available() -> bool {
    let flags = if rustix::process::geteuid().is_root() {
        "-n"
    } else {
        "-Urn"
    };
    let tried = Command::new("unshare")
        .args([flags, "nft", "list", "ruleset"])
        .output();
    let reason = match tried {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    assert!(
        std::env::var_os("KPRS_REQUIRE_LIVE").is_none(),
        "cannot run: {reason}"
    );
    // Past the capture of the test harness: a skip has to be seen.
    _ = writeln!(std::io::stderr(), "SKIPPED: nft in a namespace: {reason}");
    false
}

fn first_lines(file: &str) -> String {
    let lines: Vec<&str> = file.lines().take(400).collect();
    lines.join("\n")
}

fn whole(desired: &Desired) -> String {
    let (shapes, elements) = build::parts(desired);
    let cidrs: [IpNet; 2] = ["10.96.0.0/12", "fd00:10:96::/108"].map(|net| net.parse().expect("a network"));
    render::file(&build::frame(&desired.node, &shapes, &cidrs), &elements)
}

/// The same with every port that can be balanced by the client's address.
fn hashed(desired: &Desired) -> Desired {
    let mut desired = desired.clone();
    let ports = desired
        .services
        .values_mut()
        .flat_map(|service| &mut service.ports);
    for port in ports.filter(|port| port.affinity.is_none()) {
        port.balancing = Balancing::ClientHash;
    }
    desired
}

#[test]
fn clusters_balanced_by_the_clients_address_load_are_listed_and_load_again() {
    if !available() {
        return;
    }
    let mut cases = scenario::golden_cases();
    cases.retain(|case| ["dual-stack", "policy", "nodeport"].contains(&case.name.as_str()));
    assert_eq!(cases.len(), 3);
    for case in cases {
        for family in Family::ALL {
            let file = whole(&hashed(case.desired.get(family)));
            load_and_list(&file);
        }
    }
}

#[test]
fn golden_clusters_load_are_listed_and_load_again() {
    if !available() {
        return;
    }
    for case in scenario::golden_cases() {
        for family in Family::ALL {
            let file = whole(case.desired.get(family));
            load_and_list(&file);
        }
    }
}
