//! Counters by Service, for who asked for them (ADR 63): who reads them, and when.
//!
//! One thread reads, apart from those that write rules, and waits while they write: neither holds the other up. It
//! sleeps fifty times as long as a reading took, and [`PERIOD`] at least, so that reading never takes more than a fiftieth of
//! the time.

pub(crate) mod frontends;
mod table;
mod tally;

pub(crate) use table::{Extent, Told};
pub(crate) use tally::{Reading, Sums, Tally};

use crate::host::Way;
use crate::serve::Serving;
use crate::thread::{self, ThreadError};
use iptables::counted;
use kernel::LiveKernel;
use kernel::probe::Probe;
use model::{Family, PerFamily};
use std::time::{Duration, Instant};
use table::Table;

/// The most service ports that may have series. A node exposes up to six series for each.
pub const MOST_SERVICE_METRICS: usize = 1000;

/// Between two readings, at least.
const PERIOD: Duration = Duration::from_secs(explorer::COUNTED_EVERY_SECONDS);
/// How many times as long as a reading took comes before the next one.
const REST: u32 = 50;
/// How long a reading waits for a write to end.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// How often the counters of nftables mode follow the services. The first reading comes after this, too: rules of an
/// earlier process are there already, and what they counted is told from the start.
const TICK: Duration = Duration::from_secs(1);

/// Starts to read the counters, if they were asked for.
pub(crate) fn start(way: &Way, served: PerFamily<bool>, serving: &Serving) -> Result<(), ThreadError> {
    if !serving.counts_services() {
        return Ok(());
    }
    let source = match way {
        Way::Tools(probe) => Source::Rules(LiveKernel::new(Probe::clone(probe))),
        Way::OwnTable => Source::Tables(PerFamily::from_fn(Table::new)),
    };
    let mut counter = Counter {
        source,
        served,
        serving: serving.clone(),
        failing: PerFamily::default(),
    };
    thread::start("counters", move || counter.count_for_ever())
}

/// Where counters are.
enum Source {
    /// In the rules of iptables mode.
    Rules(LiveKernel),
    /// In tables beside that of nftables mode.
    Tables(PerFamily<Table>),
}

/// Reads counters.
struct Counter {
    source: Source,
    served: PerFamily<bool>,
    serving: Serving,
    /// Whether the last reading failed, which is told once.
    failing: PerFamily<bool>,
}

impl Counter {
    fn count_for_ever(&mut self) {
        let mut due = Instant::now();
        loop {
            std::thread::sleep(TICK);
            self.follow();
            if Instant::now() >= due {
                let took = self.count();
                due = Instant::now() + (took * REST).max(PERIOD);
            }
        }
    }

    fn families(&self) -> impl Iterator<Item = Family> + use<> {
        let served = self.served;
        Family::ALL.into_iter().filter(move |family| *served.get(*family))
    }

    /// The tables count what services there are now. Rules do by themselves.
    fn follow(&mut self) {
        for family in self.families() {
            let Source::Tables(tables) = &mut self.source else {
                return;
            };
            let told = self.serving.take_places(family);
            if let Err(error) = tables.get_mut(family).follow(told) {
                self.failed(family, &cluster::chain(&error));
            }
        }
    }

    /// Reads all families; how long that took without waiting.
    fn count(&mut self) -> Duration {
        let mut took = Duration::ZERO;
        for family in self.families() {
            self.wait_for_writes(family);
            let begun = Instant::now();
            match self.read(family) {
                Ok(Some(readings)) => {
                    self.serving.counted(family, readings);
                    *self.failing.get_mut(family) = false;
                }
                Ok(None) => {}
                Err(error) => self.failed(family, &error),
            }
            took += begun.elapsed();
        }
        self.serving.all_counted(took);
        took
    }

    /// Somebody who writes all the time is not waited for without end.
    fn wait_for_writes(&self, family: Family) {
        let begun = Instant::now();
        while self.serving.is_writing(family) && begun.elapsed() < PATIENCE {
            std::thread::sleep(POLL);
        }
    }

    /// Nothing where there is no table, which was told when it could not be made.
    fn read(&mut self, family: Family) -> Result<Option<Vec<Reading>>, String> {
        let kernel = match &mut self.source {
            Source::Rules(kernel) => kernel,
            Source::Tables(tables) => {
                let table = tables.get_mut(family);
                return table.read().map_err(|error| cluster::chain(&error));
            }
        };
        let counts = kernel
            .rule_counts(family)
            .map_err(|error| cluster::chain(&error))?;
        let readings = counts.into_iter().filter_map(|count| {
            let (port, counts) = counted::by(count.table, &count.rule)?;
            Some(Reading {
                id: count.id,
                port,
                counts,
                packets: count.packets,
            })
        });
        Ok(Some(readings.collect()))
    }

    fn failed(&mut self, family: Family, error: &str) {
        self.serving.not_counted(family);
        if !std::mem::replace(self.failing.get_mut(family), true) {
            tracing::warn!(%family, error, "the counters of Services cannot be read; their metrics stay as they are until they can");
        }
    }
}
