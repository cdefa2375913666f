//! What is counted by Service, as metrics and for the explorer. None of it is there unless it was asked for.
//!
//! It has a registry of its own, which is made anew for each scrape: the control loop never waits for that.

use super::families::Mode;
use super::registry::{Metric, Registry, Shape, as_f64};
use super::{Recount, Serving};
use crate::counting::{Extent, Reading, Sums, Tally, Told, frontends};
use explorer::Counted;
use model::resolve::{Context, resolve, resolve_node};
use model::snapshot::Snapshot;
use model::{Family, NodeFacts, NodePortTargets, PerFamily, ServiceName};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const CONNECTIONS: &str = "kubeproxy_rs_service_connections_total";
const REFUSED: &str = "kubeproxy_rs_service_refused_packets_total";
const LEFT_OUT: &str = "kubeproxy_rs_service_ports_left_out";
const READING: &str = "kubeproxy_rs_service_counters_reading_seconds";
const FAILURES: &str = "kubeproxy_rs_service_counters_failures_total";

/// The metrics.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: CONNECTIONS,
        help: "New connections that met the rules of a Service's port on this node, by the rules' counters",
        shape: Shape::Counter,
        labels: &["ip_family", "namespace", "port", "service"],
    },
    Metric {
        name: REFUSED,
        help: "Packets that rules of a Service's port refused on this node, by the rules' counters",
        shape: Shape::Counter,
        labels: &["action", "ip_family", "namespace", "port", "service"],
    },
    Metric {
        name: LEFT_OUT,
        help: "Service ports that had traffic and have no series, since --service-metrics allows no more",
        shape: Shape::Gauge,
        labels: &[],
    },
    Metric {
        name: READING,
        help: "How long the last reading of the rules' counters took",
        shape: Shape::Gauge,
        labels: &[],
    },
    Metric {
        name: FAILURES,
        help: "Times the rules' counters could not be read",
        shape: Shape::Counter,
        labels: &["ip_family"],
    },
];

/// What was counted.
pub(super) struct ServiceCounts(Mutex<Counts>);

struct Counts {
    tally: Tally,
    took: Duration,
    failures: PerFamily<u64>,
    /// What nobody has taken yet of the places that services have.
    told: PerFamily<Told>,
    /// Where node ports were when places were last told.
    node_ports: PerFamily<Option<NodePortTargets>>,
}

