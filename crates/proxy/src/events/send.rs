//! Sending Events, one after the other, again when nobody answers.

use super::Said;
use super::correlate::{Correlator, Taken, Write};
use cluster::api::{EventWriter, WriteError};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Requests that may wait behind the one that is being sent.
const WAITING: usize = 100;
/// How often is looked for what is due.
const TICK: Duration = Duration::from_secs(5);

/// What became of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The API server has it.
    Written,
    /// The API server refused it.
    Refused,
    /// The API server did not answer, however often it was tried.
    Unreachable,
    /// It was never sent, since there were too many.
    Withheld,
}

impl Outcome {
    /// As the metric's label has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Outcome::Written => "written",
            Outcome::Refused => "refused",
            Outcome::Unreachable => "unreachable",
            Outcome::Withheld => "withheld",
        }
    }
}

/// How often is tried, and how long is waited between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) tries: u32,
    pub(super) wait: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            tries: 12,
            wait: Duration::from_secs(10),
        }
    }
}

/// The task that sends.
pub(super) struct Sender {
    pub(super) writer: EventWriter,
    pub(super) correlator: Correlator,
    pub(super) lost: Arc<AtomicU64>,
    pub(super) started: Instant,
    pub(super) count: Box<dyn Fn(Outcome, u64) + Send>,
    pub(super) pace: Pace,
}

type Delivery = Pin<Box<dyn Future<Output = Result<(), WriteError>> + Send>>;

impl Sender {
    /// Sends until nobody can say anything any more.
    pub(super) async fn run(mut self, mut said: mpsc::Receiver<Said>) {
        let mut waiting = VecDeque::new();
        let mut flushes: Vec<oneshot::Sender<()>> = Vec::new();
        let mut delivery: Option<Delivery> = None;
        let mut refusals = Refusals::default();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if delivery.is_none() {
                delivery = waiting
                    .pop_front()
                    .map(|write| -> Delivery { Box::pin(deliver(self.writer.clone(), write, self.pace)) });
            }
            if delivery.is_none() && said.is_empty() {
                // Whoever asked may have gone on.
                for flush in flushes.drain(..) {
                    let _ = flush.send(());
                }
            }
            tokio::select! {
                next = said.recv() => match next {
                    None => return,
                    Some(Said::Flush(done)) => flushes.push(done),
                    Some(Said::Fact(fact, at)) => match self.correlator.take(fact, at) {
                        Taken::Write(write) => self.wait_for(&mut waiting, *write),
                        Taken::Kept => {}
                        Taken::Withheld => (self.count)(Outcome::Withheld, 1),
                    },
                },
                ended = ended(&mut delivery) => {
                    delivery = None;
                    self.told(ended, &mut refusals);
                }
                _ = tick.tick() => {
                    for write in self.correlator.due(self.started.elapsed()) {
                        self.wait_for(&mut waiting, write);
                    }
                    match self.lost.swap(0, Ordering::Relaxed) {
                        0 => {}
                        lost => (self.count)(Outcome::Withheld, lost),
                    }
                }
            }
        }
    }

    fn wait_for(&self, waiting: &mut VecDeque<Write>, write: Write) {
        if waiting.len() >= WAITING {
            (self.count)(Outcome::Withheld, 1);
        } else {
            waiting.push_back(write);
        }
    }

    fn told(&self, ended: Result<(), WriteError>, refusals: &mut Refusals) {
        let outcome = match ended {
            // Of an earlier try the answer was lost.
            Ok(()) | Err(WriteError::Exists) => Outcome::Written,
            Err(WriteError::Away(reason)) => {
                // The watches tell of a server that is away.
                tracing::debug!(%reason, "an Event is given up");
                Outcome::Unreachable
            }
            Err(error) => {
                refusals.tell(&error);
                Outcome::Refused
            }
        };
        (self.count)(outcome, 1);
    }
}

async fn ended(delivery: &mut Option<Delivery>) -> Result<(), WriteError> {
    match delivery {
        Some(delivery) => delivery.await,
        None => std::future::pending().await,
    }
}

/// Writes one Event, again and again while nobody answers.
async fn deliver(writer: EventWriter, write: Write, pace: Pace) -> Result<(), WriteError> {
    let mut tries = 1;
    loop {
        match once(&writer, &write).await {
            Err(WriteError::Away(_)) if tries < pace.tries => {}
            ended => return ended,
        }
        tries += 1;
        sleep(spread(pace.wait)).await;
    }
}

async fn once(writer: &EventWriter, write: &Write) -> Result<(), WriteError> {
    let Write {
        namespace,
        name,
        event,
        patch,
    } = write;
    if let Some(patch) = patch {
        match writer.patch(namespace, name, patch).await {
            // Events are thrown away after an hour, or were never taken.
            Err(WriteError::Absent) => {}
            ended => return ended,
        }
    }
    writer.create(namespace, event).await
}

/// Up to a quarter longer, so that nodes do not try in step.
fn spread(wait: Duration) -> Duration {
    let random = u32::try_from(RandomState::new().hash_one(0_u8) % 1000).unwrap_or(0);
    wait + wait * random / 4000
}

/// What the log has been told of refusals: each reason once, since the next Event will be refused for the same.
#[derive(Default)]
struct Refusals {
    last: Option<String>,
}

impl Refusals {
    fn tell(&mut self, error: &WriteError) {
        let reason = error.to_string();
        // The server's words name the Event; what comes before does not.
        let kind: String = reason.chars().take(50).collect();
        if self.last.as_ref() == Some(&kind) {
            tracing::debug!(%reason, "an Event was not written");
        } else {
            tracing::warn!(%reason, "an Event was not written; further ones are told of at debug level. Grant create and patch on events.events.k8s.io");
            self.last = Some(kind);
        }
    }
}
