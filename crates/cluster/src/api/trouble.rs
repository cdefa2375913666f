//! What can go wrong with a watch, sorted by what to do about it, and said in one line.

use super::resource::Resource;
use crate::scan::ScanError;
use kube::core::Status;
use model::object::Kind;
use std::error::Error as StdError;
use std::io::{self, ErrorKind};
use std::time::Duration;
use thiserror::Error;

/// A server that asks to wait for longer is asked again after this: one bad answer on the way must not leave the rules as
/// they are for years.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Why a list or a watch ended early.
#[derive(Debug, Error)]
pub(crate) enum Trouble {
    /// The version asked for is no longer kept: list again.
    #[error("the server no longer keeps the version asked for (410 Gone)")]
    Expired,
    /// The server is behind the version asked for, as after a restored backup.
    #[error("the server's data is older than what was seen before")]
    Behind,
    /// An event came that is older than one before it. What is the newest state of an object cannot be told any more.
    #[error("events came in the wrong order: version {event} after {heard}")]
    Disordered {
        /// The version before.
        heard: u64,
        /// The older one that came after it.
        event: u64,
    },
    /// The server does not do streaming lists.
    #[error("the server refuses streaming lists: {0}")]
    NoStreaming(String),
    /// The server does not know the resource.
    #[error("the server does not have this resource (404)")]
    Absent,
    /// The server answered with an error.
    #[error("{code} {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// The server's own words, on one line.
        message: String,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// Nothing came for too long: no event, no bookmark, no answer.
    #[error("nothing came for {}s", .0.as_secs_f32())]
    Silent(Duration),
    /// No connection could be made: nobody is there who could be burdened by the next try.
    #[error("{0}")]
    Unconnected(String),
    /// A broken connection, or one that was made and led nowhere.
    #[error("{0}")]
    Broken(String),
    /// What came is not what a Kubernetes API server sends.
    #[error("the answer is not what an API server sends: {0}")]
    Garbled(String),
}

impl From<ScanError> for Trouble {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::CutOff { .. } => Trouble::Broken(error.to_string()),
            ScanError::Unbalanced { .. } | ScanError::TooLarge { .. } => Trouble::Garbled(error.to_string()),
        }
    }
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Trouble::of_status(&status),
            other => {
                let text = without_manual(&root_causes(&other));
                if is_unconnected(&other) {
                    Trouble::Unconnected(text)
                } else {
                    Trouble::Broken(text)
                }
            }
        }
    }
}

impl Trouble {
    /// Sorts an answer of the server, be it an HTTP response or an ERROR event.
    pub(crate) fn of_status(status: &Status) -> Self {
        let details = status.details.as_ref();
        let too_large = details.is_some_and(|details| {
            details
                .causes
                .iter()
                .any(|cause| cause.reason == "ResourceVersionTooLarge")
        });
        match status.code {
            410 => Trouble::Expired,
            404 => Trouble::Absent,
            504 if too_large => Trouble::Behind,
            code => Trouble::Refused {
                code,
                message: one_line(&status.message),
                retry_after: details
                    .map(|details| u64::from(details.retry_after_seconds))
                    .filter(|seconds| *seconds > 0)
                    .map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT)),
            },
        }
    }

    /// What the same trouble means while a streaming list was asked for. Servers without it say 400, 403 or 422 (the
    /// parameter is invalid or forbidden); one with an etcd older than 3.4.31 or 3.5.13 takes the request and then
    /// sends an ERROR event with code 500, "required storage feature `RequestWatchProgress` is disabled".
    pub(crate) fn while_streaming(self, place: Place) -> Self {
        match self {
            Trouble::Refused { code, message, .. }
                if matches!(code, 400 | 403 | 405 | 415 | 422 | 501)
                    || (code == 500 && place == Place::InStream) =>
            {
                Trouble::NoStreaming(format!("{code} {message}"))
            }
            other => other,
        }
    }

    /// Whether the connection behind it should not be used again.
    pub(crate) fn taints_connection(&self) -> bool {
        match self {
            // 401: the credentials may have been renewed on disk.
            Trouble::Refused { code, .. } => *code == 401,
            Trouble::Silent(_) | Trouble::Broken(_) | Trouble::Unconnected(_) => true,
            _ => false,
        }
    }

    /// One line that names the server, what was asked and the next step.
    pub(crate) fn line(&self, server: &str, kind: Kind, node: &str) -> String {
        let plural = Resource::plural(kind);
        let step = self.next_step(server, kind, node);
        if self.is_of_server() {
            return format!("API server {server} does not answer, rules stay as they are: {self}; {step}");
        }
        format!("API server {server}, watching {plural}: {self}; {step}")
    }

    /// Whether it is true of every watch of the server alike.
    pub(crate) fn is_of_server(&self) -> bool {
        matches!(
            self,
            Trouble::Broken(_) | Trouble::Unconnected(_) | Trouble::Silent(_)
        )
    }

    fn next_step(&self, server: &str, kind: Kind, node: &str) -> String {
        let plural = Resource::plural(kind);
        match self {
            Trouble::Refused { code: 401, .. } => {
                "check the token or client certificate in the kubeconfig or service account".to_owned()
            }
            Trouble::Refused { code: 403, .. } => format!(
                "grant this user the verbs list and watch on {plural} (ClusterRole system:node-proxier has them)"
            ),
            Trouble::Refused { code: 429, .. } => "the server is busy, asking again later".to_owned(),
            Trouble::Refused { code: 500.., .. } => {
                "look at the API server's own log; asking again meanwhile".to_owned()
            }
            Trouble::Broken(text) | Trouble::Unconnected(text) if is_tls(text) => {
                format!("check that the certificate authority in use signed the certificate of {server}")
            }
            Trouble::Broken(_) | Trouble::Unconnected(_) | Trouble::Silent(_) => {
                format!("check that the API server runs and that node {node} reaches {server}")
            }
            Trouble::Garbled(_) | Trouble::Refused { .. } => {
                format!("check that {server} is a Kubernetes API server and not a proxy or login page")
            }
            Trouble::Absent => format!("check that the API server serves {plural}"),
            Trouble::Expired | Trouble::Behind | Trouble::Disordered { .. } | Trouble::NoStreaming(_) => {
                "listing again".to_owned()
            }
        }
    }
}