impl ServiceCounts {
    /// So many service ports may have series.
    pub(super) fn new(most: NonZeroUsize) -> ServiceCounts {
        ServiceCounts(Mutex::new(Counts {
            tally: Tally::new(most),
            took: Duration::ZERO,
            failures: PerFamily::default(),
            told: PerFamily::default(),
            node_ports: PerFamily::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The metrics' part of the page.
    fn text(&self) -> String {
        let mut registry = Registry::new(METRICS);
        let counts = self.lock();
        registry.set(LEFT_OUT, &[], as_f64(counts.tally.left_out() as u64));
        registry.set(READING, &[], counts.took.as_secs_f64());
        for family in Family::ALL {
            let failures = *counts.failures.get(family);
            if failures > 0 {
                registry.set(FAILURES, &[&family.to_string()], as_f64(failures));
            }
        }
        for (family, port, sums) in counts.tally.shown() {
            let (family, service) = (family.to_string(), &port.service);
            let labels = [&*family, &*service.namespace, &*port.port, &*service.name];
            registry.set(CONNECTIONS, &labels, as_f64(sums.connections));
            for (action, count) in [("reject", sums.rejected), ("drop", sums.dropped)] {
                let [family, namespace, port, service] = labels;
                registry.set(
                    REFUSED,
                    &[action, family, namespace, port, service],
                    as_f64(count),
                );
            }
        }
        drop(counts);
        registry.text()
    }
}

impl Serving {
    /// Whether traffic is counted by Service.
    pub(crate) fn counts_services(&self) -> bool {
        self.0.counts.is_some()
    }

    /// Whether a family's rules are being written or read.
    pub(crate) fn is_writing(&self, family: Family) -> bool {
        self.record().is_working(family)
    }

    /// All counters of a family were read.
    pub(crate) fn counted(&self, family: Family, readings: Vec<Reading>) {
        let now = self.now().since_start;
        if let Some(counts) = &self.0.counts {
            counts.lock().tally.take(family, readings, now);
        }
    }

    /// The counters of a family could not be read.
    pub(crate) fn not_counted(&self, family: Family) {
        if let Some(counts) = &self.0.counts {
            *counts.lock().failures.get_mut(family) += 1;
        }
    }

    /// All families were read, or could not be, which took so long.
    pub(crate) fn all_counted(&self, took: Duration) {
        if let Some(counts) = &self.0.counts {
            let mut counts = counts.lock();
            counts.tally.settle();
            counts.took = took;
        }
    }

    /// What is to be counted in nftables mode is another for these services.
    pub(super) fn tell_places(&self, snapshot: &Snapshot, context: &Context<'_>, what: &Recount) {
        let Some(counts) = self.0.counts.as_ref() else {
            return;
        };
        if Mode::of(&self.0.config) != Mode::Nftables {
            return;
        }
        let node = resolve_node(context.family, context.node, context.settings);
        let places = |name: &ServiceName| {
            let service = snapshot.service(name);
            let desired = service.and_then(|service| resolve(service, &snapshot.slices_of(name), context).0);
            let places = desired.map(|desired| frontends::of(&desired, &node));
            (name.clone(), places.unwrap_or_default())
        };
        let (extent, services) = match what {
            Recount::Nothing => return,
            Recount::These(names) => (Extent::Some, names.iter().map(places).collect()),
            Recount::All => {
                let names = snapshot.services().map(|service| &service.name);
                (Extent::All, names.map(places).collect())
            }
        };
        let mut counts = counts.lock();
        *counts.node_ports.get_mut(context.family) = Some(node.node_ports);
        let told = counts.told.get_mut(context.family);
        match extent {
            Extent::All => *told = Told { extent, services },
            Extent::Some => told.services.extend(services),
        }
    }

    /// The node may have other addresses now: where its node ports are elsewhere, all places are told again.
    pub(super) fn places_may_move(&self, facts: &NodeFacts) {
        let Some(counts) = self.0.counts.as_ref() else {
            return;
        };
        let settings = config::settings(&self.0.config, facts);
        for family in Family::ALL {
            let now = resolve_node(family, facts, &settings).node_ports;
            let known = counts.lock().node_ports.get(family).clone();
            if known.is_some_and(|known| known != now) {
                let mut recount = self.0.recount.lock().unwrap_or_else(PoisonError::into_inner);
                *recount.get_mut(family) = Recount::All;
            }
        }
    }

    /// What there is to count that was not taken before.
    pub(crate) fn take_places(&self, family: Family) -> Told {
        let counts = self.0.counts.as_ref();
        counts
            .map(|counts| std::mem::take(counts.lock().told.get_mut(family)))
            .unwrap_or_default()
    }

    /// What was counted for one Service; `None` when nothing is counted.
    pub(super) fn counted_of(&self, service: &ServiceName) -> Option<Vec<Counted>> {
        let counts = self.0.counts.as_ref()?.lock();
        let own = counts.tally.of_service(service);
        Some(
            own.map(|(family, port, sums)| {
                let Sums {
                    connections,
                    rejected,
                    dropped,
                } = sums;
                Counted {
                    family,
                    port: port.port.to_string(),
                    connections,
                    rejected,
                    dropped,
                }
            })
            .collect(),
        )
    }

    /// The part of the metrics' page that is about Services; empty when nothing is counted.
    pub(super) fn service_metrics(&self) -> String {
        self.0
            .counts
            .as_ref()
            .map(ServiceCounts::text)
            .unwrap_or_default()
    }
}
