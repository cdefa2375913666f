//! What a probe asks and what came of it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::topology::Proto;

/// One connection (or datagram) to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The protocol.
    pub proto: Proto,
    /// The source address to bind; the kernel chooses if absent. It must be one of the place's own.
    pub src: Option<IpAddr>,
    /// The source port to bind; an ephemeral one if absent.
    pub src_port: Option<u16>,
    /// Where to.
    pub dst: SocketAddr,
    /// For the whole exchange.
    pub timeout: Duration,
}

impl Probe {
    /// A TCP probe with a second of patience.
    pub const fn tcp(dst: SocketAddr) -> Self {
        Self {
            proto: Proto::Tcp,
            src: None,
            src_port: None,
            dst,
            timeout: Duration::from_secs(1),
        }
    }

    /// A UDP probe with a second of patience.
    pub const fn udp(dst: SocketAddr) -> Self {
        Self {
            proto: Proto::Udp,
            ..Self::tcp(dst)
        }
    }

    /// An SCTP probe with a second of patience.
    pub const fn sctp(dst: SocketAddr) -> Self {
        Self {
            proto: Proto::Sctp,
            ..Self::tcp(dst)
        }
    }

    /// The same from this source address.
    #[must_use]
    pub const fn from(self, src: IpAddr) -> Self {
        Self {
            src: Some(src),
            ..self
        }
    }

    /// The same from this source port.
    #[must_use]
    pub const fn from_port(self, port: u16) -> Self {
        Self {
            src_port: Some(port),
            ..self
        }
    }

    /// The same with this much patience.
    #[must_use]
    pub const fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

/// What came of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeOutcome {
    /// A server of the lab answered.
    Answered {
        /// What it calls itself.
        name: String,
        /// The client address and port it saw.
        seen_client: SocketAddr,
        /// The destination it saw; only the sink tells.
        seen_destination: Option<SocketAddr>,
    },
    /// Somebody said no.
    Refused(Refusal),
    /// Nobody said anything in time: dropped.
    Timeout,
    /// No way there: no route here, or an ICMP message that says so. With what was said.
    Unreachable(String),
    /// The probe itself went wrong (a source address in use, an answer that is no lab server's).
    Failed(String),
}

/// How somebody said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// A TCP reset: a host without a listener, or `REJECT --reject-with tcp-reset`.
    Reset,
    /// ICMP port unreachable: what `REJECT` says, and a host without a UDP listener.
    PortUnreachable,
    /// ICMP administratively prohibited.
    Prohibited,
}

impl ProbeOutcome {
    /// The name of the server that answered.
    pub fn answered_by(&self) -> Option<&str> {
        match self {
            Self::Answered { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The client address that the server saw.
    pub fn seen_client(&self) -> Option<IpAddr> {
        match self {
            Self::Answered { seen_client, .. } => Some(seen_client.ip()),
            _ => None,
        }
    }
}

/// The line a server answers with.
pub(crate) fn answer_line(name: &str, client: SocketAddr, destination: Option<SocketAddr>) -> String {
    match destination {
        Some(destination) => format!("{name} {client} {destination}\n"),
        None => format!("{name} {client}\n"),
    }
}

/// Reads what [`answer_line`] wrote.
pub(crate) fn parse_answer(text: &str) -> ProbeOutcome {
    let parsed = || {
        let mut words = text.split_whitespace();
        let name = words.next()?.to_owned();
        let seen_client = words.next()?.parse().ok()?;
        let seen_destination = words.next().map(str::parse).transpose().ok()?;
        words.next().is_none().then_some(ProbeOutcome::Answered {
            name,
            seen_client,
            seen_destination,
        })
    };
    parsed().unwrap_or_else(|| ProbeOutcome::Failed(format!("not a lab server's answer: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_line_carries_name_client_and_destination_of_both_families() {
        for (client, destination) in [("10.0.0.1:5", None), ("[fd00::1]:5", Some("[fd00::2]:80"))] {
            let client: SocketAddr = client.parse().unwrap();
            let destination = destination.map(|text| text.parse().unwrap());
            let expected = ProbeOutcome::Answered {
                name: "a".to_owned(),
                seen_client: client,
                seen_destination: destination,
            };
            assert_eq!(parse_answer(&answer_line("a", client, destination)), expected);
        }
    }

    #[test]
    fn other_text_is_no_answer() {
        for text in ["", "a", "a b", "HTTP/1.0 200 OK", "a 10.0.0.1:5 10.0.0.2:6 more"] {
            assert!(matches!(parse_answer(text), ProbeOutcome::Failed(_)), "{text:?}");
        }
    }
}
