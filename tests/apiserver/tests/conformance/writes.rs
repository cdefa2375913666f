//! Creating, changing, deleting.

use crate::subject::{SERVICES, SLICES, Subject, service};
use apiserver::objects::slice;
use serde_json::{Value, json};

pub async fn a_name_is_taken_once(on: &Subject) {
    on.make(SERVICES, &service("conf-once", "once")).await;
    let answer = on.ask("POST", SERVICES, &service("conf-once", "once")).await;
    answer.is_status(409, "AlreadyExists", "services \"conf-once\" already exists");
    assert_eq!(
        answer.body["details"],
        json!({"name": "conf-once", "kind": "services"})
    );
    let mut elsewhere = service("conf-elsewhere", "once");
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    let answer = on.ask("POST", SERVICES, &elsewhere).await;
    answer.is_status(
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    );
}

pub async fn a_change_of_an_old_version_is_a_conflict(on: &Subject) {
    let old = on.make(SERVICES, &service("conf-old", "old")).await;
    let new = on
        .patch(
            SERVICES,
            "conf-old",
            &json!({"metadata": {"annotations": {"a": "1"}}}),
        )
        .await;
    let uri = format!("{SERVICES}/conf-old");
    let answer = on.ask("PUT", &uri, &old).await;
    answer.is_status(
        409,
        "Conflict",
        "Operation cannot be fulfilled on services \"conf-old\": the object has been modified; please apply your changes to the latest version and try again",
    );
    let answer = on.ask("PUT", &uri, &new).await;
    assert_eq!(answer.status, 200, "{answer:#?}");
    assert_eq!(answer.body["metadata"]["uid"], old["metadata"]["uid"]);
}

pub async fn what_is_deleted_is_said(on: &Subject) {
    let made = on.make(SERVICES, &service("conf-gone", "gone")).await;
    let answer = on
        .ask("DELETE", &format!("{SERVICES}/conf-gone"), &Value::Null)
        .await;
    assert_eq!(
        (answer.status, &answer.body["kind"]),
        (200, &json!("Service")),
        "{answer:#?}"
    );
    assert_eq!(answer.body["metadata"]["uid"], made["metadata"]["uid"]);
    let mut object = slice("conf-gone-1", "conf-gone", &["10.0.0.1"]);
    object["apiVersion"] = "discovery.k8s.io/v1".into();
    let made = on.make(SLICES, &object).await;
    let answer = on
        .ask("DELETE", &format!("{SLICES}/conf-gone-1"), &Value::Null)
        .await;
    assert_eq!(
        answer.body,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {
                "name": "conf-gone-1", "group": "discovery.k8s.io", "kind": "endpointslices",
                "uid": made["metadata"]["uid"],
            },
        })
    );
    let answer = on
        .ask("DELETE", &format!("{SLICES}/conf-gone-1"), &Value::Null)
        .await;
    answer.is_status(
        404,
        "NotFound",
        "endpointslices.discovery.k8s.io \"conf-gone-1\" not found",
    );
}
