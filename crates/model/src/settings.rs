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

/// How traffic of this node's pods is told from other traffic, for one family (`detectLocalMode`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalDetector {
    /// By source address: `detectLocalMode` `ClusterCIDR` or `NodeCIDR`. Host bits are cleared.
    Cidr(IpNet),
    /// By the interface it came in through.
    Bridge(Arc<str>),
    /// By the beginning of that interface's name.
    InterfacePrefix(Arc<str>),
}

/// Which of the host's addresses serve node ports, for one family (`nodePortAddresses`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// Every local address (loopback as `localhost_node_ports` says; never `::1`).
    #[default]
    All,
    /// None: the node's own addresses are meant, and it has none of this family.
    Nowhere,
    /// The host's addresses that lie in one of these networks.
    In(Vec<IpNet>),
}

impl NodePortAddresses {
    /// Whether node ports on IPv4 loopback can be meant: unset, `/0`, or a network in or over 127.0.0.0.
    pub fn reaches_loopback(&self) -> bool {
        match self {
            NodePortAddresses::All => true,
            NodePortAddresses::Nowhere => false,
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
    /// Which of `spec.externalIPs` are honoured.
    pub external_ips: ExternalIps,
    /// Whether the mode can balance by the client's address.
    pub client_hashing: ClientHashing,
}

/// Whether services can be balanced by the client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientHashing {
    /// They cannot: in iptables mode the chains are a contract.
    #[default]
    Impossible,
    /// They can: nftables mode.
    Possible,
}

/// Which of `spec.externalIPs` are honoured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ExternalIps {
    /// All of them.
    #[default]
    Allowed,
    /// Those in one of these networks (`--external-ip-allowed-cidrs`).
    ///
    /// Deviation: upstream serves them all; whoever may write Services can take any address's traffic (CVE-2020-8554,
    /// ADR 37).
    Within(Arc<[IpNet]>),
    /// None of them, without a word (feature gate `AllowServiceExternalIPs` off).
    Ignored,
}

impl ExternalIps {
    /// Whether this one is honoured.
    pub fn honours(&self, ip: IpAddr) -> bool {
        match self {
            ExternalIps::Allowed => true,
            ExternalIps::Within(nets) => nets.iter().any(|net| net.contains(&ip)),
            ExternalIps::Ignored => false,
        }
    }
}

impl Settings {
    /// Whether node ports are served on loopback: IPv4 only, if wanted and if the addresses reach it.
    pub fn localhost_node_ports(&self, family: Family) -> bool {
        family == Family::V4
            && self.localhost_node_ports_wanted
            && self.node_port_addresses.v4.reaches_loopback()
    }
}
