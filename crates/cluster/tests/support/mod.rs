//! A listener to an API source, and what an API server says as text.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(
    clippy::unwrap_used,
    reason = "this is test code, which clippy cannot tell here"
)]

pub mod follower;
pub mod watched;

use apiserver::{Asked, Part, Reply};
use cluster::api::{Address, ApiOptions, KeepAlive, Source, Timing};
use cluster::{Kind, SourceEvent};
use model::object::{Object, ObjectRef};
use model::snapshot::Change;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What a source says once a streaming list is followed.
pub const CONNECTED_STREAMING: &str = "Connected { delivery: StreamingList }";

/// A script for requests about Services alone.
pub fn services(
    answer: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static,
) -> impl Fn(&Asked) -> Option<Reply> {
    move |asked| {
        if asked.resource == "services" {
            answer(asked)
        } else {
            None
        }
    }
}

/// A Service as the API server prints it.
pub fn service(name: &str, version: u64) -> String {
    format!(
        r#"{{"kind":"Service","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default","resourceVersion":"{version}"}},"spec":{{"clusterIP":"10.96.0.{}","clusterIPs":["10.96.0.{0}"],"ipFamilies":["IPv4"],"type":"ClusterIP","ports":[{{"port":80,"protocol":"TCP","targetPort":80}}]}}}}"#,
        version % 250 + 1
    )
}

pub fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

pub fn bookmark(version: &str) -> String {
    event(
        "BOOKMARK",
        &format!(
            r#"{{"kind":"Service","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","creationTimestamp":null}},"spec":{{}}}}"#
        ),
    )
}

pub fn end_of_initial_events(version: &str) -> String {
    event(
        "BOOKMARK",
        &format!(
            r#"{{"kind":"Service","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","creationTimestamp":null,"annotations":{{"k8s.io/initial-events-end":"true"}}}},"spec":{{}}}}"#
        ),
    )
}

pub fn status(code: u16, reason: &str, message: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}"#
    )
}

pub fn list(version: &str, items: &[String]) -> String {
    format!(
        r#"{{"kind":"ServiceList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

/// An event line that a Service of this name was added.
pub fn added(name: &str, version: u64) -> Part {
    Part::Line(event("ADDED", &service(name, version)))
}

/// Times short enough for tests.
pub fn quick() -> Timing {
    Timing {
        keep_alive: KeepAlive::default(),
        silence: Duration::from_millis(300),
        answer: Duration::from_millis(300),
        watch: (Duration::from_mins(5), Duration::from_mins(10)),
        backoff: (Duration::from_millis(5), Duration::from_millis(40)),
        remind: Duration::from_millis(30),
        stable: Duration::from_millis(50),
        absent: Duration::from_millis(50),
    }
}

/// As [`quick`], but a watch is a good one however short it lived.
pub fn lenient() -> Timing {
    Timing {
        stable: Duration::ZERO,
        ..quick()
    }
}

/// As [`quick`], but silence means nothing.
pub fn patient() -> Timing {
    Timing {
        silence: Duration::from_hours(1),
        answer: Duration::from_mins(1),
        ..quick()
    }
}

/// Options for a server at `url`, without a limit on requests.
pub fn options(url: &str, timing: Timing) -> ApiOptions {
    let address = Address {
        kubeconfig: None,
        master: Some(url.to_owned()),
    };
    unlimited(address, timing)
}

/// Options for the server of a kubeconfig.
pub fn options_of(kubeconfig: &Path, timing: Timing) -> ApiOptions {
    let address = Address {
        kubeconfig: Some(kubeconfig.to_owned()),
        master: None,
    };
    unlimited(address, timing)
}

fn unlimited(address: Address, timing: Timing) -> ApiOptions {
    let mut options = ApiOptions::new(address, "node-a");
    options.timing = timing;
    options.qps = 0.0;
    options
}

/// A source that runs against `url`.
pub async fn listen(url: &str, timing: Timing) -> Listener {
    let options = options(url, timing);
    let (out, events) = mpsc::channel(1);
    let task = tokio::spawn(Source::new(options).await.unwrap().run(out));
    Listener {
        events,
        task,
        said: String::new(),
    }
}

/// What the source said.
pub struct Listener {
    pub events: mpsc::Receiver<SourceEvent>,
    task: JoinHandle<()>,
    /// Everything, for failures.
    said: String,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    /// The next event about Services, in short form.
    pub async fn next(&mut self) -> String {
        loop {
            let event = tokio::time::timeout(Duration::from_secs(10), self.events.recv()).await;
            let Ok(Some(event)) = event else {
                panic!("no further event; until then:\n{}", self.said);
            };
            if let Some(text) = short(&event) {
                writeln!(self.said, "{text}").unwrap();
                return text;
            }
        }
    }

    /// The next event that begins so; others are skipped.
    pub async fn until(&mut self, start: &str) -> String {
        loop {
            let text = self.next().await;
            if text.starts_with(start) {
                return text;
            }
        }
    }

    /// Expects exactly these next.
    pub async fn expect(&mut self, texts: &[&str]) {
        for text in texts {
            assert_eq!(self.next().await, *text, "said so far:\n{}", self.said);
        }
    }
}

/// One line per event about Services; `None` for other kinds.
pub fn short(event: &SourceEvent) -> Option<String> {
    match event {
        SourceEvent::Change(Change::Apply(Object::Service(service))) => {
            Some(format!("apply {}", service.name))
        }
        SourceEvent::Change(Change::Delete(ObjectRef::Service(name))) => Some(format!("delete {name}")),
        SourceEvent::Synced(Kind::Service) => Some("synced".to_owned()),
        SourceEvent::Health(Kind::Service, health) => Some(format!("{health:?}")),
        SourceEvent::Change(_)
        | SourceEvent::Synced(_)
        | SourceEvent::Health(..)
        | SourceEvent::Together(_)
        | SourceEvent::Remembered(_)
        | SourceEvent::NotRead(_) => None,
        SourceEvent::Notes(notes) => Some(format!("notes {notes:?}")),
        SourceEvent::LeftOut(text) => Some(format!("unreadable {text}")),
    }
}
