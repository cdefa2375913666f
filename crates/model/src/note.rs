//! Notes: what was seen in the input that a person should know, with the object it is about.

use crate::object::BALANCING_ANNOTATION;
use crate::{Family, ServiceName};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is left out.
    Info,
    /// A part of an object is left out.
    Warning,
    /// A whole object is left out.
    Error,
}

/// The object a note is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// `Service`, `EndpointSlice`, `Node` or `ServiceCIDR`.
    pub kind: &'static str,
    /// Namespace; empty for cluster-wide kinds.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Subject {
    /// A Service as subject.
    pub fn service(name: &ServiceName) -> Self {
        Subject {
            kind: "Service",
            namespace: name.namespace.clone(),
            name: name.name.clone(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteKind {
    /// A field holds something that cannot be used: the value and why. What holds it is left out.
    BadField {
        /// The field's path, such as `spec.externalIPs[1]`.
        field: String,
        /// The value as found.
        value: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// Another service owns this address, port and protocol (ADR 7: allocated addresses first, then age, then name).
    Claimed {
        /// The frontend, printed: `203.0.113.9:80/TCP` or `node port 31080/TCP`.
        frontend: String,
        /// The winner.
        winner: ServiceName,
    },
    /// An external IP lies in none of the networks that external IPs may be of (ADR 37).
    ExternalIpNotAllowed {
        /// The address.
        ip: IpAddr,
    },
    /// The annotation for balancing by the client's address does nothing (ADR 56).
    BalancingIgnored {
        /// Why.
        why: BalancingIgnored,
    },
    /// Two endpoints of one service port are the same address and port.
    DuplicateEndpoint {
        /// `ip:port`.
        endpoint: String,
    },
    /// Traffic is dropped because a Local policy finds no local endpoint.
    NoLocalEndpoints {
        /// The family concerned.
        family: Family,
        /// `internal` or `external`.
        policy: &'static str,
    },
}

/// Why a Service is balanced at random although it asks for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BalancingIgnored {
    /// The mode cannot.
    Mode,
    /// `sessionAffinity` `ClientIP` says where a client goes.
    Affinity,
}

/// One note.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// How much it matters.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// What was seen.
    pub kind: NoteKind,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.kind)
    }
}

impl fmt::Display for NoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoteKind::BadField { field, value, reason } => {
                write!(f, "{field}: {value:?} left out: {reason}")
            }
            NoteKind::Claimed { frontend, winner } => {
                write!(f, "{frontend} left out: it belongs to Service {winner}")
            }
            NoteKind::ExternalIpNotAllowed { ip } => {
                write!(
                    f,
                    "external IP {ip} left out: it is in no network of --external-ip-allowed-cidrs"
                )
            }
            NoteKind::BalancingIgnored { why } => {
                let because = match why {
                    BalancingIgnored::Mode => "only nftables mode balances by the client's address",
                    BalancingIgnored::Affinity => {
                        "under sessionAffinity ClientIP a client stays with what was chosen at random"
                    }
                };
                write!(f, "annotation {BALANCING_ANNOTATION} has no effect: {because}")
            }
            NoteKind::DuplicateEndpoint { endpoint } => {
                write!(f, "endpoint {endpoint} is listed more than once")
            }
            NoteKind::NoLocalEndpoints { family, policy } => {
                write!(
                    f,
                    "{policy} {family} traffic is dropped: policy Local and no local endpoint"
                )
            }
        }
    }
}
