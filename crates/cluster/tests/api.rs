//! The API source's lists and watches, against a server that answers what a test tells it to.

mod support;

use apiserver::{Part, Reply, Server};
use cluster::api::Timing;
use std::time::Duration;
use support::{
    CONNECTED_STREAMING, added, bookmark, end_of_initial_events, event, lenient, list, listen, quick,
    service, services, status,
};

const CONNECTED_LIST: &str = "Connected { delivery: List }";

#[tokio::test]
async fn a_streaming_list_is_followed_by_its_changes() {
    let server = Server::scripted(services(|_| {
        Some(Reply::stream(vec![
            added("b", 7),
            added("a", 3),
            Part::Line(end_of_initial_events("9")),
            Part::Line(event("MODIFIED", &service("a", 10))),
            Part::Line(event("DELETED", &service("b", 11))),
            Part::Line(event("DELETED", &service("never-seen", 12))),
            Part::Line(bookmark("12")),
            Part::Hang,
        ]))
    }));
    let mut said = listen(&server.url, quick()).await;
    said.expect(&[
        "apply default/b",
        "apply default/a",
        "synced",
        CONNECTED_STREAMING,
    ])
    .await;
    said.expect(&["apply default/a", "delete default/b", "Bookmark"])
        .await;
    let asked = server.asked();
    let asked = asked.iter().find(|asked| asked.resource == "services").unwrap();
    assert!(
        asked.uri.starts_with(
            "/api/v1/services?labelSelector=%21service.kubernetes.io%2Fservice-proxy-name\
             &fieldSelector=spec.clusterIP%21%3DNone&watch=true&allowWatchBookmarks=true&timeoutSeconds="
        ),
        "{}",
        asked.uri
    );
    assert!(
        asked.header("user-agent").starts_with("kube-proxy-rs/"),
        "{asked:?}"
    );
}

/// The fallback of a server that says no: one list from its cache, then a watch after the list's version.
async fn falls_back(refusal: impl Fn() -> Reply + Send + Sync + 'static) {
    let server = Server::scripted(services(move |asked| {
        if asked.has("sendInitialEvents=true") {
            Some(refusal())
        } else if asked.has("watch=true") {
            Some(Reply::stream(vec![added("c", 51), Part::Hang]))
        } else {
            Some(Reply::whole(200, list("50", &[service("a", 3), service("b", 4)])))
        }
    }));
    let mut said = listen(&server.url, quick()).await;
    said.expect(&[
        "apply default/a",
        "apply default/b",
        "synced",
        CONNECTED_LIST,
        "apply default/c",
    ])
    .await;
    let requests = server.requests("services");
    assert_eq!(requests.len(), 3, "{requests:#?}");
    assert!(requests[1].contains("&resourceVersion=0 "), "{requests:#?}");
    assert!(!requests[1].contains("watch="), "{requests:#?}");
    assert!(requests[2].contains("&resourceVersion=50 "), "{requests:#?}");
}

#[tokio::test]
async fn a_server_that_finds_streaming_lists_invalid_is_listed() {
    for code in [400, 403, 422] {
        falls_back(move || {
            Reply::whole(
                code,
                status(
                    code,
                    "Invalid",
                    "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
                ),
            )
        })
        .await;
    }
}

/// What kube-apiserver 1.36 with etcd 3.4.23 does.
#[tokio::test]
async fn a_server_whose_etcd_cannot_report_progress_is_listed() {
    falls_back(|| {
        let error = status(
            500,
            "InternalError",
            "required storage feature RequestWatchProgress is disabled",
        );
        Reply::stream(vec![Part::Line(event("ERROR", &error)), Part::End])
    })
    .await;
}

#[tokio::test]
async fn a_server_that_ignores_the_wish_for_initial_events_is_listed() {
    falls_back(|| Reply::stream(vec![Part::Line(bookmark("40")), Part::Hang])).await;
    falls_back(|| Reply::stream(vec![Part::Hang])).await;
}

