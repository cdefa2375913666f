//! Watches.

use crate::subject::{ALL_SERVICES, NODES, SERVICES, Subject, service, version};
use serde_json::{Value, json};

fn select(label: &str) -> String {
    format!("{ALL_SERVICES}?labelSelector=conf%3D{label}&watch=true")
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

pub async fn a_watch_from_a_list_brings_what_happened_since(on: &Subject) {
    on.make(SERVICES, &service("conf-w-old", "w")).await;
    on.delete(SERVICES, "conf-w-new").await;
    let list = on.get(&format!("{ALL_SERVICES}?labelSelector=conf%3Dw")).await;
    let at = list.version();
    on.create(SERVICES, &service("conf-w-new", "w")).await;
    on.patch(
        SERVICES,
        "conf-w-new",
        &json!({"metadata": {"annotations": {"a": "1"}}}),
    )
    .await;
    let mut watch = on.watch(&format!("{}&resourceVersion={at}", select("w"))).await;
    let added = watch.expect("ADDED").await;
    assert_eq!(
        (name(&added), &added["kind"], &added["apiVersion"]),
        ("conf-w-new", &json!("Service"), &json!("v1"))
    );
    assert!(version(&added) > at);
    assert!(
        added["metadata"]["annotations"].is_null(),
        "each state comes: {added}"
    );
    let modified = watch.expect("MODIFIED").await;
    assert_eq!(modified["metadata"]["annotations"]["a"], "1");
    assert!(version(&modified) > version(&added));
    on.delete(SERVICES, "conf-w-new").await;
    let deleted = watch.expect("DELETED").await;
    assert_eq!(
        (name(&deleted), &deleted["kind"]),
        ("conf-w-new", &json!("Service"))
    );
    assert_eq!(deleted["spec"], modified["spec"], "the last state comes along");
    assert!(
        version(&deleted) > version(&modified),
        "with the version of the going: {deleted}"
    );
}

pub async fn an_object_that_no_longer_matches_is_deleted_for_the_watch(on: &Subject) {
    let made = on.make(SERVICES, &service("conf-leaves", "leaves")).await;
    let mut watch = on
        .watch(&format!(
            "{}&resourceVersion={}",
            select("leaves"),
            version(&made)
        ))
        .await;
    let left = on
        .patch(
            SERVICES,
            "conf-leaves",
            &json!({"metadata": {"labels": {"conf": "left"}}}),
        )
        .await;
    let deleted = watch.expect("DELETED").await;
    assert_eq!(
        deleted["metadata"]["labels"]["conf"], "leaves",
        "as it was last seen"
    );
    assert_eq!(
        version(&deleted),
        version(&left),
        "with the version of the change"
    );
    on.patch(
        SERVICES,
        "conf-leaves",
        &json!({"metadata": {"annotations": {"unseen": "1"}}}),
    )
    .await;
    on.patch(
        SERVICES,
        "conf-leaves",
        &json!({"metadata": {"labels": {"conf": "leaves"}}}),
    )
    .await;
    let added = watch.expect("ADDED").await;
    assert_eq!(added["metadata"]["annotations"]["unseen"], "1");
}

pub async fn a_watch_without_a_version_begins_with_what_there_is(on: &Subject) {
    for each in ["conf-begin-1", "conf-begin-2"] {
        on.make(SERVICES, &service(each, "begin")).await;
    }
    let list = on
        .get(&format!("{ALL_SERVICES}?labelSelector=conf%3Dbegin"))
        .await;
    for query in ["", "&resourceVersion=0", "&allowWatchBookmarks=true"] {
        let mut watch = on.watch(&format!("{}{query}", select("begin"))).await;
        let mut names = Vec::new();
        while names.len() < 2 {
            names.push(name(&watch.expect("ADDED").await).to_owned());
        }
        names.sort();
        assert_eq!(names, list.names());
        if query.contains("Bookmarks") {
            let end = watch.expect("BOOKMARK").await;
            let marked = json!({"k8s.io/initial-events-end": "true"});
            assert_eq!(end["metadata"]["annotations"], marked, "without asking for it");
        }
    }
}

pub async fn a_streaming_list_ends_with_a_marked_bookmark(on: &Subject) {
    let made = on.make(SERVICES, &service("conf-stream-1", "stream")).await;
    let made = on
        .make(SERVICES, &service("conf-stream-2", "stream"))
        .await
        .max_version(made);
    for query in ["", "&resourceVersion=0", &format!("&resourceVersion={made}")] {
        let uri = format!(
            "{}&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan{query}",
            select("stream")
        );
        let mut watch = on.watch(&uri).await;
        let mut names = Vec::new();
        let mut end = None;
        while end.is_none() {
            let event = watch.next().await.unwrap();
            match event["type"].as_str() {
                Some("ADDED") => names.push(name(&event["object"]).to_owned()),
                Some("BOOKMARK") => end = Some(event["object"].clone()),
                other => panic!("{other:?}: {event}"),
            }
        }
        names.sort();
        assert_eq!(names, ["conf-stream-1", "conf-stream-2"], "{query}");
        let end = end.unwrap();
        assert_eq!(
            (&end["kind"], &end["apiVersion"]),
            (&json!("Service"), &json!("v1"))
        );
        assert_eq!(
            end["metadata"]["annotations"],
            json!({"k8s.io/initial-events-end": "true"})
        );
        assert!(end["metadata"]["name"].is_null(), "{end}");
        assert!(version(&end) >= made, "{end}");
        on.patch(
            SERVICES,
            "conf-stream-1",
            &json!({"metadata": {"annotations": {"now": query}}}),
        )
        .await;
        assert_eq!(name(&watch.expect("MODIFIED").await), "conf-stream-1");
    }
}

trait MaxVersion {
    fn max_version(self, other: Value) -> u64;
}

impl MaxVersion for Value {
    fn max_version(self, other: Value) -> u64 {
        version(&self).max(version(&other))
    }
}

pub async fn a_version_that_is_no_longer_kept_ends_the_watch_with_410(on: &Subject) {
    let mut watch = on.watch(&format!("{}&resourceVersion=1", select("gone"))).await;
    let status = watch.expect("ERROR").await;
    let message = status["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("too old resource version: 1 ("), "{status}");
    assert_eq!(
        status,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": "Expired", "code": 410,
        })
    );
    assert_eq!(watch.next().await, None, "nothing comes after");
}

pub async fn a_watch_ends_when_its_time_is_up_after_a_last_bookmark(on: &Subject) {
    let made = on.make(SERVICES, &service("conf-end", "end")).await;
    let uri = format!(
        "{}&resourceVersion={}&timeoutSeconds=4&allowWatchBookmarks=true",
        select("end"),
        version(&made)
    );
    let mut watch = on.watch(&uri).await;
    // Bookmarks are of newer versions than the one asked for, whoever made them.
    let other = on.make(SERVICES, &service("conf-unseen", "unseen")).await;
    let bookmark = watch.expect("BOOKMARK").await;
    assert_eq!(
        (&bookmark["kind"], &bookmark["apiVersion"]),
        (&json!("Service"), &json!("v1"))
    );
    assert!(bookmark["metadata"]["annotations"].is_null(), "{bookmark}");
    assert!(version(&bookmark) >= version(&other));
    assert_eq!(
        (&bookmark["spec"], &bookmark["status"]),
        (&json!({}), &json!({"loadBalancer": {}}))
    );
    // A last one comes shortly before the end, and there may be others.
    while let Some(event) = watch.next().await {
        assert_eq!(event["type"], "BOOKMARK");
    }
    let mut plain = on.watch(&uri.replace("&allowWatchBookmarks=true", "")).await;
    assert_eq!(plain.next().await, None, "no bookmarks unless asked for");
}

pub async fn a_streaming_list_of_a_version_ahead_is_too_large(on: &Subject) {
    let ahead = on.get(SERVICES).await.version() + 1_000_000_000;
    let uri = format!(
        "{}&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion={ahead}",
        select("ahead")
    );
    let mut watch = on.watch(&uri).await;
    let status = watch.expect("ERROR").await;
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(504), &json!("Timeout")),
        "{status}"
    );
    assert_eq!(
        status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge",
        "{status}"
    );
    assert_eq!(watch.next().await, None);
}

