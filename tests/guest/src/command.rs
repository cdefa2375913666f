//! The script that a guest runs: the command, where and with what it would have run here.

use anyhow::{Context, Result};
use std::fmt::Write as _;

/// Beginnings of the names of variables that a test may read.
const VARIABLES: [&str; 5] = ["KPRS_", "KUBE_PROXY_", "CARGO", "RUST_", "LD_LIBRARY_PATH"];

/// How much longer things may take than on the machine itself: every instruction is interpreted.
const SLOWNESS: u32 = 8;

/// The script for a command.
pub fn script(command: &[String]) -> Result<String> {
    let folder = std::env::current_dir().context("the folder to run in")?;
    let mut script = format!("cd {} || exit 1\n", quoted(&folder.to_string_lossy()));
    for (name, value) in std::env::vars() {
        if is_wanted(&name) {
            _ = writeln!(script, "export {name}={}", quoted(&value));
        }
    }
    _ = writeln!(script, "export KPRS_PATIENCE=${{KPRS_PATIENCE:-{SLOWNESS}}}");
    script.push_str("export KPRS_GUEST=1\n");
    // In a guest nothing is missing, so a skipped test would be a hidden failure.
    _ = writeln!(script, "export KPRS_REQUIRE_LIVE=1");
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    _ = writeln!(script, "exec {}", words.join(" "));
    Ok(script)
}

/// Whether a test may read a variable, and a shell can export it: cargo has some like `CARGO_BIN_EXE_kube-proxy`.
fn is_wanted(name: &str) -> bool {
    let is_of_shell = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_of_shell) && VARIABLES.iter().any(|beginning| name.starts_with(beginning))
}

/// A word as the shell reads it back.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_variable_that_no_shell_can_export_is_left_out() {
        assert!(is_wanted("CARGO_PKG_NAME") && is_wanted("KPRS_PATIENCE"));
        assert!(!is_wanted("CARGO_BIN_EXE_kube-proxy") && !is_wanted("HOME"));
    }

    #[test]
    fn a_word_is_the_same_after_the_shell_has_read_it() {
        for word in ["", "a b", "it's", "$HOME `x` \\ \"", "two\nlines", "*"] {
            let script = format!("printf %s {}", quoted(word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
