//! How failures leave the program: one clear line on stderr, and the right exit status.
//!
//! Tools: 0 nothing to report, 1 differences or findings, 2 could not answer. The daemon: upstream's 0 and 1.

use crate::daemon::DaemonError;
use crate::log;
use anyhow::Error;
use explain::page::harmless;
use std::io;
use std::process::ExitCode;

/// What a tool found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing to report.
    Clean,
    /// Differences or findings.
    Findings,
    /// Nothing was found, and too little could be looked at; what, has been told.
    Blind,
}

/// Ends a tool.
pub fn tool(result: Result<Answer, Error>) -> ExitCode {
    match result {
        Ok(Answer::Clean) => ExitCode::SUCCESS,
        Ok(Answer::Findings) => ExitCode::from(1),
        Ok(Answer::Blind) => ExitCode::from(2),
        // Whoever reads our output has seen enough: `kube-proxy render ... | head` is no failure.
        Err(err) if is_closed_pipe(&err) => ExitCode::SUCCESS,
        Err(err) => {
            print(&err);
            ExitCode::from(2)
        }
    }
}

/// Ends the daemon: a log line, or the one line that upstream writes about its command line, after a hint.
pub fn daemon(result: Result<(), DaemonError>, hint: Option<String>) -> ExitCode {
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(DaemonError::Usage(err)) => {
            let hint = hint.map_or_else(String::new, |hint| format!("{}\n", harmless(&hint)));
            // Upstream's line comes last.
            anstream::eprintln!(
                "Usage: kube-proxy [flags]\nkube-proxy --help lists them.\n{hint}\nError: {err}"
            );
            ExitCode::from(1)
        }
        Err(DaemonError::Failed(err)) => {
            // What is wrong with a configuration is said whole, however much it is; causes of others may be endless.
            let err = if err.chain().len() == 1 {
                err.to_string()
            } else {
                causes(&err)
            };
            if tracing::dispatcher::has_been_set() {
                tracing::error!(%err, "command failed");
            } else {
                let line = log::early_line(
                    tracing::Level::ERROR,
                    file!(),
                    line!(),
                    "command failed",
                    &[("err", &err)],
                );
                anstream::eprintln!("{line}");
            }
            ExitCode::from(1)
        }
    };
    log::flush();
    code
}

/// Who was asked, which decides the status of bad arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The daemon: 1, as upstream has it.
    Daemon,
    /// A tool: 2, since 1 would say that it found something.
    Tool,
}

/// Ends after bad arguments, or after `--help`.
pub fn usage(err: &clap::Error, asked: Asked) -> ExitCode {
    // Printing help to a closed pipe is no failure either.
    let _ = err.print();
    match (err.use_stderr(), asked) {
        (false, _) => ExitCode::SUCCESS,
        (true, Asked::Daemon) => ExitCode::from(1),
        (true, Asked::Tool) => ExitCode::from(2),
    }
}

fn is_closed_pipe(err: &Error) -> bool {
    err.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// The chain of causes in one line: what was attempted, then why not.
fn print(err: &Error) {
    // Lines of somebody's dump may be among the words.
    anstream::eprintln!("kube-proxy: {}", harmless(&causes(err)));
}

fn causes(err: &Error) -> String {
    cluster::chain(err.as_ref())
}
