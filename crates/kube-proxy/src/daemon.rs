//! The daemon: flags and configuration in, [`proxy`] running.

use crate::daemon_args::{Act, DaemonArgs, Flags, UsageError, check_logging, node_name};
use crate::{log, version};
use anyhow::{Context, Result, bail};
use proxy::{From, PageOptions, ProxyOptions, Verbosity};
use std::io::Write as _;
use std::path::Path;

/// The sources' thread and a spare one.
const WORKERS: usize = 2;
/// Files are read and names are asked for on these; more at a time wait.
const BLOCKING: usize = 8;
/// Each family's rules and flows have a thread each; the host's addresses, drift, leftovers, the state on disk and the
/// watches of files have one each, and so has the reading of counters.
const OWN: usize = 11;

/// Runs until killed, or until what was asked for is done.
///
/// # Errors
/// Anything that makes serving impossible at start, and a configuration file that changed.
pub fn run(words: &[String]) -> Result<(), DaemonError> {
    let flags = Flags::read(words)?;
    if let Some(version) = flags.version {
        // Whoever reads this may have seen enough.
        let _ = writeln!(std::io::stdout().lock(), "{}", version::text(version));
        return Ok(());
    }
    flags
        .deprecations()
        .for_each(|line| anstream::eprintln!("{line}"));
    let args = flags.complete()?;
    check_logging(&args.config)?;
    let verbosity = log::start(&args.config.logging);
    for (name, value) in &args.flags {
        tracing::info!(target: log::PLAIN, v = 1, "FLAG: --{name}={value:?}");
    }
    args.check()?;
    args.warnings
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    if !args.without_effect.is_empty() {
        tracing::info!(names = %args.without_effect.join(", "), "accepted, and without effect here");
    }
    Ok(act(args, verbosity)?)
}

/// Why the daemon ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The command line was not understood.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// Anything later.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

fn act(args: DaemonArgs, verbosity: Verbosity) -> Result<()> {
    match &args.act {
        Act::WriteConfig(path) => write_config(path, &args),
        Act::CleanUp => clean_up(),
        Act::InitOnly => {
            proxy::prepare(&args.config)?;
            tracing::info!("System initialized and --init-only specified");
            Ok(())
        }
        Act::Serve => serve(args, verbosity),
    }
}

fn write_config(path: &Path, args: &DaemonArgs) -> Result<()> {
    std::fs::write(path, config::to_yaml(&args.config))
        .with_context(|| format!("cannot write --write-config-to {}", path.display()))?;
    tracing::info!(file = %path.display(), "Wrote configuration");
    Ok(())
}

fn clean_up() -> Result<()> {
    let failures = proxy::clean_up();
    for failure in &failures {
        tracing::error!(error = %cluster::chain(failure), "cannot clean up");
    }
    if !failures.is_empty() {
        bail!("encountered an error while tearing down rules");
    }
    Ok(())
}

fn serve(args: DaemonArgs, verbosity: Verbosity) -> Result<()> {
    let node_name = node_name(&args.config)?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), node = %node_name, "kube-proxy-rs starts");
    let options = ProxyOptions {
        from: match args.manifests {
            Some(path) => From::Manifests(path),
            None => From::Api { master: args.master },
        },
        node_name: node_name.as_str().into(),
        tcp: args.tcp,
        pages: PageOptions {
            flags: args.flags,
            verbosity,
            explorer: args.explorer,
            service_metrics: args.service_metrics,
        },
        state: args.state,
        config: args.config,
    };
    proxy::set_oom_score(options.config.oom_score_adj.unwrap_or(-999));
    // The runtime panics where it cannot make a thread, and it makes some late.
    proxy::can_have_threads(WORKERS + BLOCKING + OWN).context("cannot start the runtime")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build();
    let runtime = runtime.context("cannot start the runtime")?;
    let file = args.config_file;
    runtime.block_on(async {
        die_by_signals_even_as_first_process()?;
        tokio::select! {
            ended = proxy::run(options) => Ok(ended?),
            () = proxy::file_changes(file) => {
                bail!("content of the proxy server's configuration file was updated")
            }
        }
    })
}

/// The kernel spares a namespace's first process signals that it has no handler for, and that is what this process is
/// in a container of its own. Everywhere else a signal ends it at once, and here it has to as well. Rules stay.
fn die_by_signals_even_as_first_process() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    if std::process::id() != 1 {
        return Ok(());
    }
    for (kind, number) in [(SignalKind::terminate(), 15), (SignalKind::interrupt(), 2)] {
        let mut signals = signal(kind).context("cannot listen for signals")?;
        tokio::spawn(async move {
            signals.recv().await;
            log::flush();
            // What a shell says of a process that a signal ended.
            std::process::exit(128 + number);
        });
    }
    Ok(())
}
