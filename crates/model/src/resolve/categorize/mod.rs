//! Which of a port's endpoints traffic may reach: topology, and falling back to terminating endpoints
//! (upstream `CategorizeEndpoints` in `pkg/proxy/topology.go`).

#[cfg(test)]
mod tests;

use super::endpoints::Listed;
use crate::NodeFacts;
use std::net::SocketAddr;

/// What traffic may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
    /// Some traffic goes to all endpoints.
    pub cluster: bool,
    /// Some traffic goes to this node's endpoints.
    pub local: bool,
}

/// The lists that traffic is sent to. All are sorted as the endpoints they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Categorized {
    /// For policy Cluster; empty when no traffic uses it.
    pub cluster: Vec<SocketAddr>,
    /// For policy Local; empty when no traffic uses it.
    pub local: Vec<SocketAddr>,
    /// Either of them.
    pub reachable: Vec<SocketAddr>,
    /// Whether any endpoint anywhere may get traffic: tells REJECT from DROP.
    pub has_any: bool,
}

/// How endpoints are narrowed down for policy Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Not at all.
    Everywhere,
    /// To those meant for this node.
    SameNode,
    /// To those meant for this zone.
    SameZone,
}

/// Sorts endpoints into the lists that traffic is sent to.
pub fn categorize(endpoints: &[Listed<'_>], uses: Uses, node: &NodeFacts) -> Categorized {
    let topology = topology(endpoints, node);
    let cluster = |endpoint: &Listed<'_>| endpoint.conditions.ready && is_meant(endpoint, topology, node);
    let local = |endpoint: &Listed<'_>| endpoint.is_local && endpoint.conditions.ready;
    let fallback = |endpoint: &Listed<'_>| endpoint.conditions.is_fallback();
    let local_fallback = |endpoint: &Listed<'_>| endpoint.is_local && endpoint.conditions.is_fallback();
    let mut lists = Categorized {
        has_any: endpoints.iter().any(|endpoint| endpoint.conditions.is_usable()),
        ..Categorized::default()
    };
    // Both lists fall back to terminating endpoints, each on its own.
    if uses.cluster {
        lists.cluster = first_not_empty(endpoints, &[&cluster, &fallback]);
    }
    if uses.local {
        lists.local = first_not_empty(endpoints, &[&local, &local_fallback]);
    }
    // Both are in the order of `endpoints`, so walking that gives the union in order.
    lists.reachable = union(endpoints, &lists);
    // These live as long as the service does, and a cluster has many.
    for list in [&mut lists.cluster, &mut lists.local, &mut lists.reachable] {
        list.shrink_to_fit();
    }
    lists
}

/// The topology mode. Only ready endpoints have a say.
pub fn topology(endpoints: &[Listed<'_>], node: &NodeFacts) -> Topology {
    let mut ready = endpoints
        .iter()
        .filter(|endpoint| endpoint.conditions.ready)
        .peekable();
    if ready.peek().is_none() {
        return Topology::Everywhere;
    }
    let (mut all_name_nodes, mut one_names_this_node) = (true, false);
    let (mut all_name_zones, mut one_names_this_zone) = (true, false);
    for endpoint in ready {
        all_name_nodes &= endpoint.hints.is_some_and(|hints| !hints.nodes.is_empty());
        all_name_zones &= endpoint.hints.is_some_and(|hints| !hints.zones.is_empty());
        one_names_this_node |= is_meant(endpoint, Topology::SameNode, node);
        one_names_this_zone |= is_meant(endpoint, Topology::SameZone, node);
    }
    if all_name_nodes && one_names_this_node {
        Topology::SameNode
    } else if all_name_zones && one_names_this_zone {
        Topology::SameZone
    } else {
        Topology::Everywhere
    }
}

fn is_meant(endpoint: &Listed<'_>, topology: Topology, node: &NodeFacts) -> bool {
    match topology {
        Topology::Everywhere => true,
        Topology::SameNode => endpoint
            .hints
            .is_some_and(|hints| hints.nodes.contains(&node.name)),
        Topology::SameZone => {
            let zone = node.zone.as_ref();
            zone.is_some_and(|zone| endpoint.hints.is_some_and(|hints| hints.zones.contains(zone)))
        }
    }
}

/// The endpoints that pass the first test that any passes.
fn first_not_empty(endpoints: &[Listed<'_>], tests: &[&dyn Fn(&Listed<'_>) -> bool]) -> Vec<SocketAddr> {
    let passing = |test: &&dyn Fn(&Listed<'_>) -> bool| -> Vec<SocketAddr> {
        endpoints
            .iter()
            .filter(|endpoint| test(endpoint))
            .map(|endpoint| endpoint.address)
            .collect()
    };
    tests
        .iter()
        .map(passing)
        .find(|list| !list.is_empty())
        .unwrap_or_default()
}

fn union(endpoints: &[Listed<'_>], lists: &Categorized) -> Vec<SocketAddr> {
    let mut cluster = lists.cluster.iter().peekable();
    let mut local = lists.local.iter().peekable();
    let mut union = Vec::new();
    for endpoint in endpoints {
        let in_cluster = cluster.next_if_eq(&&endpoint.address).is_some();
        let in_local = local.next_if_eq(&&endpoint.address).is_some();
        if in_cluster || in_local {
            union.push(endpoint.address);
        }
    }
    union
}
