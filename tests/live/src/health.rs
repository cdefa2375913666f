//! What the daemon says of itself over HTTP, asked at its own node.

use crate::cluster::NODE;
use crate::daemon::{Daemon, PATIENCE};
use crate::within;
use lab::{HttpAnswer, Lab};
use serde_json::Value;
use std::time::Duration;

const HEALTH: &str = "127.0.0.1:10256";
const METRICS: &str = "127.0.0.1:10249";

/// An answer of `/healthz` or `/livez`.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Value,
}

impl Said {
    /// Whether a family is healthy by this answer; `None` when it is not spoken of.
    pub fn of_family(&self, family: &str) -> Option<bool> {
        self.body["status"][family]["healthy"].as_bool()
    }
}

/// Asks `/healthz`; `None` without an answer.
pub fn healthz(lab: &Lab) -> Option<Said> {
    said(lab, "/healthz")
}

/// Asks `/livez`, with all it has to tell; `None` without an answer.
pub fn livez(lab: &Lab) -> Option<Said> {
    said(lab, "/livez?verbose")
}

/// Waits until `/healthz` answers with this status; what it says then.
///
/// # Panics
/// When it does not in time, with the daemon's log.
pub fn healthz_becomes(lab: &Lab, status: u16, daemon: &Daemon) -> Said {
    becomes(lab, healthz, status, daemon)
}

/// As [`healthz_becomes`], of `/livez`.
///
/// # Panics
/// When it does not in time, with the daemon's log.
pub fn livez_becomes(lab: &Lab, status: u16, daemon: &Daemon) -> Said {
    becomes(lab, livez, status, daemon)
}

fn becomes(lab: &Lab, ask: fn(&Lab) -> Option<Said>, status: u16, daemon: &Daemon) -> Said {
    let mut last = None;
    let took = within(PATIENCE, || {
        last = ask(lab);
        last.as_ref().is_some_and(|said| said.status == status)
    });
    assert!(took.is_some(), "not {status}: {last:?}\n{}", daemon.log());
    last.expect("invariant: it has just answered")
}

fn said(lab: &Lab, path: &str) -> Option<Said> {
    let answer = get(lab, HEALTH, path)?;
    Some(Said {
        status: answer.status,
        body: serde_json::from_str(&answer.body).unwrap_or_default(),
    })
}

/// The sum of the series of a metric whose labels contain all these words; `None` where there is no such series.
pub fn metric(lab: &Lab, name: &str, labels: &[&str]) -> Option<f64> {
    let page = get(lab, METRICS, "/metrics")?.body;
    let mut sum = None;
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ')?;
        let (its_name, its_labels) = series.split_once('{').unwrap_or((series, ""));
        if its_name == name && labels.iter().all(|word| its_labels.contains(word)) {
            sum = Some(sum.unwrap_or(0.0) + value.parse::<f64>().ok()?);
        }
    }
    sum
}

fn get(lab: &Lab, server: &str, path: &str) -> Option<HttpAnswer> {
    let server = server.parse().expect("a socket address");
    lab.http_get(NODE, server, path, Duration::from_secs(5)).ok()
}
