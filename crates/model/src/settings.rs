//! What the operator decided, as far as it changes what traffic should do.

use crate::{Family, PerFamily};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// The packet mark that asks for source NAT: one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(u32);

impl Mark {
    /// The mark with only this bit set. `None` outside 0..=31.
    pub fn from_bit(bit: u32) -> Option<Mark> {
        (bit < 32).then(|| Mark(1 << bit))
    }

    /// The mark's value, which is its mask as well.
    pub fn value(self) -> u32 {
        self.0
    }
}

/// Bit 14, upstream's default.
impl Default for Mark {
    fn default() -> Self {
        Mark(1 << 14)
    }
}

/// How traffic of this node's pods is told from other traffic, for one family (control.md 10.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalDetector {
    /// By source address: `detectLocalMode` `ClusterCIDR` or `NodeCIDR`. Host bits are cleared.
    Cidr(IpNet),
    /// By the interface it came in through.
    Bridge(Arc<str>),
    /// By the beginning of that interface's name.
    InterfacePrefix(Arc<str>),
}

/// Which of the host's addresses serve node ports, for one family (control.md 10.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// Every local address (loopback as `localhost_node_ports` says; never `::1`).
    #[default]
    All,
    /// The host's addresses that lie in one of these networks.
    In(Vec<IpNet>),
}

impl NodePortAddresses {
    /// Whether node ports on IPv4 loopback can be meant: unset, `/0`, or a network in or over 127.0.0.0.
    pub fn reaches_loopback(&self) -> bool {
        match self {
            NodePortAddresses::All => true,
            NodePortAddresses::In(nets) => nets
                .iter()
                .any(|net| net.addr().is_loopback() || net.contains(&IpAddr::from([127, 0, 0, 0]))),
        }
    }
}

/// The settings that decide what traffic should do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `masqueradeAll`: source NAT for all cluster-IP traffic.
    pub masquerade_all: bool,
    /// The masquerade mark.
    pub mark: Mark,
    /// The local-traffic detector of each family, when there is one.
    pub detectors: PerFamily<Option<LocalDetector>>,
    /// Where node ports are served.
    pub node_port_addresses: PerFamily<NodePortAddresses>,
    /// `iptables.localhostNodePorts` as configured. [`Settings::localhost_node_ports`] says where it takes effect.
    pub localhost_node_ports_wanted: bool,
    /// Feature gate `AllowServiceExternalIPs`.
    pub external_ips: ExternalIps,
}

/// Whether `spec.externalIPs` is honoured (feature gate `AllowServiceExternalIPs`, on by default).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExternalIps {
    /// Honoured.
    #[default]
    Allowed,
    /// Ignored.
    Ignored,
}

impl Settings {
    /// Whether node ports are served on loopback: IPv4 only, if wanted and if the addresses reach it (control.md 10.3).
    pub fn localhost_node_ports(&self, family: Family) -> bool {
        family == Family::V4
            && self.localhost_node_ports_wanted
            && self.node_port_addresses.v4.reaches_loopback()
    }
}
