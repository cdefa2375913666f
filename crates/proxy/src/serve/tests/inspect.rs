//! The pages that show the process itself, over HTTP.

use super::{serving, up};
use crate::Verbosity;
use crate::serve::{PageOptions, Serving, inspect, metrics_pages, profile};
use config::KubeProxyConfiguration;
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

async fn ask(at: SocketAddr, request: &str, accept: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(at).await.expect("a server");
    let length = body.len();
    let accept = if accept.is_empty() {
        String::new()
    } else {
        format!("Accept: {accept}\r\n")
    };
    let request = format!(
        "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{accept}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.expect("read");
    let end = all
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .expect("a head");
    let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
    let status = head.split(' ').nth(1).expect("a status").parse();
    Answer {
        status: status.expect("a number"),
        head,
        body: all[end + 4..].to_vec(),
    }
}

async fn get(at: SocketAddr, path: &'static str) -> Answer {
    ask(at, &format!("GET {path}"), "", "").await
}

fn options() -> PageOptions {
    let flags = [("config", "/etc/c.yaml"), ("v", "2")];
    PageOptions {
        flags: flags
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        verbosity: Verbosity::new(2),
        ..PageOptions::default()
    }
}

fn profiling() -> Serving {
    let config = KubeProxyConfiguration {
        enable_profiling: true,
        ..KubeProxyConfiguration::defaults()
    };
    Serving::new(&config, "n1".into(), &PageOptions::default()).0
}

#[tokio::test]
async fn flagz_is_text_for_people_and_an_object_for_those_who_ask_for_it() {
    let at = up(inspect::router(&serving(), &options())).await;
    let text = get(at, "/flagz").await;
    assert!(text.head.contains("text/plain; charset=utf-8"), "{}", text.head);
    assert!(text.text().starts_with("\nkube-proxy flagz\n"), "{}", text.text());
    assert!(
        text.text().ends_with("\nconfig: /etc/c.yaml\nv: 2\n"),
        "{}",
        text.text()
    );
    let accept = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz";
    let object = ask(at, "GET /flagz", accept, "").await;
    assert!(
        object.head.contains("content-type: application/json"),
        "{}",
        object.head
    );
    assert!(!object.head.contains("warning"), "{}", object.head);
    let expected = json!({
        "kind": "Flagz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": {"name": "kube-proxy"},
        "flags": {"config": "/etc/c.yaml", "v": "2"},
    });
    assert_eq!(object.json(), expected);
    let old = ask(at, "GET /flagz", &accept.replace("beta", "alpha"), "").await;
    assert!(old.head.contains("warning: 299 - "), "{}", old.head);
    assert_eq!(old.json()["apiVersion"], "config.k8s.io/v1alpha1");
}

#[tokio::test]
async fn any_other_form_is_406_with_a_status() {
    let at = up(inspect::router(&serving(), &options())).await;
    for path in ["/flagz", "/statusz"] {
        let answer = ask(at, &format!("GET {path}"), "application/json", "").await;
        assert_eq!(answer.status, 406);
        let status = answer.json();
        assert_eq!(
            (&status["kind"], &status["code"], &status["reason"]),
            (&json!("Status"), &json!(406), &json!("NotAcceptable"))
        );
    }
}

#[tokio::test]
async fn statusz_names_the_pages_there_are() {
    let at = up(inspect::router(&serving(), &options())).await;
    let text = get(at, "/statusz").await.text();
    for part in [
        "\nkube-proxy statusz\n",
        "\nStarted: ",
        "\nUp: ",
        "\nGo version: ",
        "\nBinary version: 1.36.2",
        "\nEmulation version: 1.36\n",
        "\nPaths: /configz /flagz /healthz /metrics /proxyMode\n",
    ] {
        assert!(text.contains(part), "{part:?} {text}");
    }
    let accept = "application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz";
    let object = ask(at, "GET /statusz", accept, "").await;
    assert!(
        object.head.contains("content-type: application/yaml"),
        "{}",
        object.head
    );
    assert!(
        object.text().contains("\nkind: \"Statusz\"\n"),
        "{}",
        object.text()
    );
}

#[tokio::test]
async fn each_page_can_be_switched_off_by_its_gate() {
    let mut config = KubeProxyConfiguration::defaults();
    config.feature_gates.insert("ComponentFlagz".to_owned(), false);
    let serving = Serving::new(&config, "n1".into(), &PageOptions::default()).0;
    let at = up(metrics_pages::router(&serving).merge(inspect::router(&serving, &options()))).await;
    assert_eq!(get(at, "/flagz").await.status, 404);
    let status = get(at, "/statusz").await.text();
    assert!(
        status.contains("Paths: /configz /healthz /metrics /proxyMode\n"),
        "{status}"
    );
}

#[tokio::test]
async fn nothing_below_debug_is_there_unless_profiling_is_on() {
    let serving = serving();
    let at = up(metrics_pages::router(&serving).merge(inspect::router(&serving, &options()))).await;
    for path in [
        "/debug/pprof/",
        "/debug/pprof/profile?seconds=1",
        "/debug/flags/v",
    ] {
        assert_eq!(get(at, path).await.status, 404, "{path}");
    }
    let put = ask(at, "PUT /debug/flags/v", "", "9").await;
    assert_eq!(put.status, 404);
}

#[tokio::test]
async fn a_put_changes_the_verbosity_in_upstreams_words_and_nothing_else_does() {
    let options = options();
    let at = up(inspect::router(&profiling(), &options)).await;
    for (method, body, status, words) in [
        ("PUT", "4", 200, "successfully set klog.logging.verbosity to 4\n"),
        (
            "PUT",
            "x",
            400,
            "failed set klog.logging.verbosity x: strconv.ParseUint: parsing \"x\": invalid syntax\n",
        ),
        (
            "PUT",
            "-1",
            400,
            "failed set klog.logging.verbosity -1: strconv.ParseUint: parsing \"-1\": invalid syntax\n",
        ),
        ("GET", "", 406, "unsupported http method\n"),
        ("POST", "9", 406, "unsupported http method\n"),
    ] {
        let answer = ask(at, &format!("{method} /debug/flags/v"), "", body).await;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (status, words),
            "{method} {body}"
        );
    }
    assert_eq!(options.verbosity.get(), 4);
    let endless = ask(at, "PUT /debug/flags/v", "", &"1".repeat(1000)).await;
    assert_eq!(endless.status, 400);
    assert_eq!(options.verbosity.get(), 4);
    for path in ["/debug/flags", "/debug/flags/"] {
        assert!(get(at, path).await.text().contains("<a href=\"v\">v</a>"));
    }
}

