//! Events on the API: what an operator should know, where `kubectl describe` and `kubectl events` show it
//! (ADR 36).
//!
//! ```text
//! reports, sources ──► Telling ──► Fact ──► Recorder ──► Correlator ──► Sender ──► API server
//! ```
//!
//! * In and out: facts go in; Events are posted, and repeated ones become a series.
//! * Nobody who tells of something waits: the queue is bounded, and what does not fit is counted and left out.
//! * Pure parts: `fact` (what an Event says), `telling` (which facts follow from what happens), `correlate` (repeats and
//!   limits; the time is passed in). `send` has the clock's ticks and the server.
//! * Where to start reading: [`Fact`].

mod correlate;
mod fact;
mod send;
mod telling;

#[cfg(test)]
mod tests;

pub(crate) use fact::Fact;
pub(crate) use send::Outcome;
pub(crate) use telling::Telling;

use cluster::api::EventWriter;
use correlate::{At, Correlator};
use jiff::Timestamp;
use send::{Pace, Sender};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Facts that may wait to be taken in.
const QUEUE: usize = 256;

/// Tells facts to the API server. Copies are the same one; telling never waits and never fails.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<Said>,
    /// Facts that found the queue full.
    lost: Arc<AtomicU64>,
    started: Instant,
}

/// What a recorder hands to the task that sends.
#[derive(Debug)]
enum Said {
    Fact(Fact, At),
    /// Answered as soon as nothing waits to be sent.
    Flush(oneshot::Sender<()>),
}

impl Recorder {
    /// Starts the task that sends, which ends with the last copy. `count` is told what becomes of Events.
    ///
    /// `host` is the host's name, not the Node's: upstream tells its instances apart by that.
    pub(crate) fn start(
        writer: EventWriter,
        host: &str,
        count: impl Fn(Outcome, u64) + Send + 'static,
    ) -> Recorder {
        Recorder::paced(writer, host, count, Pace::default())
    }

    fn paced(
        writer: EventWriter,
        host: &str,
        count: impl Fn(Outcome, u64) + Send + 'static,
        pace: Pace,
    ) -> Recorder {
        let (queue, said) = mpsc::channel(QUEUE);
        let recorder = Recorder {
            queue,
            lost: Arc::default(),
            started: Instant::now(),
        };
        let sender = Sender {
            writer,
            correlator: Correlator::new(host),
            lost: recorder.lost.clone(),
            started: recorder.started,
            count: Box::new(count),
            pace,
        };
        tokio::spawn(sender.run(said));
        recorder
    }

    /// Tells a fact of this moment.
    pub(crate) fn record(&self, fact: Fact) {
        let at = At {
            since_start: self.started.elapsed(),
            wall: Timestamp::now(),
        };
        // A closed queue means that the process is on its way out.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.queue.try_send(Said::Fact(fact, at)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all that was told has been sent or given up, but no longer than `limit`.
    pub(crate) async fn flush(&self, limit: Duration) {
        let (done, waits) = oneshot::channel();
        let sent = async {
            if self.queue.send(Said::Flush(done)).await.is_ok() {
                // An error means that the task has ended, and nothing waits.
                let _ = waits.await;
            }
        };
        if timeout(limit, sent).await.is_err() {
            tracing::warn!("the API server did not take the last Events in time");
        }
    }
}
