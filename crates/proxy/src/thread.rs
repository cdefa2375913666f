//! Threads of our own, by name.

use kernel::shortage::MORE_PROCESSES;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A thread could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the thread {name:?}; {MORE_PROCESSES}")]
pub struct ThreadError {
    name: String,
    #[source]
    error: io::Error,
}

/// Not as many threads as will be wanted can be made.
#[derive(Debug, thiserror::Error)]
#[error("only {made} of {count} threads can be made; {MORE_PROCESSES}")]
pub struct TooFewThreads {
    made: usize,
    count: usize,
    #[source]
    error: io::Error,
}

/// Starts a thread that nobody waits for.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ThreadError> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|error| ThreadError {
        name: name.to_owned(),
        error,
    })
}

/// Whether as many threads can be had at once; they are gone again then.
///
/// The runtime panics where it cannot make its first thread, and goes without another one in silence.
///
/// # Errors
/// When the system does not give them.
pub fn can_have_threads(count: usize) -> Result<(), TooFewThreads> {
    let before = threads();
    let (hold, wait) = channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let all = (0..count).try_for_each(|made| {
        let wait = wait.clone();
        // Ends when nobody holds the other side any more.
        start("trial", move || drop(wait.lock().map(|wait| wait.recv())))
            .map_err(|ThreadError { error, .. }| TooFewThreads { made, count, error })
    });
    drop(hold);
    // They count until the kernel has forgotten them, which is after they can be waited for.
    let patience = Instant::now() + Duration::from_secs(1);
    while threads() > before && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    all
}

/// How many threads this process has; none where nobody can tell.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}
