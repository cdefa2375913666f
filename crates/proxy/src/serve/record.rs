//! What happens, turned into health and metrics. Pure: the time comes with what happened.

use super::families::{Mode, name, own};
use super::health::{FamilyHealth, Health, kind_word};
use super::local::Counted;
use super::programming::Programming;
use super::registry::{Registry, as_f64};
use cluster::SourceEvent;
use engine::{About, Cause, Effect, Engine, Report, RunKind};
use iptables::ast::TableName;
use iptables::diff::count::RuleCount;
use iptables::diff::observe::Reading;
use model::object::{Kind, Object, ObjectRef, TriggerTime};
use model::snapshot::Change;
use model::{Family, Note, NoteKind, PerFamily, ServiceName, Severity};
use modes::{Purpose, count_rules};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A moment, on both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    /// Since the process started.
    pub(crate) since_start: Duration,
    /// Seconds since 1970.
    pub(crate) wall: f64,
}

/// What one family is at.
#[derive(Clone, Debug, Default)]
struct Run {
    /// When the first effect of the run was handed out.
    began: Option<Duration>,
    full: bool,
    /// Rules written, per table.
    written: BTreeMap<TableName, usize>,
    /// What the last step was for.
    purpose: Purpose,
}

/// Health and metrics, and what it takes to keep them.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Health.
    pub(crate) health: Health,
    /// Metrics.
    pub(crate) metrics: Registry,
    /// What services with Local policies have on this node.
    pub(crate) local: PerFamily<Counted>,
    /// Changes on their way into the kernel.
    pub(super) programming: Programming,
    mode: Mode,
    node_name: Arc<str>,
    /// How many families this host has.
    families: usize,
    runs: PerFamily<Run>,
    /// How many rules there were at the last look.
    rules: PerFamily<Option<RuleCount>>,
    notes: BTreeMap<ServiceName, Vec<(&'static str, &'static str)>>,
}

impl Record {
    /// Of a process that has just started.
    pub(crate) fn new(mode: Mode, node_name: Arc<str>, patience: Duration) -> Record {
        let mut health = Health::new(patience);
        health.node_missing = Some(format!("no Node named {node_name:?} has been seen so far"));
        let mut metrics = Registry::new(&super::families::all(mode));
        metrics.set(own::NODE_FOUND, &[], 0.0);
        Record {
            health,
            metrics,
            local: PerFamily::default(),
            programming: Programming::default(),
            mode,
            node_name,
            families: Family::ALL.len(),
            runs: PerFamily::default(),
            rules: PerFamily::default(),
            notes: BTreeMap::new(),
        }
    }

    /// This host has so many families.
    pub(crate) fn serves(&mut self, families: usize) {
        self.families = families;
    }

    /// A source said something.
    pub(crate) fn source(&mut self, event: &SourceEvent, now: Moment) {
        match event {
            SourceEvent::Change(change) => self.change(change, now),
            SourceEvent::Together(changes) => changes.iter().for_each(|change| self.change(change, now)),
            SourceEvent::Remembered(what) => self.remembered(what, now),
            SourceEvent::Notes(notes) => notes.iter().for_each(|note| self.object_note(note.severity)),
            SourceEvent::LeftOut(_) => self.object_note(Severity::Error),
            SourceEvent::Health(kind, health) => self.watch(*kind, health, now),
            SourceEvent::Synced(kind) => self.heard(*kind, now),
            SourceEvent::NotRead(_) => {}
        }
    }

    fn object_note(&mut self, severity: Severity) {
        self.metrics
            .add(own::OBJECT_NOTES, &[severity_word(severity)], 1.0);
    }

    fn change(&mut self, change: &Change, now: Moment) {
        let kind = self.count(change, now);
        self.heard(kind, now);
    }

