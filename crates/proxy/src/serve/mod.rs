//! Health, metrics and pages over HTTP.
//!
//! * In and out: the control loop tells what it does ([`Serving`]); pages answer out of that, never out of the engine, so
//!   that they answer whatever the engine is at.
//! * Where to start reading: `health` for what healthy means, `record` for what moves which metric, `pages` and
//!   `metrics_pages` for what is answered.

mod families;
mod health;
mod listen;
mod local;
mod metrics_pages;
mod node_ports;
mod pages;
mod record;
mod registry;
mod scrape;

use crate::ProxyError;
use cluster::SourceEvent;
use config::KubeProxyConfiguration;
use engine::{Effect, Engine, Report};
use families::name;
use model::resolve::resolve_node;
use model::{Family, NodeFacts, NodePortTargets, PerFamily, ServiceName};
use node_ports::{Listener, Wanted};
use record::{Moment, Record};
use registry::as_f64;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};

/// What the servers answer out of, and what the control loop tells. Copies are the same one.
#[derive(Clone)]
pub(crate) struct Serving(Arc<Inner>);

struct Inner {
    record: Mutex<Record>,
    /// What is counted anew at the next look.
    recount: Mutex<PerFamily<Recount>>,
    started: Instant,
    started_wall: SystemTime,
    config: KubeProxyConfiguration,
    /// The configuration as `/configz` shows it: as it was at start.
    configz: String,
    /// The health-check node ports that are to be open.
    wanted: watch::Sender<Wanted>,
}

/// What is counted anew.
#[derive(Clone, Debug, Default)]
enum Recount {
    #[default]
    Nothing,
    /// These services have new rules.
    These(BTreeSet<ServiceName>),
    /// The family is in sync.
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
    pub(crate) fn start(config: &KubeProxyConfiguration, node_name: Arc<str>) -> (Serving, HardFailure) {
        let (serving, wanted) = Serving::new(config, node_name);
        let (failed, failure) = mpsc::channel(2);
        let servers = [
            ("healthz", &config.healthz_bind_address, pages::router(&serving)),
            (
                "metrics",
                &config.metrics_bind_address,
                metrics_pages::router(&serving),
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
    fn new(config: &KubeProxyConfiguration, node_name: Arc<str>) -> (Serving, watch::Receiver<Wanted>) {
        let (wanted, receive) = watch::channel(Wanted::new());
        let patience = config.sync_periods().0.to_std() * 2;
        let mut record = Record::new(node_name, patience);
        scrape::constants(&mut record.metrics, config);
        let inner = Inner {
            record: Mutex::new(record),
            recount: Mutex::default(),
            started: Instant::now(),
            started_wall: SystemTime::now(),
            config: config.clone(),
            configz: metrics_pages::configz(config),
            wanted,
        };
        (Serving(Arc::new(inner)), receive)
    }

    /// What the host turned out to have.
    pub(crate) fn host(&self, host: &engine::Host) {
        let present = Family::ALL
            .into_iter()
            .filter(|family| host.families.get(*family).is_some());
        self.record().serves(present.count());
    }

    /// A source said something.
    pub(crate) fn source(&self, event: &SourceEvent) {
        self.record().source(event, self.now());
    }

    /// A family was given something to do.
    pub(crate) fn began(&self, family: Family, effect: &Effect) {
        self.record().began(family, effect, self.now());
    }

    /// A family answered.
    pub(crate) fn answered(&self, family: Family) {
        self.record().answered(family);
    }

    /// The engine told something.
    pub(crate) fn report(&self, report: &Report) {
        self.record().report(report, self.now());
        let mut recount = self.0.recount.lock().unwrap_or_else(PoisonError::into_inner);
        match report {
            Report::InSync { family, .. } => *recount.get_mut(*family) = Recount::All,
            Report::Applied { family, services, .. } => recount.get_mut(*family).add(services),
            _ => {}
        }
    }

    /// How the engine is doing, once each turn of the loop. `engine_now` is the engine's time.
    pub(crate) fn look(&self, engine: &Engine, engine_now: Duration) {
        self.record().look(engine, engine_now, self.now());
        let due = std::mem::take(&mut *self.0.recount.lock().unwrap_or_else(PoisonError::into_inner));
        for family in Family::ALL {
            match due.get(family) {
                Recount::Nothing => continue,
                Recount::These(services) => self.recount_these(engine, family, services),
                Recount::All => self.recount_all(engine, family),
            }
            self.want_ports(engine.facts());
        }
    }

    /// The connection table was gone through: how long it took and how many entries went.
    pub(crate) fn reconciled(&self, family: Family, took: Duration, deleted: u64) {
        self.record().reconciled(family, took, deleted);
    }

    fn recount_these(&self, engine: &Engine, family: Family, services: &BTreeSet<ServiceName>) {
        let mut record = self.record();
        for name in services {
            let service = engine.snapshot().service(name);
            let count = service
                .and_then(|service| local::health_count(engine.snapshot(), service, family, engine.facts()));
            match count {
                Some(count) => drop(record.local.get_mut(family).insert(name.clone(), count)),
                None => drop(record.local.get_mut(family).remove(name)),
            }
        }
    }

    fn recount_all(&self, engine: &Engine, family: Family) {
        let settings = config::settings(&self.0.config, engine.facts());
        let counted = local::count(engine.snapshot(), family, engine.facts(), &settings);
        let mut record = self.record();
        *record.local.get_mut(family) = counted.health;
        let of = family.to_string();
        for (policy, count) in [
            ("internal", counted.no_local_internal),
            ("external", counted.no_local_external),
        ] {
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
            for (service, count) in record.local.get(family) {
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
