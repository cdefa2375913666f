//! Services' health-check node ports: how many endpoints this node has, for load balancers
//! (upstream `pkg/proxy/healthcheck`).

use super::Serving;
use super::families::own;
use super::health::Question;
use super::listen::{RETRY, Wildcard, open};
use super::pages::json;
use crate::events::Fact;
use axum::Router;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use model::{Family, ServiceName};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

/// The ports that are to be open.
pub(super) type Wanted = BTreeMap<(Family, ServiceName), Listener>;

/// One service's port, in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    /// The port.
    pub(super) port: u16,
    /// Where it is open. Addresses that cannot be had hold up no other; upstream opens all of them or none (ADR 41).
    pub(super) addresses: Vec<IpAddr>,
}

/// An open port. Dropping it closes it and its idle connections.
struct Open {
    _close: oneshot::Sender<()>,
}

/// One address of one service's port.
type Place = (Family, ServiceName, SocketAddr);

/// Opens and closes ports as wanted, for ever.
pub(super) async fn serve(serving: Serving, mut wanted: watch::Receiver<Wanted>) {
    let mut open_ports: BTreeMap<Place, Open> = BTreeMap::new();
    loop {
        let now = wanted.borrow_and_update().clone();
        let failed = bring_about(&serving, &now, &mut open_ports);
        let changed = if failed {
            timeout(RETRY, wanted.changed()).await.unwrap_or(Ok(()))
        } else {
            wanted.changed().await
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Says whether a port could not be opened.
fn bring_about(serving: &Serving, wanted: &Wanted, open_ports: &mut BTreeMap<Place, Open>) -> bool {
    let places: BTreeSet<Place> = wanted
        .iter()
        .flat_map(|((family, service), listener)| {
            let at = |address: &IpAddr| (*family, service.clone(), SocketAddr::new(*address, listener.port));
            listener.addresses.iter().map(at)
        })
        .collect();
    // What stays is not touched: load balancers notice a port that is closed for a moment.
    open_ports.retain(|place, _| places.contains(place));
    let mut failed = false;
    for place in places {
        if open_ports.contains_key(&place) {
            continue;
        }
        let (family, service, address) = &place;
        match start(serving, *family, service, *address) {
            Ok(open) => {
                tracing::debug!(%family, %service, %address, "health-check node port is open");
                open_ports.insert(place, open);
            }
            Err(error) => {
                failed = true;
                let of = family.to_string();
                serving
                    .record()
                    .metrics
                    .add(own::HEALTH_PORT_FAILURES, &[&of], 1.0);
                tracing::error!(%family, %service, %address, %error, "cannot open the health-check node port; trying again");
                serving.event(Fact::no_health_port(
                    serving.node(),
                    service,
                    address.port(),
                    &error,
                ));
            }
        }
    }
    failed
}

fn start(
    serving: &Serving,
    family: Family,
    service: &ServiceName,
    address: SocketAddr,
) -> std::io::Result<Open> {
    let socket = serving.0.connections.bound(open(address, Wildcard::One)?);
    let (close, closed) = oneshot::channel::<()>();
    let router = router(serving, family, service);
    tokio::spawn(async move {
        let until = async { drop(closed.await) };
        if let Err(error) = axum::serve(socket, router).with_graceful_shutdown(until).await {
            tracing::error!(%error, "a health-check node port ended");
        }
    });
    Ok(Open { _close: close })
}

/// Answers any path and method.
pub(super) fn router(serving: &Serving, family: Family, service: &ServiceName) -> Router {
    let (serving, service) = (serving.clone(), service.clone());
    Router::new().fallback(move || {
        let answer = answer(&serving, family, &service);
        async move { answer }
    })
}

#[derive(Serialize)]
struct Body<'a> {
    service: Name<'a>,
    #[serde(rename = "localEndpoints")]
    local_endpoints: usize,
    #[serde(rename = "serviceProxyHealthy")]
    service_proxy_healthy: bool,
}

#[derive(Serialize)]
struct Name<'a> {
    namespace: &'a str,
    name: &'a str,
}

fn answer(serving: &Serving, family: Family, service: &ServiceName) -> Response {
    let record = serving.record();
    let now = serving.now().since_start;
    let healthy = record.health.ask(Question::Healthz, now).healthy;
    let count = record.local.get(family).health.get(service);
    let endpoints = count.map_or(0, |count| count.endpoints);
    drop(record);
    let body = Body {
        service: Name {
            namespace: &service.namespace,
            name: &service.name,
        },
        local_endpoints: endpoints,
        service_proxy_healthy: healthy,
    };
    let status = if endpoints > 0 && healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut response = json(status, with_tabs(&body));
    response.headers_mut().insert(
        HeaderName::from_static("x-load-balancing-endpoint-weight"),
        HeaderValue::from(endpoints),
    );
    response
}

fn with_tabs(body: &Body<'_>) -> String {
    let mut out = Vec::new();
    let tabs = serde_json::ser::PrettyFormatter::with_indent(b"\t");
    body.serialize(&mut serde_json::Serializer::with_formatter(&mut out, tabs))
        .expect("invariant: a name and two numbers can be written");
    String::from_utf8(out).expect("invariant: JSON is UTF-8")
}
