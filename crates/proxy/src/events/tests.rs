//! Sending, against a small server that says what a test tells it to.

use super::correlate::Taken;
use super::*;
use cluster::api::{Address, ApiOptions, Source, Timing};
use engine::{Cause, Failure};
use model::{Family, ServiceName};
use serde_json::Value;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the server answers with.
#[derive(Clone, Copy)]
enum Answer {
    /// This status.
    Status(u16),
    /// The connection goes away.
    Cut,
    /// Nothing, ever.
    Hang,
}

/// A request that came: its first line, its content type and its body.
#[derive(Clone, Debug)]
struct Request {
    line: String,
    content_type: String,
    body: Value,
}

struct Server {
    url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers the n-th request, from 0, as told.
    async fn start(answer: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (Arc::new(answer), requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, seen) = (answer.clone(), seen.clone());
                tokio::spawn(async move { serve(stream, &*answer, &seen).await });
            }
        });
        Server { url, requests }
    }

    fn seen(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic holds it").clone()
    }

    async fn writer(&self) -> EventWriter {
        let address = Address {
            kubeconfig: None,
            master: Some(self.url.clone()),
        };
        let mut options = ApiOptions::new(address, "node-a");
        options.qps = 0.0;
        options.timing = Timing {
            answer: Duration::from_millis(500),
            ..Timing::default()
        };
        Source::new(options)
            .await
            .expect("a URL is enough")
            .event_writer()
    }

    /// A recorder that tries three times, at once, and what it counts.
    async fn recorder(&self) -> (Recorder, Counts) {
        let counts = Counts::default();
        let counting = counts.clone();
        let count = move |outcome: Outcome, count: u64| {
            counting.0[outcome as usize].fetch_add(usize::try_from(count).expect("few"), Ordering::SeqCst);
        };
        let pace = Pace {
            tries: 3,
            wait: Duration::from_millis(10),
        };
        (
            Recorder::paced(self.writer().await, "host-a", count, pace),
            counts,
        )
    }
}

#[derive(Clone, Default)]
struct Counts(Arc<[AtomicUsize; 4]>);

impl Counts {
    fn of(&self, outcome: Outcome) -> usize {
        self.0[outcome as usize].load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, answer: &(impl Fn(usize) -> Answer + Sync), seen: &Mutex<Vec<Request>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let count = {
            let mut seen = seen.lock().expect("no panic holds it");
            seen.push(request);
            seen.len() - 1
        };
        let status = match answer(count) {
            Answer::Status(status) => status,
            Answer::Cut => return,
            Answer::Hang => std::future::pending().await,
        };
        let body = match status {
            200..300 => "{}".to_owned(),
            code => serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "said the test", "reason": "Because", "code": code,
                "details": {"retryAfterSeconds": u8::from(code == 429)},
            })
            .to_string(),
        };
        let text = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        let mut pairs = head.iter().filter_map(|line| line.split_once(": "));
        pairs
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
    };
    let mut body = vec![0; header("content-length")?.parse().ok()?];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request {
        line: head.first()?.clone(),
        content_type: header("content-type")?,
        body: serde_json::from_slice(&body).ok()?,
    })
}

fn node() -> Arc<str> {
    "node-a".into()
}

fn refused(service: &str) -> Fact {
    let failure = Failure {
        cause: Cause::Content,
        text: "line 3 failed".to_owned(),
    };
    Fact::refused("node-a", &ServiceName::new("ns", service), Family::V4, &failure)
}

#[tokio::test]
async fn an_event_is_posted_as_upstream_posts_it() {
    let server = Server::start(|_| Answer::Status(201)).await;
    let (recorder, counts) = server.recorder().await;
    recorder.record(Fact::starting(&node()));
    recorder.flush(PATIENCE).await;
    let seen = server.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(
        seen[0]
            .line
            .trim_end_matches("? HTTP/1.1")
            .trim_end_matches(" HTTP/1.1"),
        "POST /apis/events.k8s.io/v1/namespaces/default/events"
    );
    assert_eq!(seen[0].content_type, "application/json");
    let mut body = seen[0].body.clone();
    let name = body["metadata"]["name"].take();
    let name = name.as_str().expect("a name");
    let nanoseconds = name.strip_prefix("node-a.").expect("the node's name first");
    assert!(u64::from_str_radix(nanoseconds, 16).is_ok(), "{name}");
    let time = body["eventTime"].take();
    let time = time.as_str().expect("a time");
    assert_eq!(time.len(), "2026-12-01T08:00:00.000000Z".len(), "{time}");
    assert!(time.parse::<Timestamp>().is_ok(), "{time}");
    assert_eq!(
        body,
        serde_json::json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": null, "namespace": "default"},
            "eventTime": null,
            "reportingController": "kube-proxy", "reportingInstance": "kube-proxy-host-a",
            "action": "StartKubeProxy", "reason": "Starting", "type": "Normal",
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": "node-a"},
        })
    );
    assert_eq!(counts.of(Outcome::Written), 1);
}

