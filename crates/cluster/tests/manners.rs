//! How the API source treats a server: what it asks for, how often, and how much it takes at once.

mod support;

use apiserver::{Asked, Fault, Options, Part, Reply, Resource, Server, StreamingLists, objects};
use cluster::Kind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::follower::{Follower, KINDS, PATIENCE};
use support::{listen, options, patient, quick};

/// Waits for something at the server, which runs by itself.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_list(asked: &Asked) -> bool {
    asked.method == "GET" && !asked.is_watch()
}

/// Upstream issues 85342 and 26637: a fleet that lists from etcd brings the server down. All of a source's life:
/// start, cuts, 410 in both forms, an outage, a restart.
#[tokio::test]
async fn no_list_ever_asks_etcd() {
    for lists in [StreamingLists::Offered, StreamingLists::Refused] {
        let server = Server::start(Options {
            streaming_lists: lists,
            ..Options::default()
        });
        server.apply(objects::service("a", "10.96.0.1"));
        for _ in 0..2 {
            let mut follower = Follower::start(options(&server.url, quick())).await;
            follower.until_connected().await;
            server.cut_all();
            server.apply(objects::service("b", "10.96.0.2"));
            follower.until_right(&server).await;
            server.expire(Resource::Services);
            server.compact();
            server.cut_all();
            server.close();
            server.open();
            server.apply(objects::service("c", "10.96.0.3"));
            follower.until_right(&server).await;
            follower
                .until("services are listed again", |follower| {
                    follower.synced[&Kind::Service] >= 2
                })
                .await;
            server.delete(Resource::Services, "default", "b");
            follower.until_right(&server).await;
        }
        let asked = server.asked();
        let from_etcd = asked
            .iter()
            .filter(|asked| is_list(asked) && asked.parameter("resourceVersion").is_empty());
        assert_eq!(from_etcd.count(), 0, "{asked:#?}");
        for asked in asked.iter().filter(|asked| is_list(asked)) {
            let how = (
                asked.parameter("resourceVersion"),
                asked.parameter("resourceVersionMatch"),
            );
            assert!(how.0 == "0" || how.1 == "NotOlderThan", "{}", asked.uri);
        }
        let refused = lists == StreamingLists::Refused;
        assert_eq!(
            asked.iter().any(is_list),
            refused,
            "lists are asked for only where they do not stream"
        );
        for watch in asked.iter().filter(|asked| asked.is_watch()) {
            assert!(watch.has("allowWatchBookmarks=true"), "{}", watch.uri);
        }
    }
}

/// A bookmark moves the place to resume at, so that a quiet watch does not end in 410 and a list.
#[tokio::test]
async fn a_bookmark_saves_a_list_after_the_past_is_forgotten() {
    let server = Server::start(Options::default());
    server.apply(objects::service("a", "10.96.0.1"));
    let mut follower = Follower::start(options(&server.url, patient())).await;
    follower.until_connected().await;
    // Other kinds are busy, Services are quiet.
    for address in ["10.0.0.1", "10.0.0.2"] {
        server.apply(objects::slice("a-1", "a", &[address]));
    }
    server.compact();
    server.bookmark();
    follower
        .until("the bookmark came", |follower| {
            KINDS
                .iter()
                .all(|kind| follower.health[kind] == cluster::Health::Bookmark)
        })
        .await;
    server.cut_all();
    server.apply(objects::service("b", "10.96.0.2"));
    follower.until_right(&server).await;
    assert_eq!(follower.synced[&Kind::Service], 1, "{}", follower.said());
    let last = server.requests("services").pop().unwrap();
    assert!(!last.contains("sendInitialEvents"), "{last}");
}

#[tokio::test]
async fn requests_keep_to_the_rate_and_use_the_burst() {
    let server = Server::scripted(|_| Some(Reply::whole(503, "starting")));
    let mut timing = quick();
    timing.backoff = (Duration::ZERO, Duration::ZERO);
    let mut options = options(&server.url, timing);
    (options.qps, options.burst) = (20.0, 15);
    let begun = Instant::now();
    let mut follower = Follower::start(options).await;
    follower
        .until("it fails", |follower| !follower.failures.is_empty())
        .await;
    // Nobody listens from here on: watches that wait for their listener ask for nothing.
    let drain = tokio::spawn(async move { follower.until("never", |_| false).await });
    until("more than the burst was asked for", || server.asked().len() > 25).await;
    let asked = server.asked();
    let first = asked[0].at;
    for (index, one) in asked.iter().enumerate() {
        // However late a request comes here, it was sent before: so many were allowed by then.
        let allowed = 15.0 + 20.0 * (one.at - begun).as_secs_f64();
        assert!(
            f64::from(u32::try_from(index).unwrap()) <= allowed,
            "request {index} after {:?}",
            one.at - first
        );
    }
    drain.abort();
}

