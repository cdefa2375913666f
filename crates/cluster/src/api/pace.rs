//! How often the API server is asked: a token bucket for requests, and a growing wait after failures.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Longest time that one request costs, and that a burst saves up: whoever wants fewer wants none, and sums of times stay
/// far from their end.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// A client-side limit on requests, shared by all watches: `qps` a second on average, `burst` at once.
#[derive(Clone)]
pub(crate) struct Throttle {
    /// Time that one request costs. Zero means no limit.
    cost: Duration,
    /// Time that can be saved up.
    depth: Duration,
    /// When the bucket is full again, if nobody asks.
    full_at: Arc<Mutex<Instant>>,
}

impl Throttle {
    /// A full bucket. `qps` of zero or less means no limit, as upstream has it.
    pub(crate) fn new(qps: f32, burst: u32) -> Self {
        let cost = if qps > 0.0 {
            // A rate that is next to nothing costs more than any `Duration` holds.
            Duration::try_from_secs_f32(1.0 / qps).map_or(LONGEST, |cost| cost.min(LONGEST))
        } else {
            Duration::ZERO
        };
        Throttle {
            cost,
            depth: cost.saturating_mul(burst.max(1)).min(LONGEST.max(cost)),
            full_at: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// Waits until one more request is allowed, and says how long. Requests are served in the order of asking.
    pub(crate) async fn take(&self) -> Duration {
        let asked = Instant::now();
        let allowed_at = {
            let mut full_at = self.full_at.lock().await;
            let now = Instant::now();
            *full_at = (*full_at).max(now) + self.cost;
            full_at.checked_sub(self.depth).unwrap_or(now)
        };
        tokio::time::sleep_until(allowed_at).await;
        asked.elapsed()
    }
}

/// Waits that double from `first` to `max`, each shortened by a random part so that nodes do not ask in step.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// No failures yet.
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Backoff {
            first,
            max,
            failures: 0,
        }
    }

    /// Counts one failure and says how long to wait: between half and all of the doubled time.
    pub(crate) fn fail(&mut self) -> Duration {
        let full = self
            .first
            .saturating_mul(1_u32.checked_shl(self.failures.min(16)).unwrap_or(u32::MAX))
            .min(self.max);
        self.failures = self.failures.saturating_add(1);
        between(full / 2, full)
    }

    /// The wait after a first failure, without counting one.
    pub(crate) fn shortest(&self) -> Duration {
        let full = self.first.min(self.max);
        between(full / 2, full)
    }

    /// Things work again.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A random time between two, each whole microsecond about as likely. For jitter only: the hash keys of the standard
/// library are the source, and they are good enough for that.
pub(crate) fn between(low: Duration, high: Duration) -> Duration {
    let span = u64::try_from(high.saturating_sub(low).as_micros()).unwrap_or(u64::MAX);
    let random = RandomState::new().hash_one(0_u8);
    low + Duration::from_micros(if span == 0 { 0 } else { random % span })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_then_the_rate_holds() {
        let throttle = Throttle::new(5.0, 10);
        let start = Instant::now();
        for _ in 0..10 {
            throttle.take().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..5 {
            throttle.take().await;
        }
        let taken = start.elapsed();
        assert!(
            taken > Duration::from_millis(990) && taken < Duration::from_millis(1010),
            "{taken:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_negative_rate_is_no_limit() {
        let throttle = Throttle::new(-1.0, 1);
        let start = Instant::now();
        for _ in 0..100 {
            throttle.take().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn any_rate_is_a_limit_that_can_be_kept() {
        for qps in [
            f32::from_bits(1),
            1e-30,
            1e-19,
            1e-8,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
        ] {
            for burst in [0, 1, u32::MAX] {
                Throttle::new(qps, burst).take().await;
            }
        }
        let throttle = Throttle::new(1e-30, 2);
        throttle.take().await;
        let second = tokio::time::timeout(Duration::from_hours(24), throttle.take()).await;
        assert!(second.is_err());
    }

    #[test]
    fn waits_double_up_to_the_most() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for full in [100, 200, 400, 800, 1000, 1000, 1000] {
            let wait = backoff.fail();
            assert!(
                wait >= Duration::from_millis(full / 2) && wait <= Duration::from_millis(full),
                "{wait:?} for {full}"
            );
        }
        backoff.reset();
        assert!(backoff.fail() <= Duration::from_millis(100));
    }
}
