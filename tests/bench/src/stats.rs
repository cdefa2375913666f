//! Order statistics of a few measurements.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Median and extremes, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many.
    pub count: usize,
    /// The median.
    pub median_ms: f64,
    /// The 90th percentile.
    pub p90_ms: f64,
    /// The largest.
    pub max_ms: f64,
}

impl Spread {
    /// The spread of these; all zero when there are none.
    pub fn of(mut samples: Vec<Duration>) -> Spread {
        samples.sort_unstable();
        let at =
            |share: usize| samples.get((samples.len() * share / 100).min(samples.len().saturating_sub(1)));
        let ms = |sample: Option<&Duration>| sample.map_or(0.0, |sample| sample.as_secs_f64() * 1e3);
        Spread {
            count: samples.len(),
            median_ms: ms(at(50)),
            p90_ms: ms(at(90)),
            max_ms: ms(samples.last()),
        }
    }
}
