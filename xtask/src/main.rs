//! Every developer verb: `cargo xtask demo | test | lint | lab | guest | bench | bless | tidy | ci`.
//!
//! This is the one door: CI and README call nothing else.

mod goldens;
mod packages;
mod run;
mod tidy;

use anyhow::Result;
use clap::{Parser, Subcommand};
use run::{Cargo, cargo, kube_proxy};
use std::process::ExitCode;

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
    /// Run tests on an older kernel, in a virtual machine: `cargo xtask guest --kernel 5.10 -p live --test nftables`.
    Guest {
        /// 5.10, 6.1 or 6.12: Debian's, fetched when it is first wanted.
        #[arg(long, default_value = "6.1")]
        kernel: String,
        /// After so many seconds the machine is switched off, and that is a failure.
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
        /// Arguments for `cargo test`; each test program has a machine to itself. Without any: SCTP's truth table.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
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
    /// Check what the compiler cannot: crate edges, documents, file sizes, words, goldens that no test reads.
    Tidy,
    /// What CI runs: lint, then test.
    Ci,
}

fn main() -> ExitCode {
    match run(Args::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("xtask: {err:#}");
            // What a tool says by its status, it says through us.
            err.downcast_ref::<run::Ended>()
                .map_or(ExitCode::FAILURE, |ended| ExitCode::from(ended.code))
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Demo { rest } => {
            packages::ensure()?;
            kube_proxy(&["lab", "demo"], &rest)
        }
        Verb::Lab { rest } => {
            packages::ensure()?;
            kube_proxy(&["lab"], &rest)
        }
        Verb::Test { mutants: true, rest } => mutants(&rest),
        Verb::Test { mutants: false, rest } => test(&rest),
        Verb::Lint => lint(),
        Verb::Guest {
            kernel,
            seconds,
            rest,
        } if rest.is_empty() => guest(&kernel, seconds, sctp()),
        Verb::Guest {
            kernel,
            seconds,
            rest,
        } => guest(&kernel, seconds, Cargo::new(&["test"]).more(&rest)),
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

/// Cargo's own way to run tests elsewhere: each test program is started by another.
fn guest(kernel: &str, seconds: u64, tests: Cargo) -> Result<()> {
    packages::ensure_for_guests()?;
    cargo(Cargo::new(&["build", "-p", "kube-proxy", "-p", "guest"]))?;
    let guest = run::root().join("target/debug/guest");
    let runner = format!("{} run --kernel {kernel} --seconds {seconds} --", guest.display());
    cargo(tests.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", &runner))
}

/// Packets that the kernel of most development machines cannot make. One table, since a guest is slow.
fn sctp() -> Cargo {
    let words = [
        "test",
        "-p",
        "live",
        "--test",
        "truth_table_nftables",
        "--",
        "--nocapture",
    ];
    Cargo::new(&words).env("KPRS_TRUTH_TABLES", "15-sctp")
}

/// The binary comes first: the live tests run it.
fn test(rest: &[String]) -> Result<()> {
    packages::ensure_for_tests()?;
    tidy::run()?;
    cargo(Cargo::new(&["build", "-p", "kube-proxy"]))?;
    let mut tests = Cargo::new(&["test", "--workspace"]).more(rest);
    if packages::is_root() {
        // As root nothing is missing, so a skipped test would be a hidden failure.
        tests = tests.env("KPRS_REQUIRE_LIVE", "1");
    }
    cargo(tests)
}

/// A line for each seeded fault, as soon as it is judged; fails when a fault goes unnoticed.
fn mutants(rest: &[String]) -> Result<()> {
    let words = [
        "test",
        "--quiet",
        "-p",
        "engine",
        "--features",
        "mutants",
        "--test",
        "mutants",
    ];
    let search = ["every_seeded_fault_is_found", "--", "--exact", "--nocapture"];
    // A panic is a way to notice, and no news.
    let judged = Cargo::new(&words).more(&search.map(String::from)).more(rest);
    cargo(judged.env("RUST_BACKTRACE", "0"))?;
    // Whether the search itself can fail, and whether it knows every fault.
    let others = ["--", "--skip", "every_seeded_fault_is_found"];
    cargo(Cargo::new(&words).more(&others.map(String::from)))
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

/// Folders of goldens that are our own.
const BLESSED: [&str; 3] = ["scenarios/stages", "scenarios/transitions", "docs/drawings"];

/// The tests print what they write; git says what is new since the last commit.
fn bless() -> Result<()> {
    for (package, test) in [("engine", "stages"), ("kube-proxy", "drawings")] {
        let words = [
            "test",
            "--quiet",
            "-p",
            package,
            "--test",
            test,
            "--",
            "--nocapture",
        ];
        cargo(Cargo::new(&words).env("KPRS_BLESS", "1"))?;
    }
    let git = |words: &[&str]| {
        let args: Vec<String> = words.iter().chain(&BLESSED).map(ToString::to_string).collect();
        run::program("git", &args)
    };
    git(&["--no-pager", "diff", "--"])?;
    git(&["status", "--short", "--"])
}
