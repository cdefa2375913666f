//! Where the time of a change goes: the stages of the daemon in this process, one after the other, on the real kernel.

use super::changes::{Cluster, Kind as ChangeKind};
use super::special;
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
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The kinds that are looked into, and how often each is made at most.
const KINDS: [(ChangeKind, usize); 6] = [
    (ChangeKind::Replaced, 500),
    (ChangeKind::ServiceAdded, 100),
    (ChangeKind::TenFrontends, 100),
    (ChangeKind::NewShape, 20),
    (ChangeKind::NewSize, special::SIZES.len()),
    (ChangeKind::Thousand, 100),
];

/// One kind of change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KindStages {
    /// In words.
    pub what: String,
    /// Each stage with its times.
    pub stages: Vec<(String, Spread)>,
}

/// Everything at one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stages {
    /// The load of the whole cluster, in seconds.
    pub load_s: f64,
    /// Of that, in commits: the kernel, with the encoding for it.
    pub load_commits_s: f64,
    /// By kind of change.
    pub kinds: Vec<KindStages>,
}

const WORDS: [&str; 5] = ["decode", "apply", "resolve, build and diff", "commit", "remember"];

struct Process {
    engine: Engine,
    table: NftTable,
    now: Duration,
    /// Of the change that is being made.
    spent: [Duration; 5],
}

/// Loads a cluster into this network namespace, and measures; the table is gone afterwards.
pub fn run(services: usize, endpoints: usize) -> Result<Stages> {
    let objects = Objects::new(services, endpoints);
    let mut process = Process::new()?;
    for change in changes(&objects) {
        process.engine.handle(Event::Changed(change), process.now);
    }
    for kind in [Kind::Node, Kind::Service, Kind::Slice] {
        process.engine.handle(Event::Listed(kind), process.now);
    }
    let load = Instant::now();
    process.settle()?;
    let load_s = load.elapsed().as_secs_f64();
    let load_commits_s = process.spent[3].as_secs_f64();
    let mut cluster = Cluster::new(objects);
    let mut kinds = Vec::new();
    for (kind, most) in KINDS {
        for (_, object) in cluster.prepare(kind) {
            process.take(&object.to_string())?;
        }
        process.settle()?;
        let mut times: [Vec<Duration>; 5] = Default::default();
        for _ in 0..most {
            process.spent = Default::default();
            for (_, object) in cluster.make(kind).events {
                process.take(&object.to_string())?;
            }
            process.settle()?;
            for (times, spent) in times.iter_mut().zip(process.spent) {
                times.push(spent);
            }
        }
        let stages = WORDS.map(str::to_owned).into_iter().zip(times.map(Spread::of));
        kinds.push(KindStages {
            what: kind.words().to_owned(),
            stages: stages.collect(),
        });
    }
    let clear = std::process::Command::new("nft")
        .args(["delete", "table", "ip", nftables::names::TABLE])
        .status();
    anyhow::ensure!(
        clear?.success(),
        "the table of the stages could not be taken away"
    );
    Ok(Stages {
        load_s,
        load_commits_s,
        kinds,
    })
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
            spent: Default::default(),
        })
    }

    /// Hears of one object.
    fn take(&mut self, text: &str) -> Result<()> {
        let start = Instant::now();
        let objects = object::decode(serde_json::from_str(text)?).objects;
        self.spent[0] += start.elapsed();
        let start = Instant::now();
        for object in objects {
            self.engine
                .handle(Event::Changed(Change::Apply(object)), self.now);
        }
        self.spent[1] += start.elapsed();
        Ok(())
    }

    /// Carries out what there is to do.
    fn settle(&mut self) -> Result<()> {
        loop {
            let start = Instant::now();
            let effect = self.engine.next(Family::V4, self.now);
            let planned = start.elapsed();
            let Some(effect) = effect else {
                self.spent[2] += planned;
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
            for (spent, took) in self.spent[2..].iter_mut().zip([planned, committed, remembered]) {
                *spent += took;
            }
        }
    }
}
