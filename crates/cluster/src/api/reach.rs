//! What the watches of one server tell each other: that it is away, so that one of them says it, and that it is back, so
//! that all go on at once. Without that, services would be heard again half a minute before their endpoints.

use super::outage::{Outage, Saying};
use crate::Health;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Shared by the watches of one server.
#[derive(Clone)]
pub(crate) struct Reach {
    saying: Arc<Mutex<Saying>>,
    through: Arc<Notify>,
}

impl Reach {
    /// Nothing has failed yet.
    pub(crate) fn new(remind: Duration) -> Self {
        Reach {
            saying: Arc::new(Mutex::new(Saying::new(remind))),
            through: Arc::new(Notify::new()),
        }
    }

    /// A watch is open: those that wait need not.
    pub(crate) fn through(&self) {
        self.through.notify_waiters();
    }

    /// A watch that has been open since then worked for a good while.
    pub(crate) fn worked(&self, live_since: Instant) {
        self.saying().over_before(live_since);
    }

    /// Counts a failure of the server.
    pub(crate) fn fail(
        &self,
        outage: &mut Outage,
        error: String,
        now: Instant,
    ) -> (Duration, Option<Health>) {
        outage.fail_with_all(&mut self.saying(), error, now)
    }

    /// Waits, but not longer than until another watch gets through.
    pub(crate) async fn wait(&self, wait: Duration, outage: &mut Outage) {
        if !outage.may_be_woken() {
            return sleep(wait).await;
        }
        tokio::select! {
            () = sleep(wait) => {}
            () = self.through.notified() => outage.woken(),
        }
    }

    fn saying(&self) -> MutexGuard<'_, Saying> {
        self.saying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
