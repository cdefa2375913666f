//! When the kernel asks whether the other end of a connection still lives.

use std::time::Duration;

/// TCP keep-alive. The other end's kernel answers, so it costs the API server nothing; a connection whose packets go
/// nowhere fails after `idle + interval * probes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Nothing came for this long: the first question.
    pub idle: Duration,
    /// The time between questions.
    pub interval: Duration,
    /// So many questions without an answer, and the connection is dead.
    pub probes: u32,
}

impl KeepAlive {
    /// When a dead connection is known to be one, at the latest.
    pub fn limit(&self) -> Duration {
        self.idle + self.interval * self.probes
    }
}

impl Default for KeepAlive {
    /// 45 seconds in all, as long as upstream's HTTP/2 pings take (30 until the ping, 15 for the answer).
    fn default() -> Self {
        KeepAlive {
            idle: Duration::from_secs(20),
            interval: Duration::from_secs(5),
            probes: 5,
        }
    }
}
