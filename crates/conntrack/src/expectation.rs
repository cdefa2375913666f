//! What the flows of one family may look like: kept up one service at a time.

use crate::{Allowed, Flow, FrontendKey, NodeAddresses, ServiceFlows};
use model::resolve::{Context, resolve_node};
use model::snapshot::Snapshot;
use model::{Family, NodeFacts, ServiceName, Settings};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::TcpOption;

/// How many endpoints that have left are remembered at most, counted once per frontend.
/// Only a kernel that refuses every sweep lets it come to that; the flows are then kept, as if we had just started.
pub const REMEMBERED_ENDPOINTS: usize = 100_000;

/// Whether a change can have made flows stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// It cannot.
    None,
    /// It can: look through the table.
    Sweep,
}

/// A sweep that has begun: what had left before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sweep(u64);

/// What the flows of one family may look like.
///
/// What has gone is remembered until two sweeps that began later went through the whole table: the second one finds the
/// flow whose first packet was still on its way through the old rules when the first sweep passed.
#[derive(Clone, Debug)]
pub struct Expectation {
    family: Family,
    node: NodeAddresses,
    services: BTreeMap<ServiceName, Vec<FrontendKey>>,
    frontends: BTreeMap<FrontendKey, (ServiceName, Arc<Allowed>)>,
    departed: BTreeMap<FrontendKey, BTreeMap<SocketAddr, Sweep>>,
    remembered: usize,
    /// The sweep that things leaving now will be found by.
    next: Sweep,
    /// The last one that went through the whole table.
    completed: Option<Sweep>,
}

impl Expectation {
    /// Of a family without services.
    pub fn new(family: Family, node: NodeAddresses) -> Self {
        Expectation {
            family,
            node,
            services: BTreeMap::new(),
            frontends: BTreeMap::new(),
            departed: BTreeMap::new(),
            remembered: 0,
            next: Sweep(0),
            completed: None,
        }
    }

    /// Of a whole cluster, as at start: nothing is remembered.
    pub fn from_snapshot(
        snapshot: &Snapshot,
        family: Family,
        facts: &NodeFacts,
        settings: &Settings,
        tcp: TcpOption,
    ) -> Self {
        let node = NodeAddresses::of(&resolve_node(family, facts, settings), facts);
        let context = Context {
            family,
            node: facts,
            settings,
            claims: snapshot.claims(),
        };
        let mut expectation = Expectation::new(family, node);
        for service in snapshot.services() {
            let slices = snapshot.slices_of(&service.name);
            let flows = ServiceFlows::of(service, &slices, &context, tcp);
            expectation.update(&service.name, flows);
        }
        expectation
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// How many frontends have a say.
    pub fn len(&self) -> usize {
        self.frontends.len()
    }

    /// Whether no frontend has.
    pub fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }

    /// How many departed endpoints are remembered, counted once per frontend.
    pub fn remembered(&self) -> usize {
        self.remembered
    }

    /// A service has other flows now; none at all when it was deleted. To be called once the rules say the same: flows
    /// deleted before are made anew by the old rules (they are found again, but only by the next sweep).
    pub fn update(&mut self, service: &ServiceName, flows: ServiceFlows) -> Urgency {
        let mut urgency = Urgency::None;
        for key in self.services.remove(service).unwrap_or_default() {
            if !flows.frontends.contains_key(&key) && self.leave(service, key) == Urgency::Sweep {
                urgency = Urgency::Sweep;
            }
        }
        if flows.frontends.is_empty() {
            return urgency;
        }
        self.services
            .insert(service.clone(), flows.frontends.keys().copied().collect());
        for (key, allowed) in flows.frontends {
            let before = self.frontends.insert(key, (service.clone(), allowed.clone()));
            let before = before.map(|(_, before)| before);
            if before.as_ref() == Some(&allowed) {
                continue;
            }
            urgency = Urgency::Sweep;
            for endpoint in before.iter().flat_map(|before| before.endpoints()) {
                if !allowed.contains(*endpoint) {
                    self.remember_gone(key, *endpoint);
                }
            }
        }
        urgency
    }