    /// Counts a change; the kind it is about.
    fn count(&mut self, change: &Change, now: Moment) -> Kind {
        let (kind, count) = match change {
            Change::Apply(object) => (object.kind(), 1),
            Change::Delete(reference) => (reference.kind(), 1),
            Change::ReplaceAll { kind, objects } => (*kind, objects.len()),
        };
        let count = as_f64(count as u64);
        match kind {
            Kind::Service => {
                // Each of upstream's families counts the same event for itself.
                let families = as_f64(self.families as u64);
                self.metrics.add(name::SERVICES_TOTAL, &[], count * families);
                self.metrics.add(name::SERVICES_PENDING, &[], count);
                self.queued(now);
            }
            Kind::Slice => {
                self.metrics.add(name::ENDPOINTS_TOTAL, &[], count);
                self.metrics.add(name::ENDPOINTS_PENDING, &[], count);
                self.queued(now);
            }
            Kind::Node => self.node(change),
            Kind::ServiceCidr => {}
        }
        kind
    }

    fn present(&self) -> impl Iterator<Item = Family> + use<> {
        let families = self.health.families;
        Family::ALL
            .into_iter()
            .filter(move |family| families.get(*family).is_some())
    }

    fn queued(&mut self, now: Moment) {
        for family in self.present() {
            self.metrics
                .set(name::LAST_QUEUED, &[&family.to_string()], now.wall);
        }
    }

    /// The last thing that a Node said counts, even when it has been deleted, as upstream has it.
    fn node(&mut self, change: &Change) {
        let objects = match change {
            Change::Apply(object) => std::slice::from_ref(object),
            Change::ReplaceAll { objects, .. } => {
                self.metrics.set(own::NODE_FOUND, &[], 0.0);
                objects
            }
            Change::Delete(ObjectRef::Node(name)) if *name == self.node_name => {
                self.metrics.set(own::NODE_FOUND, &[], 0.0);
                &[]
            }
            Change::Delete(_) => &[],
        };
        for object in objects {
            if let Object::Node(node) = object
                && node.name == self.node_name
            {
                self.health.node = Some(node.eligibility);
                self.health.node_missing = None;
                self.metrics.set(own::NODE_FOUND, &[], 1.0);
            }
        }
    }

    /// There is no Node of our name, and this is why it matters.
    pub(crate) fn node_missing(&mut self, why: String) {
        if self.health.node.is_none() {
            self.health.node_missing = Some(why);
        }
    }

    fn heard(&mut self, kind: Kind, now: Moment) {
        if let Some(watch) = self.health.watches.get_mut(&kind) {
            watch.heard = now.since_start;
        }
    }

    fn watch(&mut self, kind: Kind, health: &cluster::Health, now: Moment) {
        let watch = self.health.watches.entry(kind).or_default();
        match health {
            cluster::Health::Connected {
                delivery: cluster::Delivery::Files,
            }
            | cluster::Health::Absent => drop(self.health.watches.remove(&kind)),
            cluster::Health::Connected { .. } | cluster::Health::Bookmark => {
                watch.heard = now.since_start;
                watch.failing = None;
            }
            cluster::Health::Silent { .. } => {
                self.metrics.add(own::WATCH_FAILURES, &[kind_word(kind)], 1.0);
            }
            cluster::Health::Failing { error, .. } => {
                watch.failing = Some(error.clone());
                self.metrics.add(own::WATCH_FAILURES, &[kind_word(kind)], 1.0);
            }
        }
    }

    /// A family was given something to do.
    pub(crate) fn began(&mut self, family: Family, effect: &Effect, now: Moment) {
        if let Some(state) = self.health.families.get_mut(family) {
            state.working_since = Some(now.since_start);
        }
        let run = self.runs.get_mut(family);
        match effect {
            Effect::Commit(step) => {
                self.programming.step(family, now.since_start);
                run.began.get_or_insert(now.since_start);
                count_rules(step, &mut run.written);
                self.metrics.set(name::SERVICES_PENDING, &[], 0.0);
                self.metrics.set(name::ENDPOINTS_PENDING, &[], 0.0);
            }
            Effect::Observe {
                reading: Reading::Everything,
                ..
            }
            | Effect::NftObserve(nftables::step::Reading::Everything) => {
                run.began.get_or_insert(now.since_start);
                run.full = true;
            }
            Effect::NftCommit(step) => {
                self.programming.step(family, now.since_start);
                run.began.get_or_insert(now.since_start);
                run.purpose = Purpose::of(step);
                self.metrics.set(name::SERVICES_PENDING, &[], 0.0);
                self.metrics.set(name::ENDPOINTS_PENDING, &[], 0.0);
            }
            Effect::NftObserve(_) | Effect::Observe { .. } => {}
        }
    }

