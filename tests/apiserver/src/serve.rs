//! From a request to its answer.

use crate::asked::Asked;
use crate::list::list;
use crate::query::{ListQuery, WatchQuery, selector};
use crate::reply::{Answer, Body, CutShort, Reply, frames};
use crate::resource::{Place, Resource};
use crate::server::{Shared, lock};
use crate::status::Status;
use crate::store::{Key, Store};
use crate::watch;
use crate::write::{self, MAX_BODY};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

type Out = UnsyncBoxBody<Bytes, CutShort>;

/// Serves one connection to its end.
pub(crate) async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    // Events are small and must not wait for each other.
    let _ = stream.set_nodelay(true);
    let number = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
    let acceptor = lock(&shared.tls).clone();
    match acceptor {
        None => talk(stream, shared, number).await,
        Some(acceptor) => {
            // A client that does not trust the certificate leaves here.
            if let Ok(stream) = acceptor.accept(stream).await {
                talk(stream, shared, number).await;
            }
        }
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>, number: u64) {
    let service = service_fn(|request| respond(request, shared.clone(), number));
    // How a connection ends is the client's business, or a fault's.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(
    request: Request<Incoming>,
    shared: Arc<Shared>,
    number: u64,
) -> Result<Response<Out>, CutShort> {
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return Err(CutShort),
    };
    let asked = note(&shared, Asked::new(&parts, body, number));
    match answer(&shared, &asked) {
        Reply::Nothing => std::future::pending().await,
        Reply::HangUp => Err(CutShort),
        Reply::Answer(answer) => Ok(response(answer)),
    }
}

/// Writes the request down.
fn note(shared: &Shared, mut request: Asked) -> Asked {
    let mut asked = lock(&shared.asked);
    request.count = asked
        .iter()
        .filter(|before| before.resource == request.resource)
        .count();
    asked.push(request.clone());
    request
}

fn response(
    Answer {
        status,
        headers,
        body,
    }: Answer,
) -> Response<Out> {
    let never = |error: Infallible| match error {};
    let body = match body {
        Body::Whole(text) => Full::new(Bytes::from(text)).map_err(never).boxed_unsync(),
        Body::Parts(parts) => StreamBody::new(frames(parts)).boxed_unsync(),
    };
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(body).expect("a status and headers that are sound")
}

fn answer(shared: &Shared, asked: &Asked) -> Reply {
    if let Some(reply) = shared.script.as_ref().and_then(|script| script(asked)) {
        return reply;
    }
    let place = Place::read(asked.path()).filter(|place| !shared.absent.contains(&place.resource));
    let verb = verb(asked, place.as_ref());
    let fault = lock(&shared.faults).take(verb, asked);
    match fault {
        Some(Ok(reply)) => reply,
        Some(Err(damage)) => damage.to(act(shared, asked, place, verb)),
        None => act(shared, asked, place, verb),
    }
}

/// The verb as RBAC rules spell it.
fn verb(asked: &Asked, place: Option<&Place>) -> &'static str {
    let one = place.is_some_and(|place| place.name.is_some());
    match asked.method.as_str() {
        "GET" if asked.is_watch() => "watch",
        "GET" if one => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if one => "delete",
        _ => "deletecollection",
    }
}

fn act(shared: &Shared, asked: &Asked, place: Option<Place>, verb: &str) -> Reply {
    let user = lock(&shared.access).user(asked.header("authorization"));
    let tried = user.and_then(|user| {
        let Some(place) = place else {
            return Ok(elsewhere(asked));
        };
        let by_selector = selector(asked, &place).ok();
        let name = place
            .name
            .as_deref()
            .or_else(|| by_selector.as_ref().and_then(|selector| selector.name()));
        user.may(verb, &place, name)?;
        acceptable(asked)?;
        carry_out(shared, asked, &place, verb)
    });
    tried.unwrap_or_else(|status| refusal(&status))
}

/// An error with the headers that go with it.
pub(crate) fn refusal(status: &Status) -> Reply {
    let reply = Reply::object(status.code, &status.json());
    match status
        .details
        .as_ref()
        .map(|details| &details["retryAfterSeconds"])
    {
        Some(Value::Number(seconds)) => reply.with("Retry-After", &seconds.to_string()),
        _ => reply,
    }
}

/// Paths that are no resource.
fn elsewhere(asked: &Asked) -> Reply {
    match asked.path() {
        "/readyz" | "/livez" | "/healthz" => {
            Reply::whole(200, "ok").with("Content-Type", "text/plain; charset=utf-8")
        }
        "/version" => Reply::object(
            200,
            &json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}),
        ),
        path if of_known_group(path) => refusal(&Status::no_such_resource()),
        _ => Reply::whole(404, "404 page not found\n").with("Content-Type", "text/plain; charset=utf-8"),
    }
}

/// Whether the path is of an API group that the server has.
fn of_known_group(path: &str) -> bool {
    Resource::ALL.iter().any(|resource| {
        let root = if resource.group().is_empty() {
            "/api/"
        } else {
            "/apis/"
        };
        path.starts_with(&format!("{root}{}/", resource.api_version()))
    })
}

/// This server speaks JSON alone. A real one has YAML, protobuf and CBOR too, for clients that ask for them first.
fn acceptable(asked: &Asked) -> Result<(), Status> {
    let accept = asked.header("accept");
    let json = accept.split(',').any(|range| {
        let media = range.split(';').next().unwrap_or_default().trim();
        matches!(media, "" | "*/*" | "application/json")
    });
    if json {
        Ok(())
    } else {
        Err(Status::not_acceptable())
    }
}

fn carry_out(shared: &Shared, asked: &Asked, place: &Place, verb: &str) -> Result<Reply, Status> {
    let named = || place.name.as_deref().unwrap_or_default();
    match verb {
        "watch" => {
            let query = WatchQuery::read(asked, place, shared.streaming_lists)?;
            let source = watch::Source {
                store: shared.store.clone(),
                grown: shared.grown.subscribe(),
            };
            return Ok(Reply::parts(watch::open(&source, place.resource, query)));
        }
        "list" => {
            let query = ListQuery::read(asked, place)?;
            let object = list(&lock(&shared.store), place.resource, &query)?;
            return Ok(Reply::object(200, &object));
        }
        "get" => {
            let found = object(&lock(&shared.store), place);
            let found = found.ok_or_else(|| Status::not_found(place.resource, named()))?;
            return Ok(Reply::object(200, &found));
        }
        _ => {}
    }
    let mut store = lock(&shared.store);
    let reply = match verb {
        "create" => write::create(&mut store, place, asked),
        "update" => write::update(&mut store, place, named(), asked),
        "patch" => write::patch(&mut store, place, named(), asked),
        "delete" => write::delete(&mut store, place, named()),
        _ => Err(Status::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )),
    };
    drop(store);
    shared.grown.send_replace(());
    reply
}

/// The object at a place.
pub(crate) fn object(store: &Store, place: &Place) -> Option<Value> {
    let key = Key {
        resource: place.resource,
        namespace: place.namespace.clone().unwrap_or_default(),
        name: place.name.clone().unwrap_or_default(),
    };
    store.get(&key).map(|object| Value::clone(object))
}
