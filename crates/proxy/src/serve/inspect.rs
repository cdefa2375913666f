//! The pages of the metrics port that show the process itself: its flags, its state, where its time goes, and the one
//! thing that can be changed, the verbosity of the log. Profiling and changing are there only if `enableProfiling` says so.

use super::Serving;
use super::pages::{answer_of, text};
use super::{profile, zpages};
use crate::Verbosity;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use axum::routing::any;
use std::future::{Ready, ready};
use std::num::NonZeroUsize;

/// What the pages need to know that the configuration does not say.
#[derive(Clone, Debug, Default)]
pub struct PageOptions {
    /// Every flag and its value, by name.
    pub flags: Vec<(String, String)>,
    /// How much the log says.
    pub verbosity: Verbosity,
    /// Whether there is an explorer.
    pub explorer: ExplorerPage,
    /// How many service ports have metrics, if traffic is counted by Service (ADR 63).
    pub service_metrics: Option<NonZeroUsize>,
}

/// Whether the metrics port has the explorer (ADR 61).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExplorerPage {
    /// It has not.
    #[default]
    Off,
    /// It has.
    On,
}

/// The most that is read of a new verbosity.
const LONGEST_BODY: usize = 64;

/// The pages.
pub(super) fn router(serving: &Serving, options: &PageOptions) -> Router {
    let config = &serving.0.config;
    let on = |gate: &str| config.feature_gates.get(gate).copied().unwrap_or(true);
    let mut router = Router::new();
    if on("ComponentFlagz") {
        let flagz = zpages::Flagz {
            flags: options.flags.clone(),
        };
        router = router.route("/flagz", any(move |request| page(flagz.answer(&request))));
    }
    if on("ComponentStatusz") {
        let statusz = zpages::Statusz {
            serving: serving.clone(),
            has_flagz: on("ComponentFlagz"),
        };
        router = router.route("/statusz", any(move |request| page(statusz.answer(&request))));
    }
    if config.enable_profiling {
        router = router
            .route("/debug/pprof", any(|| page(redirect("/debug/pprof/"))))
            .route("/debug/pprof/", any(|| page(html(profile::index()))))
            .route("/debug/pprof/{*what}", any(profile::page))
            .merge(flags(&options.verbosity));
    }
    router
}

fn flags(verbosity: &Verbosity) -> Router {
    let list = "<html><head><title>/debug/flags/</title></head><body>flags:<br>\n<a href=\"v\">v</a><br>\n\
                full list of flags: <a href=\"/flagz\">/flagz</a></body></html>\n";
    let verbosity = verbosity.clone();
    Router::new()
        .route("/debug/flags", any(|| page(html(list.to_owned()))))
        .route("/debug/flags/", any(|| page(html(list.to_owned()))))
        .route(
            "/debug/flags/v",
            any(move |request| change_verbosity(verbosity.clone(), request)),
        )
}

fn page(response: Response) -> Ready<Response> {
    ready(response)
}

fn html(body: String) -> Response {
    answer_of(StatusCode::OK, "text/html; charset=utf-8", body)
}

fn redirect(to: &'static str) -> Response {
    let mut response = html(format!("<a href=\"{to}\">Found</a>.\n"));
    *response.status_mut() = StatusCode::FOUND;
    response
        .headers_mut()
        .insert(LOCATION, HeaderValue::from_static(to));
    response
}

/// PUT with a number as body; upstream's words for each outcome.
async fn change_verbosity(verbosity: Verbosity, request: Request<Body>) -> Response {
    let said = |status, words: String| {
        let mut response = text(status, words + "\n");
        let plain = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(CONTENT_TYPE, plain);
        response
    };
    if request.method() != Method::PUT {
        return said(StatusCode::NOT_ACCEPTABLE, "unsupported http method".to_owned());
    }
    let body = match to_bytes(request.into_body(), LONGEST_BODY).await {
        Ok(body) => String::from_utf8_lossy(&body).into_owned(),
        Err(error) => {
            return said(
                StatusCode::BAD_REQUEST,
                format!("error reading request body: {error}"),
            );
        }
    };
    match config::flags::parse_level(&body) {
        Ok(level) => {
            let was = verbosity.get();
            verbosity.set(level);
            tracing::info!(from = was, to = level, "verbosity of the log changed");
            said(
                StatusCode::OK,
                format!("successfully set klog.logging.verbosity to {body}"),
            )
        }
        Err(wrong) => said(
            StatusCode::BAD_REQUEST,
            format!("failed set klog.logging.verbosity {body}: {wrong}"),
        ),
    }
}
