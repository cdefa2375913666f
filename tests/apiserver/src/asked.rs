//! A request as it came.

use bytes::Bytes;
use hyper::http::request::Parts;
use std::time::Instant;

/// A request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `GET` and so on.
    pub method: String,
    /// Path and query.
    pub uri: String,
    /// Headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// What came with it.
    pub body: Bytes,
    /// The last word of the path; for lists and watches that is the resource's plural.
    pub resource: String,
    /// How many requests with the same last word came before.
    pub count: usize,
    /// Which connection it came on; the first is 1.
    pub connection: u64,
    /// When.
    pub at: Instant,
}

impl Asked {
    pub(crate) fn new(parts: &Parts, body: Bytes, connection: u64) -> Self {
        let headers = parts.headers.iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        });
        let path = parts.uri.path();
        Asked {
            method: parts.method.to_string(),
            uri: parts.uri.to_string(),
            headers: headers.collect(),
            body,
            resource: path.rsplit('/').next().unwrap_or_default().to_owned(),
            count: 0,
            connection,
            at: Instant::now(),
        }
    }

    /// The path alone.
    pub fn path(&self) -> &str {
        self.uri.split('?').next().unwrap_or_default()
    }

    /// Whether the query has this pair, written just so.
    pub fn has(&self, pair: &str) -> bool {
        self.pairs().any(|one| one == pair)
    }

    /// The value of a parameter of the query, decoded; empty if it is not there.
    pub fn parameter(&self, name: &str) -> String {
        let value = self.pairs().find_map(|pair| match pair.split_once('=') {
            Some((key, value)) if key == name => Some(value),
            _ => None,
        });
        decoded(value.unwrap_or_default())
    }

    /// The value of a header; empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        let header = self.headers.iter().find(|(key, _)| key == name);
        header.map_or("", |(_, value)| value)
    }

    /// Whether it asks for a watch.
    pub fn is_watch(&self) -> bool {
        self.method == "GET" && matches!(self.parameter("watch").as_str(), "true" | "1")
    }

    fn pairs(&self) -> impl Iterator<Item = &str> {
        let query = self.uri.split_once('?').map_or("", |(_, query)| query);
        query.split('&')
    }
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match (hex(rest.next()), hex(rest.next())) {
                (Some(high), Some(low)) => u8::try_from(high * 16 + low).expect("invariant: two hex digits"),
                _ => b'%',
            },
            other => other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
