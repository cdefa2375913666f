//! Waiting for something to become true.

use lab::live::patience;
use std::thread;
use std::time::{Duration, Instant};

/// How often is looked.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks again and again; how long it took, or `None` when the time is over.
pub fn within(usual: Duration, mut is_true: impl FnMut() -> bool) -> Option<Duration> {
    let (begun, patience) = (Instant::now(), patience(usual));
    loop {
        if is_true() {
            return Some(begun.elapsed());
        }
        if begun.elapsed() > patience {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

/// Waits until a log has these words: a line comes after what it tells of, and a client may be faster.
#[track_caller]
pub fn told(usual: Duration, log: impl Fn() -> String, words: &str) {
    let told = within(usual, || log().contains(words));
    assert!(told.is_some(), "{words:?} is not told:\n{}", log());
}

/// As [`within`], and the reason why not at the end of the time: `look` says what is still wrong.
///
/// # Errors
/// What was wrong at the last look.
pub fn within_or(usual: Duration, mut look: impl FnMut() -> Result<(), String>) -> Result<Duration, String> {
    let (begun, patience) = (Instant::now(), patience(usual));
    loop {
        match look() {
            Ok(()) => return Ok(begun.elapsed()),
            Err(wrong) if begun.elapsed() > patience => return Err(format!("after {patience:?}: {wrong}")),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}
