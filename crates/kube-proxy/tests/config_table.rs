//! Flags and configuration files, each with upstream 1.36.2's answer (`scenarios/config/table.json`): ours must be the same
//! verdict, the same words and the same `--write-config-to` file, but for the differences of
//! `docs/adr/0020-configuration-differences.md`.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use serde::Deserialize;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// One input, and what upstream answered.
#[derive(Deserialize)]
struct Case {
    args: Vec<String>,
    /// The text of `--config`, if there is one.
    file: Option<String>,
    status: i32,
    /// The error's words.
    message: Option<String>,
    /// Other lines, with the letter of their severity.
    #[serde(default)]
    log: Vec<String>,
    #[serde(default)]
    stdout: String,
    /// The written file, as changes to `default.yaml`; absent when none was written.
    written: Option<Vec<Edit>>,
}

/// Lines that stand in place of others; the first line is 1.
#[derive(Deserialize)]
struct Edit {
    line: usize,
    drop: usize,
    put: Vec<String>,
}

/// An intended difference (the ADR's table has the reasons).
#[derive(Deserialize)]
struct Difference {
    args: Vec<String>,
    file: Option<String>,
    /// What we answer.
    status: i32,
    /// The error's words, if it is one.
    message: Option<String>,
    /// The line of the ADR that explains it.
    why: String,
}

struct Answer {
    status: i32,
    stdout: String,
    stderr: String,
    written: Option<String>,
}

fn scenarios() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/config")
}

fn ask(scratch: &Path, case: &Case) -> Answer {
    let (written, config) = (scratch.join("written.yaml"), scratch.join("config.yaml"));
    for path in [&written, &config] {
        let _ = fs::remove_file(path);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    command.arg("--write-config-to=written.yaml").current_dir(scratch);
    if let Some(text) = &case.file {
        fs::write(config, text).unwrap();
        command.arg("--config=config.yaml");
    }
    let output = command.args(&case.args).stdin(Stdio::null()).output().unwrap();
    Answer {
        status: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        written: fs::read_to_string(written).ok(),
    }
}

/// The words of the error, out of usage errors and log lines.
fn message(stderr: &str) -> Option<String> {
    let mut lines = stderr.lines();
    while let Some(line) = lines.next() {
        if let Some(words) = line.strip_prefix("Error: ") {
            return Some(words.to_owned());
        }
        match line.split_once("\"command failed\" err=") {
            Some((_, "<")) => {
                let words = lines.map_while(|line| line.strip_prefix('\t'));
                return Some(words.collect::<Vec<_>>().join("\n"));
            }
            Some((_, quoted)) => return Some(unquoted(quoted)),
            None => {}
        }
    }
    None
}

fn unquoted(text: &str) -> String {
    serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())
}

fn edited(default: &str, edits: &[Edit]) -> String {
    let mut lines: Vec<String> = default.lines().map(str::to_owned).collect();
    for edit in edits.iter().rev() {
        let at = edit.line - 1;
        lines.splice(at..at + edit.drop, edit.put.iter().cloned());
    }
    lines.join("\n") + "\n"
}

/// Upstream speaks of Go types where a value cannot be read; we name the field's path. The place of the field is the same.
fn same_words(upstream: &str, ours: &str) -> bool {
    let Some(decoding) = upstream.strip_prefix("failed complete: failed to decode: ") else {
        return upstream == ours;
    };
    let field = decoding
        .split_once("Go struct field ")
        .and_then(|(_, rest)| rest.split_once('.')?.1.split(' ').next());
    // Embedding shows in upstream's path and in no file.
    let field = field.map(|path| path.replace("OutputRoutingOptions.", ""));
    ours.starts_with("failed complete: failed to decode: config.yaml: ")
        && field.is_none_or(|path| ours.contains(&path))
}

