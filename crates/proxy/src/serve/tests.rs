use super::health::FamilyHealth;
use super::local::LocalCount;
use super::*;
use axum::Router;
use model::object::{Eligibility, decode};
use model::snapshot::{Change, Snapshot};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

mod counts;
mod explorer;
mod inspect;
mod service_counts;

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

async fn ask(at: SocketAddr, method: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(at).await.expect("a server");
    let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("read");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .expect("a status");
    let headers = lines.filter_map(|line| line.split_once(": "));
    Answer {
        status: status.parse().expect("a number"),
        headers: headers
            .map(|(key, value)| (key.to_lowercase(), value.to_owned()))
            .collect(),
        body: body.to_owned(),
    }
}

async fn up(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    at
}

fn serving() -> Serving {
    Serving::of_test()
}

fn healthy() -> Serving {
    let serving = serving();
    let mut record = serving.record();
    record.health.node = Some(Eligibility::Eligible);
    record.health.families.v4 = Some(FamilyHealth::default());
    drop(record);
    serving
}

fn fail_restores(serving: &Serving) {
    serving.record().health.families.v4 = Some(FamilyHealth {
        failures_in_a_row: 3,
        ..FamilyHealth::default()
    });
}

#[tokio::test]
async fn healthz_without_a_node_is_503_with_upstreams_body_and_headers() {
    let at = up(pages::router(&serving())).await;
    let answer = ask(at, "GET", "/healthz").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    let body = answer.json();
    let now = body["currentTime"].as_str().expect("a time").to_owned();
    assert!(now.parse::<jiff::Timestamp>().is_ok(), "{now}");
    let expected = format!(
        r#"{{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"{now}","nodeEligible":false,"healthy":true}}"#
    );
    assert_eq!(answer.body, expected);
    assert_eq!(ask(at, "GET", "/livez").await.status, 200);
}

#[tokio::test]
async fn a_healthy_proxy_answers_200_with_keys_in_upstreams_order() {
    let serving = healthy();
    let at = up(pages::router(&serving)).await;
    for (path, keys) in [
        (
            "/healthz",
            &[
                "lastUpdated",
                "currentTime",
                "nodeEligible",
                "healthy",
                "status",
                "IPv4",
            ][..],
        ),
        (
            "/livez",
            &["lastUpdated", "currentTime", "healthy", "status", "IPv4"][..],
        ),
    ] {
        let answer = ask(at, "POST", path).await;
        assert_eq!(answer.status, 200, "{path}");
        let places: Vec<usize> = keys
            .iter()
            .map(|key| answer.body.find(&format!("\"{key}\"")).expect(key))
            .collect();
        assert!(places.is_sorted(), "{}", answer.body);
        assert_eq!(answer.json()["status"]["IPv4"]["healthy"], true);
        assert_eq!(answer.json()["lastUpdated"], answer.json()["currentTime"]);
        assert_eq!(answer.json().get("detail"), None);
    }
    assert!(!ask(at, "GET", "/livez").await.body.contains("nodeEligible"));
}

#[tokio::test]
async fn restores_that_fail_make_both_pages_503_and_each_answer_is_counted() {
    let serving = healthy();
    fail_restores(&serving);
    let at = up(pages::router(&serving)).await;
    for path in ["/healthz", "/livez", "/livez"] {
        let answer = ask(at, "GET", path).await;
        assert_eq!(answer.status, 503);
        assert_eq!(answer.json()["status"]["IPv4"]["healthy"], false);
    }
    let record = serving.record();
    assert_eq!(record.metrics.number(name::HEALTHZ, &["503"]), Some(1.0));
    assert_eq!(record.metrics.number(name::LIVEZ, &["503"]), Some(2.0));
}

#[tokio::test]
async fn livez_tells_more_when_asked() {
    let serving = healthy();
    serving.source(&SourceEvent::Health(
        cluster::Kind::Slice,
        cluster::Health::Bookmark,
    ));
    let at = up(pages::router(&serving)).await;
    let detail = ask(at, "GET", "/livez?verbose").await.json()["detail"].clone();
    assert_eq!(detail["watches"]["EndpointSlice"]["silent"], false);
    assert_eq!(detail["families"]["IPv4"]["failuresInARow"], 0);
}

