//! The API source against a real API server.
//!
//! Runs when `KPRS_APISERVER_KUBECONFIG` names a kubeconfig with rights to create Services in namespace `default` of a
//! server without other Services that change meanwhile.

#![allow(
    clippy::unwrap_used,
    reason = "this is test code, which clippy cannot tell everywhere"
)]

mod support;

use cluster::api::{Address, ApiOptions, Source};
use cluster::{Kind, SourceEvent};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use model::object::{Object, ObjectRef};
use model::snapshot::Change;
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const NODES: &str = "/api/v1/nodes";

struct Server(kube::Client);

impl Server {
    async fn create(&self, path: &str, object: &Value) {
        let request = Request::new(path)
            .create(&PostParams::default(), serde_json::to_vec(object).unwrap())
            .unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }

    async fn patch(&self, path: &str, name: &str, change: Value) {
        let request = Request::new(path)
            .patch(name, &PatchParams::default(), &Patch::Merge(change))
            .unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }

    async fn delete(&self, path: &str, name: &str) {
        let request = Request::new(path).delete(name, &DeleteParams::default()).unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }
}

/// Waits for an event; prints all that come before it when it does not come.
async fn heard(
    events: &mut Receiver<SourceEvent>,
    what: &str,
    is_it: impl Fn(&SourceEvent) -> bool,
) -> SourceEvent {
    let mut before = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_secs(20), events.recv()).await {
            Ok(Some(event)) if is_it(&event) => return event,
            Ok(Some(event)) => before.push(event),
            _ => panic!("did not hear: {what}; but {before:#?}"),
        }
    }
}

fn applied(event: &SourceEvent, name: &str) -> bool {
    match event {
        SourceEvent::Change(Change::Apply(Object::Service(service))) => &*service.name.name == name,
        SourceEvent::Change(Change::Apply(Object::Slice(slice))) => &*slice.name.name == name,
        SourceEvent::Change(Change::Apply(Object::Node(node))) => &*node.name == name,
        _ => false,
    }
}

fn deleted(event: &SourceEvent, deleted: &str) -> bool {
    match event {
        SourceEvent::Change(Change::Delete(ObjectRef::Service(name))) => &*name.name == deleted,
        SourceEvent::Change(Change::Delete(ObjectRef::Slice(name))) => &*name.name == deleted,
        _ => false,
    }
}

fn service(name: &str, cluster_ip: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": cluster_ip, "ports": [{"name": "http", "port": 80}], "selector": {"app": name}},
    })
}

fn slice(name: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<Value> = addresses.iter().map(|ip| json!({"addresses": [ip]})).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "kprs-a"}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
    })
}

#[tokio::test]
async fn a_real_server_tells_what_its_objects_do() {
    let Some(kubeconfig) = std::env::var_os("KPRS_APISERVER_KUBECONFIG") else {
        // Past the capture of the test harness: a skip has to be seen.
        _ = writeln!(std::io::stderr(), "SKIPPED: KPRS_APISERVER_KUBECONFIG is not set");
        return;
    };
    let address = Address {
        kubeconfig: Some(kubeconfig.into()),
        master: None,
    };
    let source = Source::new(ApiOptions::new(address, "kprs-node")).await.unwrap();
    let server = Server(source.client().await);
    server.create(SERVICES, &service("kprs-before", None)).await;
    let (out, mut events) = tokio::sync::mpsc::channel(16);
    let task = tokio::spawn(source.run(out));
    heard(&mut events, "kprs-before", |event| applied(event, "kprs-before")).await;
    heard(&mut events, "services synced", |event| {
        *event == SourceEvent::Synced(Kind::Service)
    })
    .await;

    services_and_slices_change(&server, &mut events).await;
    only_the_own_node_comes(&server, &mut events).await;
    things_go(&server, &mut events).await;
    for name in ["kprs-a", "kprs-before", "kprs-headless"] {
        server.delete(SERVICES, name).await;
    }
    for name in ["kprs-other-node", "kprs-node"] {
        server.delete(NODES, name).await;
    }
    task.abort();
}

async fn services_and_slices_change(server: &Server, events: &mut Receiver<SourceEvent>) {
    server
        .create(SERVICES, &service("kprs-headless", Some("None")))
        .await;
    server.create(SERVICES, &service("kprs-a", None)).await;
    let next = heard(events, "a new service", |event| {
        applied(event, "kprs-a") || applied(event, "kprs-headless")
    });
    assert!(
        applied(&next.await, "kprs-a"),
        "headless services are not asked for"
    );
    server.create(SLICES, &slice("kprs-a-1", &["10.0.0.1"])).await;
    heard(events, "its slice", |event| applied(event, "kprs-a-1")).await;
    let scaled = json!({"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]});
    server.patch(SLICES, "kprs-a-1", scaled).await;
    let event = heard(events, "its slice again", |event| applied(event, "kprs-a-1")).await;
    assert!(format!("{event:?}").contains("10.0.0.2"), "{event:?}");
}

async fn only_the_own_node_comes(server: &Server, events: &mut Receiver<SourceEvent>) {
    for name in ["kprs-other-node", "kprs-node"] {
        server
            .create(
                NODES,
                &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}),
            )
            .await;
    }
    let node = heard(events, "a node", |event| {
        matches!(event, SourceEvent::Change(Change::Apply(Object::Node(_))))
    });
    assert!(applied(&node.await, "kprs-node"));
}

async fn things_go(server: &Server, events: &mut Receiver<SourceEvent>) {
    // A service that another proxy takes over is as good as deleted.
    let label = json!({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": "other"}}});
    server.patch(SERVICES, "kprs-a", label).await;
    heard(events, "the handed over service", |event| {
        deleted(event, "kprs-a")
    })
    .await;
    server.delete(SLICES, "kprs-a-1").await;
    heard(events, "the deleted slice", |event| deleted(event, "kprs-a-1")).await;
}
