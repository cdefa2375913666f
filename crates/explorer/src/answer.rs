//! Answers: the page's files, JSON, and refusals.

use serde_json::{Value, json};
use std::borrow::Cow;

/// What goes with every answer. Nothing is loaded from elsewhere, nothing in the page's own text is a script, nobody frames
/// it, and nothing stays in a cache.
pub const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// An answer to one request; [`HEADERS`] go with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The media type.
    pub content_type: &'static str,
    /// A further header, when the status needs one.
    pub header: Option<(&'static str, &'static str)>,
    /// The body.
    pub body: Cow<'static, str>,
}

impl Answer {
    /// One of the page's files.
    pub(crate) fn file(content_type: &'static str, text: &'static str) -> Answer {
        Answer {
            status: 200,
            content_type,
            header: None,
            body: Cow::Borrowed(text),
        }
    }

    /// JSON.
    pub(crate) fn json(value: &Value) -> Answer {
        Answer::said(200, value)
    }

    /// A refusal, in words for a person.
    pub fn refused(status: u16, why: &str) -> Answer {
        Answer::said(status, &json!({ "error": why }))
    }

    /// To another place on this server.
    pub(crate) fn moved(to: &'static str) -> Answer {
        Answer {
            header: Some(("location", to)),
            ..Answer::said(301, &json!({ "see": to }))
        }
    }

    /// Only reading is possible.
    pub(crate) fn reading_only() -> Answer {
        Answer {
            header: Some(("allow", "GET, HEAD")),
            ..Answer::refused(
                405,
                "the explorer changes nothing: GET and HEAD alone are answered",
            )
        }
    }

    fn said(status: u16, value: &Value) -> Answer {
        Answer {
            status,
            content_type: "application/json",
            header: None,
            body: Cow::Owned(value.to_string()),
        }
    }
}
