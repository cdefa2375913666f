//! Another kube-proxy beside this one: the same objects, the same changes, one after the other in one run.
//!
//! Nothing is asked of either that only one of them can tell: a load or a change is over when no generation of
//! `nf_tables` has come for a while.

use crate::case::{PATIENCE, prepare_namespace, serve};
use crate::daemon::Daemon;
use crate::generations::Generations;
use crate::nftables::changes::{Change, Cluster, Kind};
use crate::objects::Objects;
use crate::server::Server;
use crate::stats::Spread;
use crate::{Backend, Options};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// What one of them took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BesideResult {
    /// Services.
    pub services: usize,
    /// Endpoints of each.
    pub endpoints: usize,
    /// From the lists' end to the last commit.
    pub cold_start_s: f64,
    /// CPU until then, of the process and of the tools that it ran.
    pub cold_start_cpu_s: f64,
    /// Resident memory after the changes, of the process alone.
    pub resident_mib: f64,
    /// Kinds of change.
    pub changes: Vec<BesideChange>,
}

/// A kind of change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BesideChange {
    /// In words.
    pub what: String,
    /// From the event going out to the first commit.
    pub commit: Spread,
    /// CPU for one, of the process and of its tools.
    pub cpu_ms: f64,
}

/// What both can do in a bearable time.
const KINDS: [Kind; 5] = [
    Kind::Replaced,
    Kind::Added,
    Kind::Removed,
    Kind::ServiceAdded,
    Kind::ServiceDeleted,
];

/// A load is over when nothing has been committed for so long. Steps of a load that are this far apart are none.
const LOADED: Duration = Duration::from_secs(12);
/// The same for a change.
const CHANGED: Duration = Duration::from_secs(3);

struct Case {
    cluster: Cluster,
    server: Server,
    daemon: Daemon,
    generations: Generations,
}

/// Measures the options' binary, whosever it is.
pub fn run(options: &Options) -> Result<BesideResult> {
    let services = *options.services.first().context("a case needs a size")?;
    prepare_namespace()?;
    let server = serve(services, options.endpoints)?;
    let generations = Generations::listen()?;
    let backend = Backend::NfTables;
    let daemon = Daemon::start(&options.binary, server.address, backend, options.proxy_mode)?;
    let mut case = Case {
        cluster: Cluster::new(Objects::new(services, options.endpoints)),
        server,
        daemon,
        generations,
    };
    let cold_start = case
        .loaded()
        .with_context(|| format!("it wrote nothing:\n{}", case.daemon.log_tail()))?;
    let cost = case.daemon.cost()?;
    let changes = KINDS.map(|kind| case.changes(kind, options.changes));
    Ok(BesideResult {
        services,
        endpoints: options.endpoints,
        cold_start_s: cold_start.as_secs_f64(),
        cold_start_cpu_s: (cost.own + cost.tools).as_secs_f64(),
        resident_mib: case.daemon.resident_mib()?,
        changes: changes.into_iter().collect::<Result<_>>()?,
    })
}

impl Case {
    /// From the lists' end to the last commit.
    fn loaded(&self) -> Result<Duration> {
        let first = self.first()?;
        let last = self.generations.last_before_quiet(LOADED).unwrap_or(first);
        let from = self.server.lists_sent().context("it never listed everything")?;
        Ok(last.saturating_duration_since(from))
    }

    /// The next commit, unless the process ends before.
    fn first(&self) -> Result<Instant> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.generations.first(Duration::from_secs(1)) {
                Err(error) if self.daemon.has_ended() || Instant::now() > end => return Err(error),
                Err(_) => {}
                Ok(at) => return Ok(at),
            }
        }
    }

    fn changes(&mut self, kind: Kind, count: usize) -> Result<BesideChange> {
        let before = self.daemon.cost()?;
        let mut commits = Vec::new();
        for _ in 0..count {
            let change: Change = self.cluster.make(kind);
            self.generations.last_before_quiet(CHANGED);
            let mut sent = Instant::now();
            for (kind, object) in &change.events {
                sent = self.server.push(kind, object);
            }
            let seen = self.first().context(kind.words())?;
            commits.push(seen.saturating_duration_since(sent));
        }
        self.generations.last_before_quiet(CHANGED);
        let after = self.daemon.cost()?;
        let cpu = (after.own + after.tools).saturating_sub(before.own + before.tools);
        Ok(BesideChange {
            what: kind.words().to_owned(),
            cpu_ms: cpu.as_secs_f64() * 1e3 / f64::from(u32::try_from(count).expect("few")),
            commit: Spread::of(commits),
        })
    }
}
