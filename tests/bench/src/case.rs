//! One case: one size on one backend, in a network namespace that is this process's own.

use crate::daemon::{Cost, Daemon};
use crate::generations::Generations;
use crate::objects::Objects;
use crate::server::Server;
use crate::stats::Spread;
use crate::{Backend, Mode, Options, tools};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// The daemon logs this when everything that was wanted of IPv4 is in the kernel; the objects have no IPv6.
pub const IN_SYNC: &str = r#""rules are in sync" ipFamily="IPv4""#;
/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_mins(10);

/// What was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    /// The backend.
    pub backend: Backend,
    /// Services.
    pub services: usize,
    /// Endpoints of each.
    pub endpoints: usize,
    /// The tools alone, for the steps of a cold start.
    pub tools_s: f64,
    /// From the lists' end to the last commit.
    pub cold_start_s: f64,
    /// CPU of the cold start: the daemon's and its tools'.
    pub cold_start_cpu_s: (f64, f64),
    /// From a change going out to the commit.
    pub changes: Vec<ChangeResult>,
    /// Resident MiB: after the cold start, after the churn, after the turnover.
    pub resident_mib: Vec<(String, f64)>,
}

/// One kind of change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeResult {
    /// In words.
    pub what: String,
    /// Latency.
    pub latency: Spread,
    /// CPU for one change, in milliseconds: the daemon's own, and its tools'.
    pub cpu_ms: (f64, f64),
}

struct Case {
    options: Options,
    backend: Backend,
    objects: Objects,
    server: Server,
    daemon: Daemon,
    generations: Option<Generations>,
}

/// Measures everything about the first size and backend of the options.
pub fn run(options: &Options) -> Result<CaseResult> {
    let backend = *options.backend.first().context("a case needs a backend")?;
    let services = *options.services.first().context("a case needs a size")?;
    prepare_namespace()?;
    let objects = Objects::new(services, options.endpoints);
    let tools_time = tools_alone(&objects, backend)?;
    let (case, cold_start, cost) = cold_start(options, backend, objects)?;
    let mut case = case;
    let mut resident_mib = vec![("after the cold start".to_owned(), case.daemon.resident_mib()?)];
    let changes = case.all_changes()?;
    if options.churn > 0 {
        case.churn(options.churn)?;
        resident_mib.push((
            format!("after {} endpoint changes", options.churn),
            case.daemon.resident_mib()?,
        ));
    }
    if options.turnover > 0 {
        case.turnover(options.turnover)?;
        let what = format!("after {} services created and deleted", options.turnover);
        resident_mib.push((what, case.daemon.resident_mib()?));
    }
    Ok(CaseResult {
        backend,
        services,
        endpoints: options.endpoints,
        tools_s: tools_time.as_secs_f64(),
        cold_start_s: cold_start.as_secs_f64(),
        cold_start_cpu_s: (cost.own.as_secs_f64(), cost.tools.as_secs_f64()),
        changes,
        resident_mib,
    })
}

/// Loopback up, and a lock file that is nobody else's.
pub fn prepare_namespace() -> Result<()> {
    for words in [
        &["ip", "link", "set", "lo", "up"][..],
        &["mount", "-t", "tmpfs", "none", "/run"],
    ] {
        let status = Command::new(words[0]).args(&words[1..]).status();
        let status = status.with_context(|| format!("cannot run {}", words[0]))?;
        anyhow::ensure!(status.success(), "{} failed: {status}", words.join(" "));
    }
    Ok(())
}

/// The tools' own time, and their rules taken away again.
fn tools_alone(objects: &Objects, backend: Backend) -> Result<Duration> {
    let texts = tools::cold_start_texts(objects, backend);
    let time = tools::restore_all(&texts, backend)?;
    let clear = match backend {
        Backend::NfTables => "nft flush ruleset",
        Backend::Legacy => {
            "for t in nat filter mangle; do iptables-legacy -t $t -F; iptables-legacy -t $t -X; done"
        }
    };
    let status = Command::new("sh").args(["-c", clear]).status()?;
    anyhow::ensure!(status.success(), "{clear} failed: {status}");
    Ok(time)
}

fn cold_start(options: &Options, backend: Backend, objects: Objects) -> Result<(Case, Duration, Cost)> {
    let server = serve(objects.count(), options.endpoints)?;
    let generations = (backend == Backend::NfTables)
        .then(Generations::listen)
        .transpose()?;
    let daemon = Daemon::start(&options.binary, server.address, backend, Mode::Iptables)?;
    let synced = daemon.log_line(IN_SYNC, 0, PATIENCE)?;
    // Both families say so; what follows is waited out.
    std::thread::sleep(Duration::from_secs(1));
    let last = generations
        .as_ref()
        .and_then(|seen| seen.last_before_quiet(Duration::from_secs(1)));
    let end = last.unwrap_or(synced);
    let cost = daemon.cost()?;
    let from = server
        .lists_sent()
        .context("the daemon never listed everything")?;
    let case = Case {
        options: options.clone(),
        backend,
        objects,
        server,
        daemon,
        generations,
    };
    Ok((case, end.duration_since(from), cost))
}