/// What is wrong with our answer, if anything.
fn verdict(case: &Case, answer: &Answer, default: &str) -> Result<(), String> {
    if answer.status != case.status {
        return Err(format!("status {}, upstream {}", answer.status, case.status));
    }
    let ours = message(&answer.stderr);
    match (&case.message, &ours) {
        (None, None) => {}
        (Some(upstream), Some(ours)) if same_words(upstream, ours) => {}
        (upstream, ours) => return Err(format!("\n  said {ours:?}\n  upstream {upstream:?}")),
    }
    let written = case.written.as_deref().map(|edits| edited(default, edits));
    if case.status == 0 && answer.written != written {
        return Err(format!(
            "wrote otherwise:\n{}",
            changed_lines(
                written.as_deref().unwrap_or_default(),
                answer.written.as_deref().unwrap_or_default()
            )
        ));
    }
    if !answer.stdout.starts_with(case.stdout.trim_end()) {
        return Err(format!("printed {:?}, upstream {:?}", answer.stdout, case.stdout));
    }
    notes(case, &answer.stderr)
}

/// What upstream remarks on, we remark on: the deprecated flag, the unknown field, the unknown gate.
fn notes(case: &Case, stderr: &str) -> Result<(), String> {
    for line in &case.log {
        let words: Vec<String> = if line.starts_with("Flag --") {
            vec![line.clone()]
        } else if let Some(gate) = line.strip_prefix("W ") {
            vec![gate.to_owned()]
        } else {
            unknown_fields(line)
        };
        for word in words {
            if !stderr.contains(&word) {
                return Err(format!("nothing said of {word:?}"));
            }
        }
    }
    Ok(())
}

fn unknown_fields(line: &str) -> Vec<String> {
    let line = line.replace("\\\"", "\"");
    let after = line.split("unknown field \"").skip(1);
    let fields = after.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    let doubled = line
        .split("key \"")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    fields.chain(doubled).collect()
}

fn changed_lines(upstream: &str, ours: &str) -> String {
    let (upstream, ours): (Vec<&str>, Vec<&str>) = (upstream.lines().collect(), ours.lines().collect());
    let missing = upstream
        .iter()
        .filter(|line| !ours.contains(line))
        .map(|line| format!("  - {line}"));
    let added = ours
        .iter()
        .filter(|line| !upstream.contains(line))
        .map(|line| format!("  + {line}"));
    missing.chain(added).collect::<Vec<_>>().join("\n")
}

fn read<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    serde_json::from_str(&fs::read_to_string(scenarios().join(name)).unwrap()).unwrap()
}

#[test]
fn every_input_has_upstreams_verdict_words_and_file() {
    let cases: Vec<Case> = read("table.json");
    let differences: Vec<Difference> = read("differences.json");
    let default = fs::read_to_string(scenarios().join("default.yaml")).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    let mut explained = 0;
    for case in &cases {
        let answer = ask(scratch.path(), case);
        let intended = differences
            .iter()
            .find(|difference| difference.args == case.args && difference.file == case.file);
        let found = match intended {
            None => verdict(case, &answer, &default),
            Some(difference) => {
                explained += 1;
                let said = (answer.status, message(&answer.stderr));
                if verdict(case, &answer, &default).is_ok() {
                    Err(format!("is no difference any more ({})", difference.why))
                } else if said == (difference.status, difference.message.clone()) {
                    Ok(())
                } else {
                    Err(format!("differs otherwise than written down: {said:?}"))
                }
            }
        };
        if let Err(what) = found {
            wrong.push(format!(
                "{:?} {:?}: {what}",
                case.args,
                case.file.as_deref().unwrap_or("")
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    assert_eq!(explained, differences.len(), "a difference belongs to no input");
    assert!(cases.len() >= 200, "{}", cases.len());
}

#[test]
fn every_flag_has_a_good_and_a_bad_value() {
    let cases: Vec<Case> = read("table.json");
    for flag in config::flags::FLAGS {
        let given = |case: &&Case| {
            let start = format!("--{}", flag.name);
            case.args
                .iter()
                .any(|arg| arg == &start || arg.starts_with(&format!("{start}=")))
        };
        let statuses: Vec<i32> = cases.iter().filter(given).map(|case| case.status).collect();
        assert!(statuses.contains(&0), "--{}: no good value", flag.name);
        // Any text is a good one for these.
        let free = [
            "ipvs-scheduler",
            "kube-api-content-type",
            "kubeconfig",
            "pod-bridge-interface",
            "pod-interface-name-prefix",
        ];
        assert!(
            statuses.contains(&1) || free.contains(&flag.name),
            "--{}: no bad value",
            flag.name
        );
    }
}
