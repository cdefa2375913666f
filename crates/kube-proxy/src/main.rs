//! The one binary: the daemon with kube-proxy's own flags, and the tools that show its work.
//!
//! Wiring only: nothing is decided here. [`daemon_args`] has the daemon's flags; each tool has a file of its own.

mod daemon;
mod daemon_args;
mod demo;
mod diff;
mod doctor;
mod explain;
mod explore;
mod external_ips;
mod failure;
mod finding_json;
mod harmless;
mod input;
mod lab;
mod log;
mod manual;
mod render;
mod state_args;
mod tour;
mod trace;
mod verify;
mod version;

use clap::{CommandFactory, FromArgMatches, Parser as _};
use failure::Asked;
use std::process::ExitCode;

/// The tools beside the daemon.
#[derive(clap::Subcommand)]
enum Tool {
    /// Show the rules a cluster's objects become on a node, without root.
    Render(render::Args),
    /// Show every way a packet can take through rules, and where it ends.
    Trace(trace::Args),
    /// Say why a Service can or cannot be reached, in the words of its objects.
    Explain(explain::Args),
    /// Say what is wrong with a host: tools, kernel, settings, firewalls, what other software does.
    Doctor(doctor::Args),
    /// Say whether a host's rules are what the objects ask for, and what differs.
    Verify(verify::Args),
    /// Say what becomes otherwise of traffic between two clusters, two nodes or two hosts' rules.
    Diff(diff::Args),
    /// Look at services, endpoints, rules and paths in a browser.
    Explore(explore::Args),
    /// A small cluster out of network namespaces, to try things with real packets.
    Lab(lab::Args),
    /// Print what a shell needs to complete commands and flags.
    Completion(manual::CompletionArgs),
    /// Print the manual page, or write one for every command.
    Man(manual::ManArgs),
}

#[derive(clap::Parser)]
#[command(
    name = "kube-proxy",
    about = "Programs the kernel so that traffic to a Kubernetes Service reaches a pod that may have it.",
    long_about = None,
    after_help = "Without a command it is the daemon. Examples:
  kube-proxy --config /var/lib/kube-proxy/config.conf
  kube-proxy --kubeconfig /etc/kubernetes/kube-proxy.conf -v 2
  kube-proxy --manifests ./cluster --hostname-override node-a

Exit status: of the daemon 1 when it cannot start;
of the commands 1 for findings, 2 when there is no answer.",
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    tool: Option<Tool>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    // Not for people: no help, completion or page tells of it.
    if words.get(1).is_some_and(|word| word == trace::watchdog::NAME) {
        return match trace::watchdog::Args::try_parse_from(&words[1..]) {
            Ok(args) => failure::tool(trace::watchdog::run(&args)),
            Err(err) => failure::usage(&err, Asked::Tool),
        };
    }
    let command = daemon_args::add_to(Cli::command());
    let is_tool = words
        .get(1)
        .is_some_and(|word| command.find_subcommand(word).is_some());
    let wants_help = words
        .iter()
        .any(|word| ["-h", "--help", "--help=true"].contains(&word.as_str()));
    // The daemon's flags have a grammar of their own; clap knows them for their help.
    if !is_tool && !wants_help {
        let hint = hint(&command, words.get(1));
        return failure::daemon(daemon::run(words.get(1..).unwrap_or_default()), hint);
    }
    let asked = if is_tool { Asked::Tool } else { Asked::Daemon };
    let help = vec!["kube-proxy".to_owned(), "--help".to_owned()];
    let whole = command.clone();
    let matches = match command.try_get_matches_from(if is_tool { words } else { help }) {
        Ok(matches) => matches,
        Err(err) => return failure::usage(&err, asked),
    };
    let cli = Cli::from_arg_matches(&matches).expect("clap checked the arguments against this very type");
    match cli.tool {
        Some(Tool::Render(args)) => failure::tool(render::run(&args)),
        Some(Tool::Trace(args)) => failure::tool(trace::run(&args)),
        Some(Tool::Explain(args)) => failure::tool(explain::run(&args)),
        Some(Tool::Doctor(args)) => failure::tool(doctor::run(&args)),
        Some(Tool::Verify(args)) => failure::tool(verify::run(&args)),
        Some(Tool::Diff(args)) => failure::tool(diff::run(&args)),
        Some(Tool::Explore(args)) => failure::tool(explore::run(&args)),
        Some(Tool::Lab(args)) => failure::tool(lab::run(&args)),
        Some(Tool::Completion(args)) => failure::tool(manual::complete(&args, whole)),
        Some(Tool::Man(args)) => failure::tool(manual::man(&args, &whole)),
        None => ExitCode::SUCCESS,
    }
}

/// What somebody may have meant whose first word is no flag: the daemon takes no other words.
fn hint(command: &clap::Command, word: Option<&String>) -> Option<String> {
    let word = word.filter(|word| !word.starts_with('-'))?;
    if lab::COMMANDS.contains(&word.as_str()) {
        return Some(format!("did you mean: kube-proxy lab {word}"));
    }
    let tools: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    Some(format!(
        "{word:?} is no command; there are: {}; and kube-proxy lab demo shows real packets",
        tools.join(", ")
    ))
}
