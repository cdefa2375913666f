//! The process that takes a trace back when the tool has ended, whatever ended it.
//!
//! It is the same program by another command, in a session of its own. Its standard input is one end of a pair of sockets,
//! which closes with the tool; its standard output is the tool's socket for traces. So nobody else is given the traces
//! before all is taken back.

use super::undo::{Rules, Undo, undo};
use super::{LegacyTraceError, LogGroup};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// It says so when it is in its own session, so that nothing which ends the tool ends it too.
const READY: &[u8] = b"ready";
/// What the tool says when all rules are in.
const SETTLED: &[u8] = b"settled";
/// What it says when it begins to follow packets: reading the rules may have taken long.
const FOLLOWING: &[u8] = b"following";
/// How long it may take to start.
const START: Duration = Duration::from_secs(20);

/// This program, even where its file has been replaced since.
const THIS: &str = "/proc/self/exe";

/// The watchdog as the tool sees it.
pub(super) struct Watchdog {
    child: Child,
    line: Option<UnixStream>,
    all: Vec<Undo>,
}

impl Watchdog {
    /// Starts it, and waits until it is on guard.
    pub(super) fn start(
        words: &[&str],
        all: Vec<Undo>,
        group: &LogGroup,
    ) -> Result<Watchdog, LegacyTraceError> {
        let failed = LegacyTraceError::NoWatchdog;
        let (mut line, far) = UnixStream::pair().map_err(failed)?;
        let child = Command::new(THIS)
            .arg0("kube-proxy")
            .args(words)
            .args(all.iter().map(ToString::to_string))
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::from(group.another_fd().map_err(failed)?))
            .spawn()
            .map_err(failed)?;
        line.set_read_timeout(Some(START)).map_err(failed)?;
        let mut said = [0; READY.len()];
        let heard = line.read_exact(&mut said);
        let dog = Watchdog {
            child,
            line: Some(line),
            all,
        };
        heard.map_err(failed)?;
        Ok(dog)
    }

    /// Tells it that all rules are in: when the tool ends after this, there is nothing to wait for.
    pub(super) fn tell_settled(&self) -> io::Result<()> {
        self.tell(SETTLED)
    }

    /// Tells it that the time of the trace begins now.
    pub(super) fn tell_following(&self) -> io::Result<()> {
        self.tell(FOLLOWING)
    }

    fn tell(&self, word: &[u8]) -> io::Result<()> {
        self.line.iter().try_for_each(|mut line| line.write_all(word))
    }

    /// Whether it is on guard still.
    pub(super) fn is_there(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Has all taken back, and waits for it. If the watchdog cannot, it is done here.
    pub(super) fn end(&mut self) -> Result<(), LegacyTraceError> {
        if self.line.take().is_none() {
            return Ok(());
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => undo(&self.all, Rules::Settled),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Whoever wants to know asks before.
        let _ = self.end();
    }
}

/// Whether the tool has said that it follows packets now; maybe with what it says before.
pub fn says_following(word: &[u8]) -> bool {
    word.ends_with(FOLLOWING)
}

/// The tool as the watchdog sees it.
///
/// # Errors
/// When there is no line to the tool: it was not started by one.
pub fn line_to_the_tool() -> io::Result<UnixStream> {
    let mut line = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    line.write_all(READY)?;
    Ok(line)
}