#[tokio::test]
async fn remembered_objects_show_in_a_header_and_change_nothing_else() {
    let serving = healthy();
    let at = up(pages::router(&serving)).await;
    let age = "kube-proxy-rs-remembered-state-age";
    for path in ["/healthz", "/livez"] {
        assert_eq!(ask(at, "GET", path).await.header(age), None);
    }
    serving.source(&SourceEvent::Remembered(cluster::Remembered::InUse {
        kinds: vec![],
        changes: vec![],
        age: Duration::from_mins(5),
        objects: 0,
    }));
    for path in ["/healthz", "/livez"] {
        let answer = ask(at, "GET", path).await;
        let age: u64 = answer.header(age).expect("a header").parse().expect("seconds");
        assert!(age >= 300, "{age}");
        assert_eq!((answer.status, &answer.json()["healthy"]), (200, &json!(true)));
        assert!(!answer.body.contains("emembered"), "{}", answer.body);
    }
}

#[tokio::test]
async fn other_paths_are_404_in_text() {
    for router in [pages::router(&serving()), metrics_pages::router(&serving())] {
        let answer = ask(up(router).await, "GET", "/healthz/").await;
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (404, "404 page not found\n")
        );
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    }
}

#[tokio::test]
async fn the_metrics_port_has_upstreams_pages() {
    let at = up(metrics_pages::router(&serving())).await;
    for (path, body) in [
        ("/healthz", "ok"),
        ("/healthz/ping", "ok"),
        ("/healthz?verbose", "[+]ping ok\nhealthz check passed\n"),
        ("/healthz?exclude=ping", "ok"),
        (
            "/healthz?verbose&exclude=ping",
            "[+]ping excluded: ok\nhealthz check passed\n",
        ),
        (
            "/healthz?exclude=x&verbose=1",
            "[+]ping ok\nwarn: some health checks cannot be excluded: no matches for \"x\"\nhealthz check passed\n",
        ),
        ("/proxyMode", "iptables"),
    ] {
        let answer = ask(at, "GET", path).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, body), "{path}");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    }
    let configz = ask(at, "GET", "/configz").await;
    assert_eq!(configz.header("content-type"), Some("application/json"));
    let config = &configz.json()["kubeproxy.config.k8s.io"];
    assert_eq!(config["kind"], "KubeProxyConfiguration");
    assert_eq!(config["apiVersion"], "kubeproxy.config.k8s.io/v1alpha1");
    assert_eq!(config["iptables"]["syncPeriod"], "30s");
    let slis = ask(at, "GET", "/metrics/slis").await.body;
    let pinged = "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} ";
    let last = "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1\n";
    assert!(slis.contains(pinged) && slis.contains(last), "{slis}");
    assert_eq!(ask(at, "DELETE", "/metrics/slis").await.body, "metrics reset\n");
    let slis = ask(at, "GET", "/metrics/slis").await.body;
    assert!(
        !slis.contains("ping") && slis.contains("process_start_time_seconds 1"),
        "{slis}"
    );
    ask(at, "GET", "/healthz?exclude=ping").await;
    assert!(!ask(at, "GET", "/metrics/slis").await.body.contains("ping"));
}

#[tokio::test]
async fn metrics_come_as_prometheus_text() {
    let serving = healthy();
    let at = up(metrics_pages::router(&serving)).await;
    let answer = ask(at, "GET", "/metrics").await;
    assert_eq!(answer.status, 200);
    let exposition = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    assert_eq!(answer.header("content-type"), Some(exposition));
    assert!(answer.header("process-start-time-unix").is_some());
    assert!(
        answer
            .body
            .contains("# TYPE kubeproxy_sync_proxy_rules_service_changes_total counter\n")
    );
    assert!(
        answer
            .body
            .contains("kubernetes_feature_enabled{name=\"NativeHistograms\",stage=\"ALPHA\"} 0\n")
    );
    assert!(answer.body.contains("process_resident_memory_bytes "));
    assert!(
        answer
            .body
            .contains("kubeproxy_rs_oldest_pending_seconds{ip_family=\"IPv4\"} 0\n")
    );
}

