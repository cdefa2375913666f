//! `kube-proxy trace-watchdog`: takes back what `trace --live` changed for iptables-legacy, when that has ended.
//!
//! Nobody calls it by hand: the tool starts it before it changes anything (ADR 64).

use crate::failure::Answer;
use anyhow::{Context as _, Result};
use kernel::legacy_trace::{Rules, Undo, line_to_the_tool, says_following, undo};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};

/// Its word.
pub const NAME: &str = "trace-watchdog";

/// So much longer the tool may take until it follows packets: it reads all rules before.
const READING: Duration = Duration::from_mins(2);

/// Take back what a trace of real packets has changed, when it has ended.
#[derive(clap::Parser, Debug)]
#[command(name = NAME)]
pub struct Args {
    /// When it is taken back although the tool has not ended, counted from when it follows packets: somebody may have stopped
    /// it, and forgotten.
    #[arg(long, value_name = "N")]
    seconds: u64,
    /// What is to be taken back: a family, and what its setting `nf_log` was.
    #[arg(value_name = "FAMILY=VALUE", required = true)]
    all: Vec<Undo>,
}

/// Waits for the tool's end, and takes everything back.
///
/// # Errors
/// When something stays; it says what.
pub fn run(args: &Args) -> Result<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot wait for the end of trace --live")?;
    let rules = runtime.block_on(the_end(Duration::from_secs(args.seconds)))?;
    undo(&args.all, rules)?;
    Ok(Answer::Clean)
}

/// Waits for the tool's end, the end of its time, or the end of this process. Whether the tool was done with its rules.
async fn the_end(time: Duration) -> Result<Rules> {
    let listen = |kind| signal(kind).context("cannot listen to signals");
    let mut hangup = listen(SignalKind::hangup())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    // In a session of its own neither Ctrl-C nor the terminal's end reaches it. By hand it may lead one already.
    let _ = rustix::process::setsid();
    let line = line_to_the_tool().context("this is for trace --live to call")?;
    let mut rules = Rules::MayCome;
    tokio::select! {
        ended = over(line, time, &mut rules) => ended.context("cannot hear from trace --live")?,
        _ = hangup.recv() => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(rules)
}

/// Waits until the tool has ended, or has followed packets for so long.
async fn over(line: UnixStream, time: Duration, rules: &mut Rules) -> std::io::Result<()> {
    line.set_nonblocking(true)?;
    let mut line = tokio::net::UnixStream::from_std(line)?;
    let mut word = [0; 32];
    let mut limit = time + READING;
    while let Ok(read) = tokio::time::timeout(limit, line.read(&mut word)).await {
        let read = read?;
        if read == 0 {
            break;
        }
        *rules = Rules::Settled;
        if says_following(&word[..read]) {
            limit = time;
        }
    }
    Ok(())
}
