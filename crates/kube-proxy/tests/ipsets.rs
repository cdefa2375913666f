//! Sets of `ipset` beside rules: with them a rule that asks one is decided, and without them it is told what it hangs on.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn kube_proxy(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn healthy(file: &str) -> PathBuf {
    scenario::root().join("doctor/healthy-kubeadm-flannel").join(file)
}

/// A folder of a host on which a rule drops what a set has, and what the set has, if anybody gave that.
fn host(set: Option<&str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let rules = fs::read_to_string(healthy("iptables-save.txt")).unwrap();
    let at = rules.find("-A FORWARD").unwrap();
    let rule = "-A FORWARD -m set --match-set blocked src -j DROP\n";
    let rules = format!("{}{rule}{}", &rules[..at], &rules[at..]);
    fs::write(folder.path().join("iptables-save.txt"), rules).unwrap();
    fs::copy(healthy("node.yaml"), folder.path().join("node.yaml")).unwrap();
    if let Some(set) = set {
        let text =
            format!("create blocked hash:net family inet hashsize 1024 maxelem 65536\nadd blocked {set}\n");
        fs::write(folder.path().join("ipset-save.txt"), text).unwrap();
    }
    folder
}

fn dumps(folder: &Path) -> Vec<String> {
    let files = ["iptables-save.txt", "ipset-save.txt"].map(|name| folder.join(name));
    let there = files.into_iter().filter(|path| path.exists());
    there
        .flat_map(|path| ["--dump".to_owned(), path.to_string_lossy().into_owned()])
        .collect()
}

#[test]
fn a_rule_that_asks_a_set_is_decided_where_the_set_is_given() {
    let packet = ["--from", "10.244.1.254", "--to", "10.96.7.50:80"];
    for (set, is_stopped) in [
        (None, None),
        (Some("10.244.1.0/24"), Some(true)),
        (Some("203.0.113.0/24"), Some(false)),
    ] {
        let folder = host(set);
        let dumps = dumps(folder.path());
        let dumps: Vec<&str> = dumps.iter().map(String::as_str).collect();
        let local = ["--local-address", "192.0.2.11"];
        let (_, traced) = kube_proxy(&[&["trace"], dumps.as_slice(), &packet, &local].concat());
        let outcome = traced.lines().nth(1).unwrap();
        let facts = folder.path().join("node.yaml").to_string_lossy().into_owned();
        let facts = ["--facts", &facts];
        let (explained, told) = kube_proxy(&[&["explain"], dumps.as_slice(), &packet, &facts].concat());
        let path = folder.path().to_string_lossy();
        let (examined, report) = kube_proxy(&["doctor", "--from", &path]);
        let all = format!("{set:?}\n{traced}\n{told}\n{report}");
        match is_stopped {
            None => {
                assert!(
                    outcome.starts_with("Outcome depends") && outcome.contains("DROP"),
                    "{all}"
                );
                assert!(told.contains("hangs on what nobody"), "{all}");
                assert_eq!((explained, examined), (Some(0), Some(0)), "{all}");
            }
            Some(true) => {
                assert_eq!(outcome, "Outcome: DROP", "{all}");
                assert_eq!((explained, examined), (Some(1), Some(1)), "{all}");
                assert!(report.contains("--match-set blocked src -j DROP"), "{all}");
            }
            Some(false) => {
                assert_eq!(outcome, "Outcome: 10.244.1.5:8080, 10.244.2.9:8080", "{all}");
                assert!(!told.contains("hangs"), "{all}");
                assert_eq!((explained, examined), (Some(0), Some(0)), "{all}");
            }
        }
    }
}

#[test]
fn what_is_no_ipset_save_is_named_with_its_line() {
    let folder = host(None);
    let path = folder.path().join("ipset-save.txt");
    fs::write(&path, "create blocked hash:net family inet\nadd blocked here\n").unwrap();
    let dumps = dumps(folder.path());
    let dumps: Vec<&str> = dumps.iter().map(String::as_str).collect();
    let packet = ["--from", "10.244.1.254", "--to", "10.96.7.50:80"];
    let (code, told) = kube_proxy(&[&["trace"], dumps.as_slice(), &packet].concat());
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("ipset-save.txt: line 2"), "{told}");
    let (_, report) = kube_proxy(&["doctor", "--from", &folder.path().to_string_lossy()]);
    assert!(report.contains("unseen  ipset-save.txt: line 2"), "{report}");
}