    /// A frontend goes, unless another service has taken it over meanwhile.
    fn leave(&mut self, service: &ServiceName, key: FrontendKey) -> Urgency {
        if self.frontends.get(&key).is_none_or(|(owner, _)| owner != service) {
            return Urgency::None;
        }
        let Some((_, allowed)) = self.frontends.remove(&key) else {
            return Urgency::None;
        };
        for endpoint in allowed.endpoints() {
            self.remember_gone(key, *endpoint);
        }
        Urgency::Sweep
    }

    /// Remembers that flows of this frontend went to this endpoint, and should no longer if the frontend has no owner.
    ///
    /// At start this is how to say what the rules found in the kernel prove and the cluster's objects do not: services
    /// that were deleted while nobody watched. Nothing else can prove it: a service that we do not know may be another
    /// proxy's (`service.kubernetes.io/service-proxy-name`), and such services are in the service range as well.
    pub fn remember_gone(&mut self, key: FrontendKey, endpoint: SocketAddr) {
        if self.remembered >= REMEMBERED_ENDPOINTS {
            return;
        }
        let departed = self.departed.entry(key).or_default();
        if departed.insert(endpoint, self.next).is_none() {
            self.remembered += 1;
        }
    }

    /// The node's addresses are others now.
    pub fn update_node(&mut self, node: NodeAddresses) -> Urgency {
        if self.node == node {
            return Urgency::None;
        }
        self.node = node;
        Urgency::Sweep
    }

    /// A sweep begins. What leaves from now on is not its business.
    pub fn begin_sweep(&mut self) -> Sweep {
        let begun = self.next;
        self.next = Sweep(begun.0 + 1);
        begun
    }

    /// A sweep went through the whole table and deleted what it had to. Not to be called for one that failed or was
    /// interrupted: what it was to delete stays pending.
    pub fn complete_sweep(&mut self, sweep: Sweep) {
        if let Some(earlier) = self.completed {
            self.departed.retain(|_, endpoints| {
                endpoints.retain(|_, since| *since > earlier);
                !endpoints.is_empty()
            });
            self.remembered = self.departed.values().map(BTreeMap::len).sum();
        }
        self.completed = self.completed.max(Some(sweep));
    }

    /// The frontend a flow went to, and who may have its flows; the owner is gone when the latter is `None`.
    pub(crate) fn frontend(&self, flow: &Flow) -> Found<'_> {
        let (ip, port) = (flow.destination.ip(), flow.destination.port());
        let by_address = FrontendKey::Address(ip, port, flow.protocol);
        let by_port = FrontendKey::NodePort(self.family, port, flow.protocol);
        if let Some((_, allowed)) = self.frontends.get(&by_address) {
            return Found::Live(allowed);
        }
        if let Some((_, allowed)) = self.frontends.get(&by_port) {
            if self.node.serve(ip) {
                return Found::Live(allowed);
            }
            // The address may have been a frontend of its own.
            return self
                .departed_from(by_address, flow)
                .unwrap_or(Found::ElsewhereOnNodePort);
        }
        if let Some(found) = self.departed_from(by_address, flow) {
            return found;
        }
        if self.node.serve(ip) {
            return self.departed_from(by_port, flow).unwrap_or(Found::Stranger);
        }
        Found::Stranger
    }

    fn departed_from(&self, key: FrontendKey, flow: &Flow) -> Option<Found<'_>> {
        let endpoints = self.departed.get(&key)?;
        Some(if endpoints.contains_key(&flow.answerer) {
            Found::GoneWithItsEndpoint
        } else {
            Found::Gone
        })
    }
}

/// Whose flow it is.
pub(crate) enum Found<'a> {
    /// A frontend's that there is.
    Live(&'a Allowed),
    /// A frontend's that has gone, to an endpoint it had.
    GoneWithItsEndpoint,
    /// A frontend's that has gone, to somebody it did not have.
    Gone,
    /// A node port's number, on an address that does not serve node ports.
    ElsewhereOnNodePort,
    /// Nobody's that we know.
    Stranger,
}
