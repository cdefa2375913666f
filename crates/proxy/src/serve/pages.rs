//! `/healthz` and `/livez` of the health port, with upstream's bodies and headers.

use super::Serving;
use super::families::name;
use super::health::{Question, Verdict};
use axum::Router;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use axum::routing::any;
use model::Family;
use std::fmt::Write;
use std::time::{Duration, SystemTime};

/// The zero of Go's time.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Beside upstream's body while remembered objects are in use (ADR 38): how old they are, in seconds.
const REMEMBERED: HeaderName = HeaderName::from_static("kube-proxy-rs-remembered-state-age");

/// The pages.
pub(super) fn router(serving: &Serving) -> Router {
    let page = |question| {
        let serving = serving.clone();
        any(move |uri: Uri| {
            let response = answer(&serving, question, uri.query());
            async move { response }
        })
    };
    Router::new()
        .route("/healthz", page(Question::Healthz))
        .route("/livez", page(Question::Livez))
        .fallback(|| async { not_found() })
}

fn answer(serving: &Serving, question: Question, query: Option<&str>) -> Response {
    let now = serving.now().since_start;
    let mut record = serving.record();
    let verdict = record.health.ask(question, now);
    let detail = asks(query, "verbose").then(|| record.health.detail(now));
    let remembered = record.health.remembered.map(|remembered| remembered.age_at(now));
    let (metric, status) = match (question, verdict.is_ok()) {
        (Question::Healthz, true) => (name::HEALTHZ, StatusCode::OK),
        (Question::Healthz, false) => (name::HEALTHZ, StatusCode::SERVICE_UNAVAILABLE),
        (Question::Livez, true) => (name::LIVEZ, StatusCode::OK),
        (Question::Livez, false) => (name::LIVEZ, StatusCode::SERVICE_UNAVAILABLE),
    };
    record.metrics.add(metric, &[status.as_str()], 1.0);
    drop(record);
    let mut body = body(&verdict, serving.0.started_wall, now);
    if let Some(detail) = detail {
        let detail = serde_json::to_string(&detail).expect("invariant: words and numbers can be written");
        body.truncate(body.len() - 1);
        let _ = write!(body, ",\"detail\":{detail}}}");
    }
    let mut response = json(status, body);
    if let Some(age) = remembered {
        response
            .headers_mut()
            .insert(REMEMBERED, HeaderValue::from(age.as_secs()));
    }
    response
}

/// The body, keys in upstream's order.
fn body(verdict: &Verdict, started: SystemTime, now: Duration) -> String {
    let at = |since_start: Duration| rfc3339(started + since_start);
    let newest = verdict.families.iter().map(|(_, updated, _)| *updated).max();
    let updated = if verdict.is_ok() {
        at(now)
    } else {
        newest.map_or(NEVER.to_owned(), at)
    };
    let mut out = format!("{{\"lastUpdated\":\"{updated}\",\"currentTime\":\"{}\"", at(now));
    if let Some(eligible) = verdict.node_eligible {
        let _ = write!(out, ",\"nodeEligible\":{eligible}");
    }
    let _ = write!(out, ",\"healthy\":{}", verdict.healthy);
    for (i, (family, updated, healthy)) in verdict.families.iter().enumerate() {
        let opening = if i == 0 { ",\"status\":{" } else { "," };
        let family: &Family = family;
        let updated = at(*updated);
        let _ = write!(
            out,
            "{opening}\"{family}\":{{\"lastUpdated\":\"{updated}\",\"healthy\":{healthy}}}"
        );
    }
    if !verdict.families.is_empty() {
        out.push('}');
    }
    out.push('}');
    out
}

/// RFC 3339 with as many digits of a second as there are.
pub(super) fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|_| NEVER.to_owned(), |time| time.to_string())
}

/// Whether a query has this word, with or without a value.
pub(super) fn asks(query: Option<&str>, word: &str) -> bool {
    let mut words = query.unwrap_or_default().split('&');
    words.any(|pair| pair.split('=').next() == Some(word))
}

/// A JSON answer with upstream's headers.
pub(super) fn json(status: StatusCode, body: String) -> Response {
    answer_of(status, "application/json", body)
}

/// A text answer with upstream's headers.
pub(super) fn text(status: StatusCode, body: impl Into<String>) -> Response {
    answer_of(status, "text/plain; charset=utf-8", body.into())
}

/// What Go answers to an unknown path.
pub(super) fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// An answer with upstream's headers.
pub(super) fn answer_of(status: StatusCode, content_type: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