#[tokio::test]
async fn the_second_time_a_series_is_patched_onto_the_first_event_and_later_ones_are_only_counted() {
    let server = Server::start(|_| Answer::Status(200)).await;
    let (recorder, _) = server.recorder().await;
    for _ in 0..5 {
        recorder.record(refused("web"));
    }
    recorder.flush(PATIENCE).await;
    let seen = server.seen();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(seen[0].body["metadata"]["namespace"], "ns");
    let name = seen[0].body["metadata"]["name"].as_str().expect("a name");
    let patched = format!("PATCH /apis/events.k8s.io/v1/namespaces/ns/events/{name}");
    assert!(seen[1].line.starts_with(&patched), "{seen:?}");
    assert_eq!(seen[1].content_type, "application/strategic-merge-patch+json");
    let series = &seen[1].body["series"];
    assert_eq!(series["count"], 2);
    assert!(
        series["lastObservedTime"]
            .as_str()
            .is_some_and(|time| time.len() == 27),
        "{series}"
    );
    assert_eq!(seen[1].body.as_object().map(serde_json::Map::len), Some(1));
}

#[tokio::test]
async fn a_series_whose_event_has_gone_is_posted_whole() {
    let server = Server::start(|count| Answer::Status(if count == 1 { 404 } else { 200 })).await;
    let (recorder, counts) = server.recorder().await;
    recorder.record(refused("web"));
    recorder.record(refused("web"));
    recorder.flush(PATIENCE).await;
    let seen = server.seen();
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert!(seen[2].line.starts_with("POST "), "{seen:?}");
    assert_eq!(seen[2].body["series"]["count"], 2);
    assert_eq!(seen[2].body["reason"], "RulesRefused");
    assert_eq!(counts.of(Outcome::Written), 2);
}

