//! What services with Local policies have on this node, counted from the snapshot that the rules are made of.

use model::desired::{FrontendKind, Reason, Route};
use model::object::Service;
use model::resolve::endpoints::listed;
use model::resolve::{Context, resolve};
use model::snapshot::Snapshot;
use model::{DesiredService, Family, NodeFacts, Policy, ServiceName, Settings};
use std::collections::{BTreeMap, BTreeSet};

/// A service's health-check node port, and what it is to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalCount {
    /// The port.
    pub(crate) port: u16,
    /// Addresses of ready endpoints on this node, each once, over all ports (control.md 5.7).
    pub(crate) endpoints: usize,
}

/// What one family counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Services with a health-check node port.
    pub(crate) health: BTreeMap<ServiceName, LocalCount>,
    /// Service ports whose cluster-internal traffic is dropped for want of a local endpoint.
    pub(crate) no_local_internal: usize,
    /// The same of external traffic.
    pub(crate) no_local_external: usize,
}

/// Counts a whole cluster for one family.
pub(crate) fn count(snapshot: &Snapshot, family: Family, facts: &NodeFacts, settings: &Settings) -> Counted {
    let mut counted = Counted::default();
    for service in snapshot.services() {
        if service.internal == Policy::Cluster && service.external == Policy::Cluster {
            continue;
        }
        if let Some(count) = health_count(snapshot, service, family, facts) {
            counted.health.insert(service.name.clone(), count);
        }
        let context = Context {
            family,
            node: facts,
            settings,
            claims: snapshot.claims(),
        };
        let slices = snapshot.slices_of(&service.name);
        if let (Some(desired), _) = resolve(service, &slices, &context) {
            count_dropped(&desired, &mut counted);
        }
    }
    counted
}

/// What a service's health-check node port is to answer; `None` without one, or without a part in the family.
pub(crate) fn health_count(
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

fn count_dropped(desired: &DesiredService, counted: &mut Counted) {
    let dropped = Route::Drop(Reason::NoLocalEndpoints);
    for port in &desired.ports {
        let drops = |internal: bool| {
            port.frontends.iter().any(|frontend| {
                matches!(frontend.kind, FrontendKind::ClusterIp(_)) == internal
                    && frontend.routes.outside == dropped
            })
        };
        counted.no_local_internal += usize::from(drops(true));
        counted.no_local_external += usize::from(drops(false));
    }
}
