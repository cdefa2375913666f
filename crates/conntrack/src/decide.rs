//! Keep or delete, and why.

use crate::expectation::Found;
use crate::{Allowed, Expectation, Flow};
use model::{Family, Protocol};
use std::fmt;

/// What to do with a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Leave it alone.
    Keep(Keep),
    /// It is provably stale.
    Delete(Stale),
}

/// Why a flow is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// SCTP; TCP unless an option asks for it.
    Protocol,
    /// Of the other family.
    OtherFamily,
    /// Its destination is no frontend that we know or knew.
    NoFrontend,
    /// Its destination has a node port's number and is not one of this node's addresses that serve node ports.
    NotServedHere,
    /// Its endpoint may have it.
    EndpointServes,
    /// TCP: some slice still lists its endpoint.
    EndpointListed,
    /// It was never translated, and there is no endpoint to translate it to.
    NowhereToGo,
    /// TCP that was never translated: it reached somebody, or is dead anyway.
    Untranslated,
    /// Its frontend has gone, and it does not go to an endpoint that the frontend had.
    NotOurDoing,
    /// TCP whose frontend has gone: that does not say that the endpoint has.
    TcpFrontendGone,
}

/// Why a flow is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stale {
    /// Others serve, its endpoint does not.
    EndpointGone,
    /// Nobody serves.
    NoEndpoints,
    /// It was never translated, and there are endpoints now.
    BlackHole,
    /// Its frontend (service, port, address or node port) has gone, and it went to one of its endpoints.
    FrontendGone,
    /// TCP: no slice lists its endpoint any more.
    TcpEndpointGone,
}

impl Stale {
    /// All of them, for metrics.
    pub const ALL: [Stale; 5] = [
        Stale::EndpointGone,
        Stale::NoEndpoints,
        Stale::BlackHole,
        Stale::FrontendGone,
        Stale::TcpEndpointGone,
    ];
}

impl Verdict {
    /// Whether the flow is to be deleted.
    pub fn is_delete(self) -> bool {
        matches!(self, Verdict::Delete(_))
    }
}

/// Decides about one flow. Deletes only what is provably stale:
///
/// | its destination | it goes to | UDP | TCP, if asked for |
/// |---|---|---|---|
/// | a frontend with endpoints | an endpoint that may have it | keep | keep |
/// | | anybody else | delete | delete |
/// | | its destination: untranslated | delete | keep |
/// | a frontend without endpoints | anybody | delete | delete |
/// | | its destination: untranslated | keep | keep |
/// | a frontend that has gone | an endpoint it had | delete | keep |
/// | | anybody else | keep | keep |
/// | anything else | | keep | keep |
///
/// Deviation: upstream leaves flows of services without serving endpoints, and of services that have gone (ADR 10).
pub fn decide(expectation: &Expectation, flow: &Flow) -> Verdict {
    if Family::of(flow.destination.ip()) != expectation.family() {
        return Verdict::Keep(Keep::OtherFamily);
    }
    if flow.protocol == Protocol::Sctp {
        return Verdict::Keep(Keep::Protocol);
    }
    match (flow.protocol, expectation.frontend(flow)) {
        (Protocol::Tcp, Found::Live(allowed)) => decide_tcp(allowed, flow),
        (_, Found::Live(allowed)) => decide_udp(allowed, flow),
        (Protocol::Tcp, Found::Gone | Found::GoneWithItsEndpoint) => Verdict::Keep(Keep::TcpFrontendGone),
        (_, Found::GoneWithItsEndpoint) => Verdict::Delete(Stale::FrontendGone),
        (_, Found::Gone) => Verdict::Keep(Keep::NotOurDoing),
        // Without the option the expectation knows no frontend of TCP.
        (Protocol::Tcp, Found::Stranger) => Verdict::Keep(Keep::Protocol),
        (_, Found::Stranger) => Verdict::Keep(Keep::NoFrontend),
        (_, Found::ElsewhereOnNodePort) => Verdict::Keep(Keep::NotServedHere),
    }
}

fn decide_udp(allowed: &Allowed, flow: &Flow) -> Verdict {
    if allowed.contains(flow.answerer) {
        return Verdict::Keep(Keep::EndpointServes);
    }
    match (allowed.is_empty(), flow.is_translated()) {
        (true, true) => Verdict::Delete(Stale::NoEndpoints),
        // The host's own packets to an external address without endpoints leave as they are and may find an answer.
        (true, false) => Verdict::Keep(Keep::NowhereToGo),
        (false, true) => Verdict::Delete(Stale::EndpointGone),
        (false, false) => Verdict::Delete(Stale::BlackHole),
    }
}

fn decide_tcp(allowed: &Allowed, flow: &Flow) -> Verdict {
    if allowed.contains(flow.answerer) {
        Verdict::Keep(Keep::EndpointListed)
    } else if flow.is_translated() {
        Verdict::Delete(Stale::TcpEndpointGone)
    } else {
        Verdict::Keep(Keep::Untranslated)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Keep(why) => write!(f, "keep: {why}"),
            Verdict::Delete(why) => write!(f, "delete: {why}"),
        }
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Keep::Protocol => "flows of this protocol are left alone",
            Keep::OtherFamily => "of the other family",
            Keep::NoFrontend => "not to a service",
            Keep::NotServedHere => "a node port's number, on an address that serves none here",
            Keep::EndpointServes => "its endpoint serves",
            Keep::EndpointListed => "its endpoint is still listed",
            Keep::NowhereToGo => "untranslated, and the service has no endpoints",
            Keep::Untranslated => "never translated",
            Keep::NotOurDoing => "the service has gone, and this is not where it sent flows",
            Keep::TcpFrontendGone => "the service has gone, which does not say that its endpoint has",
        })
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stale::EndpointGone => "its endpoint no longer serves",
            Stale::NoEndpoints => "the service has no endpoints any more",
            Stale::BlackHole => "untranslated, and the service has endpoints",
            Stale::FrontendGone => "the service or its address has gone",
            Stale::TcpEndpointGone => "no slice lists its endpoint any more",
        })
    }
}
