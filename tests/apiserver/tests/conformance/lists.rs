//! Lists.

use crate::subject::{ALL_SERVICES, NODES, SERVICES, SLICES, Subject, service, version};
use serde_json::{Value, json};

pub async fn a_list_says_its_version_and_its_items_do_not_say_their_kind(on: &Subject) {
    let made = on.make(SERVICES, &service("conf-list", "list")).await;
    assert_eq!(
        (&made["kind"], &made["apiVersion"]),
        (&json!("Service"), &json!("v1"))
    );
    for (field, value) in [
        ("type", "ClusterIP"),
        ("sessionAffinity", "None"),
        ("ipFamilyPolicy", "SingleStack"),
    ] {
        assert_eq!(made["spec"][field], value, "{made}");
    }
    assert_eq!(made["spec"]["clusterIPs"][0], made["spec"]["clusterIP"], "{made}");
    assert_eq!(made["spec"]["ports"][0]["protocol"], "TCP", "{made}");
    assert_eq!(made["spec"]["ports"][0]["targetPort"], 80, "{made}");
    assert_eq!(made["metadata"]["namespace"], "default", "{made}");
    let list = on.get(&format!("{ALL_SERVICES}?labelSelector=conf%3Dlist")).await;
    assert_eq!(list.status, 200, "{list:#?}");
    assert_eq!(list.header("content-type"), "application/json", "{list:#?}");
    assert_eq!(list.body["kind"], "ServiceList");
    assert_eq!(list.body["apiVersion"], "v1");
    assert!(list.version() >= version(&made), "{list:#?}");
    assert_eq!(list.names(), ["conf-list"]);
    let item = &list.body["items"][0];
    assert!(item["kind"].is_null() && item["apiVersion"].is_null(), "{item}");
    assert_eq!(version(item), version(&made));
    assert!(item["metadata"]["uid"].is_string(), "{item}");
    let slices = on.get(&format!("{SLICES}?labelSelector=conf%3Dnone")).await;
    assert_eq!(slices.body["kind"], "EndpointSliceList");
    assert_eq!(slices.body["apiVersion"], "discovery.k8s.io/v1");
    assert_eq!(slices.body["items"], json!([]));
}

pub async fn a_list_not_older_than_a_version_has_what_was_written_then(on: &Subject) {
    let made = on.make(SERVICES, &service("conf-fresh", "fresh")).await;
    let uri = format!(
        "{SERVICES}?labelSelector=conf%3Dfresh&resourceVersionMatch=NotOlderThan&resourceVersion={}",
        version(&made)
    );
    let list = on.get(&uri).await;
    assert_eq!(list.names(), ["conf-fresh"]);
    assert!(list.version() >= version(&made));
    let any = on
        .get(&format!(
            "{SERVICES}?labelSelector=conf%3Dfresh&resourceVersion=0"
        ))
        .await;
    assert_eq!(any.status, 200, "{any:#?}");
}

pub async fn a_version_ahead_of_the_server_is_too_large(on: &Subject) {
    let ahead = on.get(SERVICES).await.version() + 1_000_000_000;
    let uri = format!("{SERVICES}?resourceVersionMatch=NotOlderThan&resourceVersion={ahead}");
    let answer = on.get(&uri).await;
    assert_eq!(
        (answer.status, &answer.body["reason"]),
        (504, &json!("Timeout")),
        "{answer:#?}"
    );
    let message = answer.body["message"].as_str().unwrap();
    assert!(
        message.starts_with(&format!(
            "Timeout: Too large resource version: {ahead}, current: "
        )),
        "{answer:#?}"
    );
    assert_eq!(
        answer.body["details"],
        json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }),
        "{answer:#?}"
    );
    assert_eq!(answer.header("retry-after"), "1", "{answer:#?}");
}

pub async fn a_version_that_is_no_number_is_refused(on: &Subject) {
    let answer = on.get(&format!("{SERVICES}?resourceVersion=abc")).await;
    let message = "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
    answer.is_status(400, "BadRequest", message);
    let answer = on
        .get(&format!("{SERVICES}?watch=true&resourceVersion=abc"))
        .await;
    assert_eq!(answer.status, 500, "{answer:#?}");
    assert!(answer.body["reason"].is_null(), "{answer:#?}");
    let answer = on.get(&format!("{SERVICES}?limit=abc")).await;
    answer.is_status(
        400,
        "BadRequest",
        "strconv.ParseInt: parsing \"abc\": invalid syntax",
    );
}

