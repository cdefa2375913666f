//! The kernel's generations as this process, which is not the daemon, sees them come.

use anyhow::{Result, bail};
use kernel::GenerationWatch;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Times at which the kernel announced a new generation.
pub struct Generations(Receiver<Instant>);

impl Generations {
    /// Listens from now on.
    pub fn listen() -> Result<Generations> {
        let mut watch = GenerationWatch::new()?;
        let (send, receive) = channel();
        std::thread::spawn(move || {
            loop {
                let seen = match watch.wait(Duration::from_secs(1)) {
                    Ok(committed) => committed.len(),
                    // Events were lost while the kernel was busy: something was committed.
                    Err(_) => 1,
                };
                if seen > 0 && send.send(Instant::now()).is_err() {
                    return;
                }
            }
        });
        Ok(Generations(receive))
    }

    /// Forgets what came until now.
    pub fn forget(&self) {
        while self.0.try_recv().is_ok() {}
    }

    /// The first one from now on.
    pub fn first(&self, at_most: Duration) -> Result<Instant> {
        match self.0.recv_timeout(at_most) {
            Ok(at) => Ok(at),
            Err(RecvTimeoutError::Timeout) => bail!("no commit within {at_most:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the generation watch ended"),
        }
    }

    /// The last one before `quiet` without any; `None` when there was none at all.
    pub fn last_before_quiet(&self, quiet: Duration) -> Option<Instant> {
        let mut last = None;
        while let Ok(at) = self.0.recv_timeout(quiet) {
            last = Some(at);
        }
        last
    }
}