#[tokio::test]
async fn after_410_a_new_list_tells_what_went() {
    let server = Server::scripted(services(|asked| {
        Some(match asked.count {
            0 => Reply::stream(vec![
                added("a", 1),
                added("b", 2),
                Part::Line(end_of_initial_events("5")),
                Part::End,
            ]),
            1 => Reply::whole(410, status(410, "Expired", "too old resource version")),
            2 => Reply::stream(vec![
                added("a", 1),
                added("c", 8),
                Part::Line(end_of_initial_events("9")),
                Part::Line(event(
                    "ERROR",
                    &status(410, "Expired", "too old resource version: 9 (20)"),
                )),
                Part::End,
            ]),
            _ => Reply::stream(vec![
                added("c", 8),
                Part::Line(end_of_initial_events("21")),
                Part::Hang,
            ]),
        })
    }));
    let mut said = listen(&server.url, lenient()).await;
    said.expect(&[
        "apply default/a",
        "apply default/b",
        "synced",
        CONNECTED_STREAMING,
    ])
    .await;
    said.expect(&["apply default/a", "apply default/c", "delete default/b", "synced"])
        .await;
    said.expect(&["apply default/c", "delete default/a", "synced"])
        .await;
    let requests = server.requests("services");
    assert!(
        requests[1].contains("&resourceVersion=5 ") && !requests[1].contains("sendInitial"),
        "{requests:#?}"
    );
    assert!(requests[2].contains("sendInitialEvents=true") && requests[2].contains("&resourceVersion=5 "));
    assert!(requests[3].contains("sendInitialEvents=true") && requests[3].contains("&resourceVersion=9 "));
}

/// After a backup was restored, the server never reaches the version seen before.
#[tokio::test]
async fn a_server_whose_data_went_back_in_time_is_listed_from_scratch() {
    let server = Server::scripted(services(|asked| {
        let behind = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Too large resource version: 90, current: 7","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":0},"code":504}"#;
        Some(match asked.count {
            0 => Reply::stream(vec![
                added("a", 80),
                Part::Line(end_of_initial_events("90")),
                Part::Line(event("ERROR", &status(410, "Expired", "too old"))),
                Part::End,
            ]),
            1 => Reply::whole(504, behind.to_owned()),
            _ => Reply::stream(vec![
                added("b", 6),
                Part::Line(end_of_initial_events("7")),
                Part::Hang,
            ]),
        })
    }));
    let mut said = listen(&server.url, quick()).await;
    said.expect(&[
        "apply default/a",
        "synced",
        CONNECTED_STREAMING,
        "apply default/b",
        "delete default/a",
        "synced",
    ])
    .await;
    assert!(!server.requests("services")[2].contains("resourceVersion="));
}

