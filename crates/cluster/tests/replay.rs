//! What a real kube-apiserver answered, answered again: `scenarios/apiserver`.
//!
//! Expectations are what was done at the real server while it was recorded (`examples/record/lives.rs`).

#![allow(
    clippy::unwrap_used,
    reason = "this is test code, which clippy cannot tell everywhere"
)]

mod support;

use apiserver::Server;
use apiserver::transcript::{Replay, read};
use cluster::api::Source;
use cluster::{Health, Kind, SourceEvent};
use model::object::{Object, ObjectRef};
use model::snapshot::Change;
use std::collections::BTreeMap;
use std::fs;
use support::follower::{KINDS, PATIENCE};
use support::{options, patient};
use tokio::sync::mpsc;

/// A source that listens to a transcript.
struct Played {
    replay: Replay,
    _server: Server,
    events: mpsc::Receiver<SourceEvent>,
    said: BTreeMap<Kind, Vec<String>>,
}

impl Played {
    async fn start(name: &str) -> Played {
        let path = format!(
            "{}/../../scenarios/apiserver/{name}.jsonl",
            env!("CARGO_MANIFEST_DIR")
        );
        let replay = Replay::new(read(&fs::read_to_string(path).unwrap()).unwrap());
        let server = Server::scripted(replay.script());
        let (out, events) = mpsc::channel(16);
        let source = Source::new(options(&server.url, patient())).await.unwrap();
        tokio::spawn(source.run(out));
        Played {
            replay,
            _server: server,
            events,
            said: BTreeMap::new(),
        }
    }

    async fn until(&mut self, is_so: impl Fn(&Played) -> bool) {
        let end = tokio::time::Instant::now() + PATIENCE;
        while !is_so(self) {
            match tokio::time::timeout_at(end, self.events.recv()).await {
                Ok(Some(event)) => self.take(&event),
                _ => panic!(
                    "not so; heard: {:#?}\nunasked: {:#?}",
                    self.said,
                    self.replay.unasked()
                ),
            }
        }
    }

    fn take(&mut self, event: &SourceEvent) {
        let (kind, text) = match event {
            SourceEvent::Change(Change::Apply(object)) => (object.kind(), format!("apply {}", told(object))),
            SourceEvent::Change(Change::Delete(name)) => (name.kind(), format!("delete {}", named(name))),
            SourceEvent::Synced(kind) => (*kind, "synced".to_owned()),
            SourceEvent::Health(kind, Health::Failing { error, .. }) => (*kind, format!("failing {error}")),
            SourceEvent::Notes(notes) => panic!("a real server's objects are sound: {notes:?}"),
            SourceEvent::LeftOut(text) => panic!("a real server's objects can be read: {text}"),
            _ => return,
        };
        self.said.entry(kind).or_default().push(text);
    }

    /// What was said of a kind, without failures.
    fn told(&self, kind: Kind) -> Vec<&str> {
        let said = self.said.get(&kind).into_iter().flatten().map(String::as_str);
        said.filter(|text| !text.starts_with("failing")).collect()
    }

    fn fails(&self, kind: Kind, words: &[&str]) -> bool {
        self.said
            .get(&kind)
            .into_iter()
            .flatten()
            .any(|text| text.starts_with("failing") && words.iter().all(|word| text.contains(word)))
    }
}

fn told(object: &Object) -> String {
    match object {
        Object::Service(service) => {
            let address = service.cluster_ips.v4;
            format!(
                "{} at {}",
                service.name,
                address.map(|ip| ip.to_string()).unwrap_or_default()
            )
        }
        Object::Slice(slice) => {
            let owner = slice
                .service
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            format!("{} of {owner} with {}", slice.name, slice.endpoints.len())
        }
        Object::Node(node) => {
            format!("{} in {}", node.name, node.zone.as_deref().unwrap_or("no zone"))
        }
        Object::ServiceCidr(cidr) => format!("{} {:?}", cidr.name, cidr.cidrs),
    }
}

fn named(name: &ObjectRef) -> String {
    match name {
        ObjectRef::Service(name) => name.to_string(),
        ObjectRef::Slice(name) => name.to_string(),
        ObjectRef::Node(name) | ObjectRef::ServiceCidr(name) => name.to_string(),
    }
}