#[tokio::test]
async fn a_health_check_node_port_tells_how_many_endpoints_this_node_has() {
    let serving = healthy();
    let service = ServiceName::new("ns", "lb");
    let at = up(node_ports::router(&serving, Family::V4, &service)).await;
    let none = ask(at, "GET", "/").await;
    assert_eq!(
        (none.status, none.header("x-load-balancing-endpoint-weight")),
        (503, Some("0"))
    );
    serving.record().local.v4.health.insert(
        service,
        LocalCount {
            port: 30_000,
            endpoints: 2,
        },
    );
    let two = ask(at, "GET", "/any/path").await;
    assert_eq!(
        (two.status, two.header("x-load-balancing-endpoint-weight")),
        (200, Some("2"))
    );
    assert_eq!(two.header("content-type"), Some("application/json"));
    let body = "{\n\t\"service\": {\n\t\t\"namespace\": \"ns\",\n\t\t\"name\": \"lb\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}";
    assert_eq!(two.body, body);
    // A Node on its way out still serves what it has.
    serving.record().health.node = Some(Eligibility::Deleting);
    assert_eq!(ask(at, "GET", "/").await.status, 200);
    fail_restores(&serving);
    let sick = ask(at, "GET", "/").await;
    assert_eq!(
        (sick.status, sick.json()["serviceProxyHealthy"].clone()),
        (503, json!(false))
    );
}

fn want(serving: &Serving, port: Option<u16>) {
    let wanted = port.map(|port| {
        let addresses = vec![IpAddr::from([127, 0, 0, 1])];
        (
            (Family::V4, ServiceName::new("ns", "lb")),
            Listener { port, addresses },
        )
    });
    serving.0.wanted.send_replace(wanted.into_iter().collect());
}

async fn until(mut fact: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        if fact().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within ten seconds");
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_and_opened_once_it_is_free_and_closed_when_unwanted() {
    let (serving, receive) = Serving::new(
        &KubeProxyConfiguration::defaults(),
        "n1".into(),
        &PageOptions::default(),
    );
    tokio::spawn(node_ports::serve(serving.clone(), receive));
    let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = other.local_addr().expect("an address");
    want(&serving, Some(at.port()));
    let failures = || {
        serving
            .record()
            .metrics
            .number(families::own::HEALTH_PORT_FAILURES, &["IPv4"])
    };
    until(async || failures() == Some(1.0)).await;
    drop(other);
    until(async || TcpStream::connect(at).await.is_ok()).await;
    assert_eq!(ask(at, "GET", "/").await.status, 503);
    want(&serving, None);
    until(async || TcpStream::connect(at).await.is_err()).await;
}

#[tokio::test]
async fn a_port_that_an_old_instance_holds_is_tried_again() {
    let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = other.local_addr().expect("an address");
    let config = KubeProxyConfiguration {
        healthz_bind_address: at.to_string(),
        metrics_bind_address: String::new(),
        ..KubeProxyConfiguration::defaults()
    };
    let (serving, _failure) = Serving::start(&config, "n1".into(), &PageOptions::default());
    let failures = || {
        serving
            .record()
            .metrics
            .number(families::own::LISTEN_FAILURES, &["healthz"])
    };
    until(async || failures() == Some(1.0)).await;
    drop(other);
    until(async || TcpStream::connect(at).await.is_ok()).await;
    assert_eq!(ask(at, "GET", "/livez").await.status, 200);
}

#[tokio::test]
async fn with_hard_fail_a_port_that_is_taken_ends_the_process() {
    let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let config = KubeProxyConfiguration {
        healthz_bind_address: other.local_addr().expect("an address").to_string(),
        metrics_bind_address: String::new(),
        bind_address_hard_fail: true,
        ..KubeProxyConfiguration::defaults()
    };
    let (_serving, failure) = Serving::start(&config, "n1".into(), &PageOptions::default());
    let error = failure.wait().await;
    assert!(error.to_string().contains("healthz"), "{error}");
}