/// An API server with these objects.
pub fn serve(services: usize, endpoints: usize) -> Result<Server> {
    let lists = Objects::new(services, endpoints);
    Server::start(move |kind, each| match kind {
        "Service" => (0..lists.count()).for_each(|i| each(&lists.service(i))),
        "EndpointSlice" => (0..lists.count()).for_each(|i| each(&lists.slice(i))),
        "Node" => each(&Objects::node()),
        _ => {}
    })
}

type Change = fn(&mut Objects, usize) -> Vec<(&'static str, Value)>;

/// Kinds of change, each leaving the sizes as they were together with the one after it.
const CHANGES: [(&str, Change); 5] = [
    ("one endpoint replaced", |objects, i| {
        vec![("MODIFIED", objects.replace_endpoint(i))]
    }),
    ("one endpoint added", |objects, i| {
        vec![("MODIFIED", objects.add_endpoint(i))]
    }),
    ("one endpoint removed", |objects, i| {
        vec![("MODIFIED", objects.remove_endpoint(i))]
    }),
    ("one service added", |objects, _| {
        let (slice, service) = objects.add_service();
        vec![("ADDED", slice), ("ADDED", service)]
    }),
    ("one service removed", |objects, _| {
        let (service, slice) = objects.remove_service();
        vec![("DELETED", service), ("DELETED", slice)]
    }),
];

impl Case {
    /// Every change of an endpoint in a row of its own; services are added, then removed.
    fn all_changes(&mut self) -> Result<Vec<ChangeResult>> {
        let count = if self.backend == Backend::Legacy {
            self.options.changes.min(5)
        } else {
            self.options.changes
        };
        CHANGES
            .iter()
            .map(|(what, change)| self.kind_of_change(what, *change, count))
            .collect()
    }

    fn kind_of_change(&mut self, what: &str, change: Change, count: usize) -> Result<ChangeResult> {
        let mut latencies = Vec::new();
        let before = self.daemon.cost()?;
        for round in 0..count {
            let i = round * 37 % self.options.services[0];
            latencies.push(
                self.one_change(change, i)
                    .with_context(|| format!("{what}, number {round}"))?,
            );
        }
        let after = self.daemon.cost()?;
        let each = |from: Duration, to: Duration| {
            (to.saturating_sub(from)).as_secs_f64() * 1e3 / f64::from(u32::try_from(count).expect("few"))
        };
        Ok(ChangeResult {
            what: what.to_owned(),
            latency: Spread::of(latencies),
            cpu_ms: (each(before.own, after.own), each(before.tools, after.tools)),
        })
    }

    /// From the first event going out to the first commit after it, on `nf_tables`; to the log's word on legacy.
    fn one_change(&mut self, change: Change, i: usize) -> Result<Duration> {
        let lines = self.daemon.log_lines(IN_SYNC);
        if let Some(generations) = &self.generations {
            generations.forget();
        }
        let mut sent = None;
        for (kind, object) in change(&mut self.objects, i) {
            let at = self.server.push(kind, &object);
            sent.get_or_insert(at);
        }
        let sent = sent.expect("every change is an event at least");
        let log = self.daemon.log_line(IN_SYNC, lines, PATIENCE)?;
        let done = match &self.generations {
            // A change may take several commits; the last one counts.
            Some(generations) => {
                let first = generations.first(PATIENCE)?;
                generations
                    .last_before_quiet(Duration::from_millis(60))
                    .unwrap_or(first)
            }
            None => log,
        };
        Ok(done.duration_since(sent))
    }

    /// Endpoint changes as fast as the daemon takes them in.
    fn churn(&mut self, count: usize) -> Result<()> {
        for round in 0..count {
            let i = round * 37 % self.options.services[0];
            let object = self.objects.replace_endpoint(i);
            self.server.push("MODIFIED", &object);
            pace(round);
        }
        self.settle()
    }

    /// Services that come and go, twenty at a time.
    fn turnover(&mut self, count: usize) -> Result<()> {
        for round in 0..count / 20 {
            for _ in 0..20 {
                let (slice, service) = self.objects.add_service();
                self.server.push("ADDED", &slice);
                self.server.push("ADDED", &service);
            }
            for _ in 0..20 {
                let (service, slice) = self.objects.remove_service();
                self.server.push("DELETED", &service);
                self.server.push("DELETED", &slice);
            }
            pace(round);
        }
        self.settle()
    }

    /// Waits until nothing has been committed for three seconds.
    fn settle(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        let mut lines = 0;
        while self.daemon.log_lines(IN_SYNC) != lines {
            anyhow::ensure!(Instant::now() < end, "the daemon does not come to rest");
            lines = self.daemon.log_lines(IN_SYNC);
            std::thread::sleep(Duration::from_secs(3));
        }
        Ok(())
    }
}

/// Lets the daemon's pipe breathe: a real API server is not faster.
fn pace(round: usize) {
    if round % 20 == 19 {
        std::thread::sleep(Duration::from_millis(5));
    }
}
