//! Benchmarks of the daemon: cold start, changes and memory at real sizes, on the real kernel.
//!
//! Each case runs in a network namespace of its own: a small API server, the daemon as a second process, and this
//! process listening to the kernel's generations. Nothing here is a test; figures are for reading side by side.

mod beside;
mod case;
mod daemon;
mod flood;
mod generations;
mod micro;
mod nftables;
mod objects;
mod packets;
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
    /// The mode.
    #[arg(long, value_enum, default_value_t = Mode::Iptables)]
    proxy_mode: Mode,
    /// Numbers of services, each with --endpoints endpoints [default: 1000,5000,10000; in nftables mode
    /// 1000,10000,40000].
    #[arg(long, value_delimiter = ',')]
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
    /// How often each kind of change of nftables mode is made with a client that waits for its first packet.
    #[arg(long, default_value_t = 50)]
    packets: usize,
    /// Endpoint changes made before memory is read a second time; 0 leaves that out.
    #[arg(long, default_value_t = 10_000)]
    churn: usize,
    /// Services created and deleted before memory is read a third time; 0 leaves that out.
    #[arg(long, default_value_t = 100_000)]
    turnover: usize,
    /// The binary.
    #[arg(long, default_value = "target/release/kube-proxy")]
    binary: PathBuf,
    /// With `beside`: the other binary.
    #[arg(long)]
    other: Option<PathBuf>,
    /// JSON, one object a line, in place of tables.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Part {
    /// Resolve, build, diff and render of one service in a large cluster, in this process.
    Micro,
    /// The first packet of a connection and the rate of connections, in either mode.
    Packets,
    /// New connections in nftables mode while the number of a service's endpoints changes `--churn` times.
    Flood,
    /// The binary and another one, such as upstream's (`--other`), one after the other with the same objects and changes.
    Beside,
    /// Where the time of one change goes in nftables mode, inside a network namespace that is already there.
    Stages,
    /// One case, inside a network namespace that is already there.
    #[command(hide = true)]
    Case,
    /// One case of `beside`, inside a network namespace that is already there.
    #[command(hide = true)]
    BesideCase,
    /// One case of `packets`, inside a network namespace that is already there.
    #[command(hide = true)]
    PacketsCase,
    /// `flood`, inside a network namespace that is already there.
    #[command(hide = true)]
    FloodCase,
}

/// A mode of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// By the tools.
    Iptables,
    /// By netlink, in a table of our own.
    Nftables,
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
    let mut args = Args::parse();
    let options = &mut args.options;
    if options.services.is_empty() {
        options.services = match (&args.part, options.proxy_mode) {
            (Some(Part::Packets), _) => vec![1, 1_000, 10_000],
            (Some(Part::Flood | Part::Beside), _) => vec![1_000],
            (_, Mode::Iptables) => vec![1_000, 5_000, 10_000],
            (_, Mode::Nftables) => vec![1_000, 10_000, 40_000],
        };
    }
    let options = &args.options;
    match (args.part, options.proxy_mode) {
        (Some(Part::Micro), _) => report::micro(&micro::run(options), options.json),
        (Some(Part::Packets), _) => packets(options),
        (Some(Part::Stages), _) => {
            for services in &options.services {
                report::stages(*services, &nftables::stages::run(*services, options.endpoints)?);
            }
            Ok(())
        }
        (Some(Part::Flood), _) => flood(options),
        (Some(Part::Beside), _) => beside(options),
        (Some(Part::BesideCase), _) => report::line(&beside::run(options)?),
        (Some(Part::FloodCase), _) => report::line(&flood::run(options)?),
        (Some(Part::PacketsCase), mode) => report::line(&packets::run(options, mode)?),
        (Some(Part::Case), Mode::Iptables) => report::line(&case::run(options)?),
        (Some(Part::Case), Mode::Nftables) => report::line(&nftables::run(options)?),
        (None, Mode::Iptables) => iptables(options),
        (None, Mode::Nftables) => nftables(options),
    }
}

fn iptables(options: &Options) -> Result<()> {
    report::micro(&micro::run(options), options.json)?;
    let mut results: Vec<case::CaseResult> = Vec::new();
    for backend in &options.backend {
        for services in &options.services {
            results.push(in_namespace(options, "case", Some(*backend), *services)?);
            report::each(options, results.last())?;
        }
    }
    if !options.json {
        report::tables(&results);
    }
    Ok(())
}

fn nftables(options: &Options) -> Result<()> {
    let mut results: Vec<nftables::NftResult> = Vec::new();
    for services in &options.services {
        results.push(in_namespace(options, "case", None, *services)?);
        report::each(options, results.last())?;
    }
    if !options.json {
        report::nftables(&results);
    }
    Ok(())
}

fn flood(options: &Options) -> Result<()> {
    for services in &options.services {
        let options = Options {
            proxy_mode: Mode::Nftables,
            ..options.clone()
        };
        let result: flood::FloodResult = in_namespace(&options, "flood-case", None, *services)?;
        report::each(&options, Some(&result))?;
        if !options.json {
            report::flood(&result);
        }
    }
    Ok(())
}

fn beside(options: &Options) -> Result<()> {
    let other = options
        .other
        .clone()
        .context("beside needs another kube-proxy: cargo xtask bench --other PATH beside")?;
    for services in &options.services {
        let mut both: Vec<beside::BesideResult> = Vec::new();
        for binary in [other.clone(), options.binary.clone()] {
            let options = Options {
                binary,
                ..options.clone()
            };
            both.push(in_namespace(&options, "beside-case", None, *services)?);
            report::each(&options, both.last())?;
        }
        if let ([other, ours], false) = (both.as_slice(), options.json) {
            report::beside(other, ours);
        }
    }
    Ok(())
}

fn packets(options: &Options) -> Result<()> {
    let mut results: Vec<packets::PacketsResult> = Vec::new();
    for services in &options.services {
        for proxy_mode in [Mode::Iptables, Mode::Nftables] {
            let options = Options {
                proxy_mode,
                ..options.clone()
            };
            results.push(in_namespace(&options, "packets-case", None, *services)?);
            report::each(&options, results.last())?;
        }
    }
    if !options.json {
        report::packets(&results);
    }
    Ok(())
}

/// Runs one case in a network namespace of its own, and reads its line.
fn in_namespace<T: serde::de::DeserializeOwned>(
    options: &Options,
    case: &str,
    backend: Option<Backend>,
    services: usize,
) -> Result<T> {
    let word = |value: Option<clap::builder::PossibleValue>| {
        value.expect("no variant is skipped").get_name().to_owned()
    };
    let mode = word(options.proxy_mode.to_possible_value());
    eprintln!(
        "bench: {services} services x {}, mode {mode} ...",
        options.endpoints
    );
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--mount", "--"])
        .arg(std::env::current_exe()?)
        .args(["--proxy-mode", &mode]);
    for (flag, number) in [
        ("--services", services),
        ("--endpoints", options.endpoints),
        ("--changes", options.changes),
        ("--packets", options.packets),
        ("--churn", options.churn),
        ("--turnover", options.turnover),
    ] {
        command.args([flag, &number.to_string()]);
    }
    if let Some(backend) = backend {
        command.args(["--backend", &word(backend.to_possible_value())]);
    }
    let output = command
        .arg("--binary")
        .arg(std::path::absolute(&options.binary)?)
        .arg(case)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run unshare (Debian package util-linux; needs root)")?;
    if !output.status.success() {
        bail!("{case} of {services} services failed: {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("the case printed no result")
}
