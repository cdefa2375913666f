//! Sends a request, and sorts the answer: a body to read, or what the server refuses and for how long.

use super::trouble::{LONGEST_WAIT, Trouble};
use futures::{AsyncBufRead, AsyncReadExt as _, TryStreamExt as _};
use http::header::{ACCEPT, RETRY_AFTER};
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use std::io;
use std::time::Duration;

/// So much of a refusal is read, in bytes. A Status object has some hundred.
const MAX_REFUSAL: u64 = 64 << 10;

/// The body that answers a GET.
pub(crate) async fn body_of(client: &Client, uri: &str) -> Result<impl AsyncBufRead + Send + use<>, Trouble> {
    let request = Request::get(uri)
        .header(ACCEPT, "application/json")
        .body(Body::empty())
        .map_err(|_| Trouble::Garbled(format!("the request {uri} is no URI")))?;
    body(client, request).await
}

/// The body that answers a request.
pub(crate) async fn body(
    client: &Client,
    request: Request<Body>,
) -> Result<impl AsyncBufRead + Send + use<>, Trouble> {
    let answer = client.send(request).await?;
    let code = answer.status();
    let wait = retry_after(answer.headers());
    let body = answer
        .into_body()
        .into_data_stream()
        .map_err(io::Error::other)
        .into_async_read();
    if code.is_success() {
        return Ok(body);
    }
    let mut text = Vec::new();
    // What came is enough, however it ended.
    let _ = body.take(MAX_REFUSAL).read_to_end(&mut text).await;
    Err(refusal(code.as_u16(), &text, wait))
}

/// Servers that are too busy to make an object say so in plain text; and there are proxies on the way.
fn refusal(code: u16, text: &[u8], wait: Option<Duration>) -> Trouble {
    // Any JSON object passes for a Status; one that has no code of its own is a proxy's, and the HTTP status counts.
    let status: Option<Status> = serde_json::from_slice(text).ok();
    let said = status.filter(|status| status.code != 0).unwrap_or_else(|| {
        Status::failure(String::from_utf8_lossy(text).trim(), "no Status object").with_code(code)
    });
    match Trouble::of_status(&said) {
        Trouble::Refused {
            code,
            message,
            retry_after,
        } => Trouble::Refused {
            code,
            message,
            retry_after: retry_after.max(wait),
        },
        other => other,
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_in_anybodys_words_has_the_code_of_the_answer() {
        let said = [
            "",
            "Unauthorized",
            "<html>no</html>",
            "{}",
            "[]",
            "{\"message\":\"token expired\"}",
            "{\"error\":401,\"details\":{}}",
            "{\"code\":0}",
        ];
        for text in said {
            let trouble = refusal(401, text.as_bytes(), None);
            assert!(trouble.taints_connection(), "{text}: {trouble:?}");
            assert!(
                matches!(refusal(404, text.as_bytes(), None), Trouble::Absent),
                "{text}"
            );
        }
    }

    #[test]
    fn no_server_can_ask_to_be_left_alone_for_ever() {
        let header = |value: &'static str| {
            let value = http::HeaderValue::from_static(value);
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)]))
        };
        let waits = |wait: Option<Duration>, text: &str| match refusal(429, text.as_bytes(), wait) {
            Trouble::Refused { retry_after, .. } => retry_after,
            other => panic!("{other:?}"),
        };
        assert_eq!(waits(header("7"), ""), Some(Duration::from_secs(7)));
        for value in ["86400", "4294967295", "18446744073709551615"] {
            assert_eq!(waits(header(value), ""), Some(LONGEST_WAIT), "{value}");
        }
        let body = "{\"code\":429,\"details\":{\"retryAfterSeconds\":4000000000}}";
        assert_eq!(waits(None, body), Some(LONGEST_WAIT));
        for value in [
            "-1",
            "1e9",
            "Wed, 21 Oct 2099 07:28:00 GMT",
            "18446744073709551616",
        ] {
            assert_eq!(waits(header(value), ""), None, "{value}");
        }
    }
}
