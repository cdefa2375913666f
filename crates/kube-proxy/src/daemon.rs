//! The daemon: flags and configuration in, [`proxy`] running.

use crate::daemon_args::DaemonArgs;
use anyhow::{Context, Result};
use clap::ArgMatches;
use proxy::{From, ProxyOptions};
use std::io::IsTerminal;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Runs until killed.
///
/// # Errors
/// Anything that makes serving impossible at start.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let args = DaemonArgs::from_matches(matches)?;
    start_log(args.config.logging.verbosity);
    args.warnings
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), node = %args.node_name, "kube-proxy-rs starts");
    let options = ProxyOptions {
        from: match args.manifests {
            Some(path) => From::Manifests(path),
            None => From::Api { master: args.master },
        },
        node_name: args.node_name.as_str().into(),
        tcp: args.tcp,
        config: args.config,
    };
    // Two threads: the sources' and a spare one; each family's rules have a thread of their own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.context("cannot start the runtime")?;
    Ok(runtime.block_on(proxy::run(options))?)
}

/// Lines go to stderr, as upstream's do; colours only on a terminal.
fn start_log(verbosity: u32) {
    let level = match verbosity {
        0..=1 => Level::INFO,
        2..=4 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let mut filter = Targets::new().with_default(level);
    if level <= Level::INFO {
        // The client library logs every failed request; the watches say it once, with the next step.
        filter = filter.with_target("kube_client", LevelFilter::OFF);
    }
    tracing_subscriber::registry().with(filter).with(lines).init();
}
