//! `/metrics/slis`: how the checks behind `/healthz` of the metrics port went. Upstream has one check
//! there, the ping, which says that the port answers.

use super::Serving;
use super::metrics_pages::exposition;
use super::pages::text;
use super::registry::{Metric, Registry, Shape};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use std::sync::PoisonError;
use std::time::{Duration, UNIX_EPOCH};

const CHECK: &str = "kubernetes_healthcheck";
const CHECKS: &str = "kubernetes_healthchecks_total";
const START: &str = "process_start_time_seconds";

/// The metrics of the page.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: CHECK,
        help: "[STABLE] This metric records the result of a single healthcheck.",
        shape: Shape::Gauge,
        labels: &["name", "type"],
    },
    Metric {
        name: CHECKS,
        help: "[STABLE] This metric records the results of all healthcheck.",
        shape: Shape::Counter,
        labels: &["name", "status", "type"],
    },
    Metric {
        name: START,
        help: "[ALPHA] Start time of the process since unix epoch in seconds.",
        shape: Shape::Gauge,
        labels: &[],
    },
];

/// Nothing was checked yet.
pub(super) fn registry() -> Registry {
    Registry::new(METRICS)
}

/// The page.
pub(super) fn page(serving: &Serving, method: &Method) -> Response {
    let mut registry = serving.0.slis.lock().unwrap_or_else(PoisonError::into_inner);
    if *method == Method::DELETE {
        registry.clear(CHECK);
        registry.clear(CHECKS);
        return text(StatusCode::OK, "metrics reset\n");
    }
    let started = serving.0.started_wall.duration_since(UNIX_EPOCH);
    registry.set(START, &[], started.unwrap_or(Duration::ZERO).as_secs_f64());
    exposition(serving, registry.text())
}

/// The ping was answered well; it has no other way to be answered.
pub(super) fn pinged(serving: &Serving) {
    let mut registry = serving.0.slis.lock().unwrap_or_else(PoisonError::into_inner);
    registry.set(CHECK, &["ping", "healthz"], 1.0);
    registry.add(CHECKS, &["ping", "success", "healthz"], 1.0);
}
