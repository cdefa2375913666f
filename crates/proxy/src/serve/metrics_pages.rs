//! The pages of the metrics port (control.md 7.1).

use super::Serving;
use super::pages::{asks, json, not_found, rfc3339, text};
use super::scrape;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::any;
use config::KubeProxyConfiguration;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// The pages that `/statusz` names.
const PATHS: [&str; 4] = ["/configz", "/healthz", "/metrics", "/proxyMode"];

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
        .route("/healthz", page(|_, uri, _| healthz(uri)))
        .route("/healthz/ping", page(|_, _, _| text(StatusCode::OK, "ok")))
        .route("/metrics/slis", page(|serving, _, method| slis(serving, method)))
        .route(
            "/proxyMode",
            page(|serving, _, _| text(StatusCode::OK, mode(&serving.0.config))),
        )
        .route(
            "/configz",
            page(|serving, _, _| json(StatusCode::OK, serving.0.configz.clone())),
        )
        .route("/statusz", page(|serving, _, _| statusz(serving)))
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

fn healthz(uri: &Uri) -> Response {
    if !asks(uri.query(), "verbose") {
        return text(StatusCode::OK, "ok");
    }
    let excluded = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .any(|word| word == "exclude=ping");
    let ping = if excluded {
        "[+]ping excluded: ok\n"
    } else {
        "[+]ping ok\n"
    };
    text(StatusCode::OK, format!("{ping}healthz check passed\n"))
}

async fn metrics_page(serving: Serving) -> Response {
    // Reading takes system calls; none of them waits for anybody, but they do not belong on the threads of the watches.
    let readings = tokio::task::spawn_blocking(scrape::read)
        .await
        .unwrap_or_default();
    let mut record = serving.record();
    readings.put(&mut record.metrics);
    record.ages(serving.now());
    let body = record.metrics.text();
    drop(record);
    exposition(&serving, body)
}

fn exposition(serving: &Serving, body: String) -> Response {
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

/// No check of this registry ever ran, as in upstream's kube-proxy, whose only one is the ping.
fn slis(serving: &Serving, method: &Method) -> Response {
    if *method == Method::DELETE {
        return text(StatusCode::OK, "metrics reset\n");
    }
    let started = serving.0.started_wall.duration_since(UNIX_EPOCH);
    let started = started.unwrap_or(Duration::ZERO).as_secs_f64();
    let mut body = String::new();
    let _ = write!(
        body,
        "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n\
         # TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {started}\n"
    );
    exposition(serving, body)
}

fn statusz(serving: &Serving) -> Response {
    let up = serving.now().since_start.as_secs();
    let started = rfc3339(serving.0.started_wall);
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    let version = env!("CARGO_PKG_VERSION");
    let paths = PATHS.join(" ");
    let body = format!(
        "\nkube-proxy statusz\nFor people; the form may change.\n\n\
         Started: {started}\nUp: {hours:02} hr {minutes:02} min {seconds:02} sec\nBinary version: {version}\nEmulation version: 1.36\nPaths: {paths}\n"
    );
    text(StatusCode::OK, body)
}
