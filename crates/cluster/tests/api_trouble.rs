//! What the API source says of a server that is away, refuses, or answers nonsense; and what a slow listener does.

mod support;

use apiserver::{Options, Part, Reply, Server, objects};
use cluster::{Health, Kind, SourceEvent};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{CONNECTED_STREAMING, end_of_initial_events, event, listen, quick, service, services, status};

#[tokio::test]
async fn a_server_that_never_answers_is_reported() {
    let server = Server::scripted(services(|_| Some(Reply::Nothing)));
    let mut said = listen(&server.url, quick()).await;
    let text = said.next().await;
    assert!(
        text.starts_with("Failing") && text.contains("nothing came for 0.3s"),
        "{text}"
    );
    assert!(text.contains(&server.url) && text.contains("node-a"), "{text}");
}

#[tokio::test]
async fn a_server_that_is_away_is_reported_in_few_lines_until_it_comes() {
    let server = Server::start(Options::default());
    server.apply(objects::service("a", "10.96.0.1"));
    server.close();
    let mut said = listen(&server.url, quick()).await;
    // The watches share one outage, and whichever is due tells of it again: only the first word is sure to be this one's.
    let text = said.next().await;
    assert!(
        text.contains("Connection refused") && text.contains(&server.url),
        "{text}"
    );
    assert!(text.contains("check that the API server runs"), "{text}");
    server.open();
    said.until("apply default/a").await;
    said.expect(&["synced", CONNECTED_STREAMING]).await;
}

#[tokio::test]
async fn missing_permission_names_the_verbs_and_the_resource() {
    let server = Server::scripted(|asked| {
        (asked.resource == "services").then(|| {
            Reply::whole(
                403,
                status(
                    403,
                    "Forbidden",
                    "services is forbidden: User bob cannot list resource services",
                ),
            )
        })
    });
    let mut said = listen(&server.url, quick()).await;
    let text = said.next().await;
    assert!(text.contains("403") && text.contains("User bob"), "{text}");
    assert!(
        text.contains("grant this user the verbs list and watch on services"),
        "{text}"
    );
}

#[tokio::test]
async fn bad_credentials_name_the_place_to_look() {
    let server = Server::scripted(|_| Some(Reply::whole(401, status(401, "Unauthorized", "Unauthorized"))));
    let mut said = listen(&server.url, quick()).await;
    let text = said.next().await;
    assert!(
        text.contains("401 Unauthorized") && text.contains("check the token"),
        "{text}"
    );
}

#[tokio::test]
async fn a_login_page_is_no_api_server() {
    let server = Server::scripted(|asked| {
        Some(if asked.has("watch=true") {
            Reply::whole(404, "<html>not here</html>".to_owned())
        } else {
            Reply::whole(200, "<html>please log in</html>".to_owned())
        })
    });
    let mut said = listen(&server.url, quick()).await;
    let text = said.next().await;
    assert!(text.starts_with("Failing") && !text.contains('\n'), "{text}");
}

#[tokio::test]
async fn a_server_without_service_cidrs_is_good_enough() {
    let server = Server::scripted(|asked| {
        (asked.resource == "servicecidrs").then(|| {
            if asked.count == 0 {
                Reply::whole(404, "404 page not found".to_owned())
            } else {
                Reply::stream(vec![Part::Line(end_of_initial_events("5")), Part::Hang])
            }
        })
    });
    let mut said = listen(&server.url, quick()).await;
    let mut heard = Vec::new();
    while heard.len() < 4 {
        match said.events.recv().await.unwrap() {
            SourceEvent::Health(Kind::ServiceCidr, health) => heard.push(format!("{health:?}")),
            SourceEvent::Synced(Kind::ServiceCidr) => heard.push("synced".to_owned()),
            SourceEvent::Health(_, Health::Failing { error, .. }) => panic!("{error}"),
            _ => {}
        }
    }
    assert_eq!(heard, ["Absent", "synced", "synced", CONNECTED_STREAMING]);
}

/// What the listener has not taken stays with the server: memory is bounded however slow the listener is.
#[tokio::test]
async fn a_slow_listener_slows_the_server_and_is_not_taken_for_silence() {
    let sent = Arc::new(AtomicUsize::new(0));
    let server = Server::scripted(services({
        let sent = sent.clone();
        move |_| {
            Some(Reply::stream(vec![Part::Forever(
                event("ADDED", &service("a", 1)),
                sent.clone(),
            )]))
        }
    }));
    let mut said = listen(&server.url, quick()).await;
    said.expect(&["apply default/a"]).await;
    let mut before = usize::MAX;
    // Longer than the silence that is allowed to the server.
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = sent.load(Ordering::Relaxed);
        if now == before {
            break;
        }
        before = now;
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(sent.load(Ordering::Relaxed), before, "the server goes on sending");
    assert!(before < 64 << 20, "{before} bytes were taken");
    said.expect(&["apply default/a"; 100]).await;
    assert_eq!(server.requests("services").len(), 1);
}

#[tokio::test]
async fn a_source_without_listener_ends() {
    let server = Server::scripted(|_| None);
    let mut options = cluster::api::ApiOptions::new(
        cluster::api::Address {
            kubeconfig: None,
            master: Some(server.url.clone()),
        },
        "node-a",
    );
    options.timing = quick();
    let (out, events) = tokio::sync::mpsc::channel(1);
    let task = tokio::spawn(cluster::api::Source::new(options).await.unwrap().run(out));
    drop(events);
    tokio::time::timeout(Duration::from_secs(5), task)
        .await
        .unwrap()
        .unwrap();
}
