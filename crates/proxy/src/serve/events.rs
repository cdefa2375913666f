//! Events, and the metrics about them, by way of what everybody has at hand.

use super::Serving;
use super::families::own;
use super::registry::as_f64;
use crate::events::{Fact, Outcome, Recorder, Telling};
use kernel::host_firewall::Way;
use model::Family;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

impl Serving {
    /// Facts go to the API server from now on. Without this, when objects come from files, they go nowhere.
    pub(crate) fn tell_api(&self, recorder: Recorder) {
        // A second one would change nothing, and there is none.
        let telling = Mutex::new(Telling::new(self.0.node.clone()));
        let _ = self.0.events.set((recorder, telling));
    }

    /// Facts that follow from what was just told.
    pub(super) fn tell(&self, facts: impl FnOnce(&mut Telling) -> Vec<Fact>) {
        if let Some((recorder, telling)) = self.0.events.get() {
            let mut telling = telling.lock().unwrap_or_else(PoisonError::into_inner);
            for fact in facts(&mut telling) {
                recorder.record(fact);
            }
        }
    }

    /// Something happened that an Event can say. Never waits.
    pub(crate) fn event(&self, fact: Fact) {
        if let Some((recorder, _)) = self.0.events.get() {
            recorder.record(fact);
        }
    }

    /// Waits until all Events are sent or given up, but no longer than `limit`.
    pub(crate) async fn flush_events(&self, limit: Duration) {
        if let Some((recorder, _)) = self.0.events.get() {
            recorder.flush(limit).await;
        }
    }

    /// This Node's name.
    pub(crate) fn node(&self) -> &Arc<str> {
        &self.0.node
    }

    /// What became of so many Events.
    pub(crate) fn count_events(&self, outcome: Outcome, count: u64) {
        self.record()
            .metrics
            .add(own::EVENTS, &[outcome.word()], as_f64(count));
    }

    /// So many chains of others drop what they do not accept.
    pub(crate) fn barriers(&self, family: Family, way: Way, count: usize) {
        let labels = [&*way.to_string(), &*family.to_string()];
        let metrics = &mut self.record().metrics;
        metrics.set(own::HOST_FIREWALL, &labels, as_f64(count as u64));
    }

    /// On so many node ports something listens now.
    pub(crate) fn node_port_conflicts(&self, count: usize) {
        self.record()
            .metrics
            .set(own::NODE_PORT_CONFLICTS, &[], as_f64(count as u64));
    }
}
