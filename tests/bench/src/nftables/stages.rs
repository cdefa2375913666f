//! Where the time of one change goes: the stages of the daemon in this process, one after the other, on the real kernel.

use crate::objects::Objects;
use crate::stats::Spread;
use crate::tools::{CAPABILITIES, changes, node};
use anyhow::{Context, Result, bail};
use engine::{Answer, Backend, Effect, Engine, EngineConfig, Event, Host};
use iptables::build::InvalidPackets;
use kernel::NftTable;
use model::object::{self, Kind};
use model::snapshot::Change;
use model::{Family, PerFamily};
use std::time::{Duration, Instant};

/// How often an endpoint is replaced.
const ROUNDS: usize = 500;

struct Process {
    engine: Engine,
    table: NftTable,
    now: Duration,
    times: [Vec<Duration>; 5],
}

/// Loads a cluster into this network namespace, and measures; the table is gone afterwards.
pub fn run(services: usize, endpoints: usize) -> Result<Vec<(String, Spread)>> {
    let mut objects = Objects::new(services, endpoints);
    let mut process = Process::new()?;
    for change in changes(&objects) {
        process.engine.handle(Event::Changed(change), process.now);
    }
    for kind in [Kind::Node, Kind::Service, Kind::Slice] {
        process.engine.handle(Event::Listed(kind), process.now);
    }
    let load = Instant::now();
    process.settle()?;
    let load = load.elapsed();
    process.times = Default::default();
    for round in 0..ROUNDS {
        let text = objects.replace_endpoint(round * 37 % services).to_string();
        process.one(&text)?;
    }
    let clear = std::process::Command::new("nft")
        .args(["delete", "table", "ip", nftables::names::TABLE])
        .status();
    anyhow::ensure!(
        clear?.success(),
        "the table of the stages could not be taken away"
    );
    let words = ["decode", "apply", "resolve, build and diff", "commit", "remember"];
    let mut stages = vec![("load of all of it".to_owned(), Spread::of(vec![load]))];
    stages.extend(
        words
            .map(str::to_owned)
            .into_iter()
            .zip(process.times.map(Spread::of)),
    );
    Ok(stages)
}

impl Process {
    fn new() -> Result<Process> {
        let (settings, facts) = node();
        let host = Host {
            families: PerFamily {
                v4: Some(CAPABILITIES),
                v6: None,
            },
            invalid: InvalidPackets::Dropped,
        };
        let config = EngineConfig {
            backend: Backend::OwnTable,
            min_sync: Duration::ZERO,
            ..EngineConfig::default()
        };
        Ok(Process {
            engine: Engine::new(settings, facts, &host, &config),
            table: NftTable::new(Family::V4)?,
            now: Duration::from_secs(1),
            times: Default::default(),
        })
    }

    fn one(&mut self, text: &str) -> Result<()> {
        let start = Instant::now();
        let objects = object::decode(serde_json::from_str(text)?).objects;
        self.times[0].push(start.elapsed());
        let start = Instant::now();
        for object in objects {
            self.engine
                .handle(Event::Changed(Change::Apply(object)), self.now);
        }
        self.times[1].push(start.elapsed());
        self.settle()
    }

    /// Carries out what there is to do.
    fn settle(&mut self) -> Result<()> {
        loop {
            let start = Instant::now();
            let effect = self.engine.next(Family::V4, self.now);
            let planned = start.elapsed();
            let Some(effect) = effect else {
                self.engine.take_reports();
                return Ok(());
            };
            let start = Instant::now();
            let answer = match effect {
                Effect::NftCommit(step) => {
                    self.table.commit(&step).context("the kernel refused a step")?;
                    Answer::Committed
                }
                Effect::NftObserve(reading) => Answer::NftObserved(Box::new(self.table.observe(&reading)?)),
                Effect::Commit(_) | Effect::Observe { .. } => bail!("an effect of another mode"),
            };
            let committed = start.elapsed();
            self.now += Duration::from_millis(1);
            let start = Instant::now();
            self.engine.handle(Event::Answer(Family::V4, answer), self.now);
            let remembered = start.elapsed();
            for (times, took) in self.times[2..].iter_mut().zip([planned, committed, remembered]) {
                times.push(took);
            }
        }
    }
}
