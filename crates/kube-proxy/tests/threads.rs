//! A limit of processes that is too low, at each number it can have: the daemon serves, or ends with a line that says so.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::live;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const MANIFEST: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\n---\n\
    apiVersion: v1\nkind: Service\nmetadata: {namespace: ns, name: svc}\n\
    spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n";

/// Runs it for a moment in namespaces of its own, as a user of its own: root in there, with the limit of a user.
fn run(folder: &Path, mode: &str, limit: usize) -> (Option<i32>, String) {
    let user = 54_000_000 + (std::process::id() as usize % 100_000) * 64 + limit;
    let output = Command::new("setpriv")
        .arg(format!("--reuid={user}"))
        .args(["--clear-groups", "unshare", "--user", "--map-root-user", "--net"])
        .args(["prlimit", &format!("--nproc={limit}")])
        .args(["timeout", "1", "./kube-proxy", "--manifests=good.yaml"])
        .args(["--hostname-override=node-a", &format!("--proxy-mode={mode}")])
        .current_dir(folder)
        .output()
        .unwrap();
    let lines = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), lines)
}

#[test]
fn where_no_thread_can_be_made_the_daemon_ends_with_a_line_that_says_what_to_do() {
    if !live::available(&["setpriv", "unshare", "prlimit", "timeout"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_kube-proxy"), at("kube-proxy")).unwrap();
    fs::write(at("good.yaml"), MANIFEST).unwrap();
    for mode in ["iptables", "nftables"] {
        let (mut refused, mut said_how_many) = (0, 0);
        // One is for `timeout` alone, which then cannot start anything.
        for limit in [2, 3, 4, 6, 9, 14, 19, 20, 21, 22, 23, 24, 32] {
            let (status, lines) = run(folder.path(), mode, limit);
            assert!(!lines.contains("panicked"), "{mode} with {limit}: {lines}");
            if status == Some(1) {
                let last = lines.lines().last().unwrap_or_default();
                assert!(
                    last.contains("raise the limit of processes"),
                    "{mode} with {limit}: {lines}"
                );
                // Nobody knows the threads of a trial by name.
                assert!(!last.contains("trial"), "{mode} with {limit}: {lines}");
                said_how_many += usize::from(last.contains(" threads can be made"));
                assert!(last.contains("cannot start"), "{mode} with {limit}: {lines}");
                refused += 1;
            } else {
                // Ended by `timeout`.
                assert_eq!(status, Some(124), "{mode} with {limit}: {lines}");
            }
        }
        assert!(said_how_many >= 3, "{mode}: {said_how_many}");
        assert!(refused >= 6, "{mode}: the limit was no limit: {refused}");
    }
}
