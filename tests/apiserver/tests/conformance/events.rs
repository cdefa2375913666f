//! Events, as kube-proxy writes them.

use crate::subject::{EVENTS, Subject, version};
use apiserver::objects::node_event;
use serde_json::{Value, json};

pub async fn an_event_is_created_and_its_series_patched(on: &Subject) {
    let event = node_event("conf-node.1", "conf-node");
    let made = on.make(EVENTS, &event).await;
    for field in [
        "reason",
        "action",
        "type",
        "reportingController",
        "reportingInstance",
        "regarding",
        "eventTime",
    ] {
        assert_eq!(made[field], event[field], "{made}");
    }
    assert_eq!(made["kind"], "Event");
    assert_eq!(made["apiVersion"], "events.k8s.io/v1");
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:05:00.000000Z"}});
    for kind in [
        "application/strategic-merge-patch+json",
        "application/merge-patch+json",
    ] {
        let answer = on
            .send(
                "PATCH",
                &format!("{EVENTS}/conf-node.1"),
                &[("content-type", kind), ("accept", "application/json")],
                &series,
            )
            .await;
        assert_eq!(answer.status, 200, "{answer:#?}");
        assert_eq!(answer.body["series"], series["series"], "{answer:#?}");
        assert!(answer.version() >= version(&made));
    }
    on.delete(EVENTS, "conf-node.1").await;
    let answer = on.ask("PATCH", &format!("{EVENTS}/conf-node.1"), &series).await;
    answer.is_status(404, "NotFound", "events.events.k8s.io \"conf-node.1\" not found");
}

/// Fields that a refusal names.
fn fields(body: &Value) -> Vec<&str> {
    let causes = body["details"]["causes"]
        .as_array()
        .unwrap_or_else(|| panic!("{body}"));
    causes
        .iter()
        .map(|cause| cause["field"].as_str().unwrap())
        .collect()
}

pub async fn incomplete_events_are_refused_field_by_field(on: &Subject) {
    let long = "x".repeat(1025);
    for (change, wrong) in [
        (json!({"eventTime": null}), vec!["eventTime"]),
        (json!({"action": null, "reason": null}), vec!["action", "reason"]),
        (json!({"reportingInstance": null}), vec!["reportingInstance"]),
        (json!({"note": long}), vec!["message"]),
        (json!({"type": "Odd"}), vec!["type"]),
        (
            json!({"series": {"count": 1, "lastObservedTime": "2026-01-01T00:05:00.000000Z"}}),
            vec!["series.count"],
        ),
    ] {
        let mut event = node_event("conf-bad.1", "conf-node");
        for (field, value) in change.as_object().unwrap() {
            event[field] = value.clone();
        }
        let answer = on.ask("POST", EVENTS, &event).await;
        assert_eq!(
            (answer.status, &answer.body["reason"]),
            (422, &json!("Invalid")),
            "{change}: {answer:#?}"
        );
        assert_eq!(fields(&answer.body), wrong, "{change}: {answer:#?}");
        assert_eq!(answer.body["details"]["name"], "conf-bad.1", "{answer:#?}");
    }
}

pub async fn only_the_series_of_an_event_may_change(on: &Subject) {
    on.make(EVENTS, &node_event("conf-fixed.1", "conf-node")).await;
    let uri = format!("{EVENTS}/conf-fixed.1");
    let answer = on.ask("PATCH", &uri, &json!({"reason": "Other"})).await;
    assert_eq!(
        (answer.status, &answer.body["reason"]),
        (422, &json!("Invalid")),
        "{answer:#?}"
    );
    assert_eq!(fields(&answer.body), ["reason", "reason"], "{answer:#?}");
    let message = "Event \"conf-fixed.1\" is invalid: reason: Invalid value: \"Other\": field is immutable";
    assert_eq!(answer.body["message"], message);
    on.delete(EVENTS, "conf-fixed.1").await;
}
