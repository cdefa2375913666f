//! kube's client on a connector of ours, because kube's own leaves TCP keep-alive off (ADR 35).

use super::keep_alive::KeepAlive;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use std::time::Duration;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

/// What sends requests.
pub(crate) type Http = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// Longest time until a server takes a connection: the first SYN and one more a second later. Later ones come seconds
/// apart, and the way back to a server must be found sooner (ADR 60).
const CONNECT: Duration = Duration::from_secs(2);

/// A client that never tries again by itself: that is this crate's own business, with the state of the watch in view.
pub(crate) fn client(mut config: Config, keep_alive: &KeepAlive) -> Result<ClientBuilder<Http>, kube::Error> {
    config.default_retry = false;
    if config.proxy_url.is_some() {
        // kube says what it makes of that.
        return ClientBuilder::try_from(config);
    }
    if config.cluster_url.scheme_str() == Some("http") && config.root_cert.is_none() {
        // No certificate will be checked, and the system's are not worth reading; an image may have none.
        config.root_cert = Some(Vec::new());
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(
        config.connect_timeout.map_or(CONNECT, |most| most.min(CONNECT)),
    ));
    connector.set_keepalive(Some(keep_alive.idle));
    connector.set_keepalive_interval(Some(keep_alive.interval));
    connector.set_keepalive_retries(Some(keep_alive.probes));
    // A request that was sent and never acknowledged is no idle connection: keep-alive does not look at it.
    connector.set_tcp_user_timeout(Some(keep_alive.limit()));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http = HttpClient::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http)
        .map_response(|response| response.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>))
        .boxed();
    Ok(ClientBuilder::new(service, config.default_namespace))
}

#[cfg(test)]
mod tests {
    use super::super::answer::body_of;
    use super::super::trouble::Trouble;
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    /// What becomes of a request to a server that does this with its one connection. The listener closes first if it does
    /// nothing.
    fn trouble_with(serve: Option<fn(TcpStream)>) -> Trouble {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let served = serve.map(|serve| thread::spawn(move || serve(listener.accept().unwrap().0)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let trouble = runtime.block_on(async {
            let mut config = Config::new(url.parse().unwrap());
            config.accept_invalid_certs = true;
            let client = client(config, &KeepAlive::default()).unwrap().build();
            body_of(&client, "/api").await.err().unwrap()
        });
        if let Some(served) = served {
            served.join().unwrap();
        }
        trouble
    }

    #[test]
    fn no_connection_is_told_from_one_that_leads_nowhere() {
        let refused = trouble_with(None);
        assert!(matches!(refused, Trouble::Unconnected(_)), "{refused:?}");
        let given_up = trouble_with(Some(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
        }));
        assert!(matches!(given_up, Trouble::Unconnected(_)), "{given_up:?}");
        let no_tls = trouble_with(Some(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }));
        assert!(matches!(no_tls, Trouble::Broken(_)), "{no_tls:?}");
    }
}
