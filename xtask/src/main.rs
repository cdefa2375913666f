//! Every developer verb: `cargo xtask demo | test | lint | lab | bench | bless | tidy | ci`.
//!
//! This is the one door: CI and README call nothing else.

mod packages;
mod run;
mod tidy;

use anyhow::Result;
use clap::{Parser, Subcommand};
use run::{Cargo, cargo, kube_proxy};

/// Developer verbs of kube-proxy-rs.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Watch real packets reach pods through Services, predicted and observed side by side.
    Demo {
        /// Arguments for `kube-proxy lab demo`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Run all tests: pure ones, the live kernel in namespaces of its own, real packets.
    Test {
        /// Run each seeded fault instead, and check that a test notices it.
        #[arg(long)]
        mutants: bool,
        /// Arguments for `cargo test`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Formatting, clippy and tidy, with warnings as errors.
    Lint,
    /// A cluster out of network namespaces: `cargo xtask lab up|run|down ...`.
    Lab {
        /// Arguments for `kube-proxy lab`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Measure: cold start, changes, memory, at 1,000 to 10,000 services.
    Bench {
        /// Arguments for the benchmark.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Write the stage goldens under scenarios/ anew, and show what changed. Upstream's goldens are never touched.
    Bless,
    /// Check what the compiler cannot: crate edges, documents, file sizes, words.
    Tidy,
    /// What CI runs: lint, then test.
    Ci,
}

fn main() -> Result<()> {
    match Args::parse().verb {
        Verb::Demo { rest } => {
            packages::ensure()?;
            kube_proxy(&["lab", "demo"], &rest)
        }
        Verb::Lab { rest } => {
            packages::ensure()?;
            kube_proxy(&["lab"], &rest)
        }
        Verb::Test { mutants: true, rest } => cargo(
            Cargo::new(&[
                "test",
                "-p",
                "engine",
                "--features",
                "mutants",
                "--test",
                "mutants",
            ])
            .more(&rest),
        ),
        Verb::Test { mutants: false, rest } => test(&rest),
        Verb::Lint => lint(),
        Verb::Bench { rest } => {
            packages::ensure()?;
            cargo(Cargo::new(&[
                "build",
                "--release",
                "-p",
                "kube-proxy",
                "-p",
                "bench",
            ]))?;
            run::program("target/release/bench", &rest)
        }
        Verb::Bless => bless(),
        Verb::Tidy => tidy::run(),
        Verb::Ci => {
            lint()?;
            test(&[])
        }
    }
}

/// The binary comes first: the live tests run it.
fn test(rest: &[String]) -> Result<()> {
    packages::ensure()?;
    tidy::run()?;
    cargo(Cargo::new(&["build", "-p", "kube-proxy"]))?;
    let mut tests = Cargo::new(&["test", "--workspace"]).more(rest);
    if packages::is_root() {
        // As root nothing is missing, so a skipped test would be a hidden failure.
        tests = tests.env("KPRS_REQUIRE_LIVE", "1");
    }
    cargo(tests)
}

fn lint() -> Result<()> {
    cargo(Cargo::new(&["fmt", "--all", "--check"]))?;
    cargo(Cargo::new(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    tidy::run()
}

fn bless() -> Result<()> {
    cargo(Cargo::new(&["test", "-p", "scenario"]).env("KPRS_BLESS", "1"))?;
    run::program(
        "git",
        &["--no-pager", "diff", "--stat", "--", "scenarios"].map(String::from),
    )
}
