//! The node's facts, out of the Node object, the configuration and the host's addresses.

use crate::ProxyOptions;
use model::NodeFacts;
use model::snapshot::Snapshot;
use std::net::IpAddr;

/// The facts as they are now. Without a Node object, the configuration and the host's addresses have to do.
pub(crate) fn facts(options: &ProxyOptions, snapshot: &Snapshot, addresses: Vec<IpAddr>) -> NodeFacts {
    config::facts(&options.config, &options.node_name, snapshot, addresses)
}

/// What is still missing of the Node before rules can be right; `None` when nothing is (control.md 3.3).
pub(crate) fn missing(options: &ProxyOptions, snapshot: &Snapshot) -> Option<Missing> {
    let Some(node) = snapshot.node(&options.node_name) else {
        return Some(Missing::Node);
    };
    let needs_pod_cidr = options.config.detect_local_mode == "NodeCIDR";
    if needs_pod_cidr && node.pod_cidrs.is_empty() {
        return Some(Missing::PodCidr);
    }
    node.addresses.is_empty().then_some(Missing::Addresses)
}

/// What a Node can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The object itself.
    Node,
    /// `spec.podCIDRs`.
    PodCidr,
    /// Addresses of its own.
    Addresses,
}
