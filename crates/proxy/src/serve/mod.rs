//! Health, metrics and pages over HTTP.
//!
//! * In and out: the control loop tells what it does ([`Serving`]); pages answer out of that, never out of the engine, so
//!   that they answer whatever the engine is at.
//! * Where to start reading: `health` for what healthy means, `record` for what moves which metric, `pages` and
//!   `metrics_pages` for what is answered.

mod bounded;
mod events;
mod explorer;
mod failed;
mod families;
mod flame;
mod health;
mod inspect;
mod listen;
mod local;
mod metrics_pages;
mod node_ports;
mod pages;
mod pprof_format;
mod profile;
mod programming;
mod record;
mod registry;
mod requests;
mod scrape;
mod service_counts;
mod slis;
mod zpages;

pub(crate) use explorer::{Looks, Seen};
pub(crate) use health::kind_word;
pub use inspect::{ExplorerPage, PageOptions};

use crate::ProxyError;
use crate::events::{Recorder, Telling};
use cluster::SourceEvent;
use config::KubeProxyConfiguration;
use engine::{Effect, Engine, Report, RunKind};
use families::name;
use model::resolve::{Context, resolve_node};
use model::{Family, NodeFacts, NodePortTargets, PerFamily, ServiceName};
use node_ports::{Listener, Wanted};
use record::{Moment, Record};
use registry::as_f64;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};

/// What the servers answer out of, and what the control loop tells. Copies are the same one.
#[derive(Clone)]
pub(crate) struct Serving(Arc<Inner>);

struct Inner {
    record: Mutex<Record>,
    /// How checks went.
    slis: Mutex<registry::Registry>,
    /// What is counted anew at the next look.
    recount: Mutex<PerFamily<Recount>>,
    started: Instant,
    started_wall: SystemTime,
    config: KubeProxyConfiguration,
    /// The configuration as `/configz` shows it: as it was at start.
    configz: String,
    /// Of all ports.
    connections: bounded::Connections,
    /// The health-check node ports that are to be open.
    wanted: watch::Sender<Wanted>,
    node: Arc<str>,
    /// Where Events go, once the API server is known, and what they have said.
    events: OnceLock<(Recorder, Mutex<Telling>)>,
    failed: kernel::FailedInputs,
    /// The explorer, when it was asked for.
    explorer: Option<explorer::Explorer>,
    /// What is counted by Service, when that was asked for.
    counts: Option<service_counts::ServiceCounts>,
}

/// What is counted anew.
#[derive(Clone, Debug, Default)]
enum Recount {
    #[default]
    Nothing,
    /// These services have new rules.
    These(BTreeSet<ServiceName>),
    /// All services were compared.
    All,
}

/// Comes out when a port that must open did not.
pub(crate) struct HardFailure(mpsc::Receiver<ProxyError>);

impl HardFailure {
    /// Waits for it; for ever, as a rule.
    pub(crate) async fn wait(mut self) -> ProxyError {
        match self.0.recv().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }
}

impl Serving {
    /// Opens the health and metrics ports, now or as soon as it is possible.
    pub(crate) fn start(
        config: &KubeProxyConfiguration,
        node_name: Arc<str>,
        pages: &PageOptions,
    ) -> (Serving, HardFailure) {
        let (serving, wanted) = Serving::new(config, node_name, pages);
        let (failed, failure) = mpsc::channel(2);
        let servers = [
            ("healthz", &config.healthz_bind_address, pages::router(&serving)),
            (
                "metrics",
                &config.metrics_bind_address,
                metrics_pages::router(&serving)
                    .merge(inspect::router(&serving, pages))
                    .merge(explorer::router(&serving)),
            ),
        ];
        for (server, address, router) in servers {
            let failed = config.bind_address_hard_fail.then(|| failed.clone());
            tokio::spawn(listen::serve(
                serving.clone(),
                server,
                address.clone(),
                router,
                failed,
            ));
        }
        tokio::spawn(node_ports::serve(serving.clone(), wanted));
        (serving, HardFailure(failure))
    }

    /// The state alone, no port.
    /// Without ports.
    #[cfg(test)]
    pub(crate) fn of_test() -> Serving {
        let config = KubeProxyConfiguration::defaults();
        Serving::new(&config, "n1".into(), &PageOptions::default()).0
    }

    fn new(
        config: &KubeProxyConfiguration,
        node_name: Arc<str>,
        pages: &PageOptions,
    ) -> (Serving, watch::Receiver<Wanted>) {
        let (wanted, receive) = watch::channel(Wanted::new());
        let patience = config.sync_periods().0.to_std() * 2;
        let mut record = Record::new(families::Mode::of(config), node_name.clone(), patience);
        let started_wall = SystemTime::now();
        let since_1970 = started_wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        record.programming = programming::Programming::since(since_1970);
        scrape::constants(&mut record.metrics, config);
        let explorer = match pages.explorer {
            ExplorerPage::Off => None,
            ExplorerPage::On => Some(explorer::Explorer::new(&config.mode, &node_name)),
        };
        let inner = Inner {
            record: Mutex::new(record),
            slis: Mutex::new(slis::registry()),
            recount: Mutex::default(),
            started: Instant::now(),
            started_wall,
            config: config.clone(),
            configz: metrics_pages::configz(config),
            connections: bounded::Connections::default(),
            wanted,
            node: node_name,
            events: OnceLock::new(),
            failed: kernel::FailedInputs::default(),
            explorer,
            counts: pages.service_metrics.map(service_counts::ServiceCounts::new),
        };
        (Serving(Arc::new(inner)), receive)
    }