#[tokio::test]
async fn a_cut_watch_resumes_after_the_last_event_without_a_list() {
    let server = Server::scripted(services(|asked| {
        Some(match asked.count {
            0 => Reply::stream(vec![
                added("a", 1),
                Part::Line(end_of_initial_events("5")),
                added("b", 6),
                Part::Text(r#"{"type":"ADDED","object":{"kind":"Serv"#.to_owned()),
                Part::Cut,
            ]),
            1 => Reply::stream(vec![added("c", 7), Part::Line(bookmark("30")), Part::Cut]),
            _ => Reply::stream(vec![added("d", 31), Part::Hang]),
        })
    }));
    let mut said = listen(&server.url, lenient()).await;
    said.expect(&[
        "apply default/a",
        "synced",
        CONNECTED_STREAMING,
        "apply default/b",
    ])
    .await;
    said.expect(&["apply default/c", "Bookmark", "apply default/d"])
        .await;
    let requests = server.requests("services");
    assert!(requests[1].contains("&resourceVersion=6 "), "{requests:#?}");
    assert!(requests[2].contains("&resourceVersion=30 "), "{requests:#?}");
}

#[tokio::test]
async fn one_garbled_object_does_not_stop_the_stream() {
    let server = Server::scripted(services(|_| {
        Some(Reply::stream(vec![
            added("a", 1),
            Part::Line(event(
                "ADDED",
                r#"{"metadata":{"name":"broken","namespace":"default"},"spec":{]}"#,
            )),
            Part::Line("<html>".to_owned()),
            Part::Line(event(
                "ADDED",
                r#"{"metadata":{"name":"b","namespace":"default"},"spec":{"ports":"none","clusterIP":"10.96.0.9"}}"#,
            )),
            Part::Line(end_of_initial_events("5")),
            Part::Line(event(
                "ADDED",
                r#"{"metadata":{"name":"Not_A_Name","namespace":"default"}}"#,
            )),
            added("c", 6),
            Part::Hang,
        ]))
    }));
    let mut said = listen(&server.url, quick()).await;
    said.expect(&["apply default/a"]).await;
    assert!(said.next().await.contains("broken"));
    assert!(said.next().await.contains("<html>"));
    assert!(said.next().await.contains("spec.ports"));
    said.expect(&["apply default/b", "synced", CONNECTED_STREAMING])
        .await;
    assert!(said.next().await.contains("metadata.name"));
    said.expect(&["apply default/c"]).await;
}

#[tokio::test]
async fn one_garbled_item_does_not_stop_the_list() {
    let server = Server::scripted(services(|asked| {
        Some(if asked.has("sendInitialEvents=true") {
            Reply::whole(400, status(400, "BadRequest", "no"))
        } else if asked.has("watch=true") {
            Reply::stream(vec![Part::Hang])
        } else {
            let garbled = r#"{"metadata":{"name":oops}}"#.to_owned();
            Reply::whole(
                200,
                list("50", &[service("a", 3), garbled, "7".to_owned(), service("b", 4)]),
            )
        })
    }));
    let mut said = listen(&server.url, quick()).await;
    said.expect(&["apply default/a"]).await;
    assert!(said.next().await.contains("oops"));
    assert!(said.next().await.starts_with("unreadable"));
    said.expect(&["apply default/b", "synced", CONNECTED_LIST]).await;
}

#[tokio::test]
async fn a_list_that_is_cut_off_deletes_nothing() {
    let server = Server::scripted(services(|asked| {
        Some(if asked.has("sendInitialEvents=true") {
            Reply::whole(400, status(400, "BadRequest", "no"))
        } else if asked.has("watch=true") {
            Reply::whole(410, status(410, "Expired", "too old"))
        } else if asked.count == 3 {
            let whole = list("51", &[service("a", 3), service("b", 4)]);
            let (start, _) = whole.split_at(whole.rfind("\"name\":\"b\"").unwrap());
            Reply::stream(vec![Part::Text(start.to_owned()), Part::End])
        } else {
            Reply::whole(200, list("50", &[service("a", 3), service("b", 4)]))
        })
    }));
    let mut said = listen(&server.url, quick()).await;
    said.expect(&["apply default/a", "apply default/b", "synced", "apply default/a"])
        .await;
    assert!(said.next().await.contains("cut off"));
    said.expect(&["apply default/a", "apply default/b", "synced"])
        .await;
}

/// Upstream issues 76338, 38372, 51445, 67875, 91812: a dead connection that nobody noticed for days.
#[tokio::test]
async fn a_silent_watch_is_opened_anew() {
    let server = Server::scripted(services(|asked| {
        Some(match asked.count {
            0 => Reply::stream(vec![
                added("a", 1),
                Part::Line(end_of_initial_events("5")),
                Part::Hang,
            ]),
            _ => Reply::stream(vec![added("b", 6), Part::Hang]),
        })
    }));
    let mut said = listen(&server.url, quick()).await;
    said.expect(&[
        "apply default/a",
        "synced",
        CONNECTED_STREAMING,
        "Silent { quiet: 300ms }",
        "apply default/b",
    ])
    .await;
    assert!(server.requests("services")[1].contains("&resourceVersion=5 "));
}

#[tokio::test]
async fn bookmarks_keep_a_quiet_watch_open() {
    let server = Server::scripted(services(|_| {
        let mut parts = vec![Part::Line(end_of_initial_events("5"))];
        for version in 6..12 {
            parts.push(Part::Wait(Duration::from_millis(300)));
            parts.push(Part::Line(bookmark(&version.to_string())));
        }
        parts.push(Part::Hang);
        Some(Reply::stream(parts))
    }));
    let timing = Timing {
        silence: Duration::from_millis(1500),
        ..quick()
    };
    let mut said = listen(&server.url, timing).await;
    said.expect(&["synced", CONNECTED_STREAMING]).await;
    said.expect(&["Bookmark"; 6]).await;
    assert_eq!(server.requests("services").len(), 1);
}