#[tokio::test]
async fn what_cannot_be_profiled_is_501_and_says_why() {
    let at = up(inspect::router(&profiling(), &options())).await;
    let moved = get(at, "/debug/pprof").await;
    assert_eq!(moved.status, 302);
    assert!(moved.head.contains("location: /debug/pprof/"), "{}", moved.head);
    let index = get(at, "/debug/pprof/").await.text();
    for what in ["heap", "goroutine", "trace", "symbol"] {
        assert!(index.contains(what), "{index}");
        let answer = ask(at, &format!("GET /debug/pprof/{what}"), "", "").await;
        assert_eq!(answer.status, 501, "{what}");
        assert!(answer.text().contains("is not there: "), "{}", answer.text());
    }
    assert_eq!(get(at, "/debug/pprof/nothing").await.status, 404);
    let bad = get(at, "/debug/pprof/profile?seconds=3600").await;
    assert_eq!(
        (bad.status, bad.text().as_str()),
        (400, "seconds=3600: give a whole number from 1 to 300\n")
    );
}

/// Keeps a processor busy until dropped.
struct Busy(std::sync::Arc<std::sync::atomic::AtomicBool>);

#[inline(never)]
fn busy_loop_of_the_test(stop: &std::sync::atomic::AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        sum = sum.wrapping_mul(31).wrapping_add(7);
    }
    sum
}

impl Busy {
    fn start() -> Busy {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = stop.clone();
        std::thread::spawn(move || std::hint::black_box(busy_loop_of_the_test(&seen)));
        Busy(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_profile_names_what_was_busy_and_only_one_runs_at_a_time() {
    let at = up(inspect::router(&profiling(), &options())).await;
    let _busy = Busy::start();
    let running = profile::RUNNING.try_lock().expect("no other test takes one");
    let refused = get(at, "/debug/pprof/profile?seconds=1").await;
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains("another profile"), "{}", refused.text());
    drop(running);
    let profile = get(at, "/debug/pprof/profile?seconds=1").await;
    let text = String::from_utf8_lossy(&profile.body).into_owned();
    assert_eq!(profile.status, 200, "{text}");
    assert!(
        profile.head.contains("application/octet-stream"),
        "{}",
        profile.head
    );
    assert!(
        text.contains("busy_loop_of_the_test"),
        "the busy function is not named"
    );
    let picture = get(at, "/debug/pprof/flamegraph?seconds=1").await;
    assert!(
        picture.text().contains("busy_loop_of_the_test"),
        "{}",
        picture.text()
    );
}