    /// Where failing restores are to leave what they were given.
    pub(crate) fn failed_inputs(&self) -> kernel::FailedInputs {
        self.0.failed.clone()
    }

    /// What the host turned out to have.
    pub(crate) fn host(&self, host: &engine::Host) {
        let present = Family::ALL
            .into_iter()
            .filter(|family| host.families.get(*family).is_some());
        let mut record = self.record();
        record.serves(present.clone().count());
        for family in present {
            record.programming.serves(family);
            self.explorer_serves(family);
        }
    }

    /// A source said something.
    pub(crate) fn source(&self, event: &SourceEvent) {
        self.record().source(event, self.now());
        self.tell(|telling| telling.source(event));
    }

    /// Counts requests to the API server.
    pub(crate) fn tally(&self) -> cluster::api::Tally {
        let serving = self.clone();
        cluster::api::Tally::new(move |asked| requests::count(&mut serving.record().metrics, asked))
    }

    /// The engine is given a change, and does not know of it yet.
    pub(crate) fn given(&self, change: &model::snapshot::Change, engine: &Engine) {
        let now = self.now().since_start;
        self.record().programming.given(change, now);
        self.explorer_given(change, engine);
    }

    /// A family was given something to do.
    pub(crate) fn began(&self, family: Family, effect: &Effect) {
        self.record().began(family, effect, self.now());
        self.explorer_began(family, effect);
    }

    /// A family answered.
    pub(crate) fn answered(&self, family: Family) {
        self.record().answered(family);
    }

    /// The engine told something.
    pub(crate) fn report(&self, report: &Report) {
        self.record().report(report, self.now());
        self.explorer_report(report);
        self.tell(|telling| telling.report(report));
        let mut recount = self.0.recount.lock().unwrap_or_else(PoisonError::into_inner);
        match report {
            // A run of changes has told each service that it was about.
            Report::InSync {
                family,
                run: RunKind::Full,
                ..
            } => *recount.get_mut(*family) = Recount::All,
            Report::Applied { family, services, .. } | Report::AsItIs { family, services } => {
                recount.get_mut(*family).add(services);
            }
            _ => {}
        }
    }

    /// How the engine is doing, once each turn of the loop. `engine_now` is the engine's time.
    pub(crate) fn look(&self, engine: &Engine, engine_now: Duration) {
        self.record().look(engine, engine_now, self.now());
        self.explorer_look(engine);
        let due = std::mem::take(&mut *self.0.recount.lock().unwrap_or_else(PoisonError::into_inner));
        for family in Family::ALL {
            match due.get(family) {
                Recount::Nothing => continue,
                recount => self.recount(engine, family, recount),
            }
            self.want_ports(engine.facts());
        }
    }

    /// The connection table was gone through: how long it took and how many entries went.
    pub(crate) fn reconciled(&self, family: Family, took: Duration, deleted: u64) {
        self.record().reconciled(family, took, deleted);
    }

    /// The connection table could not be gone through to its end.
    pub(crate) fn not_reconciled(&self, family: Family) {
        self.record().not_reconciled(family);
    }

    /// There is no Node of our name, and this is why it matters.
    pub(crate) fn node_missing(&self, why: String) {
        self.record().node_missing(why);
    }

    /// The host's or the node's addresses may be others now: health-check node ports move along.
    pub(crate) fn addresses(&self, engine: &Engine) {
        self.explorer_addresses();
        self.places_may_move(engine.facts());
        self.want_ports(engine.facts());
    }

    fn recount(&self, engine: &Engine, family: Family, what: &Recount) {
        let settings = config::settings(&self.0.config, engine.facts());
        let snapshot = engine.snapshot();
        let context = Context {
            family,
            node: engine.facts(),
            settings: &settings,
            claims: snapshot.claims(),
        };
        self.tell_places(snapshot, &context, what);
        // Pages are answered while a whole cluster is counted.
        let all = matches!(what, Recount::All).then(|| local::count(snapshot, &context));
        let mut record = self.record();
        let counted = record.local.get_mut(family);
        if let Some(all) = all {
            *counted = all;
        }
        if let Recount::These(services) = what {
            for name in services {
                counted.recount(name, snapshot, &context);
            }
        }
        let dropped = counted.all_dropped();
        let of = family.to_string();
        for (policy, count) in [("internal", dropped.internal), ("external", dropped.external)] {
            record
                .metrics
                .set(name::NO_LOCAL, &[&of, policy], as_f64(count as u64));
        }
    }

    fn want_ports(&self, facts: &NodeFacts) {
        let settings = config::settings(&self.0.config, facts);
        let record = self.record();
        let mut wanted = Wanted::new();
        for family in Family::ALL {
            let addresses = match resolve_node(family, facts, &settings).node_ports {
                NodePortTargets::AllLocal => vec![wildcard(family)],
                NodePortTargets::Only(addresses) => addresses,
            };
            for (service, count) in &record.local.get(family).health {
                wanted.insert(
                    (family, service.clone()),
                    Listener {
                        port: count.port,
                        addresses: addresses.clone(),
                    },
                );
            }
        }
        self.0.wanted.send_if_modified(|known| {
            let changed = *known != wanted;
            *known = wanted;
            changed
        });
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment {
            since_start: self.0.started.elapsed(),
            wall: wall.as_secs_f64(),
        }
    }
}

impl Recount {
    fn add(&mut self, services: &[ServiceName]) {
        if matches!(self, Recount::Nothing) {
            *self = Recount::These(BTreeSet::new());
        }
        if let Recount::These(all) = self {
            all.extend(services.iter().cloned());
        }
    }
}

fn wildcard(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests;