pub async fn pages_are_of_one_version(on: &Subject) {
    for name in ["conf-page-1", "conf-page-2", "conf-page-3", "conf-page-4"] {
        on.make(SERVICES, &service(name, "pages")).await;
    }
    on.delete(SERVICES, "conf-page-4").await;
    let uri = format!("{SERVICES}?labelSelector=conf%3Dpages&limit=2");
    let first = on.get(&uri).await;
    assert_eq!(first.names(), ["conf-page-1", "conf-page-2"]);
    let token = first.body["metadata"]["continue"].as_str().unwrap().to_owned();
    assert!(
        first.body["metadata"]["remainingItemCount"].is_null(),
        "{first:#?}"
    );
    on.make(SERVICES, &service("conf-page-4", "pages")).await;
    let second = on.get(&format!("{uri}&continue={token}")).await;
    assert_eq!(
        second.names(),
        ["conf-page-3"],
        "the page after has what there was"
    );
    assert_eq!(second.version(), first.version());
    assert!(second.body["metadata"]["continue"].is_null(), "{second:#?}");
    let unselected = on.get(&format!("{SERVICES}?limit=1")).await;
    assert!(
        unselected.body["metadata"]["remainingItemCount"].as_u64() >= Some(3),
        "{unselected:#?}"
    );
    let versioned = on.get(&format!("{uri}&continue={token}&resourceVersion=5")).await;
    versioned.is_status(
        400,
        "BadRequest",
        "specifying resource version is not allowed when using continue",
    );
}

pub async fn a_list_of_any_version_has_no_pages(on: &Subject) {
    for name in ["conf-any-1", "conf-any-2"] {
        on.make(SERVICES, &service(name, "any")).await;
    }
    let at = on.get(SERVICES).await.version();
    // A server that is behind says so within its patience; one list makes sure that it is not.
    on.get(&format!(
        "{SERVICES}?resourceVersionMatch=NotOlderThan&resourceVersion={at}"
    ))
    .await;
    let list = on
        .get(&format!(
            "{SERVICES}?labelSelector=conf%3Dany&limit=1&resourceVersion=0"
        ))
        .await;
    assert_eq!(list.names(), ["conf-any-1", "conf-any-2"]);
    assert!(list.body["metadata"]["continue"].is_null(), "{list:#?}");
}

pub async fn a_continue_token_of_somebody_else_is_refused(on: &Subject) {
    let answer = on.get(&format!("{SERVICES}?limit=1&continue=bm9uc2Vuc2U")).await;
    assert_eq!(
        (answer.status, &answer.body["reason"]),
        (400, &json!("BadRequest")),
        "{answer:#?}"
    );
    let message = answer.body["message"].as_str().unwrap();
    assert!(
        message.starts_with("invalid continue token: continue key is not valid: "),
        "{answer:#?}"
    );
}

