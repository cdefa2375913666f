//! The Events that a daemon writes, and what is said of those that cannot be written.

use crate::relay::Relay;
use crate::site::{EVENTS, Site};
use apiserver::objects::node_event;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};

/// Created, patched, in vain, and without the rights.
pub async fn written(site: &Site) -> String {
    site.sweep().await;
    let relay = Relay::new(site.admin.clone());
    let path = format!("{EVENTS}/node-a.1");
    let event = node_event("node-a.1", "node-a");
    let series =
        |count: u32| json!({"series": {"count": count, "lastObservedTime": "2026-01-01T00:05:00.000000Z"}});
    send(&relay, "POST", EVENTS, &event).await;
    send(&relay, "PATCH", &path, &series(2)).await;
    send(&relay, "POST", EVENTS, &event).await;
    send(&relay, "PATCH", &path, &series(1)).await;
    send(&relay, "PATCH", &path, &json!({"reason": "Other"})).await;
    let mut nameless = event.clone();
    nameless["action"] = Value::Null;
    nameless["metadata"]["name"] = "node-a.2".into();
    send(&relay, "POST", EVENTS, &nameless).await;
    site.delete(EVENTS, "node-a.1").await;
    send(&relay, "PATCH", &path, &series(3)).await;
    let token = site.account("kube-proxy-mute", json!([])).await;
    let mute = Relay::new(site.client_with(&token).await);
    send(&mute, "POST", EVENTS, &event).await;
    send(&mute, "PATCH", &path, &series(2)).await;
    relay.transcript() + &mute.transcript()
}

async fn send(relay: &Relay, method: &str, path: &str, body: &Value) {
    let kind = match method {
        "PATCH" => "application/strategic-merge-patch+json",
        _ => "application/json",
    };
    let client = Client::try_from(Config::new(relay.server.url.parse().expect("a URL"))).expect("plain HTTP");
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .header("accept", "application/json")
        .body(Body::from(body.to_string().into_bytes()))
        .expect("a request");
    let response = client.send(request).await.expect("the relay answers");
    response.into_body().collect().await.expect("a whole answer");
}
