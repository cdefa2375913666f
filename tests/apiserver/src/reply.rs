//! What is answered, down to the bytes and to how they end.

use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use hyper::body::Frame;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What the server does with a request.
pub enum Reply {
    /// Nothing, ever; the connection stays.
    Nothing,
    /// The connection goes away without an answer.
    HangUp,
    /// An answer.
    Answer(Answer),
}

/// An answer.
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// What follows the head.
    pub body: Body,
}

/// The body of an answer.
pub enum Body {
    /// All at once, with its length announced.
    Whole(String),
    /// Part by part.
    Parts(BoxStream<'static, Part>),
}

/// A part of a streamed answer.
#[derive(Clone, Debug)]
pub enum Part {
    /// A line; its end is added.
    Line(String),
    /// A part of a line, or anything.
    Text(String),
    /// The proper end of the answer.
    End,
    /// The connection goes away.
    Cut,
    /// Nothing more, with the connection open.
    Hang,
    /// A wait.
    Wait(Duration),
    /// This line again and again; counts the bytes that the connection took.
    Forever(String, Arc<AtomicUsize>),
}

impl Reply {
    /// A whole answer in JSON.
    pub fn whole(status: u16, body: impl Into<String>) -> Self {
        Reply::new(status, Body::Whole(body.into()))
    }

    /// A whole answer with an object.
    pub fn object(status: u16, object: &Value) -> Self {
        Reply::whole(status, format!("{object}\n"))
    }

    /// A streamed answer with status 200.
    pub fn stream(parts: Vec<Part>) -> Self {
        Reply::parts(stream::iter(parts))
    }

    pub(crate) fn parts(parts: impl Stream<Item = Part> + Send + 'static) -> Self {
        Reply::new(200, Body::Parts(parts.boxed()))
    }

    fn new(status: u16, body: Body) -> Self {
        Reply::Answer(Answer {
            status,
            headers: vec![("Content-Type".to_owned(), "application/json".to_owned())],
            body,
        })
    }

    /// With a header, in place of one of the same name.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        if let Reply::Answer(answer) = &mut self {
            answer
                .headers
                .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
            answer.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// What a server says that has too much to do: plain text, and the wait in a header alone.
    pub fn too_many_requests(seconds: u32) -> Self {
        Reply::whole(429, "Too many requests, please try again later.\n")
            .with("Content-Type", "text/plain; charset=utf-8")
            .with("Retry-After", &seconds.to_string())
    }
}

/// The connection is to go away in the middle of an answer.
#[derive(Debug)]
pub(crate) struct CutShort;

impl fmt::Display for CutShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cut as asked")
    }
}

impl std::error::Error for CutShort {}

/// The parts as what goes out.
pub(crate) fn frames(
    parts: BoxStream<'static, Part>,
) -> impl Stream<Item = Result<Frame<Bytes>, CutShort>> + Send {
    let begin = (parts, None::<(Bytes, Arc<AtomicUsize>)>);
    stream::unfold(begin, |(mut parts, mut forever)| async move {
        loop {
            if let Some((line, count)) = &forever {
                count.fetch_add(line.len(), Ordering::Relaxed);
                // Nobody else would get a turn while the other end takes everything.
                tokio::task::yield_now().await;
                return Some((Ok(Frame::data(line.clone())), (parts, forever)));
            }
            let text = match parts.next().await {
                None | Some(Part::End) => return None,
                Some(Part::Cut) => {
                    // What was said before has to be out: hyper drops what it has not sent yet.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    return Some((Err(CutShort), (parts, forever)));
                }
                Some(Part::Hang) => std::future::pending().await,
                Some(Part::Wait(time)) => {
                    tokio::time::sleep(time).await;
                    continue;
                }
                Some(Part::Forever(line, count)) => {
                    forever = Some((Bytes::from(format!("{line}\n")), count));
                    continue;
                }
                Some(Part::Line(line)) => format!("{line}\n"),
                Some(Part::Text(text)) => text,
            };
            return Some((Ok(Frame::data(Bytes::from(text))), (parts, forever)));
        }
    })
}
