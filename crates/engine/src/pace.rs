//! When things may be done: the least time between runs, and the time to wait after failures.

use std::time::Duration;

/// The least time between the end of one run and the start of the next; no bursts, as in upstream's
/// `BoundedFrequencyRunner`.
#[derive(Clone, Debug)]
pub struct Pace {
    min: Duration,
    /// When the last run ended.
    ended: Option<Duration>,
}

impl Pace {
    /// Runs at least this long apart; the first may start at once.
    pub fn new(min: Duration) -> Pace {
        Pace { min, ended: None }
    }

    /// The earliest start of the next run.
    pub fn earliest(&self) -> Duration {
        self.ended.map_or(Duration::ZERO, |ended| ended + self.min)
    }

    /// A run ended, or changes were taken into one that goes on.
    pub fn ended(&mut self, now: Duration) {
        self.ended = Some(now);
    }
}

/// How long to wait after failures: doubled each time up to a limit, and spread by up to a quarter so that the nodes of
/// a cluster do not try together.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    spread: Spread,
}

/// Numbers by which waits differ from process to process (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Spread(u64);

impl Spread {
    /// Other seeds give other numbers.
    pub fn new(seed: u64) -> Spread {
        Spread(seed)
    }

    /// The next number, from 0 up to 1.
    pub fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let top = u32::try_from((z ^ (z >> 31)) >> 32).expect("invariant: half of 64 bits");
        f64::from(top) / 4_294_967_296.0
    }
}

impl Backoff {
    /// Waits of `first`, then more, up to `most`.
    pub fn new(first: Duration, most: Duration, seed: u64) -> Backoff {
        Backoff {
            first: first.min(most),
            most,
            spread: Spread::new(seed),
        }
    }

    /// The wait after this many failures in a row, at least one.
    pub fn wait(&mut self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        let wait = self.first.saturating_mul(1 << doublings).min(self.most);
        wait.mul_f64(1.0 - self.spread.fraction() / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_kept_apart_from_the_end_of_the_one_before() {
        let mut pace = Pace::new(Duration::from_secs(1));
        assert_eq!(pace.earliest(), Duration::ZERO);
        pace.ended(Duration::from_secs(5));
        assert_eq!(pace.earliest(), Duration::from_secs(6));
    }

    #[test]
    fn waits_double_up_to_the_limit_and_are_spread_downwards() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30), 7);
        for (failures, most) in [(1, 1), (2, 2), (3, 4), (6, 30), (60, 30)] {
            let wait = backoff.wait(failures);
            let most = Duration::from_secs(most);
            assert!(wait <= most && wait >= most.mul_f64(0.75), "{failures}: {wait:?}");
        }
    }

    #[test]
    fn nodes_with_other_seeds_wait_otherwise() {
        let wait = |seed| Backoff::new(Duration::from_secs(8), Duration::from_secs(30), seed).wait(1);
        assert_ne!(wait(1), wait(2));
    }
}