#[tokio::test]
async fn a_life_with_streaming_lists_is_told_as_it_happened() {
    let mut played = Played::start("streaming-lists").await;
    let services = [
        "apply default/a at 10.96.0.11",
        "apply default/kubernetes at 10.96.0.1",
        "synced",
        "apply default/b at 10.96.0.21",
        // Another proxy gets it, and gives it back.
        "delete default/b",
        "apply default/b at 10.96.0.21",
        // Deleted and created again at once.
        "delete default/b",
        "apply default/b at 10.96.0.22",
        // Created while the watch was cut.
        "apply default/c at 10.96.0.31",
        // 410, and a new list.
        "apply default/a at 10.96.0.11",
        "apply default/b at 10.96.0.22",
        "apply default/c at 10.96.0.31",
        "apply default/kubernetes at 10.96.0.1",
        "synced",
        "delete default/a",
    ];
    let slices = [
        "apply default/a-1 of default/a with 2",
        "synced",
        "apply default/b-1 of default/b with 0",
        "apply default/b-1 of default/b with 1",
        "apply default/b-1 of default/a with 1",
        // It got the label of headless services.
        "delete default/b-1",
        "delete default/a-1",
        "synced",
    ];
    let nodes = ["apply node-a in no zone", "synced", "apply node-a in zone-1"];
    played
        .until(|played| {
            played.told(Kind::Service).len() >= services.len()
                && played.told(Kind::Slice).len() >= slices.len()
                && played.told(Kind::Node).len() >= nodes.len()
                && played.told(Kind::ServiceCidr).len() >= 2
                && played.replay.unasked().is_empty()
        })
        .await;
    assert_eq!(played.told(Kind::Service), services);
    assert_eq!(played.told(Kind::Slice), slices);
    assert_eq!(played.told(Kind::Node), nodes);
    assert_eq!(
        played.told(Kind::ServiceCidr),
        ["apply kubernetes [10.96.0.0/12, fd00:10:96::/108]", "synced"]
    );
    assert_eq!(played.replay.surprises(), [""; 0]);
}

#[tokio::test]
async fn a_life_with_plain_lists_is_told_as_it_happened() {
    let mut played = Played::start("plain-lists").await;
    let services = [
        "apply default/a at 10.96.0.11",
        "apply default/kubernetes at 10.96.0.1",
        "synced",
        "apply default/b at 10.96.0.21",
        "delete default/a",
        // 410, and a new list.
        "apply default/b at 10.96.0.21",
        "apply default/kubernetes at 10.96.0.1",
        "synced",
        "delete default/b",
    ];
    played
        .until(|played| {
            played.told(Kind::Service).len() >= services.len() && played.replay.unasked().is_empty()
        })
        .await;
    assert_eq!(played.told(Kind::Service), services);
    assert_eq!(played.replay.surprises(), [""; 0]);
}

/// How a refusal names what was asked for.
fn resource(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "resource \"services\" in API group \"\"",
        Kind::Slice => "resource \"endpointslices\" in API group \"discovery.k8s.io\"",
        Kind::Node => "resource \"nodes\" in API group \"\"",
        Kind::ServiceCidr => "resource \"servicecidrs\" in API group \"networking.k8s.io\"",
    }
}

#[tokio::test]
async fn each_verb_that_rbac_denies_is_named_for_each_kind() {
    for (name, verb) in [("no-rights", "cannot list"), ("rights-to-list", "cannot watch")] {
        let mut played = Played::start(name).await;
        played
            .until(|played| {
                KINDS
                    .iter()
                    .all(|kind| played.fails(*kind, &["403", verb, resource(*kind), "grant this user"]))
            })
            .await;
    }
}

#[tokio::test]
async fn an_unknown_token_is_named_for_each_kind() {
    let mut played = Played::start("unknown-token").await;
    let words = ["401", "Unauthorized", "check the token"];
    played
        .until(|played| KINDS.iter().all(|kind| played.fails(*kind, &words)))
        .await;
}
