//! `kube-proxy ... | head -1`: whoever has read enough is no failure, whatever prints.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

fn scenario(path: &str) -> String {
    scenario::root().join(path).to_string_lossy().into_owned()
}

/// A pipe that nobody reads any more.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Every command that prints, in each of its forms.
fn all() -> Vec<Vec<String>> {
    let dump = scenario("golden/clusterip/iptables.txt");
    let manifests = scenario("golden/clusterip/cluster.json");
    let sick = scenario("doctor/18-docker-drops-in-legacy");
    let cluster = format!("--manifests {manifests} --node node-a --cluster-cidr 10.244.0.0/16");
    let packet = "--from 10.244.1.9 --to 10.96.0.10:53 --proto udp";
    let mut lines = vec![
        "--version".to_owned(),
        "--help".to_owned(),
        "completion bash".to_owned(),
        "man".to_owned(),
        "lab --help".to_owned(),
        "lab demo --help".to_owned(),
        "lab tour --help".to_owned(),
        format!("explore {cluster}"),
        format!("render {cluster} --proxy-mode nftables"),
    ];
    for stage in ["snapshot", "desired", "rules", "plan"] {
        lines.push(format!("render {cluster} --stage {stage}"));
    }
    for form in ["text", "json", "svg", "dot", "mermaid"] {
        lines.push(format!("trace --dump {dump} {packet} --output {form}"));
    }
    for form in ["text", "json"] {
        lines.push(format!("explain --dump {dump} {packet} --output {form}"));
        lines.push(format!("explain {cluster} {packet} --output {form}"));
        lines.push(format!("doctor --from {sick} --output {form}"));
        lines.push(format!("verify {cluster} --dump {dump} --output {form}"));
        lines.push(format!("diff {manifests} {dump} --node node-a --output {form}"));
    }
    let words = |line: &String| line.split(' ').map(str::to_owned).collect();
    lines.iter().map(words).collect()
}

/// Without the notes about objects, which are told whoever reads the answer.
fn errors(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().filter(|line| !line.starts_with("note"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn whoever_has_read_enough_is_no_failure_whatever_prints() {
    for words in all() {
        let output = command(&words).stdout(closed()).output().unwrap();
        assert_eq!(errors(&output), "", "{words:?}");
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
}

/// `2>&1 | head -1`
#[test]
fn nor_is_who_reads_no_errors() {
    for words in all() {
        let status = command(&words)
            .stdout(closed())
            .stderr(closed())
            .status()
            .unwrap();
        assert!(status.success(), "{words:?}: {status:?}");
    }
    for words in [
        vec!["explain"],
        vec!["no-such-word"],
        vec!["doctor", "--from", "/nowhere"],
    ] {
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let status = command(&words)
            .stdout(closed())
            .stderr(closed())
            .status()
            .unwrap();
        assert!(
            status.code().is_some_and(|code| [1, 2].contains(&code)),
            "{words:?}: {status:?}"
        );
    }
}

/// A command that is new is not forgotten here.
#[test]
fn every_command_is_among_them() {
    let help = command(&["--help".to_owned()]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let listed = help
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("Options:")
        .next()
        .unwrap()
        .to_owned();
    let commands: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let tried: BTreeSet<String> = all().into_iter().map(|words| words[0].clone()).collect();
    let missing: Vec<&&str> = commands.iter().filter(|name| !tried.contains(**name)).collect();
    assert!(commands.len() >= 10 && missing.is_empty(), "{missing:?}");
}
