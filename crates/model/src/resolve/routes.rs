//! What becomes of traffic to one frontend, by kind of source: the endpoints, or a refusal, and its reason.

use super::categorize::Categorized;
use crate::{List, Policy, Reason, Route, Routes};

/// Whether this family's traffic of pods can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detection {
    /// It can.
    Possible,
    /// There is no detector: nothing counts as a pod.
    None,
}

/// Whether all cluster-IP traffic is masqueraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MasqueradeAll {
    Yes,
    No,
}

/// Traffic to the cluster IP.
pub(super) fn internal(
    policy: Policy,
    lists: &Categorized,
    detection: Detection,
    masquerade_all: MasqueradeAll,
) -> Routes {
    if let Some(route) = nowhere(policy, lists) {
        return same(route);
    }
    let to = |masquerade, reason| Route::Endpoints {
        list: list_of(policy),
        masquerade,
        reason,
    };
    match (masquerade_all, detection) {
        (MasqueradeAll::Yes, _) => same(to(true, Reason::MasqueradeAll)),
        (MasqueradeAll::No, Detection::None) => same(to(false, Reason::ClusterIpUndetected)),
        (MasqueradeAll::No, Detection::Possible) => Routes {
            pod: to(false, Reason::ClusterIpFromPod),
            node: to(true, Reason::ClusterIpOffCluster),
            outside: to(true, Reason::ClusterIpOffCluster),
        },
    }
}

/// Traffic to an external IP, a load-balancer IP or a node port.
pub(super) fn external(policy: Policy, lists: &Categorized, detection: Detection) -> Routes {
    let to = |list, masquerade, reason| Route::Endpoints {
        list,
        masquerade,
        reason,
    };
    let outside = match (nowhere(policy, lists), policy) {
        (Some(route @ Route::Reject(_)), _) => return same(route),
        (Some(route), _) => route,
        (None, Policy::Cluster) => return same(to(List::Cluster, true, Reason::ExternalCluster)),
        (None, Policy::Local) => to(List::Local, false, Reason::ExternalLocal),
    };
    // Under policy Local, pods and the node itself are no external clients: they short-cut to all endpoints.
    Routes {
        pod: match detection {
            Detection::Possible => to(List::Cluster, false, Reason::ShortCircuitPod),
            Detection::None => outside,
        },
        node: to(List::Cluster, true, Reason::ShortCircuitNode),
        outside,
    }
}

/// REJECT when no endpoint exists anywhere, DROP when the policy wants one on this node and there is none.
fn nowhere(policy: Policy, lists: &Categorized) -> Option<Route> {
    if !lists.has_any {
        Some(Route::Reject(Reason::NoEndpoints))
    } else if policy == Policy::Local && lists.local.is_empty() {
        Some(Route::Drop(Reason::NoLocalEndpoints))
    } else {
        None
    }
}

fn list_of(policy: Policy) -> List {
    match policy {
        Policy::Cluster => List::Cluster,
        Policy::Local => List::Local,
    }
}

fn same(route: Route) -> Routes {
    Routes {
        pod: route,
        node: route,
        outside: route,
    }
}
