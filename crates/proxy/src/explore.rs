//! The explorer over HTTP: its routes, requests and answers, for the daemon and for files.

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use axum::response::Response;
use axum::routing::{MethodRouter, any};
use explain::World;
use explorer::{About, AboutWorld, Answer, Asked, Counted, Explored, HEADERS, Liveness, Names};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Questions that are worked on at once: a path through ten thousand Services' rules takes a processor for a while, and
/// somebody else needs one.
const AT_ONCE: usize = 1;

static WORK: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(AT_ONCE));

/// A port on which a world that does not change can be explored.
#[derive(Debug)]
pub struct Explorer {
    listener: TcpListener,
    explored: Arc<Explored>,
}

impl Explorer {
    /// Opens the port.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn open(address: SocketAddr, world: World) -> std::io::Result<Explorer> {
        let listener = TcpListener::bind(address).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let explored = Explored::new(world, about(Liveness::Once, now));
        Ok(Explorer {
            listener,
            explored: Arc::new(explored),
        })
    }

    /// Where it is.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers for ever.
    ///
    /// # Errors
    /// When connections cannot be taken any more.
    pub async fn serve(self) -> std::io::Result<()> {
        let explored = self.explored;
        let page = any(move |request: Request<Body>| of_files(explored.clone(), request));
        axum::serve(self.listener, routes(page)).await
    }
}

async fn of_files(explored: Arc<Explored>, request: Request<Body>) -> Response {
    response(match asked(&request, &Names::default()) {
        Asked::Known(answer) => answer,
        Asked::Changes(_) => Answer::refused(404, "nothing changes here: these objects were read once"),
        Asked::World(asked) => answer(explored, asked, None).await,
    })
}

/// What a page says of itself.
pub(crate) fn about(liveness: Liveness, read_ms: u64) -> About {
    About {
        version: env!("CARGO_PKG_VERSION"),
        liveness,
        read_ms,
    }
}

/// Every path of the explorer.
pub(crate) fn routes(page: MethodRouter) -> Router {
    Router::new()
        .route("/explore", page.clone())
        .route("/explore/", page.clone())
        .route("/explore/{*rest}", page)
}

/// What a request asks for.
pub(crate) fn asked(request: &Request<Body>, names: &Names) -> Asked {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(only), None) => only.to_str().ok(),
        _ => None,
    };
    let request = explorer::Request {
        method: request.method().as_str(),
        host,
        path: request.uri().path(),
        query: request.uri().query(),
    };
    explorer::read(&request, names)
}

/// Answers out of a world, off the threads that serve.
pub(crate) async fn answer(
    explored: Arc<Explored>,
    asked: AboutWorld,
    counted: Option<Vec<Counted>>,
) -> Answer {
    let Ok(_turn) = WORK.acquire().await else {
        return Answer::refused(503, "the explorer is on its way out");
    };
    let work = tokio::task::spawn_blocking(move || explored.answer(&asked, counted.as_deref()));
    match work.await {
        Ok(answer) => answer,
        Err(_) => Answer::refused(500, "this could not be answered; the log says why"),
    }
}

/// An answer with its headers.
pub(crate) fn response(answer: Answer) -> Response {
    let mut response = Response::new(match answer.body {
        std::borrow::Cow::Borrowed(text) => Body::from(text),
        std::borrow::Cow::Owned(text) => Body::from(text),
    });
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    for (name, value) in HEADERS.into_iter().chain(answer.header) {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}
