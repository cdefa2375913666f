//! Where a chain is evaluated: the hook, the interfaces, and what is known of the host.

use crate::IpSets;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The points at which the kernel calls tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Before the routing decision, for packets that come in.
    Prerouting,
    /// For packets to this host.
    Input,
    /// For packets through this host.
    Forward,
    /// For packets that this host sends.
    Output,
    /// For packets that leave.
    Postrouting,
}

impl Hook {
    /// All of them.
    pub const ALL: [Hook; 5] = [
        Hook::Prerouting,
        Hook::Input,
        Hook::Forward,
        Hook::Output,
        Hook::Postrouting,
    ];

    /// The name of the built-in chains of this hook.
    pub fn as_str(self) -> &'static str {
        match self {
            Hook::Prerouting => "PREROUTING",
            Hook::Input => "INPUT",
            Hook::Forward => "FORWARD",
            Hook::Output => "OUTPUT",
            Hook::Postrouting => "POSTROUTING",
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An interface as a rule can see it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interface {
    /// There is none at this hook (`-i` in OUTPUT, `-o` in PREROUTING).
    Absent,
    /// This one.
    Named(Arc<str>),
    /// There is one, and nobody told us which.
    Unknown,
}

/// The host's own addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LocalAddresses {
    /// Nobody told us: only loopback addresses are known to be local.
    #[default]
    Unknown,
    /// All of them; loopback addresses need not be listed.
    Known(BTreeSet<IpAddr>),
}

impl LocalAddresses {
    /// Whether the address is this host's; `None` when that is not known. All of 127/8 is.
    pub fn has(&self, ip: IpAddr) -> Option<bool> {
        match self {
            _ if ip.is_loopback() => Some(true),
            LocalAddresses::Unknown => None,
            LocalAddresses::Known(all) => Some(all.contains(&ip)),
        }
    }
}

/// Where a chain is evaluated.
#[derive(Clone, Debug)]
pub struct Site<'a> {
    /// The hook that called the table.
    pub hook: Hook,
    /// The table.
    pub table: Name,
    /// Where the packet came in.
    pub in_interface: Interface,
    /// Where it will go out.
    pub out_interface: Interface,
    /// Whether a socket of this host sends it.
    pub sender: Sender,
    /// The host's addresses.
    pub local: &'a LocalAddresses,
    /// The networks of the host's interfaces, for directed broadcast; empty when not known.
    pub networks: &'a [IpNet],
    /// The address that MASQUERADE gives at this hook, when known.
    pub masquerade_as: Option<IpAddr>,
    /// The address that REDIRECT gives at this hook, when known.
    pub redirect_to: Option<IpAddr>,
    /// The sets of `ipset`, as far as they are known.
    pub sets: &'a IpSets,
}

/// The name of a table or a chain.
///
/// A table of iptables is one of its five words; one of nftables has its family before its name, as in
/// `ip kube-proxy`, so that the two are never mistaken for each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for Name {
    fn from(text: T) -> Name {
        Name(text.into())
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Site<'_> {
    /// Whether the address is a broadcast address; `None` when that hangs on networks nobody told us.
    pub fn is_broadcast(&self, ip: IpAddr) -> Option<bool> {
        match ip {
            IpAddr::V6(_) => Some(false),
            IpAddr::V4(v4) if v4.is_broadcast() => Some(true),
            IpAddr::V4(_) if self.networks.is_empty() => None,
            IpAddr::V4(_) => Some(
                self.networks
                    .iter()
                    .any(|net| net.prefix_len() < 31 && net.broadcast() == ip),
            ),
        }
    }
}

/// Who made a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A socket of this host.
    ThisHost,
    /// Somebody else.
    Elsewhere,
}
