//! What an Event says: one constructor for each thing there is to say.

use crate::ProxyError;
use crate::port_conflicts::Conflict;
use cluster::chain;
use engine::Failure;
use iptables::diff::harm::Harm;
use kernel::host_firewall::Way;
use model::{Family, Note, NoteKind, ServiceName, Severity};
use std::sync::Arc;
use std::time::Duration;

/// Normal or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// As it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

/// The object that an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Regarding {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    /// Empty for cluster-wide kinds.
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// Something that happened and that an Event can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) weight: Weight,
    pub(crate) reason: &'static str,
    pub(crate) action: &'static str,
    pub(crate) regarding: Regarding,
    pub(crate) note: String,
    /// What makes it another fact than one with the same reason about the same object. Empty for upstream's Events,
    /// of which the note does not count.
    pub(crate) distinct: String,
}

/// What is done when upstream's Events of the start come up.
const START: &str = "StartKubeProxy";
/// What is done when an object turns out to be unusable.
const READ: &str = "ReadObject";
/// What is done when the kernel has its say.
const WRITE: &str = "WriteRules";
/// What is done when somebody else has written.
const REPAIR: &str = "RepairRules";

impl Fact {
    /// The proxy has begun.
    pub(crate) fn starting(node: &Arc<str>) -> Fact {
        Fact {
            weight: Weight::Normal,
            reason: "Starting",
            action: START,
            regarding: Regarding::node(node),
            note: String::new(),
            distinct: String::new(),
        }
    }

    /// What ends the process, when it is a port that must be open; other ends have no Event.
    pub(crate) fn of_end(node: &Arc<str>, end: &ProxyError) -> Option<Fact> {
        let ProxyError::Listen { server, error, .. } = end else {
            return None;
        };
        let error = chain(error);
        let (reason, said) = match *server {
            "healthz" => (
                "FailedToStartProxierHealthcheck",
                format!("healthz server failed: {error}"),
            ),
            _ => ("FailedToStartMetricServer", error),
        };
        Some(Fact {
            weight: Weight::Warning,
            reason,
            action: START,
            regarding: Regarding::node(node),
            note: said,
            distinct: String::new(),
        })
    }

    /// A health-check node port cannot be opened.
    pub(crate) fn no_health_port(
        node: &str,
        service: &ServiceName,
        port: u16,
        error: &std::io::Error,
    ) -> Fact {
        Fact {
            weight: Weight::Warning,
            reason: "FailedToStartServiceHealthcheck",
            action: "Listen",
            regarding: Regarding::service(service),
            note: format!(
                "node {node} failed to start healthcheck \"{service}\" on port {port}: {}",
                chain(error)
            ),
            distinct: String::new(),
        }
    }

    /// An object, or a part of one, is left out; `None` when nothing is.
    pub(crate) fn noted(note: &Note) -> Option<Fact> {
        if note.severity == Severity::Info {
            return None;
        }
        let regarding = Regarding::subject(note)?;
        let reason = match (&note.kind, regarding.kind) {
            (NoteKind::Claimed { .. }, _) => "AddressClaimed",
            (NoteKind::ExternalIpNotAllowed { .. }, _) => "ExternalIPNotAllowed",
            (NoteKind::BalancingIgnored { .. }, _) => "BalancingIgnored",
            (_, "Service") => "InvalidService",
            (_, "EndpointSlice") => "InvalidEndpointSlice",
            (_, "Node") => "InvalidNode",
            _ => "InvalidServiceCIDR",
        };
        let text = note.to_string();
        Some(Fact {
            weight: Weight::Warning,
            reason,
            action: READ,
            regarding,
            note: text.clone(),
            distinct: text,
        })
    }

    /// The kernel does not take a service's rules.
    pub(crate) fn refused(node: &str, service: &ServiceName, family: Family, failure: &Failure) -> Fact {
        Fact {
            weight: Weight::Warning,
            reason: "RulesRefused",
            action: WRITE,
            regarding: Regarding::service(service),
            note: format!(
                "node {node} keeps the former {family} rules of the Service, if there are any, and tries again: {}",
                failure.text
            ),
            distinct: family.to_string(),
        }
    }

    /// Somebody else changed our rules, which are put right.
    pub(crate) fn damaged(
        node: &Arc<str>,
        family: Family,
        what: &Harm,
        by: Option<&str>,
        backing_off: Option<Duration>,
    ) -> Fact {
        let by = by.unwrap_or("a process that the kernel does not name");
        let (reason, end) = match backing_off {
            None => ("RulesRepaired", "repaired".to_owned()),
            Some(wait) => (
                "RulesContested",
                format!(
                    "this happens again and again; the next repair waits {}s",
                    wait.as_secs()
                ),
            ),
        };
        Fact {
            weight: Weight::Warning,
            reason,
            action: REPAIR,
            regarding: Regarding::node(node),
            note: format!("{family} rules were changed by {by}: {what}; {end}"),
            // A process of the same name does the same under another number each time.
            distinct: match backing_off {
                None => format!("{family} {} {what}", program(by)),
                Some(_) => format!("{family} {}", program(by)),
            },
        }
    }

    /// The host's own firewall drops what it does not accept.
    pub(crate) fn barrier(node: &Arc<str>, family: Family, way: Way, chains: &str, advice: &str) -> Fact {
        Fact {
            weight: Weight::Warning,
            reason: match way {
                Way::Forward => "HostDropsForwarded",
                Way::Input => "HostDropsIncoming",
            },
            action: START,
            regarding: Regarding::node(node),
            note: format!(
                "{family}, hook {way}, {chains}: this host drops what these chains do not accept; {advice}"
            ),
            distinct: format!("{family} {way}"),
        }
    }

    /// Something on the host listens on a service's node port.
    pub(crate) fn node_port_taken(node: &str, conflict: &Conflict) -> Fact {
        Fact {
            weight: Weight::Warning,
            reason: "NodePortConflict",
            action: WRITE,
            regarding: Regarding::service(&conflict.service),
            note: format!("node {node}: {conflict}"),
            distinct: conflict.port_key(),
        }
    }
}

/// `iptables` of `iptables (pid 4711)`.
fn program(by: &str) -> &str {
    by.split_once(" (").map_or(by, |(program, _)| program)
}

impl Regarding {
    /// By name alone: the proxy does not know its Node's UID.
    fn node(name: &Arc<str>) -> Regarding {
        Regarding {
            api_version: "v1",
            kind: "Node",
            namespace: "".into(),
            name: name.clone(),
        }
    }

    fn service(name: &ServiceName) -> Regarding {
        Regarding {
            api_version: "v1",
            kind: "Service",
            namespace: name.namespace.clone(),
            name: name.name.clone(),
        }
    }

    /// `None` for an object without a name that an Event could refer to.
    fn subject(note: &Note) -> Option<Regarding> {
        let (api_version, kind) = match note.subject.kind {
            "Service" => ("v1", "Service"),
            "Node" => ("v1", "Node"),
            "EndpointSlice" => ("discovery.k8s.io/v1", "EndpointSlice"),
            "ServiceCIDR" => ("networking.k8s.io/v1", "ServiceCIDR"),
            _ => return None,
        };
        let namespace = note.subject.namespace.clone();
        let name = note.subject.name.clone();
        (!name.is_empty()).then_some(Regarding {
            api_version,
            kind,
            namespace,
            name,
        })
    }
}
