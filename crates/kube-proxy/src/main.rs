//! The one binary: the daemon with kube-proxy's own flags, and the tools that show its work.
//!
//! Wiring only: nothing is decided here. [`daemon_args`] has the daemon's flags; each tool has a file of its own.

mod daemon;
mod daemon_args;
mod demo;
mod failure;
mod input;
mod lab;
mod render;
mod trace;

use clap::{CommandFactory, FromArgMatches};
use failure::Asked;
use std::process::ExitCode;

/// The tools beside the daemon.
#[derive(clap::Subcommand)]
enum Tool {
    /// Show the rules a cluster's objects become on a node, without root.
    Render(render::Args),
    /// Show every way a packet can take through rules, and where it ends.
    Trace(trace::Args),
    /// A small cluster out of network namespaces, to try things with real packets.
    Lab(lab::Args),
}

#[derive(clap::Parser)]
#[command(
    name = "kube-proxy",
    version,
    about = "Programs the kernel so that traffic to a Kubernetes Service reaches a pod that may have it.",
    long_about = None,
    after_help = "Without a command it is the daemon. Examples:
  kube-proxy --config /var/lib/kube-proxy/config.conf
  kube-proxy --kubeconfig /etc/kubernetes/kube-proxy.conf --hostname-override node-a
  kube-proxy --manifests ./cluster --hostname-override node-a

Exit status: of the daemon 1 when it cannot start; of the commands 1 for findings, 2 when there is no answer.",
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    tool: Option<Tool>,
}

fn main() -> ExitCode {
    let words = daemon_args::with_dashes(std::env::args_os());
    let command = daemon_args::add_to(Cli::command());
    let named = words.get(1).and_then(|word| word.to_str());
    let asked = match named {
        Some(word) if command.find_subcommand(word).is_some() => Asked::Tool,
        _ => Asked::Daemon,
    };
    let matches = match command.try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(err) => return failure::usage(&err, asked),
    };
    let cli = Cli::from_arg_matches(&matches).expect("clap checked the arguments against this very type");
    match cli.tool {
        Some(Tool::Render(args)) => failure::tool(render::run(&args)),
        Some(Tool::Trace(args)) => failure::tool(trace::run(&args)),
        Some(Tool::Lab(args)) => failure::tool(lab::run(&args)),
        None => failure::daemon(daemon::run(&matches)),
    }
}