#[tokio::test]
async fn a_broken_connection_is_tried_again_and_a_refusal_is_not() {
    let server = Server::start(|count| match count {
        0 | 1 => Answer::Cut,
        3 => Answer::Status(403),
        _ => Answer::Status(201),
    })
    .await;
    let (recorder, counts) = server.recorder().await;
    recorder.record(refused("one"));
    recorder.record(refused("two"));
    recorder.record(refused("three"));
    recorder.flush(PATIENCE).await;
    let regarding: Vec<String> = server
        .seen()
        .iter()
        .map(|request| {
            request.body["regarding"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    assert_eq!(regarding, ["one", "one", "one", "two", "three"]);
    assert_eq!(counts.of(Outcome::Written), 2);
    assert_eq!(counts.of(Outcome::Refused), 1);
}

#[tokio::test]
async fn a_server_that_asks_to_come_again_is_asked_again_and_an_event_that_is_there_is_written() {
    let server = Server::start(|count| Answer::Status(if count == 0 { 429 } else { 409 })).await;
    let (recorder, counts) = server.recorder().await;
    recorder.record(refused("web"));
    recorder.flush(PATIENCE).await;
    assert_eq!(server.seen().len(), 2);
    assert_eq!(counts.of(Outcome::Written), 1);
}

#[tokio::test]
async fn tries_have_an_end() {
    let server = Server::start(|_| Answer::Cut).await;
    let (recorder, counts) = server.recorder().await;
    recorder.record(refused("web"));
    recorder.flush(PATIENCE).await;
    assert_eq!(server.seen().len(), 3);
    assert_eq!(counts.of(Outcome::Unreachable), 1);
}

#[tokio::test]
async fn a_server_that_hangs_holds_nobody_up_and_nothing_grows() {
    let server = Server::start(|_| Answer::Hang).await;
    let (recorder, _) = server.recorder().await;
    // No task runs between two of these: whoever tells waits for nothing.
    for count in 0..100_000 {
        recorder.record(refused(&format!("web-{count}")));
    }
    assert_eq!(recorder.queue.max_capacity(), QUEUE);
    assert_eq!(recorder.lost.load(Ordering::SeqCst), 100_000 - QUEUE as u64);
    // The end of the process is put off by the limit and no longer.
    timeout(PATIENCE, recorder.flush(Duration::from_millis(50)))
        .await
        .expect("a flush ends");
}

#[tokio::test]
async fn ten_thousand_bad_services_are_a_trickle() {
    let server = Server::start(|_| Answer::Status(201)).await;
    let (recorder, _) = server.recorder().await;
    for count in 0..10_000 {
        recorder.record(refused(&format!("web-{count}")));
        if count % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    recorder.flush(PATIENCE).await;
    let seen = server.seen().len();
    assert!((1..=100).contains(&seen), "{seen} requests");
}

#[test]
fn a_fact_of_the_node_is_not_kept_waiting_by_facts_of_services() {
    let mut correlator = Correlator::new("host-a");
    let at = At {
        since_start: Duration::ZERO,
        wall: Timestamp::UNIX_EPOCH,
    };
    let taken: Vec<Taken> = (0..10_000)
        .map(|count| correlator.take(refused(&format!("web-{count}")), at))
        .collect();
    let withheld = taken.iter().filter(|taken| **taken == Taken::Withheld).count();
    assert_eq!(withheld, 10_000 - 20 - 500);
    let starting = correlator.take(Fact::starting(&node()), at);
    assert!(matches!(starting, Taken::Write(_)), "{starting:?}");
    // Those that wait get their turn.
    let minute = correlator.due(Duration::from_mins(1));
    assert_eq!(minute.len(), 2);
    assert_eq!(minute[0].event["regarding"]["name"], "web-20");
}

#[test]
fn series_are_told_every_half_hour_and_at_their_end_and_then_forgotten() {
    let mut correlator = Correlator::new("host-a");
    let at = |minutes: u64| At {
        since_start: Duration::from_mins(minutes),
        wall: Timestamp::from_second(i64::try_from(minutes * 60).expect("small")).expect("small"),
    };
    let mut told = Vec::new();
    let mut patches = |correlator: &mut Correlator, minutes| {
        for write in correlator.due(Duration::from_mins(minutes)) {
            let patch = write.patch.expect("it is there");
            told.push((minutes, patch["series"]["count"].as_u64().expect("a number")));
        }
    };
    for minutes in 0..40 {
        let taken = correlator.take(refused("web"), at(minutes));
        assert_eq!(
            matches!(taken, Taken::Write(_)),
            minutes < 2,
            "minute {minutes}: {taken:?}"
        );
        patches(&mut correlator, minutes);
    }
    for minutes in 40..60 {
        patches(&mut correlator, minutes);
    }
    // The patch of minute 1 went out at once; the last fact came in minute 39.
    assert_eq!(told, [(31, 32), (45, 40)]);
    let again = correlator.take(refused("web"), at(60));
    assert!(
        matches!(&again, Taken::Write(write) if write.patch.is_none()),
        "{again:?}"
    );
}

#[test]
fn names_differ_and_are_cut_to_what_the_api_takes() {
    let mut correlator = Correlator::new("host-a");
    let at = At {
        since_start: Duration::ZERO,
        wall: Timestamp::UNIX_EPOCH,
    };
    let long = format!("{}.{}", "a".repeat(235), "b".repeat(17));
    let names: Vec<String> = [refused(&long), refused(&long.replace('b', "c"))]
        .into_iter()
        .map(|fact| match correlator.take(fact, at) {
            Taken::Write(write) => write.name,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_ne!(names[0], names[1]);
    for name in names {
        assert!(name.len() <= 253 && !name.contains(".."), "{name}");
    }
}

#[test]
fn notes_are_cut_at_a_character() {
    let mut correlator = Correlator::new("host-a");
    let at = At {
        since_start: Duration::ZERO,
        wall: Timestamp::UNIX_EPOCH,
    };
    let mut fact = refused("web");
    fact.note = "ä".repeat(1000) + "x";
    let Taken::Write(write) = correlator.take(fact, at) else {
        panic!("the first is written");
    };
    assert_eq!(write.event["note"], "ä".repeat(512));
}
