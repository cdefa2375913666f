//! Who may do what.

use crate::subject::{ALL_SERVICES, ALL_SLICES, EVENTS, NODES, SERVICES, Subject};
use serde_json::{Value, json};

pub async fn a_wrong_token_is_unauthorized(on: &Subject) {
    let stranger = on.with_token(Some("not-a-token")).await;
    for uri in [ALL_SERVICES, "/api/v1/services?watch=true", "/nothing"] {
        stranger
            .get(uri)
            .await
            .is_status(401, "Unauthorized", "Unauthorized");
    }
}

pub async fn nobody_in_particular_is_anonymous(on: &Subject) {
    let nobody = on.with_token(None).await;
    nobody.get(ALL_SERVICES).await.is_status(
        403,
        "Forbidden",
        "services is forbidden: User \"system:anonymous\" cannot list resource \"services\" in API group \"\" at the cluster scope",
    );
}

/// A request, and how its refusal goes on after `cannot`; then what it is about, and the details.
struct Refusal {
    method: &'static str,
    uri: String,
    cannot: &'static str,
    what: &'static str,
    details: Value,
}

fn refusals() -> Vec<Refusal> {
    let refusal = |method, uri: &str, cannot, what, details| Refusal {
        method,
        uri: uri.to_owned(),
        cannot,
        what,
        details,
    };
    let slices = json!({"group": "discovery.k8s.io", "kind": "endpointslices"});
    let cidrs = json!({"group": "networking.k8s.io", "kind": "servicecidrs"});
    let node = json!({"name": "node-a", "kind": "nodes"});
    let events = json!({"group": "events.k8s.io", "kind": "events"});
    let event = json!({"name": "e", "group": "events.k8s.io", "kind": "events"});
    let services = json!({"kind": "services"});
    let all = "list resource \"services\" in API group \"\" at the cluster scope";
    let watched = "watch resource \"services\" in API group \"\" at the cluster scope";
    let inside = "list resource \"services\" in API group \"\" in the namespace \"default\"";
    let all_slices =
        "list resource \"endpointslices\" in API group \"discovery.k8s.io\" at the cluster scope";
    let all_cidrs = "list resource \"servicecidrs\" in API group \"networking.k8s.io\" at the cluster scope";
    let nodes = "list resource \"nodes\" in API group \"\" at the cluster scope";
    let create = "create resource \"events\" in API group \"events.k8s.io\" in the namespace \"default\"";
    let patch = "patch resource \"events\" in API group \"events.k8s.io\" in the namespace \"default\"";
    let own_node = format!("{NODES}?fieldSelector=metadata.name%3Dnode-a");
    let one_event = format!("{EVENTS}/e");
    let cidrs_path = "/apis/networking.k8s.io/v1/servicecidrs";
    vec![
        refusal("GET", ALL_SERVICES, all, "services", services.clone()),
        refusal(
            "GET",
            "/api/v1/services?watch=true",
            watched,
            "services",
            services.clone(),
        ),
        refusal("GET", SERVICES, inside, "services", services),
        refusal(
            "GET",
            ALL_SLICES,
            all_slices,
            "endpointslices.discovery.k8s.io",
            slices,
        ),
        refusal(
            "GET",
            cidrs_path,
            all_cidrs,
            "servicecidrs.networking.k8s.io",
            cidrs,
        ),
        refusal("GET", &own_node, nodes, "nodes \"node-a\"", node),
        refusal("POST", EVENTS, create, "events.events.k8s.io", events),
        refusal("PATCH", &one_event, patch, "events.events.k8s.io \"e\"", event),
    ]
}

pub async fn a_missing_right_is_named_with_verb_resource_and_group(on: &Subject) {
    let (weak, user) = on.with_rules("weak", json!([])).await;
    for Refusal {
        method,
        uri,
        cannot,
        what,
        details,
    } in refusals()
    {
        let body = if method == "GET" { Value::Null } else { json!({}) };
        let answer = weak.ask(method, &uri, &body).await;
        let message = format!("{what} is forbidden: User \"{user}\" cannot {cannot}");
        answer.is_status(403, "Forbidden", &message);
        assert_eq!(answer.body["details"], details, "{method} {uri}");
    }
}

pub async fn the_right_to_watch_is_enough_for_a_streaming_list(on: &Subject) {
    let rules = json!([{"apiGroups": [""], "resources": ["services"], "verbs": ["watch"]}]);
    let (watcher, _) = on.with_rules("watcher", rules).await;
    let mut watch = watcher
        .watch("/api/v1/services?labelSelector=conf%3Dnone&watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan")
        .await;
    watch.expect("BOOKMARK").await;
    assert_eq!(watcher.get(ALL_SERVICES).await.status, 403);
}
