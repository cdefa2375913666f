//! What the server demands of Events (`events.k8s.io/v1`).

use crate::status::{Status, Wrong};
use serde_json::Value;

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}

fn refuse(event: &Value, wrong: &[Wrong]) -> Result<(), Status> {
    if wrong.is_empty() {
        return Ok(());
    }
    let name = text(&event["metadata"], "name");
    // The group is the one that this kind is kept under, whichever it came by.
    Err(Status::invalid("", "Event", name, wrong))
}

/// A new Event.
pub(crate) fn check_event(event: &Value, namespace: &str) -> Result<(), Status> {
    let mut wrong = Vec::new();
    if event["eventTime"].is_null() {
        wrong.push(Wrong::required("eventTime"));
        return refuse(event, &wrong);
    }
    let regarding = text(&event["regarding"], "namespace");
    if regarding.is_empty() && !matches!(namespace, "default" | "kube-system") {
        let why = "does not match event.namespace";
        wrong.push(Wrong::invalid("involvedObject.namespace", &"".into(), why));
    }
    for (field, shown) in [
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ] {
        let value = text(event, field);
        if value.is_empty() {
            wrong.push(Wrong::required(shown));
        } else if field != "reportingController" && value.len() > 128 {
            let why = "can have at most 128 characters";
            wrong.push(Wrong::invalid(shown, &"".into(), why));
        }
    }
    if text(event, "note").len() > 1024 {
        let why = "can have at most 1024 characters";
        wrong.push(Wrong::invalid("message", &"".into(), why));
    }
    check_series(event, &mut wrong);
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        let why = format!("has invalid value: {kind}");
        wrong.push(Wrong::invalid("type", &"".into(), &why));
    }
    refuse(event, &wrong)
}

fn check_series(event: &Value, wrong: &mut Vec<Wrong>) {
    let series = &event["series"];
    if series.is_null() {
        return;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        let why = "should be at least 2";
        wrong.push(Wrong::invalid("series.count", &"".into(), why));
    }
    if series["lastObservedTime"].is_null() {
        wrong.push(Wrong::required("series.lastObservedTime"));
    }
}

/// A change of an Event: only its series may change.
pub(crate) fn check_event_change(before: &Value, after: &Value) -> Result<(), Status> {
    let mut wrong = Vec::new();
    for (field, shown) in [
        ("regarding", "involvedObject"),
        // As often as a real server says it.
        ("reason", "reason"),
        ("reason", "reason"),
        ("note", "message"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        if before[field] != after[field] {
            wrong.push(Wrong::invalid(shown, &after[field], "field is immutable"));
        }
    }
    check_series(after, &mut wrong);
    refuse(after, &wrong)
}
