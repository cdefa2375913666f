//! What is known of the node the proxy runs on.

use crate::PerFamily;
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// Facts about this node. They come from the Node object, from the host's interfaces and from sysctls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// The Node's name, as `EndpointSlices` spell it. Empty when unknown: then no endpoint is local.
    pub name: Arc<str>,
    /// The label `topology.kubernetes.io/zone`, when the Node has it.
    pub zone: Option<Arc<str>>,
    /// The node's primary address per family, from the Node's addresses, or from `bindAddress` if that is set.
    pub node_ips: PerFamily<Option<IpAddr>>,
    /// `spec.podCIDRs` of the Node.
    pub pod_cidrs: Vec<IpNet>,
    /// Addresses on the host's interfaces, of both families, loopback included. Sorted, without doubles.
    pub interface_addresses: Vec<IpAddr>,
}

impl NodeFacts {
    /// Whether packets to this address end on this node (address type LOCAL). All of 127/8 does.
    pub fn is_local_address(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.interface_addresses.contains(&ip)
    }
}
