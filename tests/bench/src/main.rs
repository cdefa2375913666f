//! Benchmarks of the daemon: cold start, changes and memory at real sizes, on the real kernel.
//!
//! Each case runs in a network namespace of its own: a small API server, the daemon as a second process, and this
//! process listening to the kernel's generations. Nothing here is a test; figures are for reading side by side.

mod case;
mod daemon;
mod generations;
mod micro;
mod objects;
mod report;
mod server;
mod stats;
mod tools;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::Command;

/// Measure the daemon on the real kernel.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    options: Options,
}

/// What to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Numbers of services, each with --endpoints endpoints.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 5_000, 10_000])]
    services: Vec<usize>,
    /// Endpoints of a service.
    #[arg(long, default_value_t = 10)]
    endpoints: usize,
    /// Backends of iptables.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Backend::NfTables, Backend::Legacy])]
    backend: Vec<Backend>,
    /// How often each kind of change is made.
    #[arg(long, default_value_t = 20)]
    changes: usize,
    /// Endpoint changes made before memory is read a second time; 0 leaves that out.
    #[arg(long, default_value_t = 10_000)]
    churn: usize,
    /// Services created and deleted before memory is read a third time; 0 leaves that out.
    #[arg(long, default_value_t = 100_000)]
    turnover: usize,
    /// The binary.
    #[arg(long, default_value = "target/release/kube-proxy")]
    binary: PathBuf,
    /// JSON, one object a line, in place of tables.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Part {
    /// Resolve, build, diff and render of one service in a large cluster, in this process.
    Micro,
    /// One case, inside a network namespace that is already there.
    #[command(hide = true)]
    Case,
}

/// A backend of iptables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// `nf_tables`
    NfTables,
    /// Legacy.
    Legacy,
}

fn main() -> Result<()> {
    let args = Args::parse();
    match args.part {
        Some(Part::Micro) => report::micro(&micro::run(&args.options), args.options.json),
        Some(Part::Case) => report::line(&case::run(&args.options)?),
        None => all(&args.options),
    }
}

fn all(options: &Options) -> Result<()> {
    report::micro(&micro::run(options), options.json)?;
    let mut results = Vec::new();
    for backend in &options.backend {
        for services in &options.services {
            eprintln!(
                "bench: {services} services x {} on {backend:?} ...",
                options.endpoints
            );
            let result = in_namespace(options, *backend, *services)?;
            if options.json {
                report::line(&result)?;
            }
            results.push(result);
        }
    }
    if !options.json {
        report::tables(&results);
    }
    Ok(())
}

/// Runs one case in a network namespace of its own, and reads its line.
fn in_namespace(options: &Options, backend: Backend, services: usize) -> Result<case::CaseResult> {
    let me = std::env::current_exe()?;
    let backend_word = backend
        .to_possible_value()
        .expect("no variant is skipped")
        .get_name()
        .to_owned();
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--"])
        .arg(me)
        .args([
            "--services",
            &services.to_string(),
            "--endpoints",
            &options.endpoints.to_string(),
        ])
        .args([
            "--backend",
            &backend_word,
            "--changes",
            &options.changes.to_string(),
        ])
        .args([
            "--churn",
            &options.churn.to_string(),
            "--turnover",
            &options.turnover.to_string(),
        ])
        .arg("--binary")
        .arg(std::path::absolute(&options.binary)?)
        .arg("case")
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run unshare (Debian package util-linux; needs root)")?;
    if !output.status.success() {
        bail!(
            "the case of {services} services on {backend:?} failed: {}",
            output.status
        );
    }
    serde_json::from_slice(&output.stdout).context("the case printed no result")
}
