//! What is told about requests, for metrics.

mod support;

use apiserver::{Part, Reply, Server};
use cluster::api::{Address, ApiOptions, Source, Tally, What};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{added, list, quick, service, services, status};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A source whose requests are told to a list: host, method, what.
struct Told {
    told: Arc<Mutex<Vec<(String, String, What)>>>,
    source: JoinHandle<()>,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.source.abort();
    }
}

impl Told {
    async fn by(url: &str) -> Told {
        let told = Arc::new(Mutex::new(Vec::new()));
        let address = Address {
            kubeconfig: None,
            master: Some(url.to_owned()),
        };
        let mut options = ApiOptions::new(address, "node-a");
        (options.timing, options.qps) = (quick(), 0.0);
        options.tally = Tally::new({
            let told = told.clone();
            move |asked| {
                let mut told = told.lock().expect("nobody panics while telling");
                told.push((asked.host.to_owned(), asked.method.to_owned(), asked.what));
            }
        });
        let (out, mut events) = mpsc::channel(1);
        let source = Source::new(options).await.expect("an address is enough");
        let run = source.run(out);
        let source = tokio::spawn(async move {
            let hear = async { while events.recv().await.is_some() {} };
            tokio::join!(run, hear);
        });
        Told { told, source }
    }

    /// Waits until something like this was told.
    async fn until(&self, what: &str, is_so: impl Fn(&What) -> bool) {
        for _ in 0..3000 {
            if self.has(&is_so) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{what} was not told; what was: {:#?}", self.all());
    }

    fn has(&self, is_so: impl Fn(&What) -> bool) -> bool {
        self.all().iter().any(|(_, _, told)| is_so(told))
    }

    fn all(&self) -> Vec<(String, String, What)> {
        let told = self.told.lock();
        told.expect("nobody panics while telling").clone()
    }
}

#[tokio::test]
async fn a_watch_is_told_when_it_is_answered_and_never_as_ended() {
    let server = Server::scripted(|_| None);
    let told = Told::by(&server.url).await;
    told.until("an answer", |what| *what == What::Answered(Some(200)))
        .await;
    assert!(told.has(|what| matches!(what, What::Waited(_))));
    server.close();
    server.cut_all();
    told.until("a failure", |what| *what == What::Answered(None))
        .await;
    assert!(!told.has(|what| matches!(what, What::Ended { .. })));
    for (host, method, _) in told.all() {
        assert!(host.starts_with("127.0.0.1:"), "{host}");
        assert_eq!(method, "GET");
    }
}

#[tokio::test]
async fn a_list_is_told_with_its_bytes_once_it_was_read() {
    let body = list("50", &[service("a", 3), service("b", 4)]);
    let length = body.len() as u64;
    let server = Server::scripted(services(move |asked| {
        if asked.has("sendInitialEvents=true") {
            let invalid = status(422, "Invalid", "sendInitialEvents is forbidden");
            Some(Reply::whole(422, invalid))
        } else if asked.has("watch=true") {
            Some(Reply::stream(vec![added("c", 51), Part::Hang]))
        } else {
            Some(Reply::whole(200, body.clone()))
        }
    }));
    let told = Told::by(&server.url).await;
    told.until(
        "the list",
        |what| matches!(what, What::Ended { sent: Some(0), received: Some(bytes), .. } if *bytes == length),
    )
    .await;
    assert!(told.has(|what| *what == What::Answered(Some(422))));
}

#[tokio::test]
async fn a_request_that_the_server_wants_later_is_told_as_sent_again() {
    let server = Server::scripted(services(|_| {
        let busy = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"busy","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#;
        Some(Reply::whole(429, busy.to_owned()))
    }));
    let told = Told::by(&server.url).await;
    told.until("a retry", |what| *what == What::Retried(429)).await;
    assert!(told.has(|what| *what == What::Answered(Some(429))));
}
