//! What the watches of one server tell each other: that it is away, so that one of them says it, and that it is back, so
//! that all go on at once. Without that, services would be heard again half a minute before their endpoints.
//!
//! While no connection can be made, one watch looks out: it goes on asking at short intervals, which costs nobody anything
//! but a packet, and the others' waits grow (ADR 60).

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
    /// Locked by the watch that looks out.
    lookout: Arc<tokio::sync::Mutex<()>>,
}

impl Reach {
    /// Nothing has failed yet.
    pub(crate) fn new(remind: Duration) -> Self {
        Reach {
            saying: Arc::new(Mutex::new(Saying::new(remind))),
            through: Arc::new(Notify::new()),
            lookout: Arc::default(),
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

    /// No connection could be made: how long to wait for the next try, instead of `wait` if this watch looks out.
    pub(crate) fn without_server(&self, outage: &mut Outage, wait: Duration) -> Duration {
        if !outage.looks_out()
            && let Ok(guard) = self.lookout.clone().try_lock_owned()
        {
            outage.look_out(guard);
        }
        if outage.looks_out() { outage.soon() } else { wait }
    }

    /// The server answered, be it with an error. Whoever looked out for it tells the others.
    pub(crate) fn seen(&self, outage: &mut Outage) {
        if outage.seen() {
            self.through();
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(800);

    fn outage() -> Outage {
        Outage::new((FIRST, Duration::from_secs(30)), Duration::from_secs(10))
    }

    /// The wait after one more try without a connection.
    fn fails(reach: &Reach, outage: &mut Outage) -> Duration {
        let (wait, _) = reach.fail(outage, "connection refused".to_owned(), Instant::now());
        reach.without_server(outage, wait)
    }

    #[tokio::test(start_paused = true)]
    async fn one_watch_looks_out_for_a_server_that_is_away_and_wakes_the_others() {
        let reach = Reach::new(Duration::from_secs(10));
        let (mut lookout, mut other) = (outage(), outage());
        for _ in 0..100 {
            assert!(fails(&reach, &mut lookout) <= FIRST);
            fails(&reach, &mut other);
        }
        let wait = fails(&reach, &mut other);
        assert!(wait >= Duration::from_secs(15), "{wait:?}");

        let begun = Instant::now();
        let waits = reach.wait(wait, &mut other);
        let comes_back = async {
            sleep(FIRST).await;
            reach.seen(&mut lookout);
        };
        tokio::join!(waits, comes_back);
        assert_eq!(begun.elapsed(), FIRST);
        assert!(!lookout.looks_out());
        // What it meets now is another trouble, and the other may look out next time.
        let (wait, _) = reach.fail(&mut other, "503 starting".to_owned(), Instant::now());
        assert!(wait <= FIRST);
        fails(&reach, &mut other);
        assert!(other.looks_out());
    }

    #[test]
    fn a_watch_that_ends_looks_out_no_longer() {
        let reach = Reach::new(Duration::from_secs(10));
        let mut ends = outage();
        fails(&reach, &mut ends);
        drop(ends);
        let mut next = outage();
        fails(&reach, &mut next);
        assert!(next.looks_out());
    }
}
