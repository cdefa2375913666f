//! `kube-proxy lab demo`: real packets through a Service, every rule predicted and then observed.
//!
//! The lab's demonstration cluster is built, this very binary runs on its first node as the proxy, and three requests
//! are sent. `trace` says from the cluster's objects alone which rules each will meet; the kernel says by trace events
//! of `nf_tables` and by conntrack which ones it met. Exit status: 0 when both said the same, 1 when not, 2 when it
//! could not be done.

mod ask;
mod listing;
mod own_table;
mod predict;
mod report;
pub mod stage;
mod text;
mod words;

#[cfg(test)]
mod tests;

use crate::failure::Answer;
use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use lab::seed;
use predict::Request;
use report::{Asked, Report};
use stage::Stage;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use text::Page;

/// A small cluster out of network namespaces, three requests through a Service, and every rule that they meet:
/// predicted by `trace`, and observed in the kernel.
#[derive(Parser, Debug)]
#[command(name = "kube-proxy lab demo")]
pub struct Args {
    /// Form of the answer.
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
    /// A command of the shell to run on node-a before the requests, with kube-proxy paused so that it repairs nothing.
    /// Break a rule, and see the two sides differ: --tamper 'iptables -t nat -F KUBE-MARK-MASQ'
    #[arg(long, value_name = "COMMAND")]
    tamper: Option<String>,
    /// The mode that kube-proxy runs in. In nftables mode the oracle predicts where packets go, and the chains that they
    /// meet are shown as observed. Something to break there: --tamper 'nft flush chain ip kube-proxy masquerading'
    #[arg(long, value_enum, default_value_t = Mode::Iptables)]
    proxy_mode: Mode,
}

/// Modes that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Rules of iptables.
    Iptables,
    /// A table of our own.
    Nftables,
}

/// Forms of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Where the service answers.
const CLUSTER_IP: SocketAddr = address([10, 1, 68, 7], 8080);
const NODE_PORT: SocketAddr = address([192, 168, 50, 238], 31080);

/// What is sent. The clients' ports are any that are free.
const REQUESTS: [Request; 3] = [
    Request {
        place: "sender-a",
        title: "pod 10.244.1.7 (sender) on node-a asks spring-test by its cluster IP",
        from: address([10, 244, 1, 7], 40_100),
        to: CLUSTER_IP,
        in_interface: Some("cni0"),
    },
    Request {
        place: stage::NODE,
        title: "node-a itself (192.168.50.238) asks spring-test by its cluster IP",
        from: address([192, 168, 50, 238], 40_200),
        to: CLUSTER_IP,
        in_interface: None,
    },
    Request {
        place: seed::CLIENT,
        title: "a client outside the cluster (192.168.50.10) asks spring-test by the node port of node-a",
        from: address([192, 168, 50, 10], 40_300),
        to: NODE_PORT,
        in_interface: Some("eth0"),
    },
];

const fn address([a, b, c, d]: [u8; 4], port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port)
}

/// Runs the demonstration with the words behind `demo`.
///
/// # Errors
/// When it could not be done on this machine.
pub fn run(words: &[String]) -> Result<Answer> {
    let name = "kube-proxy lab demo".to_owned();
    let args = Args::try_parse_from(std::iter::once(&name).chain(words)).unwrap_or_else(|error| error.exit());
    lab::reexec_rootless()?;
    let mut out = anstream::stdout();
    if args.proxy_mode == Mode::Nftables {
        return own_table::run(&args, &mut out);
    }
    match args.output {
        Form::Text => {
            let mut page = Page::new(&mut out);
            page.opening(
                "rule by rule, what `kube-proxy trace` predicts from the Services and EndpointSlices alone, and what \
                 the kernel then does, as its own trace events and its connection table tell.",
            )?;
            let report = perform(&args, &mut page)?;
            page.closing(&report, args.tamper.is_some())?;
            Ok(verdict(&report))
        }
        Form::Json => {
            let report = perform(&args, &mut Silent)?;
            let json = serde_json::to_string_pretty(&report).context("cannot write the report")?;
            writeln!(out, "{json}").context("cannot write the report")?;
            Ok(verdict(&report))
        }
    }
}

/// Who is told as it goes.
trait Audience {
    /// The proxy is in sync; `seconds` since the beginning.
    fn set(&mut self, stage: &Stage, report: &Report, seconds: f64) -> Result<()>;
    /// Somebody broke a rule.
    fn tampered(&mut self, command: &str) -> Result<()>;
    /// A request has been answered, or not.
    fn asked(&mut self, number: usize, asked: &Asked) -> Result<()>;
}

/// Nobody.
struct Silent;

impl Audience for Silent {
    fn set(&mut self, _: &Stage, _: &Report, _: f64) -> Result<()> {
        Ok(())
    }

    fn tampered(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn asked(&mut self, _: usize, _: &Asked) -> Result<()> {
        Ok(())
    }
}

fn perform(args: &Args, audience: &mut dyn Audience) -> Result<Report> {
    let begin = std::time::Instant::now();
    let program = std::env::current_exe().context("cannot find our own program")?;
    let mut stage = Stage::set(&program)?;
    let differences = stage.settle()?;
    let mut report = Report {
        services: listing::services(&stage.site.world.snapshot),
        endpoints: listing::endpoints(&stage.site.world.snapshot),
        differences,
        requests: Vec::new(),
        agrees: true,
    };
    audience.set(&stage, &report, begin.elapsed().as_secs_f64())?;
    if let Some(command) = &args.tamper {
        stage
            .site
            .tamper(command)
            .context("cannot do what --tamper says")?;
        audience.tampered(command)?;
    }
    for (index, request) in REQUESTS.iter().enumerate() {
        let asked = ask::ask(&stage, request)?;
        audience.asked(index + 1, &asked)?;
        report.agrees &= asked.agrees();
        report.requests.push(asked);
    }
    stage.site.strike()?;
    Ok(report)
}

fn verdict(report: &Report) -> Answer {
    if report.agrees {
        Answer::Clean
    } else {
        Answer::Findings
    }
}
