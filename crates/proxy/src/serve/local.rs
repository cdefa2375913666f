//! What services with Local policies have on this node, counted from the snapshot that the rules are made of.

use model::desired::{FrontendKind, Reason, Route};
use model::object::Service;
use model::resolve::endpoints::listed;
use model::resolve::{Context, resolve};
use model::snapshot::Snapshot;
use model::{Family, NodeFacts, Policy, ServiceName};
use std::collections::{BTreeMap, BTreeSet};

/// A service's health-check node port, and what it is to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalCount {
    /// The port.
    pub(crate) port: u16,
    /// Addresses of ready endpoints on this node, each once, over all ports.
    pub(crate) endpoints: usize,
}

/// What one family counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Services with a health-check node port.
    pub(crate) health: BTreeMap<ServiceName, LocalCount>,
    /// Services with ports that are silent for want of a local endpoint.
    pub(crate) dropped: BTreeMap<ServiceName, Dropped>,
}

/// Service ports whose traffic is dropped for want of a local endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Cluster-internal traffic.
    pub(crate) internal: usize,
    /// External traffic.
    pub(crate) external: usize,
}

impl Counted {
    /// Counts one service anew, whether it is there or gone.
    pub(crate) fn recount(&mut self, name: &ServiceName, snapshot: &Snapshot, context: &Context<'_>) {
        let service = snapshot.service(name);
        let health =
            service.and_then(|service| health_count(snapshot, service, context.family, context.node));
        let dropped = service.map_or_else(Dropped::default, |service| dropped(snapshot, service, context));
        match health {
            Some(count) => drop(self.health.insert(name.clone(), count)),
            None => drop(self.health.remove(name)),
        }
        if dropped == Dropped::default() {
            self.dropped.remove(name);
        } else {
            self.dropped.insert(name.clone(), dropped);
        }
    }

    /// All service ports that drop.
    pub(crate) fn all_dropped(&self) -> Dropped {
        Dropped {
            internal: self.dropped.values().map(|dropped| dropped.internal).sum(),
            external: self.dropped.values().map(|dropped| dropped.external).sum(),
        }
    }
}

/// Counts a whole cluster for one family.
pub(crate) fn count(snapshot: &Snapshot, context: &Context<'_>) -> Counted {
    let mut counted = Counted::default();
    for service in snapshot.services() {
        counted.recount(&service.name, snapshot, context);
    }
    counted
}

/// What a service's health-check node port is to answer; `None` without one, or without a part in the family.
fn health_count(
    snapshot: &Snapshot,
    service: &Service,
    family: Family,
    facts: &NodeFacts,
) -> Option<LocalCount> {
    let port = service.health_check_node_port?;
    service.cluster_ips.get(family).as_ref()?;
    if service.skipped.is_some() || service.ports.is_empty() {
        return None;
    }
    let slices = snapshot.slices_of(&service.name);
    let mut ips = BTreeSet::new();
    for service_port in &service.ports {
        let endpoints = listed(service_port, &slices, family, facts).endpoints;
        let ready = endpoints.iter().filter(|it| it.is_local && it.conditions.ready);
        ips.extend(ready.map(|endpoint| endpoint.address.ip()));
    }
    Some(LocalCount {
        port,
        endpoints: ips.len(),
    })
}

fn dropped(snapshot: &Snapshot, service: &Service, context: &Context<'_>) -> Dropped {
    let mut dropped = Dropped::default();
    // Most services have no such policy, and deciding about one takes time.
    if service.internal == Policy::Cluster && service.external == Policy::Cluster {
        return dropped;
    }
    let slices = snapshot.slices_of(&service.name);
    let (Some(desired), _) = resolve(service, &slices, context) else {
        return dropped;
    };
    for port in &desired.ports {
        let drops = |internal: bool| {
            port.frontends.iter().any(|frontend| {
                matches!(frontend.kind, FrontendKind::ClusterIp(_)) == internal
                    && frontend.routes.outside == Route::Drop(Reason::NoLocalEndpoints)
            })
        };
        dropped.internal += usize::from(drops(true));
        dropped.external += usize::from(drops(false));
    }
    dropped
}
