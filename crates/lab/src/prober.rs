//! New connections at a steady rate in the background, and what came of each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crate::LabError;
use crate::driver::{Driver, Landed};
use crate::netns::{self, Namespace};
use crate::probe::{Probe, ProbeOutcome};

/// One connection of a prober.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When it was launched.
    pub at: Instant,
    /// How long it took.
    pub took: Duration,
    /// What came of it.
    pub outcome: ProbeOutcome,
}

/// What a prober saw.
#[derive(Clone, Debug)]
pub struct ProberReport {
    /// When the first connection was launched, for people's clocks.
    pub wall_start: SystemTime,
    /// The same moment for arithmetic.
    pub start: Instant,
    /// Every connection, in the order of landing.
    pub samples: Vec<Sample>,
}

impl ProberReport {
    /// How many connections have landed.
    pub fn total(&self) -> usize {
        self.samples.len()
    }

    /// How many were answered.
    pub fn answered(&self) -> usize {
        self.samples
            .iter()
            .filter(|sample| sample.outcome.answered_by().is_some())
            .count()
    }

    /// Answers by name of the server.
    pub fn by_name(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for name in self
            .samples
            .iter()
            .filter_map(|sample| sample.outcome.answered_by())
        {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
        counts
    }

    /// Every connection that was not answered, with its time since the start.
    pub fn misses(&self) -> impl Iterator<Item = (Duration, &Sample)> {
        let missed = self
            .samples
            .iter()
            .filter(|sample| sample.outcome.answered_by().is_none());
        missed.map(|sample| (sample.at.duration_since(self.start), sample))
    }

    /// The slowest answer.
    pub fn slowest_answer(&self) -> Option<Duration> {
        let answered = self
            .samples
            .iter()
            .filter(|sample| sample.outcome.answered_by().is_some());
        answered.map(|sample| sample.took).max()
    }

    /// A few lines for people: counts, and each miss with its time.
    pub fn describe(&self) -> String {
        let mut lines = vec![format!(
            "{} connections, {} answered",
            self.total(),
            self.answered()
        )];
        lines.extend(
            self.by_name()
                .iter()
                .map(|(name, count)| format!("  {name}: {count}")),
        );
        lines.extend(
            self.misses()
                .map(|(at, sample)| format!("  +{:.3}s {:?}", at.as_secs_f64(), sample.outcome)),
        );
        lines.join("\n")
    }
}

/// A thread that makes new connections until it is stopped. Dropping it stops it.
pub struct Prober {
    stop: Arc<AtomicBool>,
    report: Arc<Mutex<ProberReport>>,
    thread: Option<JoinHandle<()>>,
}

impl Prober {
    /// Starts `rate` connections per second, at least 1, evenly spaced. A slow one does not delay the others.
    pub(crate) fn start(namespace: &Namespace, probe: Probe, rate: u32) -> Result<Self, LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (wall_start, start) = (SystemTime::now(), Instant::now());
        let report = Arc::new(Mutex::new(ProberReport {
            wall_start,
            start,
            samples: vec![],
        }));
        let (told, entered) = std::sync::mpsc::channel();
        let (stop_seen, shared, path) = (Arc::clone(&stop), Arc::clone(&report), namespace.path());
        let thread = thread::Builder::new()
            .name("lab-prober".to_owned())
            .spawn(move || {
                let result = netns::enter(&path);
                let may_run = result.is_ok();
                // The starter waits for this word, so the channel is open.
                let _starter_gone = told.send(result);
                if may_run {
                    run(probe, Duration::from_secs(1) / rate.max(1), &stop_seen, &shared);
                }
            })
            .map_err(|source| LabError::system("start a prober's thread", source))?;
        let prober = Self {
            stop,
            report,
            thread: Some(thread),
        };
        entered
            .recv()
            .expect("invariant: the thread says how entering went")?;
        Ok(prober)
    }

    /// What it has seen so far.
    pub fn so_far(&self) -> ProberReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Launches no more, waits for those under way, and reports.
    pub fn stop(mut self) -> ProberReport {
        self.end();
        self.so_far()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.end();
        }
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn run(probe: Probe, pause: Duration, stop: &AtomicBool, report: &Mutex<ProberReport>) {
    let mut driver = Driver::new();
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now >= due {
            driver.launch(0, probe);
            due += pause;
            // After a stall (a busy machine) it goes on at the rate instead of catching up in a burst.
            due = due.max(now.checked_sub(pause * 10).unwrap_or(now));
        }
        record(report, driver.step(due.saturating_duration_since(Instant::now())));
    }
    while driver.in_flight() > 0 {
        record(report, driver.step(probe.timeout));
    }
}

fn record(report: &Mutex<ProberReport>, landed: Vec<Landed>) {
    if landed.is_empty() {
        return;
    }
    let samples = landed.into_iter().map(|one| Sample {
        at: one.launched,
        took: one.took,
        outcome: one.outcome,
    });
    report
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .samples
        .extend(samples);
}
