//! One question to the API server, for tools: whole objects, as it has them, and no watch.

use super::Source;
use super::answer::body_of;
use super::tally::What;
use super::trouble::Trouble;
use futures::AsyncReadExt as _;
use http::Request;
use http::header::DATE;
use jiff::Timestamp;
use kube::client::Body;
use serde_json::Value;
use std::time::Duration;
use thiserror::Error;
use tokio::time::timeout;

/// Longest time for one answer. A list of 10,000 Services takes a few seconds.
const LONGEST: Duration = Duration::from_mins(1);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AskError {
    /// The server has no such object or kind.
    #[error("the API server has no {what}")]
    Absent {
        /// What was asked for, as a path.
        what: String,
    },
    /// Whoever asks may not read it.
    #[error("reading {what} is not allowed: {reason}; the ClusterRole needs get and list for it")]
    Forbidden {
        /// What was asked for, as a path.
        what: String,
        /// What the server says.
        reason: String,
    },
    /// Nobody answered, or with something else.
    #[error("cannot read {what} from the API server: {reason}")]
    Failed {
        /// What was asked for, as a path.
        what: String,
        /// What happened.
        reason: String,
    },
}

impl Source {
    /// Reads what a path names: `/api/v1/services`, `/api/v1/namespaces/a/endpoints/b`. The server answers from its cache.
    ///
    /// # Errors
    /// Says whether it is not there, not allowed, or could not be had.
    pub async fn ask(&self, path: &str) -> Result<Value, AskError> {
        let waited = self.throttle.take().await;
        let lease = self.connection.lease().await;
        lease.counter.tell("GET", What::Waited(waited));
        let uri = format!("{path}?resourceVersion=0");
        let exchange = async {
            let mut text = Vec::new();
            let mut body = body_of(&lease.client, &uri).await?;
            body.read_to_end(&mut text)
                .await
                .map_err(|error| Trouble::Garbled(format!("the answer broke off: {error}")))?;
            serde_json::from_slice(&text).map_err(|error| Trouble::Garbled(error.to_string()))
        };
        match timeout(LONGEST, exchange).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(trouble)) => Err(sort(path, &trouble)),
            Err(_) => Err(sort(path, &Trouble::Silent(LONGEST))),
        }
    }
}

impl Source {
    /// Seconds that this host's clock is before the server's, as its answers say (`Date`); `None` when they do not.
    pub async fn clock_ahead(&self) -> Option<i64> {
        let lease = self.connection.lease().await;
        let request = Request::get("/version").body(Body::empty()).ok()?;
        let answer = timeout(LONGEST, lease.client.send(request)).await.ok()?.ok()?;
        let date = answer.headers().get(DATE)?.to_str().ok()?;
        ahead_of(date, Timestamp::now())
    }
}

/// Seconds that `now` is behind a date as HTTP writes it.
fn ahead_of(date: &str, now: Timestamp) -> Option<i64> {
    let theirs = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(now.as_second() - theirs.timestamp().as_second())
}

fn sort(path: &str, trouble: &Trouble) -> AskError {
    let what = path.to_owned();
    match trouble {
        Trouble::Absent => AskError::Absent { what },
        Trouble::Refused {
            code: 401 | 403,
            message,
            ..
        } => AskError::Forbidden {
            what,
            reason: message.clone(),
        },
        other => AskError::Failed {
            what,
            reason: crate::chain(other),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_before_or_behind_the_date_of_an_answer() {
        let now: Timestamp = "2026-12-01T15:00:00Z".parse().expect("a time");
        assert_eq!(ahead_of("Tue, 01 Dec 2026 14:58:30 GMT", now), Some(90));
        assert_eq!(ahead_of("Tue, 01 Dec 2026 15:00:05 GMT", now), Some(-5));
        assert_eq!(ahead_of("yesterday", now), None);
    }
}
