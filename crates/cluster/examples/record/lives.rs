//! The lives that are recorded: what happens at the server while a source follows it.

use crate::relay::Relay;
use crate::site::{NODES, SERVICES, SLICES, Site};
use apiserver::objects;
use cluster::api::{Address, ApiOptions, Source, Timing};
use cluster::{Health, Kind, SourceEvent};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const KINDS: [Kind; 4] = [Kind::Service, Kind::Slice, Kind::Node, Kind::ServiceCidr];

/// A source that is listened to.
struct Life {
    events: mpsc::Receiver<SourceEvent>,
    task: JoinHandle<()>,
    health: BTreeMap<Kind, Health>,
}

impl Life {
    async fn start(relay: &Relay) -> Life {
        let address = Address {
            kubeconfig: None,
            master: Some(relay.server.url.clone()),
        };
        let mut options = ApiOptions::new(address, "node-a");
        options.timing = Timing {
            backoff: (Duration::from_millis(50), Duration::from_millis(100)),
            ..Timing::default()
        };
        let (out, events) = mpsc::channel(16);
        let source = Source::new(options).await.expect("an address of use");
        Life {
            events,
            task: tokio::spawn(source.run(out)),
            health: BTreeMap::new(),
        }
    }

    /// Listens until something is said about an object: the next one must be about this one.
    async fn change(&mut self, of: &str) {
        loop {
            if let SourceEvent::Change(change) = self.next().await {
                let text = format!("{change:?}");
                assert!(text.contains(of), "{of} was to change, but {text}");
                return;
            }
        }
    }

    async fn until(&mut self, is_so: impl Fn(&Health) -> bool) {
        while !KINDS.iter().all(|kind| self.health.get(kind).is_some_and(&is_so)) {
            self.next().await;
        }
        self.health.clear();
    }

    /// Listens until so many lists of the two large kinds have come again.
    async fn synced(&mut self, mut kinds: Vec<Kind>) {
        while !kinds.is_empty() {
            if let SourceEvent::Synced(kind) = self.next().await {
                kinds.retain(|wanted| *wanted != kind);
            }
        }
    }

    async fn next(&mut self) -> SourceEvent {
        let event = tokio::time::timeout(Duration::from_mins(3), self.events.recv()).await;
        let event = event
            .expect("something happens within three minutes")
            .expect("the source lives");
        if let SourceEvent::Health(kind, health) = &event {
            self.health.insert(*kind, health.clone());
        }
        event
    }

    async fn end(self) {
        self.task.abort();
        drop(self.events);
        // The relay writes down how its connections ended.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn connected(health: &Health) -> bool {
    matches!(health, Health::Connected { .. })
}

fn failing(health: &Health) -> bool {
    matches!(health, Health::Failing { .. })
}

/// Everything that happens to objects; a cut; a version that is gone; bookmarks.
pub async fn with_streaming_lists(site: &Site) -> String {
    site.furnish().await;
    let relay = Relay::new(site.admin.clone());
    let mut life = Life::start(&relay).await;
    life.until(connected).await;

    site.create(SERVICES, objects::service("b", "10.96.0.21")).await;
    life.change("\"b\"").await;
    site.create(SLICES, objects::slice("b-1", "b", &[])).await;
    life.change("b-1").await;
    let endpoints = json!({"endpoints": [{"addresses": ["10.244.0.7"], "conditions": {"ready": true}}]});
    site.patch(SLICES, "b-1", endpoints).await;
    life.change("b-1").await;
    let label = |value: serde_json::Value| json!({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": value}}});
    site.patch(SERVICES, "b", label("other".into())).await;
    life.change("\"b\"").await;
    site.patch(SERVICES, "b", label(serde_json::Value::Null)).await;
    life.change("\"b\"").await;
    site.delete(SERVICES, "b").await;
    site.create(SERVICES, objects::service("b", "10.96.0.22")).await;
    life.change("\"b\"").await;
    life.change("\"b\"").await;
    let owner = json!({"metadata": {"labels": {"kubernetes.io/service-name": "a"}}});
    site.patch(SLICES, "b-1", owner).await;
    life.change("b-1").await;
    let headless = json!({"metadata": {"labels": {"service.kubernetes.io/headless": ""}}});
    site.patch(SLICES, "b-1", headless).await;
    life.change("b-1").await;
    let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "zone-1"}}});
    site.patch(NODES, "node-b", zone.clone()).await;
    site.patch(NODES, "node-a", zone).await;
    life.change("node-a").await;

    tokio::time::sleep(Timing::default().stable).await;
    relay.cut();
    site.create(SERVICES, objects::service("c", "10.96.0.31")).await;
    life.change("\"c\"").await;
    tokio::time::sleep(Timing::default().stable).await;
    relay.age("services");
    relay.age("endpointslices");
    site.delete(SLICES, "a-1").await;
    life.change("a-1").await;
    relay.cut();
    life.synced(vec![Kind::Service, Kind::Slice]).await;
    life.until(|health| *health == Health::Bookmark).await;
    site.delete(SERVICES, "a").await;
    life.change("\"a\"").await;
    life.end().await;
    relay.transcript()
}

/// As with a server that does not stream lists.
pub async fn with_plain_lists(site: &Site) -> String {
    site.furnish().await;
    let relay = Relay::new(site.admin.clone());
    relay.spoil();
    let mut life = Life::start(&relay).await;
    life.until(connected).await;
    site.create(SERVICES, objects::service("b", "10.96.0.21")).await;
    life.change("\"b\"").await;
    tokio::time::sleep(Timing::default().stable).await;
    site.delete(SERVICES, "a").await;
    life.change("\"a\"").await;
    relay.age("services");
    relay.cut();
    life.synced(vec![Kind::Service]).await;
    site.delete(SERVICES, "b").await;
    life.change("\"b\"").await;
    life.end().await;
    relay.transcript()
}

/// With some verbs on everything that is read, and no others.
pub async fn without_rights(site: &Site, name: &str, verbs: &[&str]) -> String {
    site.furnish().await;
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let rules = match verbs {
        [] => json!([]),
        _ => json!([
            rule("", &["services", "nodes"]),
            rule("discovery.k8s.io", &["endpointslices"]),
            rule("networking.k8s.io", &["servicecidrs"]),
        ]),
    };
    let token = site.account(&format!("kube-proxy-{name}"), rules).await;
    failing_life(site, &token).await
}

/// With a token that the server does not know.
pub async fn with_a_wrong_token(site: &Site) -> String {
    failing_life(site, "not-a-token").await
}

async fn failing_life(site: &Site, token: &str) -> String {
    let relay = Relay::new(site.client_with(token).await);
    let mut life = Life::start(&relay).await;
    life.until(failing).await;
    life.end().await;
    relay.transcript()
}
