//! The thread that goes through one family's connection table.

use super::{GAP, PERIOD};
use crate::serve::Serving;
use crate::thread::{self, ThreadError};
use conntrack::{Changes, Expectation, NodeAddresses, Pace, ServiceFlows, TcpOption, Urgency, decide};
use kernel::conntrack::{Reach, SweepError, SweepOptions, SweepReport, sweep};
use model::ServiceName;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What sweeps when it is due, for as long as this lives, once its thread has been started.
pub(super) struct Sweeper {
    shared: Arc<Shared>,
    /// What the thread will take with it; what is noted before is not lost.
    waits: Arc<Mutex<Option<Sweeping>>>,
}

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Shared {
    noted: Mutex<Noted>,
    wake: Condvar,
}

/// Whether sweeps are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hold {
    /// They are.
    #[default]
    Free,
    /// What is expected is kept up to date, and nothing is deleted.
    Held,
}

#[derive(Default)]
struct Noted {
    changes: Changes,
    /// A sweep is wanted even if the changes alone would not ask for one.
    again: bool,
    hold: Hold,
    /// Nobody will note anything any more.
    ended: bool,
}

impl Sweeper {
    /// Its thread is yet to be started.
    pub(super) fn new(expectation: Expectation, tcp: TcpOption, serving: Serving, hold: Hold) -> Sweeper {
        let shared = Arc::new(Shared::default());
        shared.lock().hold = hold;
        let sweeping = Sweeping {
            shared: shared.clone(),
            expectation,
            pace: Pace::new(PERIOD, GAP),
            options: SweepOptions {
                reach: match tcp {
                    TcpOption::CutGone => Reach::UdpAndTcp,
                    TcpOption::Never => Reach::Udp,
                },
                ..SweepOptions::default()
            },
            start: Instant::now(),
            health: Health::Well,
            serving,
        };
        Sweeper {
            shared,
            waits: Arc::new(Mutex::new(Some(sweeping))),
        }
    }

    /// Starts the thread, unless it runs; it sweeps at once, or when it is released.
    pub(super) fn start(&self) -> Result<(), ThreadError> {
        self.start_by(thread::start)
    }

    fn start_by<E>(&self, spawn: impl FnOnce(&str, Work) -> Result<(), E>) -> Result<(), E> {
        let waits = self.waits.clone();
        let name = match &*lock(&waits) {
            Some(sweeping) => format!("flows-{}", sweeping.expectation.family()),
            None => return Ok(()),
        };
        let work = move || {
            let sweeping = lock(&waits).take();
            sweeping.into_iter().for_each(Sweeping::run);
        };
        spawn(&name, Box::new(work))
    }

    /// The kernel took rules that say this of these services. `again`: flows that they exclude may have been made since
    /// the same was noted before.
    pub(super) fn note_services(&self, services: Vec<(ServiceName, ServiceFlows)>, again: bool) {
        let mut noted = self.shared.lock();
        for (name, flows) in services {
            noted.changes.note_service(name, flows);
        }
        noted.again |= again;
        drop(noted);
        self.shared.wake.notify_one();
    }

    /// Sweeps are allowed from now on.
    pub(super) fn release(&self) {
        self.shared.lock().hold = Hold::Free;
        self.shared.wake.notify_one();
    }

    /// Node ports are served on these addresses now.
    pub(super) fn note_node(&self, node: NodeAddresses) {
        self.shared.lock().changes.note_node(node);
        self.shared.wake.notify_one();
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.wake.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        lock(&self.noted)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the last sweep went: a failure is told once, not with each attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    Failing,
}

/// What the thread has to itself.
struct Sweeping {
    shared: Arc<Shared>,
    expectation: Expectation,
    pace: Pace,
    options: SweepOptions,
    start: Instant,
    health: Health,
    serving: Serving,
}

impl Sweeping {
    fn run(mut self) {
        while let Some(noted) = self.wait() {
            let again = if noted.again {
                Urgency::Sweep
            } else {
                Urgency::None
            };
            let urgency = noted.changes.apply(&mut self.expectation).max(again);
            let now = self.start.elapsed();
            self.pace.changed(urgency, now);
            if noted.hold == Hold::Free && self.pace.due_at() <= now {
                self.sweep();
            }
        }
    }

