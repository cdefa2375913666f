//! The one thing that is ever written to the API server: Events.

use super::answer::body;
use super::connect::{Connection, Lease};
use super::pace::Throttle;
use super::tally::What;
use super::trouble::Trouble;
use futures::AsyncReadExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::Request;
use serde_json::Value;
use std::time::Duration;
use thiserror::Error;
use tokio::time::timeout;

/// Of an answer that nobody looks at, so much is read to keep the connection; a server that says more loses it.
const ANSWER_BYTES: u64 = 64 * 1024;

/// No Event is worth more time than this in one try.
const LONGEST: Duration = Duration::from_secs(10);

/// Writes Events by the watches' client, and within the same limit on requests.
#[derive(Clone)]
pub struct EventWriter {
    connection: Connection,
    throttle: Throttle,
    /// Longest time for one request.
    answer: Duration,
}

/// Why an Event was not written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The server has no such Event (any more).
    #[error("the API server has no such Event")]
    Absent,
    /// The server has an Event of this name already: an earlier try was heard.
    #[error("the API server has such an Event already")]
    Exists,
    /// The server said no, and would say no again.
    #[error("the API server refused it: {0}")]
    Refused(String),
    /// Nobody answered, or the server asked to come again.
    #[error("the API server did not take it: {0}")]
    Away(String),
}

impl EventWriter {
    pub(super) fn new(connection: Connection, throttle: Throttle, answer: Duration) -> Self {
        EventWriter {
            connection,
            throttle,
            answer: answer.min(LONGEST),
        }
    }

    /// Posts an Event.
    ///
    /// # Errors
    /// Says whether trying again can help.
    pub async fn create(&self, namespace: &str, event: &Value) -> Result<(), WriteError> {
        self.send(namespace, &Write::Create(event)).await
    }

    /// Patches an Event.
    ///
    /// # Errors
    /// Says whether trying again can help.
    pub async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<(), WriteError> {
        self.send(namespace, &Write::Patch(name, patch)).await
    }

    async fn send(&self, namespace: &str, write: &Write<'_>) -> Result<(), WriteError> {
        let waited = self.throttle.take().await;
        let lease = self.connection.lease().await;
        lease.counter.tell(write.method(), What::Waited(waited));
        let answered = timeout(self.answer, exchange(&lease, namespace, write)).await;
        let trouble = match answered {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(trouble)) => trouble,
            Err(_) => Trouble::Silent(self.answer),
        };
        if trouble.taints_connection() {
            self.connection.renew(&lease).await;
        }
        Err(sort(&trouble))
    }
}

/// One request.
enum Write<'a> {
    Create(&'a Value),
    Patch(&'a str, &'a Value),
}

impl Write<'_> {
    fn method(&self) -> &'static str {
        match self {
            Write::Create(_) => "POST",
            Write::Patch(..) => "PATCH",
        }
    }
}

async fn exchange(lease: &Lease, namespace: &str, write: &Write<'_>) -> Result<(), Trouble> {
    let events = Request::new(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"));
    let request = match write {
        Write::Create(event) => events.create(&PostParams::default(), event.to_string().into_bytes()),
        Write::Patch(name, patch) => events.patch(name, &PatchParams::default(), &Patch::Strategic(patch)),
    };
    let request = request.map_err(|error| Trouble::Garbled(format!("it cannot be asked for: {error}")))?;
    let answer = body(&lease.client, request.map(Body::from)).await?;
    // What it says is what was written. A broken end changes nothing about that.
    let _ = futures::io::copy(answer.take(ANSWER_BYTES), &mut futures::io::sink()).await;
    Ok(())
}

fn sort(trouble: &Trouble) -> WriteError {
    match trouble {
        Trouble::Absent => WriteError::Absent,
        Trouble::Refused { code: 409, .. } => WriteError::Exists,
        // 401: the credentials have just been read anew.
        Trouble::Silent(_)
        | Trouble::Broken(_)
        | Trouble::Unconnected(_)
        | Trouble::Refused { code: 401, .. }
        | Trouble::Refused {
            retry_after: Some(_), ..
        } => WriteError::Away(trouble.to_string()),
        _ => WriteError::Refused(trouble.to_string()),
    }
}
