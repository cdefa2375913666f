//! A snapshot made of what an API source says, and what it should be.

use apiserver::{Resource, Server};
use cluster::api::{ApiOptions, Source};
use cluster::{Delivery, Health, Kind, SourceEvent};
use model::object::{Converted, convert_node, convert_service, convert_service_cidr, convert_slice, raw};
use model::snapshot::{Change, Snapshot};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub const KINDS: [Kind; 4] = [Kind::Service, Kind::Slice, Kind::Node, Kind::ServiceCidr];
/// How long anything may take on a machine that has other things to do.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Listens to a source.
pub struct Follower {
    pub snapshot: Snapshot,
    /// How often each kind was said completely.
    pub synced: BTreeMap<Kind, usize>,
    /// How each kind is doing.
    pub health: BTreeMap<Kind, Health>,
    /// Every failure told, in order.
    pub failures: Vec<(Kind, String)>,
    /// Everything, for failures of tests.
    said: Vec<String>,
    events: mpsc::Receiver<SourceEvent>,
    task: JoinHandle<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    pub async fn start(options: ApiOptions) -> Follower {
        let (out, events) = mpsc::channel(16);
        Follower {
            snapshot: Snapshot::new(),
            synced: BTreeMap::new(),
            health: BTreeMap::new(),
            failures: Vec::new(),
            said: Vec::new(),
            events,
            task: tokio::spawn(Source::new(options).await.unwrap().run(out)),
        }
    }

    /// Listens until it is so.
    pub async fn until(&mut self, what: &str, is_so: impl Fn(&Follower) -> bool) {
        let end = tokio::time::Instant::now() + PATIENCE;
        while !is_so(self) {
            match tokio::time::timeout_at(end, self.events.recv()).await {
                Ok(Some(event)) => self.take(event),
                _ => panic!("not so: {what}; heard:\n{}", self.said()),
            }
        }
    }

    /// Listens until the snapshot is what the server has.
    pub async fn until_right(&mut self, server: &Server) {
        let right = expected(server, "node-a");
        self.until("the snapshot is what the server has", |follower| {
            follower.snapshot == right
        })
        .await;
    }

    /// Listens until all kinds are watched, with complete state behind.
    pub async fn until_connected(&mut self) {
        self.until("all kinds are watched", |follower| {
            KINDS.iter().all(|kind| follower.is_connected(*kind))
        })
        .await;
    }

    pub fn is_connected(&self, kind: Kind) -> bool {
        let is_good = |health: &Health| matches!(health, Health::Connected { .. } | Health::Bookmark);
        self.health.get(&kind).is_some_and(is_good)
    }

    /// How the last complete list of a kind came.
    pub fn delivery(&self, kind: Kind) -> Option<Delivery> {
        match self.health.get(&kind) {
            Some(Health::Connected { delivery }) => Some(*delivery),
            _ => None,
        }
    }

    pub fn said(&self) -> String {
        self.said.join("\n")
    }

    fn take(&mut self, event: SourceEvent) {
        self.said.push(format!("{event:?}").chars().take(300).collect());
        match event {
            SourceEvent::Change(change) => {
                self.snapshot.apply(change);
            }
            SourceEvent::Together(changes) => {
                for change in changes {
                    self.snapshot.apply(change);
                }
            }
            SourceEvent::Synced(kind) => *self.synced.entry(kind).or_default() += 1,
            SourceEvent::Health(kind, health) => {
                if let Health::Failing { error, .. } = &health {
                    self.failures.push((kind, error.clone()));
                }
                self.health.insert(kind, health);
            }
            SourceEvent::Notes(_)
            | SourceEvent::LeftOut(_)
            | SourceEvent::NotRead(_)
            | SourceEvent::Remembered(_) => {}
        }
    }
}

/// What somebody knows who reads everything there is, once.
pub fn expected(server: &Server, node: &str) -> Snapshot {
    let mut snapshot = Snapshot::new();
    let mut add = |converted: Converted| {
        snapshot.apply(Change::Apply(converted.object.expect("a sound object")));
    };
    for service in server.all(Resource::Services) {
        let is_ours = service["metadata"]["labels"]["service.kubernetes.io/service-proxy-name"].is_null();
        if is_ours && service["spec"]["clusterIP"] != "None" {
            add(convert_service(&read::<raw::Service>(service)));
        }
    }
    for slice in server.all(Resource::EndpointSlices) {
        add(convert_slice(&read::<raw::EndpointSlice>(slice)));
    }
    for cidr in server.all(Resource::ServiceCidrs) {
        add(convert_service_cidr(&read::<raw::ServiceCidr>(cidr)));
    }
    for object in server.all(Resource::Nodes) {
        if object["metadata"]["name"] == node {
            add(convert_node(&read::<raw::Node>(object)));
        }
    }
    snapshot
}

fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}
