//! Running cargo and the project's own programs.

use anyhow::{Context, Result, bail};
use std::fmt;
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
    // What cargo tells this program of itself is not for other builds: some build scripts run anew when it changes.
    let of_ours = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    });
    for name in of_ours {
        process.env_remove(name);
    }
    process.args(&command.args).envs(command.env).current_dir(root());
    finish(process, &format!("cargo {}", command.args.join(" ")), Passes::No)
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
    finish(process, &format!("{name} {}", args.join(" ")), Passes::Yes)
}

/// A program of the project that ended with a status of its own, which says what it found.
#[derive(Debug)]
pub struct Ended {
    what: String,
    /// The status.
    pub code: u8,
}

/// As other failures are told.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended with status {}", self.what, self.code)
    }
}

impl std::error::Error for Ended {}

/// Whether an exit status is passed on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passes {
    Yes,
    No,
}

fn finish(mut process: Command, what: &str, passes: Passes) -> Result<()> {
    eprintln!("xtask: {what}");
    let status = process
        .status()
        .with_context(|| format!("{what} could not be started"))?;
    if status.success() {
        return Ok(());
    }
    match status.code().map(u8::try_from) {
        Some(Ok(code)) if passes == Passes::Yes => bail!(Ended {
            what: what.to_owned(),
            code
        }),
        _ => bail!("{what} failed: {status}"),
    }
}
