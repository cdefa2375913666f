//! Signals that end a trace in legacy in good order.
//!
//! Without this the watchdog does its work all the same. But the first process of a container, which this may be, is not ended
//! by signals that it does not listen to; and when it is killed, the kernel kills the watchdog as well.

use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// The exit status of a program that Ctrl-C has ended, as shells give it.
const INTERRUPTED: i32 = 130;

/// Whether a signal has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens from now on. The second signal ends the process at once: it may be waiting for whoever reads its output.
    pub(super) fn listen() -> Result<Stop> {
        let stop = Stop::default();
        let told = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot listen to signals")?;
        let guard = runtime.enter();
        let listen = |kind| signal(kind).context("cannot listen to signals");
        let mut interrupt = listen(SignalKind::interrupt())?;
        let mut terminate = listen(SignalKind::terminate())?;
        drop(guard);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                loop {
                    runtime.block_on(async {
                        tokio::select! {
                            _ = interrupt.recv() => {}
                            _ = terminate.recv() => {}
                        }
                    });
                    if told.0.swap(true, Ordering::Relaxed) {
                        std::process::exit(INTERRUPTED);
                    }
                }
            })
            .context("cannot listen to signals")?;
        Ok(stop)
    }

    /// Whether it is time to end.
    pub(super) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