pub async fn a_watch_after_a_version_ahead_waits_for_it(on: &Subject) {
    let made = on.make(SERVICES, &service("conf-ahead", "ahead")).await;
    let ahead = version(&made) + 1_000_000_000;
    let uri = format!(
        "{}&resourceVersion={ahead}&timeoutSeconds=4&allowWatchBookmarks=true",
        select("ahead")
    );
    let mut watch = on.watch(&uri).await;
    on.patch(
        SERVICES,
        "conf-ahead",
        &json!({"metadata": {"annotations": {"a": "1"}}}),
    )
    .await;
    assert_eq!(
        watch.next().await,
        None,
        "neither events nor bookmarks before that version are said"
    );
}

pub async fn watch_options_that_do_not_go_together_are_refused(on: &Subject) {
    for (query, field, text) in [
        (
            "sendInitialEvents=true",
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ] {
        let answer = on.get(&format!("{}&{query}", select("none"))).await;
        answer.is_status(
            422,
            "Invalid",
            &format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: Forbidden: {text}"),
        );
    }
}

pub async fn only_the_named_node_is_watched(on: &Subject) {
    let uri = format!(
        "{NODES}?fieldSelector=metadata.name%3Dconf-own&watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    );
    on.delete(NODES, "conf-own").await;
    let mut watch = on.watch(&uri).await;
    watch.expect("BOOKMARK").await;
    for each in ["conf-other", "conf-own"] {
        on.make(
            NODES,
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": each}}),
        )
        .await;
    }
    assert_eq!(name(&watch.expect("ADDED").await), "conf-own");
    on.delete(NODES, "conf-other").await;
    on.delete(NODES, "conf-own").await;
    // Other parts of a real server may have touched it in between.
    loop {
        let event = watch.next().await.unwrap();
        assert_eq!(name(&event["object"]), "conf-own");
        if event["type"] == "DELETED" {
            break;
        }
    }
}