    /// A family is done with what it was given, one way or the other.
    pub(crate) fn answered(&mut self, family: Family) {
        if let Some(state) = self.health.families.get_mut(family) {
            state.working_since = None;
        }
    }

    /// The engine told something.
    pub(crate) fn report(&mut self, report: &Report, now: Moment) {
        if let Some((family, times)) = self.programming.report(report) {
            self.programmed(family, &times, now);
        }
        match report {
            Report::Applied { family, .. } => {
                if let Some(state) = self.health.families.get_mut(*family) {
                    state.progress = now.since_start;
                }
            }
            Report::Failed {
                family,
                failure,
                about,
                ..
            } => self.failed(*family, failure.cause, about, now),
            Report::InSync { family, run, .. } => self.in_sync(*family, *run, now),
            Report::Damaged { family, services, .. } => {
                self.metrics.add(own::REPAIRS, &[&family.to_string()], 1.0);
                let services = as_f64(*services as u64);
                self.metrics.add(own::DAMAGED, &[&family.to_string()], services);
            }
            Report::Stuck { family, chains, .. } => {
                let chains = as_f64(chains.len() as u64);
                self.metrics.add(own::STUCK, &[&family.to_string()], chains);
            }
            Report::Noted { service, notes } => self.noted(service, notes),
            Report::AsItIs { .. } | Report::Recovered { .. } | Report::EndpointComments { .. } => {}
        }
    }

    fn failed(&mut self, family: Family, cause: Cause, about: &About, now: Moment) {
        let of = family.to_string();
        let about_word = match about {
            About::Reading => "reading",
            About::Step => "step",
            About::Service(_) => "service",
        };
        let cause = match cause {
            Cause::Host => "host",
            Cause::Busy => "busy",
            Cause::Content => "content",
            Cause::Size => "size",
        };
        self.metrics.add(own::FAILURES, &[about_word, cause, &of], 1.0);
        let run = self.runs.get(family);
        let (began, full) = (run.began, run.full);
        if *about != About::Reading {
            self.step_failed(family);
        }
        if let Some(began) = began {
            self.observe_run(family, full, now.since_start.saturating_sub(began));
        }
        *self.runs.get_mut(family) = Run::default();
    }

    fn in_sync(&mut self, family: Family, kind: RunKind, now: Moment) {
        let of = family.to_string();
        let run = std::mem::take(self.runs.get_mut(family));
        let took = run
            .began
            .map_or(Duration::ZERO, |began| now.since_start.saturating_sub(began));
        self.observe_run(family, kind == RunKind::Full, took);
        self.metrics.set(name::LAST_SYNC, &[&of], now.wall);
        self.rules_written(family, &run.written);
        if let Some(state) = self.health.families.get_mut(family) {
            state.updated = now.since_start;
            state.progress = now.since_start;
        }
    }

    fn observe_run(&mut self, family: Family, full: bool, took: Duration) {
        let of = family.to_string();
        let kind = if full { name::SYNC_FULL } else { name::SYNC_PARTIAL };
        for name in [name::SYNC_DURATION, kind] {
            self.metrics.observe(name, &[&of], took.as_secs_f64());
        }
    }

    /// The kernel has what happened at these times. A clock that runs ahead of ours makes it zero.
    fn programmed(&mut self, family: Family, times: &[TriggerTime], now: Moment) {
        for time in times {
            let took = (now.wall - time.seconds()).max(0.0);
            self.metrics
                .observe(name::PROGRAMMING, &[&family.to_string()], took);
        }
    }

    fn noted(&mut self, service: &ServiceName, notes: &[Note]) {
        for labels in self.notes.remove(service).unwrap_or_default() {
            self.metrics.add(own::NOTES, &[labels.0, labels.1], -1.0);
        }
        let labels: Vec<_> = notes
            .iter()
            .map(|note| (note_word(&note.kind), severity_word(note.severity)))
            .collect();
        for labels in &labels {
            self.metrics.add(own::NOTES, &[labels.0, labels.1], 1.0);
        }
        if !labels.is_empty() {
            self.notes.insert(service.clone(), labels);
        }
    }