pub async fn options_that_do_not_go_together_are_refused(on: &Subject) {
    let answer = on
        .get(&format!("{SERVICES}?resourceVersionMatch=NotOlderThan"))
        .await;
    answer.is_status(
        422,
        "Invalid",
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
    );
    assert_eq!(
        answer.body["details"],
        json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": [{
            "reason": "FieldValueForbidden", "field": "resourceVersionMatch",
            "message": "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        }]}),
    );
    for (query, text) in [
        (
            "sendInitialEvents=true",
            "sendInitialEvents is forbidden for list",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
    ] {
        let answer = on.get(&format!("{SERVICES}?{query}")).await;
        assert_eq!(
            (answer.status, &answer.body["reason"]),
            (422, &json!("Invalid")),
            "{answer:#?}"
        );
        assert!(answer.text.contains(&text.replace('"', "\\\"")), "{answer:#?}");
    }
}

pub async fn labels_and_fields_select(on: &Subject) {
    on.make(SERVICES, &service("conf-sel-a", "sel")).await;
    let mut headless = service("conf-sel-b", "sel");
    headless["spec"]["clusterIP"] = "None".into();
    on.make(SERVICES, &headless).await;
    let mut others = service("conf-sel-c", "sel");
    others["metadata"]["labels"]["service.kubernetes.io/service-proxy-name"] = "other".into();
    on.make(SERVICES, &others).await;
    for (query, names) in [
        (
            "labelSelector=conf%3Dsel",
            vec!["conf-sel-a", "conf-sel-b", "conf-sel-c"],
        ),
        (
            "labelSelector=conf%3Dsel,%21service.kubernetes.io%2Fservice-proxy-name&fieldSelector=spec.clusterIP%21%3DNone",
            vec!["conf-sel-a"],
        ),
        (
            "labelSelector=conf%3Dsel,service.kubernetes.io%2Fservice-proxy-name",
            vec!["conf-sel-c"],
        ),
        (
            "labelSelector=conf%20in%20%28sel%2Cother%29&fieldSelector=spec.clusterIP%3DNone",
            vec!["conf-sel-b"],
        ),
        (
            "labelSelector=conf%3Dsel&fieldSelector=metadata.name%3Dconf-sel-c",
            vec!["conf-sel-c"],
        ),
        ("labelSelector=conf%3Dsel,conf%21%3Dsel", vec![]),
    ] {
        let list = on.get(&format!("{ALL_SERVICES}?{query}")).await;
        assert_eq!(list.names(), names, "{query}");
    }
    on.make(
        NODES,
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "conf-node-a"}}),
    )
    .await;
    let list = on
        .get(&format!("{NODES}?fieldSelector=metadata.name%3Dconf-node-a"))
        .await;
    assert_eq!(list.names(), ["conf-node-a"]);
    on.delete(NODES, "conf-node-a").await;
}

pub async fn selectors_that_mean_nothing_are_refused(on: &Subject) {
    let answer = on.get(&format!("{SERVICES}?fieldSelector=spec.ports%3D1")).await;
    answer.is_status(400, "BadRequest", "field label not supported: spec.ports");
    let answer = on.get(&format!("{SERVICES}?labelSelector=%21%21")).await;
    assert_eq!(
        (answer.status, &answer.body["reason"]),
        (400, &json!("BadRequest")),
        "{answer:#?}"
    );
    let message = answer.body["message"].as_str().unwrap();
    assert!(
        message.starts_with("unable to parse requirement: "),
        "{answer:#?}"
    );
}

pub async fn what_is_not_there_is_not_found(on: &Subject) {
    let answer = on.get(&format!("{SERVICES}/conf-nobody")).await;
    answer.is_status(404, "NotFound", "services \"conf-nobody\" not found");
    assert_eq!(
        answer.body["details"],
        json!({"name": "conf-nobody", "kind": "services"})
    );
    let answer = on.get(&format!("{SLICES}/conf-nobody")).await;
    answer.is_status(
        404,
        "NotFound",
        "endpointslices.discovery.k8s.io \"conf-nobody\" not found",
    );
    assert_eq!(
        answer.body["details"],
        json!({"name": "conf-nobody", "group": "discovery.k8s.io", "kind": "endpointslices"})
    );
    for path in [
        "/apis/networking.k8s.io/v1/nothings",
        "/api/v1/nothings",
        "/api/v1/nothings?watch=true",
        "/api/v1/namespaces/default/nothings/x",
    ] {
        let answer = on.get(path).await;
        answer.is_status(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        assert_eq!(answer.body["details"], json!({}), "{path}");
    }
    for path in ["/apis/example.com/v1/things", "/nothing"] {
        let answer = on.get(path).await;
        assert_eq!(
            (answer.status, answer.text.trim()),
            (404, "404 page not found"),
            "{path}"
        );
        assert!(
            answer.header("content-type").starts_with("text/plain"),
            "{answer:#?}"
        );
    }
}

pub async fn only_media_types_that_are_to_be_had_are_accepted(on: &Subject) {
    let ask = |accept: &'static str| async move {
        on.send("GET", SERVICES, &[("accept", accept)], &Value::Null)
            .await
    };
    for accept in ["application/json", "application/vnd.example, */*", "*/*"] {
        let answer = ask(accept).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, "application/json"),
            "{accept}"
        );
    }
    for accept in ["application/vnd.example", "application/*"] {
        let answer = ask(accept).await;
        assert_eq!(answer.status, 406, "{answer:#?}");
        assert_eq!(answer.body["reason"], "NotAcceptable", "{answer:#?}");
        let message = answer.body["message"].as_str().unwrap();
        assert!(
            message.starts_with("406: Not Acceptable\n\nAvailable representations: application/json, "),
            "{answer:#?}"
        );
    }
}
