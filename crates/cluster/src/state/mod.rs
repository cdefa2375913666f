//! What the API server last said, on disk, for a node that starts while the server is away (ADR 38).
//!
//! ```text
//!            +--> book: a line for each object --> writer: a thread, one file, replaced whole
//! server ----+
//!            +--> handover: whole lists ------------------+--> who listens
//!                        file, when the server is away ---+
//! ```
//!
//! * What it is: [`Keeper`], a stage between a source and who listens to it.
//! * In and out: the source's [`SourceEvent`](crate::SourceEvent)s go in and come out, first lists as one change each;
//!   [`Remembered`](crate::Remembered) says when objects are not the server's but the file's.
//! * What it deliberately does not know: rules. Whether the kernel has any is asked of whoever makes one.
//! * Where to start reading: `keeper`, then `handover`.
//!
//! Invariant: nothing that reads or writes the file holds up an event; a file that is not what it should be is refused
//! with a reason and changes nothing else (test `damaged_bytes_are_refused_and_never_panic`).

mod book;
mod disk;
mod format;
mod handover;
mod identity;
mod keeper;
mod line;
mod patience;
mod writer;

pub use identity::Identity;
pub use keeper::{Keeper, KernelRules};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// All that the memory wants to know.
#[derive(Clone, Debug)]
pub struct StateOptions {
    /// The folder (`--state-dir`).
    pub folder: PathBuf,
    /// How old objects may be that are used (`--state-max-age`).
    pub max_age: Duration,
    /// This node's name.
    pub node_name: Arc<str>,
    /// The cluster.
    pub identity: Identity,
    /// Waits and periods.
    pub timing: StateTiming,
}

/// Times of the memory. The defaults are for real nodes; tests have shorter ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTiming {
    /// How long after its first failure a server is still waited for.
    pub after_failure: Duration,
    /// How long a server is waited for that says nothing at all, or nothing more.
    pub silent: Duration,
    /// How long a server is waited for that is slow.
    pub slow: Duration,
    /// How long until is looked again while the file cannot be used: at first, and at last.
    pub look_again: (Duration, Duration),
    /// How long after a change is written; more may be on their way.
    pub settle: Duration,
    /// The least time between two writes.
    pub interval: Duration,
    /// How long after a failed write is tried again.
    pub retry: Duration,
}

impl Default for StateTiming {
    fn default() -> Self {
        StateTiming {
            after_failure: Duration::from_secs(3),
            silent: Duration::from_secs(10),
            slow: Duration::from_secs(30),
            look_again: (Duration::from_secs(10), Duration::from_mins(1)),
            settle: Duration::from_secs(1),
            interval: Duration::from_secs(10),
            retry: Duration::from_mins(1),
        }
    }
}
