//! What a real server answered, kept as text, and a server that answers so again.
//!
//! A transcript is a file of JSON objects, one a line. Each exchange begins with `{"ask": ...}`, goes on with
//! `{"answer": ...}`, and then has the lines of the body as they came: `{"line": ...}` around JSON, `{"text": ...}`
//! around anything else.

use crate::asked::Asked;
use crate::reply::{Answer, Body, Part, Reply};
use crate::server::lock;
use futures::stream::{self, StreamExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Method and URI, without `timeoutSeconds`, which is random.
    pub ask: String,
    /// What was asked of the real server instead, where the recorder changed it to get this answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// The type of the request's body.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// The request's body.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// What is answered, up to the body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// HTTP status.
    pub answer: u16,
    /// The headers that matter.
    pub headers: BTreeMap<String, String>,
    /// How the body ended.
    pub end: End,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// Properly.
    Ended,
    /// Not by the server: it would have gone on.
    Open,
    /// The recorder cut the connection.
    Cut,
}

/// A question and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// What was asked.
    pub question: Question,
    /// What was answered.
    pub head: Head,
    /// The lines of the body, word for word.
    pub lines: Vec<String>,
}

/// Headers that a client may act upon. Others have times and ids in them.
pub const HEADERS: [&str; 2] = ["content-type", "retry-after"];

impl Question {
    /// What this request asks.
    pub fn of(asked: &Asked) -> Question {
        Question {
            ask: format!("{} {}", asked.method, without_timeout(&asked.uri)),
            instead: None,
            content_type: asked.header("content-type").to_owned(),
            body: serde_json::from_slice(&asked.body).unwrap_or(Value::Null),
        }
    }
}

/// A URI without its `timeoutSeconds`.
pub fn without_timeout(uri: &str) -> String {
    let Some((path, query)) = uri.split_once('?') else {
        return uri.to_owned();
    };
    let pairs: Vec<&str> = query
        .split('&')
        .filter(|pair| !pair.starts_with("timeoutSeconds="))
        .collect();
    format!("{path}?{}", pairs.join("&"))
}

/// Exchanges as the text of a transcript.
///
/// # Panics
/// Never: everything in an exchange can be written as JSON.
pub fn write(exchanges: &[Exchange]) -> String {
    let mut text = String::new();
    let mut add = |line: String| writeln!(text, "{line}").expect("invariant: a String takes all text");
    for exchange in exchanges {
        add(serde_json::to_string(&exchange.question).expect("plain data"));
        add(serde_json::to_string(&exchange.head).expect("plain data"));
        for line in &exchange.lines {
            let is_json = serde_json::from_str::<Value>(line).is_ok();
            add(if is_json {
                format!("{{\"line\":{line}}}")
            } else {
                json!({"text": line}).to_string()
            });
        }
    }
    text
}

/// The exchanges of a transcript.
///
/// # Errors
/// Says which line is not what it should be.
pub fn read(text: &str) -> Result<Vec<Exchange>, String> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut question = None;
    for (index, line) in text.lines().enumerate() {
        let wrong = |why: &str| format!("line {}: {why}", index + 1);
        if line.starts_with("{\"ask\"") {
            question = Some(serde_json::from_str(line).map_err(|error| wrong(&error.to_string()))?);
        } else if line.starts_with("{\"answer\"") {
            exchanges.push(Exchange {
                question: question
                    .take()
                    .ok_or_else(|| wrong("an answer without a question"))?,
                head: serde_json::from_str(line).map_err(|error| wrong(&error.to_string()))?,
                lines: Vec::new(),
            });
        } else {
            let exchange = exchanges.last_mut().ok_or_else(|| wrong("no answer yet"))?;
            let json = line
                .strip_prefix("{\"line\":")
                .and_then(|rest| rest.strip_suffix('}'));
            let text = || {
                let object = serde_json::from_str::<Value>(line).ok()?;
                object["text"].as_str().map(str::to_owned)
            };
            let line = json.map(str::to_owned).or_else(text);
            exchange
                .lines
                .push(line.ok_or_else(|| wrong("neither line nor text"))?);
        }
    }
    Ok(exchanges)
}

/// Answers as a transcript says: the nth request for a resource gets the nth answer recorded for it.
#[derive(Clone)]
pub struct Replay {
    left: Arc<Mutex<Vec<Exchange>>>,
    surprises: Arc<Mutex<Vec<String>>>,
}

impl Replay {
    /// One that has not begun.
    pub fn new(exchanges: Vec<Exchange>) -> Replay {
        Replay {
            left: Arc::new(Mutex::new(exchanges)),
            surprises: Arc::default(),
        }
    }

    /// The script of a server that replays. When a resource's exchanges are used up, nothing is answered.
    pub fn script(&self) -> impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static {
        let replay = self.clone();
        move |asked| Some(replay.answer(asked))
    }

    /// Requests that were not those of the transcript.
    pub fn surprises(&self) -> Vec<String> {
        lock(&self.surprises).clone()
    }

    /// Questions that nobody has asked yet.
    pub fn unasked(&self) -> Vec<String> {
        let left = lock(&self.left);
        left.iter()
            .map(|exchange| exchange.question.ask.clone())
            .collect()
    }

    fn answer(&self, asked: &Asked) -> Reply {
        let question = Question::of(asked);
        let path = |ask: &str| ask.split('?').next().unwrap_or_default().to_owned();
        let mut left = lock(&self.left);
        let next = left
            .iter()
            .position(|exchange| path(&exchange.question.ask) == path(&question.ask));
        let Some(next) = next else {
            return Reply::Nothing;
        };
        let exchange = left.remove(next);
        if exchange.question.ask != question.ask {
            lock(&self.surprises).push(format!("{} instead of {}", question.ask, exchange.question.ask));
        }
        exchange.reply()
    }
}

impl Exchange {
    fn reply(self) -> Reply {
        let last = match self.head.end {
            End::Ended => Part::End,
            End::Open => Part::Hang,
            End::Cut => Part::Cut,
        };
        let parts = stream::iter(self.lines.into_iter().map(Part::Line).chain([last]));
        Reply::Answer(Answer {
            status: self.head.answer,
            headers: self.head.headers.into_iter().collect(),
            body: Body::Parts(parts.boxed()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_reads_as_what_was_written() {
        let exchange = Exchange {
            question: Question {
                ask: "GET /api/v1/services?watch=true".to_owned(),
                instead: None,
                content_type: String::new(),
                body: Value::Null,
            },
            head: Head {
                answer: 200,
                headers: BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]),
                end: End::Open,
            },
            lines: vec![
                "{\"type\":\"ADDED\",  \"object\":{}}".to_owned(),
                "404 page not found".to_owned(),
            ],
        };
        let both = [exchange.clone(), exchange];
        assert_eq!(read(&write(&both)).unwrap(), both);
    }
}
