//! One size in nftables mode: cold start, every kind of change, CPU and memory, and where the time goes.

pub mod changes;
pub mod special;
pub mod stages;

use crate::case::{IN_SYNC, PATIENCE, prepare_namespace, serve};
use crate::daemon::Daemon;
use crate::generations::Generations;
use crate::objects::Objects;
use crate::packets::Client;
use crate::server::Server;
use crate::stats::Spread;
use crate::{Backend, Mode, Options};
use anyhow::{Context, Result};
use changes::{Change, Cluster, Kind};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// More than the daemon's least time between two runs.
const APART: Duration = Duration::from_millis(15);

/// What was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NftResult {
    /// Services.
    pub services: usize,
    /// Endpoints of each.
    pub endpoints: usize,
    /// From the lists' end to the last commit.
    pub cold_start_s: f64,
    /// CPU from the daemon's start to the last commit.
    pub cold_start_cpu_s: f64,
    /// By kind of change.
    pub changes: Vec<NftChange>,
    /// Resident MiB at moments.
    pub resident_mib: Vec<(String, f64)>,
    /// What changes cost in one process, stage by stage.
    pub stages: stages::Stages,
}

/// One kind of change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NftChange {
    /// In words.
    pub what: String,
    /// From the event going out to the new generation, as another process saw it.
    pub commit: Spread,
    /// From the event going out to the first connection that arrived at the new endpoint.
    pub packet: Option<Spread>,
    /// CPU of the daemon for one change, in milliseconds.
    pub cpu_ms: f64,
}

struct Case {
    cluster: Cluster,
    server: Server,
    daemon: Daemon,
    generations: Generations,
    client: Client,
}

/// Measures everything about the first size of the options.
pub fn run(options: &Options) -> Result<NftResult> {
    let services = *options.services.first().context("a case needs a size")?;
    prepare_namespace()?;
    let stages = stages::run(services, options.endpoints)?;
    let client = Client::new()?;
    let server = serve(services, options.endpoints)?;
    let generations = Generations::listen()?;
    let daemon = Daemon::start(&options.binary, server.address, Backend::NfTables, Mode::Nftables)?;
    let synced = daemon.log_line(IN_SYNC, 0, PATIENCE)?;
    let last = generations.last_before_quiet(Duration::from_secs(1));
    let cold_start_cpu_s = daemon.cost()?.own.as_secs_f64();
    let from = server
        .lists_sent()
        .context("the daemon never listed everything")?;
    let cold_start_s = last.unwrap_or(synced).duration_since(from).as_secs_f64();
    let mut resident_mib = vec![("after the cold start".to_owned(), daemon.resident_mib()?)];
    let mut case = Case {
        cluster: Cluster::new(Objects::new(services, options.endpoints)),
        server,
        daemon,
        generations,
        client,
    };
    let mut changes = Vec::new();
    for kind in Kind::ALL {
        changes.push(
            case.kind(kind, options)
                .with_context(|| kind.words().to_owned())?,
        );
    }
    resident_mib.push(("after these changes".to_owned(), case.daemon.resident_mib()?));
    if options.churn > 0 {
        case.churn(options.churn);
        resident_mib.push((
            format!("after {} endpoint changes", options.churn),
            case.daemon.resident_mib()?,
        ));
    }
    Ok(NftResult {
        services,
        endpoints: options.endpoints,
        cold_start_s,
        cold_start_cpu_s,
        changes,
        resident_mib,
        stages,
    })
}

impl Case {
    /// First without a client, which would take CPU from the daemon; then with one.
    fn kind(&mut self, kind: Kind, options: &Options) -> Result<NftChange> {
        self.prepare(kind)?;
        let count = options.changes.min(kind.most());
        let mut commits = Vec::new();
        let before = self.daemon.cost()?;
        for _ in 0..count {
            commits.push(self.commit(kind)?);
        }
        let cpu = self.daemon.cost()?.own.saturating_sub(before.own);
        let mut packets = Vec::new();
        if kind.has_new_endpoint() {
            for _ in 0..options.packets.min(kind.most()) {
                packets.extend(self.packet(kind)?);
            }
        }
        Ok(NftChange {
            what: kind.words().to_owned(),
            commit: Spread::of(commits),
            packet: (!packets.is_empty()).then(|| Spread::of(packets)),
            cpu_ms: cpu.as_secs_f64() * 1e3 / f64::from(u32::try_from(count).expect("few")),
        })
    }

    fn prepare(&mut self, kind: Kind) -> Result<()> {
        let events = self.cluster.prepare(kind);
        if events.is_empty() {
            return Ok(());
        }
        for (change, object) in events {
            self.server.push(change, &object);
        }
        self.generations.first(PATIENCE)?;
        // What is left of earlier changes is taken away after two seconds.
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    }

    fn push(&mut self, change: &Change) -> std::time::Instant {
        let times: Vec<_> = change
            .events
            .iter()
            .map(|(kind, object)| self.server.push(kind, object))
            .collect();
        // A Service without its slice, or the other way round, changes nothing that packets see.
        *times.last().expect("every change is an event at least")
    }

    fn commit(&mut self, kind: Kind) -> Result<Duration> {
        let change = self.cluster.make(kind);
        // A watcher that was kept waiting tells late: nothing of an earlier change may be taken for this one's.
        self.generations.last_before_quiet(APART);
        let sent = self.push(&change);
        let seen = self.generations.first(PATIENCE)?;
        Ok(seen.saturating_duration_since(sent))
    }

    fn packet(&mut self, kind: Kind) -> Result<Option<Duration>> {
        let change = self.cluster.make(kind);
        self.generations.last_before_quiet(APART);
        let sent = self.push(&change);
        let Some((to, endpoint)) = change.reached else {
            return Ok(None);
        };
        let arrived = self.client.first_packet(to, endpoint)?;
        Ok(Some(arrived.duration_since(sent)))
    }

    /// Endpoint changes as fast as the daemon takes them in.
    fn churn(&mut self, count: usize) {
        for round in 0..count {
            let change = self.cluster.make(Kind::Replaced);
            self.push(&change);
            if round % 20 == 19 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.generations.last_before_quiet(Duration::from_secs(3));
    }
}
