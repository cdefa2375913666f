//! The pages of the metrics port: upstream's paths, texts and headers.

use super::Serving;
use super::pages::{asks, json, not_found, text};
use super::{scrape, slis};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::any;
use config::KubeProxyConfiguration;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// Names the exposition format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// The pages.
pub(super) fn router(serving: &Serving) -> Router {
    let page = |make: fn(&Serving, &Uri, &Method) -> Response| {
        let serving = serving.clone();
        any(move |method: Method, uri: Uri| {
            let response = make(&serving, &uri, &method);
            async move { response }
        })
    };
    let metrics = serving.clone();
    Router::new()
        .route("/metrics", any(move || metrics_page(metrics.clone())))
        .route("/healthz", page(|serving, uri, _| healthz(serving, uri)))
        .route("/healthz/ping", page(|_, _, _| text(StatusCode::OK, "ok")))
        .route(
            "/metrics/slis",
            page(|serving, _, method| slis::page(serving, method)),
        )
        .route(
            "/proxyMode",
            page(|serving, _, _| text(StatusCode::OK, mode(&serving.0.config))),
        )
        .route(
            "/configz",
            page(|serving, _, _| json(StatusCode::OK, serving.0.configz.clone())),
        )
        .merge(super::failed::router(serving))
        .fallback(|| async { not_found() })
}

fn mode(config: &KubeProxyConfiguration) -> &str {
    if config.mode.is_empty() {
        "iptables"
    } else {
        &config.mode
    }
}

/// The configuration as JSON under its group's name.
pub(super) fn configz(config: &KubeProxyConfiguration) -> String {
    let config = serde_json::to_string(config).expect("invariant: a configuration can be written");
    format!("{{\"kubeproxy.config.k8s.io\":{config}}}")
}

/// The one check is the ping. Others cannot be excluded, which is told and does no harm.
fn healthz(serving: &Serving, uri: &Uri) -> Response {
    let words = uri.query().unwrap_or_default().split('&');
    let excluded: BTreeSet<&str> = words.filter_map(|word| word.strip_prefix("exclude=")).collect();
    let mut lines = if excluded.contains("ping") {
        "[+]ping excluded: ok\n".to_owned()
    } else {
        slis::pinged(serving);
        "[+]ping ok\n".to_owned()
    };
    if !asks(uri.query(), "verbose") {
        return text(StatusCode::OK, "ok");
    }
    let others: Vec<String> = excluded
        .into_iter()
        .filter(|name| *name != "ping")
        .map(|name| format!("{name:?}"))
        .collect();
    if !others.is_empty() {
        let others = others.join(", ");
        let _ = writeln!(
            lines,
            "warn: some health checks cannot be excluded: no matches for {others}"
        );
    }
    text(StatusCode::OK, lines + "healthz check passed\n")
}

async fn metrics_page(serving: Serving) -> Response {
    // Reading takes system calls; none of them waits for anybody, but they do not belong on the threads of the watches.
    let of_services = serving.clone();
    let read = move || (scrape::read(), of_services.service_metrics());
    let (readings, services) = tokio::task::spawn_blocking(read).await.unwrap_or_default();
    let mut record = serving.record();
    readings.put(&mut record.metrics);
    record.ages(serving.now());
    let body = record.metrics.text();
    drop(record);
    exposition(&serving, body + &services)
}

/// A page of metrics.
pub(super) fn exposition(serving: &Serving, body: String) -> Response {
    let mut response = text(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EXPOSITION));
    headers.remove("x-content-type-options");
    let started = serving.0.started_wall.duration_since(UNIX_EPOCH);
    let started = started.unwrap_or(Duration::ZERO).as_secs();
    headers.insert(
        HeaderName::from_static("process-start-time-unix"),
        HeaderValue::from(started),
    );
    response
}