    /// Whether a family was given something that it has not answered.
    pub(crate) fn is_working(&self, family: Family) -> bool {
        let state = self.health.families.get(family);
        state.as_ref().is_some_and(|state| state.working_since.is_some())
    }

    /// How the engine's families are doing. `engine_now` is the engine's time at `now`.
    pub(crate) fn look(&mut self, engine: &Engine, engine_now: Duration, now: Moment) {
        self.health.loop_seen = Some(now.since_start);
        if !engine.is_synced() {
            return;
        }
        let statuses = Family::ALL.into_iter().filter_map(|family| engine.status(family));
        if statuses.map(|status| status.queued).sum::<usize>() == 0 {
            // What needs no write is not pending for ever.
            self.metrics.set(name::SERVICES_PENDING, &[], 0.0);
            self.metrics.set(name::ENDPOINTS_PENDING, &[], 0.0);
        }
        for family in Family::ALL {
            let Some(status) = engine.status(family) else {
                continue;
            };
            let begins = self.health.families.get(family).is_none();
            let state = self
                .health
                .families
                .get_mut(family)
                .get_or_insert_with(|| FamilyHealth {
                    began: now.since_start,
                    updated: now.since_start,
                    progress: now.since_start,
                    ..FamilyHealth::default()
                });
            state.pending_since = status.pending_since.map(|since| {
                let waits = engine_now.saturating_sub(since);
                now.since_start.saturating_sub(waits).max(state.began)
            });
            state.failures_in_a_row = status.failures_in_a_row;
            state.refused = status.refused;
            state.queued = status.queued;
            if begins {
                self.metrics
                    .set(name::LAST_QUEUED, &[&family.to_string()], now.wall);
            }
            if status.queued == 0 && state.working_since.is_none() {
                let times = self.programming.idle(family, status.refused);
                self.programmed(family, &times, now);
            }
            if status.last_full_sync.is_some() {
                self.count_rules(family, status.rules);
            }
            let refused = as_f64(status.refused as u64);
            self.metrics.set(own::REFUSED, &[&family.to_string()], refused);
        }
    }

    /// Sets what is a matter of the moment of asking.
    pub(crate) fn ages(&mut self, now: Moment) {
        for family in self.present() {
            let state = self.health.families.get(family).unwrap_or_default();
            let waits = state
                .pending_since
                .map_or(Duration::ZERO, |since| now.since_start.saturating_sub(since));
            self.metrics
                .set(own::OLDEST_PENDING, &[&family.to_string()], waits.as_secs_f64());
        }
        self.remembered_age(now);
        self.metrics.clear(own::WATCH_AGE);
        for (kind, watch) in &self.health.watches {
            let age = now.since_start.saturating_sub(watch.heard);
            self.metrics
                .set(own::WATCH_AGE, &[kind_word(*kind)], age.as_secs_f64());
        }
    }

    /// The connection table could not be gone through.
    pub(crate) fn not_reconciled(&mut self, family: Family) {
        self.metrics.add(own::SWEEP_FAILURES, &[&family.to_string()], 1.0);
    }

    /// The connection table was gone through.
    pub(crate) fn reconciled(&mut self, family: Family, took: Duration, deleted: u64) {
        let of = family.to_string();
        self.metrics
            .observe(name::RECONCILE_DURATION, &[&of], took.as_secs_f64());
        self.metrics.add(name::RECONCILE_DELETED, &[&of], as_f64(deleted));
    }
}

fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

fn note_word(kind: &NoteKind) -> &'static str {
    match kind {
        NoteKind::BadField { .. } => "BadField",
        NoteKind::Claimed { .. } => "Claimed",
        NoteKind::ExternalIpNotAllowed { .. } => "ExternalIpNotAllowed",
        NoteKind::BalancingIgnored { .. } => "BalancingIgnored",
        NoteKind::DuplicateEndpoint { .. } => "DuplicateEndpoint",
        NoteKind::NoLocalEndpoints { .. } => "NoLocalEndpoints",
    }
}

mod memory;
mod modes;

#[cfg(test)]
mod tests;
