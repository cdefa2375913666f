//! What the API server is asked, as client-go counts it.

use super::registry::{Bounds, Metric, Registry, Shape, as_f64};
use cluster::api::{Asked, What};

const DURATION: &str = "rest_client_request_duration_seconds";
const WAITED: &str = "rest_client_rate_limiter_duration_seconds";
const SENT: &str = "rest_client_request_size_bytes";
const RECEIVED: &str = "rest_client_response_size_bytes";
const TOTAL: &str = "rest_client_requests_total";
const RETRIES: &str = "rest_client_request_retries_total";

const fn histogram(name: &'static str, bounds: Bounds, help: &'static str) -> Metric {
    Metric {
        name,
        help,
        shape: Shape::Histogram(bounds),
        labels: &["host", "verb"],
    }
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric {
        name,
        help,
        shape: Shape::Counter,
        labels,
    }
}

/// Upstream's.
pub(super) const REQUESTS: &[Metric] = &[
    histogram(
        DURATION,
        Bounds::Request,
        "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
    ),
    histogram(
        WAITED,
        Bounds::Request,
        "[ALPHA] Client side rate limiter latency in seconds. Broken down by verb, and host.",
    ),
    histogram(
        SENT,
        Bounds::Bytes,
        "[ALPHA] Request size in bytes. Broken down by verb and host.",
    ),
    histogram(
        RECEIVED,
        Bounds::Bytes,
        "[ALPHA] Response size in bytes. Broken down by verb and host.",
    ),
    counter(
        TOTAL,
        &["code", "host", "method"],
        "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
    ),
    counter(
        RETRIES,
        &["code", "host", "verb"],
        "[ALPHA] Number of request retries, partitioned by status code, verb, and host.",
    ),
];

/// Counts one thing about a request. Without an answer the code is `<error>`.
pub(super) fn count(metrics: &mut Registry, asked: &Asked<'_>) {
    let Asked { host, method, what } = *asked;
    let code = |status: Option<u16>| status.map_or("<error>".to_owned(), |status| status.to_string());
    match what {
        What::Waited(wait) => metrics.observe(WAITED, &[host, method], wait.as_secs_f64()),
        What::Answered(status) => metrics.add(TOTAL, &[&code(status), host, method], 1.0),
        What::Retried(status) => metrics.add(RETRIES, &[&code(Some(status)), host, method], 1.0),
        What::Ended { took, sent, received } => {
            metrics.observe(DURATION, &[host, method], took.as_secs_f64());
            for (name, bytes) in [(SENT, sent), (RECEIVED, received)] {
                if let Some(bytes) = bytes {
                    metrics.observe(name, &[host, method], as_f64(bytes));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn text_after(happened: &[What]) -> String {
        let mut metrics = Registry::new(REQUESTS);
        for what in happened {
            let asked = Asked {
                host: "192.0.2.1:6443",
                method: "GET",
                what: *what,
            };
            count(&mut metrics, &asked);
        }
        metrics.text()
    }

    #[test]
    fn answers_are_counted_by_code_and_silence_as_an_error() {
        let text = text_after(&[
            What::Answered(Some(200)),
            What::Answered(None),
            What::Answered(None),
        ]);
        for line in [
            "rest_client_requests_total{code=\"200\",host=\"192.0.2.1:6443\",method=\"GET\"} 1\n",
            "rest_client_requests_total{code=\"<error>\",host=\"192.0.2.1:6443\",method=\"GET\"} 2\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn an_exchange_has_a_time_and_two_sizes() {
        let ended = What::Ended {
            took: Duration::from_millis(20),
            sent: Some(0),
            received: Some(1_048_577),
        };
        let waited = What::Waited(Duration::from_secs(3));
        let text = text_after(&[ended, waited, What::Retried(429)]);
        for line in [
            "rest_client_request_duration_seconds_bucket{host=\"192.0.2.1:6443\",verb=\"GET\",le=\"0.025\"} 1\n",
            "rest_client_request_size_bytes_bucket{host=\"192.0.2.1:6443\",verb=\"GET\",le=\"64\"} 1\n",
            "rest_client_response_size_bytes_bucket{host=\"192.0.2.1:6443\",verb=\"GET\",le=\"1.048576e+06\"} 0\n",
            "rest_client_response_size_bytes_bucket{host=\"192.0.2.1:6443\",verb=\"GET\",le=\"4.194304e+06\"} 1\n",
            "rest_client_rate_limiter_duration_seconds_sum{host=\"192.0.2.1:6443\",verb=\"GET\"} 3\n",
            "rest_client_request_retries_total{code=\"429\",host=\"192.0.2.1:6443\",verb=\"GET\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn without_an_answer_there_is_no_size_of_it() {
        let ended = What::Ended {
            took: Duration::from_secs(9),
            sent: Some(0),
            received: None,
        };
        let text = text_after(&[ended]);
        assert!(!text.contains(RECEIVED), "{text}");
        assert!(text.contains(SENT), "{text}");
    }
}
