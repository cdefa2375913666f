//! Running cargo and the project's own programs.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// One cargo command.
pub struct Cargo {
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Cargo {
    /// `cargo ARGS`.
    pub fn new(args: &[&str]) -> Cargo {
        Cargo {
            args: args.iter().map(ToString::to_string).collect(),
            env: Vec::new(),
        }
    }

    /// With further arguments.
    pub fn more(mut self, args: &[String]) -> Cargo {
        self.args.extend_from_slice(args);
        self
    }

    /// With an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Cargo {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// The repository's root.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the repository").to_path_buf()
}

/// Runs cargo in the root.
pub fn cargo(command: Cargo) -> Result<()> {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut process = Command::new(program);
    process.args(&command.args).envs(command.env).current_dir(root());
    finish(process, &format!("cargo {}", command.args.join(" ")))
}

/// Builds the binary and runs it.
pub fn kube_proxy(words: &[&str], rest: &[String]) -> Result<()> {
    cargo(Cargo::new(&["build", "-p", "kube-proxy"]))?;
    let mut args: Vec<String> = words.iter().map(ToString::to_string).collect();
    args.extend_from_slice(rest);
    program("target/debug/kube-proxy", &args)
}

/// Runs a program in the root; a path with a slash is looked up there.
pub fn program(name: &str, args: &[String]) -> Result<()> {
    let path = if name.contains('/') {
        root().join(name)
    } else {
        PathBuf::from(name)
    };
    let mut process = Command::new(path);
    process.args(args).current_dir(root());
    finish(process, &format!("{name} {}", args.join(" ")))
}

fn finish(mut process: Command, what: &str) -> Result<()> {
    eprintln!("xtask: {what}");
    let status = process
        .status()
        .with_context(|| format!("{what} could not be started"))?;
    if !status.success() {
        bail!("{what} failed: {status}");
    }
    Ok(())
}
