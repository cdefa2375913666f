//! Words that lead to commands, and texts that name them.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn output(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

/// Who leaves the word `lab` out, or takes a word for a command, is told the command.
#[test]
fn a_word_that_is_no_command_leads_to_one() {
    let usage = output(&["lab", "--help"]);
    let usage = String::from_utf8(usage.stdout).unwrap();
    let of_lab = usage.lines().filter_map(|line| line.strip_prefix("  "));
    let words: Vec<&str> = of_lab
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(words.contains(&"demo") && words.contains(&"tour"), "{usage}");
    for word in words {
        let said = output(&[word]);
        let error = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(1), "{error}");
        assert!(error.contains(&format!("kube-proxy lab {word}\n")), "{error}");
    }
    let error = String::from_utf8(output(&["explian"]).stderr).unwrap();
    assert!(
        error.contains("explain") && error.contains("kube-proxy lab demo"),
        "{error}"
    );
    // Flags are the daemon's, as ever.
    let error = String::from_utf8(output(&["--no-such-flag"]).stderr).unwrap();
    assert!(!error.contains("lab"), "{error}");
}

/// An operator has the binary, and no checkout.
#[test]
fn no_text_of_the_binary_names_a_developers_command() {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files: Vec<PathBuf> = [
        "kube-proxy",
        "lab",
        "explain",
        "explorer",
        "proxy",
        "cluster",
        "config",
    ]
    .map(|name| crates.join(name).join("src"))
    .to_vec();
    let mut wrong = Vec::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        wrong.extend(
            code.filter(|line| line.contains("cargo "))
                .map(|line| format!("{}: {line}", path.display())),
        );
    }
    assert_eq!(wrong, Vec::<String>::new());
}
