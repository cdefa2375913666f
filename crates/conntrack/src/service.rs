//! What one service's flows may look like.

use model::crossing::ClaimKey;
use model::object::{Service, Slice};
use model::resolve::endpoints::listed;
use model::resolve::{Context, resolve};
use model::{DesiredPort, Protocol};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where a flow was headed: an address with a port and protocol, or a node port.
pub type FrontendKey = ClaimKey;

/// Whether TCP flows may be cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TcpOption {
    /// Never, as upstream.
    #[default]
    Never,
    /// Flows to an endpoint that no slice of its service lists any more, in any condition.
    ///
    /// Deviation: upstream never does this (ADR 10). What the client sees: its next packet opens a new entry in the
    /// middle of the connection (`nf_conntrack_tcp_loose` is on by default), is translated to another endpoint, and
    /// that one answers with a reset. Without another endpoint the reject rule's ICMP error does not end an established
    /// connection: the client goes on waiting, as it would have without this option.
    CutGone,
}

/// To whom a flow to one port of a service may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Endpoints that may have flows, sorted. UDP: serving (terminating or not) or ready. TCP: all that are listed.
    endpoints: Box<[SocketAddr]>,
}

impl Allowed {
    /// Just these endpoints.
    pub fn new(mut endpoints: Vec<SocketAddr>) -> Self {
        endpoints.sort_unstable();
        endpoints.dedup();
        Allowed {
            endpoints: endpoints.into(),
        }
    }

    /// Whether nobody may have flows.
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// Whether this endpoint may.
    pub fn contains(&self, endpoint: SocketAddr) -> bool {
        self.endpoints.binary_search(&endpoint).is_ok()
    }

    /// The endpoints, sorted.
    pub fn endpoints(&self) -> &[SocketAddr] {
        &self.endpoints
    }
}

/// The frontends of one service that have a say over flows, each with its endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceFlows {
    /// Frontends of one port share their endpoints.
    pub frontends: BTreeMap<FrontendKey, Arc<Allowed>>,
}

impl ServiceFlows {
    /// What the flows of a service of `context.family` may look like. `slices` are the service's, sorted by name.
    ///
    /// Policies and topology are ignored, as upstream does: a flow that has found a serving endpoint may stay there
    /// even where new ones may not go.
    ///
    /// Deviation: upstream compares with serving endpoints alone. A Service with `publishNotReadyAddresses` has ready
    /// endpoints that are not serving, its rules go there, and its flows would be deleted over and over (ADR 10).
    pub fn of(service: &Service, slices: &[&Slice], context: &Context<'_>, tcp: TcpOption) -> Self {
        let mut flows = ServiceFlows::default();
        // Most services are TCP alone, and deciding about one takes time.
        if !service.ports.iter().any(|port| is_watched(port.protocol, tcp)) {
            return flows;
        }
        let (Some(desired), _) = resolve(service, slices, context) else {
            return flows;
        };
        // `resolve` makes one port of each, in the same order.
        for (port, desired) in service.ports.iter().zip(&desired.ports) {
            if !is_watched(port.protocol, tcp) {
                continue;
            }
            let listed = listed(port, slices, context.family, context.node);
            let may_have_flows = listed.endpoints.iter().filter(|endpoint| {
                let conditions = endpoint.conditions;
                port.protocol == Protocol::Tcp || conditions.serving || conditions.ready
            });
            let allowed = Allowed::new(may_have_flows.map(|endpoint| endpoint.address).collect());
            flows.add(desired, &Arc::new(allowed), context);
        }
        flows
    }

    fn add(&mut self, port: &DesiredPort, allowed: &Arc<Allowed>, context: &Context<'_>) {
        for frontend in &port.frontends {
            let key = FrontendKey::of(frontend.kind, frontend.port, port.name.protocol, context.family);
            self.frontends.insert(key, allowed.clone());
        }
    }
}

fn is_watched(protocol: Protocol, tcp: TcpOption) -> bool {
    match protocol {
        Protocol::Udp => true,
        Protocol::Tcp => tcp == TcpOption::CutGone,
        Protocol::Sctp => false,
    }
}
