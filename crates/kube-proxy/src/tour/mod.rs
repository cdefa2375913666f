//! `kube-proxy lab tour`: what a Service is, step by step, with real packets.
//!
//! The lab's demonstration cluster is built with DNS and this very binary as the proxy on both nodes. Each step says what
//! is done and what will be seen, shows the command and what it printed, and compares. Exit status: 0 when all was as
//! told, 1 when not, 2 when it could not be done.

mod balance;
mod inside;
mod maps;
mod names;
mod outside;
mod stage;
mod step;
mod table;
mod text;

use crate::failure::Answer;
use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use serde::Serialize;
use stage::Stage;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use step::{Heard, Step};
use text::Page;

/// What a Service is, step by step: a cluster of two nodes out of network namespaces, with DNS and real packets. Each
/// step says what is done, what to type to do the same, what was seen, and what to look at.
#[derive(Parser, Debug)]
#[command(
    name = "kube-proxy lab tour",
    after_help = "Exit status: 0 all was seen as told, 1 something was not, 2 it could not be done."
)]
pub struct Args {
    /// Waits for Enter behind each step, if a person is there (a terminal). As root, the commands of the steps can
    /// be typed in another terminal meanwhile.
    #[arg(long)]
    pause: bool,
    /// Form of the answer.
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
    /// The mode that kube-proxy runs in.
    #[arg(long, value_enum, default_value_t = Mode::Iptables)]
    proxy_mode: Mode,
    /// A folder, which has to be there, for the two flow charts: cluster-ip.svg and node-port.svg.
    #[arg(long, value_name = "DIR")]
    drawings: Option<PathBuf>,
    /// A command of the shell to run on node-a before the first step. Put something in the way, and see which steps
    /// notice: --tamper 'iptables -I FORWARD -p tcp --dport 8080 -j DROP'
    #[arg(long, value_name = "COMMAND")]
    tamper: Option<String>,
    /// The name of the lab: its namespaces are called P-node-a and so on.
    #[arg(long, value_name = "P", default_value = stage::PREFIX)]
    prefix: String,
}

/// Modes that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Rules of iptables.
    Iptables,
    /// A table of our own.
    Nftables,
}

impl Mode {
    fn word(self) -> &'static str {
        match self {
            Mode::Iptables => "iptables",
            Mode::Nftables => "nftables",
        }
    }
}

/// Forms of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// The pod that asks, which is an endpoint of the Service sender as well.
const POD: &str = "sender-a";
const POD_IP: &str = "10.244.1.7";

/// The cluster IPs of spring-test and of app.
const SPRING_TEST: &str = "10.1.68.7:8080";
const APP: &str = "10.1.33.10:80";

/// What came of it.
#[derive(Debug, Serialize)]
struct Report {
    mode: &'static str,
    steps: Vec<Step>,
    as_told: bool,
}

/// Runs the tour with the words behind `tour`.
///
/// # Errors
/// When it could not be done on this machine.
pub fn run(words: &[String]) -> Result<Answer> {
    let name = "kube-proxy lab tour".to_owned();
    let args = Args::try_parse_from(std::iter::once(&name).chain(words)).unwrap_or_else(|error| error.exit());
    lab::reexec_rootless()?;
    let mut out = anstream::stdout();
    let report = match args.output {
        Form::Text => {
            let mut page = Page::new(&mut out, pauses(&args));
            page.opening()?;
            let report = perform(&args, &mut |number, step| page.step(number, step))?;
            page.closing(&report.steps)?;
            report
        }
        Form::Json => {
            let report = perform(&args, &mut |_, _| Ok(()))?;
            let json = serde_json::to_string_pretty(&report).context("cannot write the report")?;
            writeln!(out, "{json}").context("cannot write the report")?;
            report
        }
    };
    Ok(if report.as_told {
        Answer::Clean
    } else {
        Answer::Findings
    })
}

fn pauses(args: &Args) -> text::Pauses {
    if args.pause && std::io::stdin().is_terminal() {
        text::Pauses::BehindEachStep
    } else {
        text::Pauses::None
    }
}

/// A part of the story.
type Chapter = fn(&mut Stage) -> Result<Step>;

/// All but the flow charts, in their order.
const CHAPTERS: [Chapter; 11] = [
    names::three_names,
    names::over_both_protocols,
    names::new_service,
    inside::from_a_pod,
    inside::from_the_node,
    inside::without_endpoints,
    outside::node_port,
    outside::why_snat,
    outside::policy_local,
    inside::hairpin,
    balance::replicas,
];

fn perform(args: &Args, told: &mut dyn FnMut(usize, &Step) -> Result<()>) -> Result<Report> {
    if let Some(folder) = &args.drawings {
        anyhow::ensure!(
            folder.is_dir(),
            "--drawings {}: there is no such folder",
            folder.display()
        );
    }
    let mut stage = Stage::set(&args.prefix, args.proxy_mode)?;
    if let Some(command) = &args.tamper {
        stage
            .quietly(lab::seed::NODE_A, command)
            .context("cannot do what --tamper says")?;
    }
    let mut steps = Vec::new();
    let mut tell = |step: Step| {
        steps.push(step);
        told(steps.len(), &steps[steps.len() - 1])
    };
    for chapter in CHAPTERS {
        tell(chapter(&mut stage)?)?;
    }
    tell(maps::charts(&stage, args.drawings.as_deref())?)?;
    stage.strike()?;
    Ok(Report {
        mode: args.proxy_mode.word(),
        as_told: steps.iter().all(Step::as_told),
        steps,
    })
}

/// Both of two pods answered, and nobody else.
fn one_of_two(step: &mut Step, heard: &Heard, pods: &str) {
    step.same("who answers", pods, heard.who());
}
