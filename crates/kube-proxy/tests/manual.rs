//! Completions that shells take, and manual pages that `man` shows, for every command there is.

#![allow(
    clippy::unwrap_used,
    reason = "this is test code, which clippy cannot tell everywhere"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn kube_proxy(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kube-proxy"))
        .args(args)
        .output()
        .unwrap()
}

fn said(args: &[&str]) -> String {
    let output = kube_proxy(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let help = said(&["--help"]);
    let listed = help.split_once("Commands:\n").unwrap().1;
    let listed = listed.lines().take_while(|line| !line.is_empty());
    let names: Vec<String> = listed
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert!(names.len() > 4, "{names:?}");
    names
}

#[test]
fn bash_completes_commands_and_flags() {
    let script = said(&["completion", "bash"]);
    let ask = r#"
        complete_to() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); "$(complete -p kube-proxy | sed 's/.*-F //; s/ .*//')" kube-proxy "${@: -1}" "${@: -2:1}"; echo "${COMPREPLY[@]}"; }
        complete_to kube-proxy ""
        complete_to kube-proxy --proxy-m
        complete_to kube-proxy lab ""
    "#;
    let mut bash = Command::new("bash")
        .args(["--noprofile", "--norc", "-s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = bash.stdin.take().unwrap();
    stdin.write_all(script.as_bytes()).unwrap();
    stdin.write_all(ask.as_bytes()).unwrap();
    drop(stdin);
    let output = bash.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let offered: BTreeSet<&str> = lines[0].split_whitespace().collect();
    for command in commands() {
        assert!(offered.contains(command.as_str()), "{command} in {text}");
    }
    assert_eq!(lines[1], "--proxy-mode");
    assert!(lines[2].split_whitespace().any(|word| word == "probe"), "{text}");
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = said(&["completion", shell]);
        assert!(
            script.contains("nodeport-addresses") && script.contains("explain"),
            "{shell}"
        );
    }
    let wrong = kube_proxy(&["completion", "csh"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("possible values"));
}

#[test]
fn every_command_has_a_page_that_says_what_its_help_says() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let written = said(&["man", "--dir", dir]);
    for command in commands() {
        let name = format!("kube-proxy-{command}.8");
        assert!(written.contains(&name), "{name} in {written}");
        let page = fs::read_to_string(folder.path().join(&name)).unwrap();
        assert_eq!(page, said(&["man", &command]));
        assert!(page.contains(&format!(".TH kube-proxy-{command} 8")), "{page}");
    }
    let daemon = fs::read_to_string(folder.path().join("kube-proxy.8")).unwrap();
    for flag in ["nodeport", "state", "Exit status"] {
        assert!(daemon.contains(flag), "{flag} in {daemon}");
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    let output = kube_proxy(&["man", "--dir", "/nonexistent/man8"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said.contains("writing /nonexistent/man8/kube-proxy.8: No such file"),
        "{said}"
    );
    let output = kube_proxy(&["man", "tarce"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("\"tarce\"") && said.contains("trace"), "{said}");
}