/// Where an error of the server came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// As the answer to the request.
    Response,
    /// As an event of an accepted watch.
    InStream,
}

/// The kind of the error that an I/O error of kind `Other` may wrap. Its `source` is that of what it wraps, which it skips.
fn innermost_kind(error: &io::Error) -> ErrorKind {
    let wrapped = error
        .get_ref()
        .and_then(|wrapped| wrapped.downcast_ref::<io::Error>());
    wrapped.map_or(error.kind(), innermost_kind)
}

/// Whether the server took no connection, or gave it up before the TLS handshake was through, as a load balancer does whose
/// servers are all away. A certificate that is refused is another matter: that server is there, and has done its work.
fn is_unconnected(error: &(dyn StdError + 'static)) -> bool {
    let (mut connecting, mut kind) = (false, None);
    let mut next = Some(error);
    while let Some(error) = next {
        let http = error.downcast_ref::<hyper_util::client::legacy::Error>();
        connecting |= http.is_some_and(hyper_util::client::legacy::Error::is_connect);
        kind = error.downcast_ref::<io::Error>().map(innermost_kind).or(kind);
        next = error.source();
    }
    connecting
        && matches!(
            kind,
            Some(
                ErrorKind::ConnectionRefused
                    | ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
                    | ErrorKind::TimedOut
                    | ErrorKind::UnexpectedEof
            )
        )
}

/// Without the address of rustls' manual, which it puts behind the news that the connection ended.
fn without_manual(text: &str) -> String {
    match text.split_once(": https://docs.rs/rustls") {
        Some((news, _)) => news.to_owned(),
        None => text.to_owned(),
    }
}

/// rustls' errors are not told apart by type here: kube hides them behind a box. A connection that ends before the
/// handshake does says nothing about certificates: so looks a load balancer whose servers are all away.
fn is_tls(text: &str) -> bool {
    if text.contains("handshake eof") || text.contains("close_notify") {
        return false;
    }
    [
        "certificate",
        "TLS",
        "tls",
        "InvalidContentType",
        "corrupt message",
    ]
    .iter()
    .any(|word| text.contains(word))
}

/// The causes of an error on one line. Wrappers that only repeat their cause are left out.
pub(crate) fn root_causes(error: &(dyn StdError + 'static)) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let line = one_line(&error.to_string());
        next = error.source();
        let repeats = next.is_some_and(|cause| line.contains(&one_line(&cause.to_string())));
        if !repeats && lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    lines.join(": ")
}

/// A text of somebody else on one line, not too long, safe on a terminal.
pub(crate) fn one_line(text: &str) -> String {
    const MOST: usize = 300;
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().filter(|c| !c.is_control()));
        if line.len() > MOST {
            line.push_str(" ...");
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        Trouble::Broken(without_manual(text)).line("https://192.0.2.1:6443", Kind::Service, "node-a")
    }

    #[test]
    fn a_connection_that_ends_is_no_matter_of_certificates() {
        let ends = [
            "client error (Connect): tls handshake eof",
            "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/latest/rustls/manual",
        ];
        for text in ends {
            let line = line(text);
            assert!(
                line.contains("check that the API server runs and that node node-a reaches"),
                "{line}"
            );
            assert!(!line.contains("docs.rs"), "{line}");
        }
        let line = line("client error (Connect): invalid peer certificate: UnknownIssuer");
        assert!(line.contains("certificate authority"), "{line}");
    }

    #[test]
    fn an_unreachable_server_is_told_of_alike_for_every_kind() {
        let broken = Trouble::Broken("connection refused".to_owned());
        let [one, other] =
            [Kind::Service, Kind::Node].map(|kind| broken.line("https://192.0.2.1", kind, "a"));
        assert_eq!(one, other);
        assert!(one.contains("rules stay as they are"), "{one}");
    }
}