/// Each wait is between half and all of the doubled one; only the lower limit can be judged from outside.
#[tokio::test]
async fn waits_after_failures_grow() {
    let server =
        Server::scripted(|asked| (asked.resource == "services").then(|| Reply::whole(503, "starting")));
    let mut timing = quick();
    timing.backoff = (Duration::from_millis(20), Duration::from_millis(160));
    let mut follower = Follower::start(options(&server.url, timing)).await;
    let drain = tokio::spawn(async move { follower.until("never", |_| false).await });
    until("seven requests came", || server.requests("services").len() >= 7).await;
    let at: Vec<Instant> = server
        .asked()
        .into_iter()
        .filter(|asked| asked.resource == "services")
        .map(|asked| asked.at)
        .collect();
    for (gap, full) in at.windows(2).zip([20, 40, 80, 160, 160, 160]) {
        let gap = gap[1] - gap[0];
        assert!(gap >= Duration::from_millis(full / 2), "{gap:?} for {full} ms");
    }
    drain.abort();
}

/// A busy server says so in plain text, and how long to wait in a header alone.
#[tokio::test]
async fn a_busy_server_is_left_alone_for_as_long_as_it_asks() {
    let server = Server::start(Options::default());
    server.fault(Fault::instead("watch", "services", || {
        Reply::too_many_requests(1)
    }));
    let mut said = listen(&server.url, quick()).await;
    let text = said.until("Failing").await;
    assert!(
        text.contains("429") && text.contains("the server is busy"),
        "{text}"
    );
    said.until("synced").await;
    let at: Vec<Instant> = server
        .asked()
        .into_iter()
        .filter(|asked| asked.resource == "services")
        .map(|asked| asked.at)
        .collect();
    assert!(at[1] - at[0] >= Duration::from_secs(1), "{:?}", at[1] - at[0]);
}

#[tokio::test]
async fn json_is_asked_for_and_its_refusal_is_named() {
    let server = Server::start(Options::default());
    let mut follower = Follower::start(options(&server.url, quick())).await;
    follower.until_connected().await;
    for asked in server.asked() {
        assert_eq!(asked.header("accept"), "application/json", "{asked:?}");
    }
    let server = Server::scripted(|asked| {
        (asked.resource == "services").then(|| {
            let status = apiserver::Status::not_acceptable();
            Reply::object(status.code, &status.json())
        })
    });
    let mut said = listen(&server.url, quick()).await;
    let text = said.until("Failing").await;
    assert!(text.contains("406") && text.contains("Not Acceptable"), "{text}");
}

/// A list is taken item by item: a listener that takes nothing more makes the server wait, however long the list is.
#[tokio::test]
async fn a_huge_list_is_held_by_the_server_and_not_by_us() {
    let sent = Arc::new(AtomicUsize::new(0));
    let server = Server::scripted({
        let sent = sent.clone();
        move |asked| {
            if asked.resource != "services" || asked.is_watch() {
                return (asked.resource == "services")
                    .then(|| Reply::whole(400, support::status(400, "BadRequest", "no streaming lists")));
            }
            Some(Reply::stream(vec![
                Part::Text(
                    r#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":["#
                        .to_owned(),
                ),
                Part::Forever(format!("{},", support::service("a", 1)), sent.clone()),
            ]))
        }
    });
    let mut said = listen(&server.url, quick()).await;
    said.expect(&["apply default/a"]).await;
    let before = AtomicUsize::new(usize::MAX);
    until("the server cannot send any more", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = sent.load(Ordering::Relaxed);
        before.swap(now, Ordering::Relaxed) == now
    })
    .await;
    let before = before.into_inner();
    assert!(before < 64 << 20, "{before} bytes were taken");
    said.expect(&["apply default/a"; 100]).await;
}
