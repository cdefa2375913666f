//! `/kubeproxy_rs/failed/ipv4` and `/ipv6` of the metrics port: what the last failing restore of a family was given.
//!
//! It can be tried by hand: `iptables-restore --test --noflush`. What was left out at the end is told in the head.

use super::Serving;
use super::pages::{rfc3339, text};
use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::any;
use kernel::FailedInput;
use model::Family;

/// The pages.
pub(super) fn router(serving: &Serving) -> Router {
    let page = |family| {
        let serving = serving.clone();
        any(move || {
            let response = answer(family, serving.0.failed.last(family));
            async move { response }
        })
    };
    Router::new()
        .route("/kubeproxy_rs/failed/ipv4", page(Family::V4))
        .route("/kubeproxy_rs/failed/ipv6", page(Family::V6))
}

fn answer(family: Family, failed: Option<FailedInput>) -> Response {
    match failed {
        Some(failed) => text(StatusCode::OK, body(&failed)),
        None => text(
            StatusCode::NOT_FOUND,
            format!("no restore of {family} has failed since the start\n"),
        ),
    }
}

/// The head is a comment to whoever restores it.
fn body(failed: &FailedInput) -> String {
    let cut = match failed.cut {
        0 => String::new(),
        cut => format!("# {cut} more bytes are left out at the end\n"),
    };
    let (at, error, input) = (rfc3339(failed.at), &failed.error, &failed.input);
    format!("# {at}\n# {error}\n{cut}{input}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{CommitError, FailureKind};
    use std::time::SystemTime;

    #[test]
    fn the_input_is_shown_below_why_it_failed() {
        let error = CommitError {
            attempted: "iptables-restore with 12 bytes".to_owned(),
            kind: FailureKind::Refused,
            detail: "line 2 failed".to_owned(),
        };
        let mut failed = FailedInput {
            at: SystemTime::UNIX_EPOCH,
            error,
            input: "*nat\n-A X\n".to_owned(),
            cut: 0,
        };
        let whole =
            "# 1970-01-01T00:00:00Z\n# iptables-restore with 12 bytes failed: line 2 failed\n*nat\n-A X\n";
        assert_eq!(body(&failed), whole);
        failed.cut = 7;
        assert!(
            body(&failed).contains("# 7 more bytes are left out"),
            "{}",
            body(&failed)
        );
    }
}
