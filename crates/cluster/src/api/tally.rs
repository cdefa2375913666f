//! Counts what the API server is asked, for metrics: the same things at the same moments as client-go does.
//!
//! A layer around the client sees every request, whoever makes it. How long a watch lives says nothing, so that of
//! watches only the answer is told.

use bytes::Buf as _;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tower::{Layer, Service};

/// Something about a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked<'a> {
    /// Host and port of the server, as its URL has them.
    pub host: &'a str,
    /// `GET`, `POST`, ...
    pub method: &'a str,
    /// What happened.
    pub what: What,
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// It waited so long for the client's own limit.
    Waited(Duration),
    /// An answer with this status came; `None` when none came.
    Answered(Option<u16>),
    /// It is sent again, since the server asked for that with this status.
    Retried(u16),
    /// A request that is no watch is over.
    Ended {
        /// From the request to the end of the answer.
        took: Duration,
        /// Bytes of the request's body, where that is known.
        sent: Option<u64>,
        /// Bytes of the answer's body; `None` without an answer.
        received: Option<u64>,
    },
}

/// Who is told.
#[derive(Clone)]
pub struct Tally(Arc<dyn Fn(&Asked<'_>) + Send + Sync>);

impl Tally {
    /// Tells this one, who must not block.
    pub fn new(tell: impl Fn(&Asked<'_>) + Send + Sync + 'static) -> Tally {
        Tally(Arc::new(tell))
    }
}

/// Nobody.
impl Default for Tally {
    fn default() -> Self {
        Tally::new(|_| {})
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tally")
    }
}

/// Tells of the requests to one server.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    tally: Tally,
    host: Arc<str>,
}

impl Counter {
    pub(crate) fn new(tally: Tally, server: &http::Uri) -> Counter {
        let authority = server.authority().map_or("", |authority| authority.as_str());
        let host = authority.rsplit('@').next().unwrap_or_default();
        Counter {
            tally,
            host: host.into(),
        }
    }

    pub(crate) fn tell(&self, method: &str, what: What) {
        let host = &self.host;
        (self.tally.0)(&Asked { host, method, what });
    }
}

impl<S> Layer<S> for Counter {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        let counter = self.clone();
        Counted { inner, counter }
    }
}

/// A service whose requests are counted.
pub(crate) struct Counted<S> {
    inner: S,
    counter: Counter,
}

impl<S, B, C> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Future: Send + 'static,
    B: Body,
{
    type Response = Response<CountedBody<C>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut exchange = Exchange::of(&request, self.counter.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            exchange.answered(response.status().as_u16());
            Ok(response.map(|inner| CountedBody { inner, exchange }))
        })
    }
}

/// One request and its answer. When it is dropped, it is over.
struct Exchange {
    counter: Counter,
    method: http::Method,
    begun: Instant,
    sent: Option<u64>,
    received: Option<u64>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Watch,
    Plain,
}

impl Exchange {
    fn of<B: Body>(request: &Request<B>, counter: Counter) -> Exchange {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query
            .split('&')
            .any(|pair| pair == "watch=true" || pair == "watch=1");
        Exchange {
            counter,
            method: request.method().clone(),
            begun: Instant::now(),
            sent: request.body().size_hint().exact(),
            received: None,
            kind: if is_watch { Kind::Watch } else { Kind::Plain },
        }
    }

    fn answered(&mut self, status: u16) {
        self.received = Some(0);
        self.counter
            .tell(self.method.as_str(), What::Answered(Some(status)));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let method = self.method.as_str();
        if self.received.is_none() {
            self.counter.tell(method, What::Answered(None));
        }
        if self.kind == Kind::Plain {
            let (took, sent, received) = (self.begun.elapsed(), self.sent, self.received);
            let ended = What::Ended { took, sent, received };
            self.counter.tell(method, ended);
        }
    }
}

/// An answer's body whose bytes are counted.
pub(crate) struct CountedBody<B> {
    inner: B,
    exchange: Exchange,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            let received = this.exchange.received.get_or_insert(0);
            *received += data.remaining() as u64;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