    /// Waits until something was noted or a sweep is due; `None` at the end.
    fn wait(&self) -> Option<Noted> {
        let mut noted = self.shared.lock();
        loop {
            if noted.ended {
                return None;
            }
            let left = self.pace.due_at().saturating_sub(self.start.elapsed());
            let is_due = left.is_zero() && noted.hold == Hold::Free;
            if noted.again || !noted.changes.is_empty() || is_due {
                let rest = Noted {
                    hold: noted.hold,
                    ..Noted::default()
                };
                return Some(std::mem::replace(&mut *noted, rest));
            }
            if noted.hold == Hold::Held {
                let woken = self.shared.wake.wait(noted);
                noted = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.shared.wake.wait_timeout(noted, left);
            noted = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn sweep(&mut self) {
        self.pace.began();
        let ticket = self.expectation.begin_sweep();
        let begun = Instant::now();
        let family = self.expectation.family();
        let expectation = &self.expectation;
        let swept = sweep(family, &self.options, &mut |flow| decide(expectation, flow));
        let complete = match &swept {
            Ok(report) => report.is_complete(),
            Err(_) => false,
        };
        let now = self.start.elapsed();
        if complete {
            self.expectation.complete_sweep(ticket);
            self.pace.completed(now);
        } else {
            self.pace.failed(now);
        }
        self.tell(swept, begun.elapsed());
    }

    fn tell(&mut self, swept: Result<SweepReport, SweepError>, took: Duration) {
        let family = self.expectation.family();
        let (report, error) = match swept {
            Ok(report) => {
                let deleted = u64::try_from(report.deleted()).unwrap_or(u64::MAX);
                self.serving.reconciled(family, took, deleted);
                (report, None)
            }
            Err(error) => {
                self.serving.not_reconciled(family);
                ((*error.report).clone(), Some(error))
            }
        };
        if report.deleted() > 0 {
            let reasons: Vec<String> = report
                .deleted
                .iter()
                .map(|(reason, count)| format!("{count} {reason}"))
                .collect();
            let reasons = reasons.join(", ");
            tracing::info!(%family, deleted = report.deleted(), %reasons, seen = report.seen, ?took, "stale connections deleted");
        }
        match error {
            Some(error) if self.health == Health::Well => {
                self.health = Health::Failing;
                let reason = error.source;
                tracing::warn!(%family, %reason, "{} failed; stale connections stay until it works", error.attempted);
            }
            Some(error) => {
                tracing::debug!(%family, reason = %error.source, "{} failed again", error.attempted);
            }
            None if self.health == Health::Failing => {
                self.health = Health::Well;
                tracing::info!(%family, "the connection table can be gone through again");
            }
            None => tracing::debug!(%family, seen = report.seen, ?took, "connection table gone through"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Family;

    #[test]
    fn what_a_thread_was_to_do_is_still_there_when_it_cannot_be_had() {
        let expectation = Expectation::new(Family::V4, NodeAddresses::default());
        let sweeper = Sweeper::new(expectation, TcpOption::Never, Serving::of_test(), Hold::Held);
        sweeper.note_services(vec![], true);
        for _ in 0..2 {
            assert_eq!(sweeper.start_by(|_, _| Err("no thread")), Err("no thread"));
        }
        let mut started = None;
        let took = sweeper.start_by(|name, work| {
            started = Some((name.to_owned(), work));
            Ok::<(), ()>(())
        });
        assert_eq!(took, Ok(()));
        assert!(sweeper.shared.lock().again);
        let waits = sweeper.waits.clone();
        drop(sweeper);
        let (name, work) = started.unwrap();
        assert_eq!(name, "flows-IPv4");
        // The sweeper has gone, so that it ends at once.
        work();
        assert!(lock(&waits).is_none());
    }
}
