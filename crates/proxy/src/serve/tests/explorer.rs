//! The explorer on the metrics port, over HTTP.

use super::{serving, up};
use crate::serve::{ExplorerPage, PageOptions, Seen, Serving, explorer, metrics_pages};
use config::KubeProxyConfiguration;
use engine::{Engine, EngineConfig, Event, Host, Report, StepSize};
use model::object::{Kind, decode};
use model::snapshot::{Change, Snapshot};
use model::{Family, NodeFacts, PerFamily, ServiceName, Settings};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn exploring() -> Serving {
    let pages = PageOptions {
        explorer: ExplorerPage::On,
        ..PageOptions::default()
    };
    Serving::new(&KubeProxyConfiguration::defaults(), "n1".into(), &pages).0
}

async fn metrics_port(serving: &Serving) -> SocketAddr {
    up(metrics_pages::router(serving).merge(explorer::router(serving))).await
}

/// The status and everything that was said.
async fn say(at: SocketAddr, request: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(at).await.expect("a server");
    let request = format!("{request} HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("read");
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    (status.expect("a status"), text)
}

async fn get(at: SocketAddr, path: &str) -> (u16, String) {
    say(at, &format!("GET {path}"), "Host: localhost\r\n").await
}

async fn json_of(at: SocketAddr, path: &str) -> Value {
    let (status, text) = get(at, path).await;
    assert_eq!(status, 200, "{text}");
    let (_, body) = text.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).expect("JSON")
}

fn service(port: u16) -> Change {
    let document = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "cart"},
        "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": [{"port": port}]},
    });
    Change::Apply(decode(document).objects.remove(0))
}

/// A control loop that answers whoever looks, and counts them.
fn answers_looks(serving: &Serving, snapshot: Snapshot) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let (counting, mut looks) = (count.clone(), serving.looks());
    tokio::spawn(async move {
        loop {
            let look = looks.next().await;
            counting.fetch_add(1, Ordering::SeqCst);
            let seen = Seen {
                snapshot: snapshot.clone(),
                facts: NodeFacts::default(),
                settings: Settings::default(),
            };
            let _ = look.send(seen);
        }
    });
    count
}

#[tokio::test]
async fn there_is_no_explorer_unless_it_was_asked_for() {
    let at = metrics_port(&serving()).await;
    for path in [
        "/explore",
        "/explore/",
        "/explore/explorer.js",
        "/explore/api/services",
        "/explore/api/changes",
    ] {
        assert_eq!(get(at, path).await.0, 404, "{path}");
    }
    assert_eq!(get(at, "/metrics").await.0, 200);
}

#[tokio::test]
async fn who_calls_the_port_by_another_name_is_refused() {
    let at = metrics_port(&exploring()).await;
    let port = format!("Host: {at}\r\n");
    for host in [&*port, "Host: localhost:1\r\n", "Host: n1\r\n", "Host: [::1]\r\n"] {
        assert_eq!(say(at, "GET /explore/", host).await.0, 200, "{host}");
    }
    for host in [
        "Host: evil.example\r\n",
        "Host: 127.0.0.1.evil.example\r\n",
        "Host: \r\n",
        "Host: localhost\r\nHost: evil.example\r\n",
    ] {
        for path in ["/explore/", "/explore/api/changes"] {
            let (status, text) = say(at, &format!("GET {path}"), host).await;
            assert!([400, 421].contains(&status), "{host} {path}: {text}");
        }
    }
    // The metrics are as they were: scrapers call the port by any name.
    assert_eq!(say(at, "GET /metrics", "Host: evil.example\r\n").await.0, 200);
}

#[tokio::test]
async fn nothing_can_be_changed_and_nothing_can_be_put_into_the_page() {
    let at = metrics_port(&exploring()).await;
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let (status, text) = say(
            at,
            &format!("{method} /explore/api/changes"),
            "Host: localhost\r\n",
        )
        .await;
        assert_eq!(status, 405, "{text}");
        assert!(text.to_lowercase().contains("allow: get, head"), "{text}");
    }
    for path in [
        "/explore/",
        "/explore/explorer.js",
        "/explore/explorer.css",
        "/explore/api/changes",
        "/explore/nothing",
    ] {
        let head = get(at, path).await.1.to_lowercase();
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{path} lacks {header}: {head}");
        }
        assert!(
            !head.contains("unsafe") && !head.contains("access-control-allow-origin"),
            "{head}"
        );
    }
}

#[tokio::test]
async fn the_objects_are_copied_once_for_many_questions_while_nothing_changes() {
    let serving = exploring();
    let mut snapshot = Snapshot::new();
    snapshot.apply(service(80));
    let looks = answers_looks(&serving, snapshot);
    let at = metrics_port(&serving).await;
    for _ in 0..20 {
        let found = json_of(at, "/explore/api/services?search=cart").await;
        assert_eq!(found["services"][0]["name"], json!("shop/cart"));
    }
    let path = json_of(at, "/explore/api/path?from=pod&to=shop/cart:80").await;
    assert_eq!(path["reachable"], json!("no"));
    assert_eq!(looks.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_change_is_told_with_when_it_was_in_the_kernel() {
    let serving = exploring();
    let host = Host {
        families: PerFamily {
            v4: Some(engine_capabilities()),
            v6: None,
        },
        invalid: iptables::build::InvalidPackets::Dropped,
    };
    serving.host(&host);
    let mut engine = Engine::new(
        Settings::default(),
        NodeFacts::default(),
        &host,
        &EngineConfig::default(),
    );
    // The first lists are no changes that anybody looks for.
    serving.given(&service(79), &engine);
    for kind in [Kind::Service, Kind::Slice] {
        engine.handle(Event::Listed(kind), Duration::ZERO);
    }
    serving.given(&service(80), &engine);
    let at = metrics_port(&serving).await;
    let change = &json_of(at, "/explore/api/changes").await["changes"][0];
    assert_eq!(
        (&change["object"], &change["kernel"]),
        (&json!("shop/cart"), &json!("waits"))
    );
    serving.explorer_began(
        Family::V4,
        &engine::Effect::Commit(iptables::plan::Step::default()),
    );
    serving.report(&Report::Applied {
        family: Family::V4,
        services: vec![ServiceName::new("shop", "cart")],
        size: StepSize::default(),
    });
    let told = json_of(at, "/explore/api/changes?search=CART").await;
    let change = &told["changes"][0];
    assert_eq!(
        (&change["what"], &change["kernel"]),
        (&json!("came: ClusterIP 10.96.0.1, 80/TCP"), &json!("written"))
    );
    let (heard, written) = (change["heard_ms"].as_u64(), change["kernel_ms"].as_u64());
    assert!(
        heard <= written && change["took_ms"].as_f64().is_some_and(|took| took >= 0.0),
        "{change}"
    );
    assert_eq!(told["changes"].as_array().map(Vec::len), Some(1));
}

fn engine_capabilities() -> iptables::build::Capabilities {
    iptables::build::Capabilities {
        masquerade_ports: iptables::ast::Ports::RandomFully,
        nfacct: iptables::build::Nfacct::Absent,
    }
}
