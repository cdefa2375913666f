//! What is known of the host a packet goes through. Everything but the rules may be missing; what hangs on something
//! missing becomes a fork.

use ipnet::IpNet;
use iptables::ast::Ruleset;
use model::{PerFamily, Protocol};
use nftables::listed;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use traced::{Interface, IpSets, LocalAddresses};

/// A host: its rules, and what is known of its addresses, interfaces, routes and sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The rules of iptables of each family.
    pub rules: PerFamily<Ruleset>,
    /// The tables of nftables. Those that iptables made may be among them, and are not asked twice.
    pub native: listed::Ruleset,
    /// The host's own addresses.
    pub addresses: LocalAddresses,
    /// The interfaces; empty when not known. Their addresses count as local in addition to [`Host::addresses`].
    pub interfaces: Vec<HostInterface>,
    /// The routes beside those that the interfaces' networks imply; `None` when not known, and then where a packet
    /// leaves is not known either.
    pub routes: Option<Vec<Route>>,
    /// The sockets that listen; `None` when not known.
    pub sockets: Option<Vec<Socket>>,
    /// The sets of `ipset`, as far as they are known.
    pub sets: IpSets,
}

/// An interface and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInterface {
    /// Its name.
    pub name: Arc<str>,
    /// Its addresses with the length of their networks (host bits kept), the primary one first.
    pub addresses: Vec<IpNet>,
}

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub to: IpNet,
    /// The next hop; `None` for neighbours.
    pub via: Option<IpAddr>,
    /// The interface.
    pub interface: Arc<str>,
}

/// A socket that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its protocol.
    pub protocol: Protocol,
    /// Address and port; an unspecified address stands for all of its family, and `::` for IPv4 as well.
    pub address: SocketAddr,
}

/// Where the host sends a packet that is not for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) interface: Interface,
    pub(crate) next_hop: Option<IpAddr>,
}

impl Host {
    /// The host's addresses with those of its interfaces; unknown when nobody told us either.
    pub(crate) fn local_addresses(&self) -> LocalAddresses {
        let listed = self
            .interfaces
            .iter()
            .flat_map(|i| i.addresses.iter().map(IpNet::addr));
        match &self.addresses {
            LocalAddresses::Unknown if self.interfaces.is_empty() => LocalAddresses::Unknown,
            LocalAddresses::Unknown => LocalAddresses::Known(listed.collect()),
            LocalAddresses::Known(known) => {
                let all: BTreeSet<IpAddr> = known.iter().copied().chain(listed).collect();
                LocalAddresses::Known(all)
            }
        }
    }

    /// The networks of all interfaces.
    pub(crate) fn networks(&self) -> Vec<IpNet> {
        self.interfaces
            .iter()
            .flat_map(|i| i.addresses.iter().map(IpNet::trunc))
            .collect()
    }

    /// The way out to an address that is not the host's; `None` when the routes are known and none leads there.
    pub(crate) fn exit(&self, to: IpAddr) -> Option<Exit> {
        let Some(routes) = &self.routes else {
            return Some(Exit {
                interface: Interface::Unknown,
                next_hop: None,
            });
        };
        let connected = self.interfaces.iter().flat_map(|interface| {
            interface.addresses.iter().map(|network| Route {
                to: network.trunc(),
                via: None,
                interface: interface.name.clone(),
            })
        });
        let mut best: Option<Route> = None;
        for route in routes.iter().cloned().chain(connected) {
            let longer = best
                .as_ref()
                .is_none_or(|best| route.to.prefix_len() > best.to.prefix_len());
            if longer && route.to.contains(&to) {
                best = Some(route);
            }
        }
        best.map(|route| Exit {
            interface: Interface::Named(route.interface),
            next_hop: Some(route.via.unwrap_or(to)),
        })
    }

    /// The address that a packet masqueraded on its way out there gets: of the outgoing interface, the one in the next
    /// hop's network, else the first (`inet_select_addr`). When the interface is not known, the host's only address.
    pub(crate) fn masquerade_as(&self, exit: &Exit, to: IpAddr) -> Option<IpAddr> {
        let same_family = |ip: &IpAddr| ip.is_ipv4() == to.is_ipv4();
        let of_interface = match &exit.interface {
            Interface::Named(name) => self.interface(name),
            Interface::Absent | Interface::Unknown => None,
        };
        if let Some(interface) = of_interface {
            let mut addresses = interface.addresses.iter().filter(|net| same_family(&net.addr()));
            let near = exit.next_hop.unwrap_or(to);
            return addresses
                .clone()
                .find(|net| net.contains(&near))
                .or_else(|| addresses.next())
                .map(IpNet::addr)
                .filter(|ip| !ip.is_loopback())
                .or_else(|| self.only_address(to));
        }
        self.only_address(to)
    }

    /// The host's address of this family, when it has just one besides loopback and link-local ones.
    fn only_address(&self, family_of: IpAddr) -> Option<IpAddr> {
        let LocalAddresses::Known(all) = self.local_addresses() else {
            return None;
        };
        let mut usable = all.into_iter().filter(|ip| {
            let link_local = match ip {
                IpAddr::V4(v4) => v4.is_link_local(),
                IpAddr::V6(v6) => v6.is_unicast_link_local(),
            };
            ip.is_ipv4() == family_of.is_ipv4() && !ip.is_loopback() && !link_local
        });
        usable.next().filter(|_| usable.next().is_none())
    }

    /// The first address of an interface in the family of `family_of`, which is what REDIRECT takes.
    pub(crate) fn primary_address(&self, interface: &Interface, family_of: IpAddr) -> Option<IpAddr> {
        let Interface::Named(name) = interface else {
            return None;
        };
        let mut addresses = self.interface(name)?.addresses.iter().map(IpNet::addr);
        addresses.find(|ip| ip.is_ipv4() == family_of.is_ipv4())
    }

    fn interface(&self, name: &str) -> Option<&HostInterface> {
        self.interfaces.iter().find(|interface| &*interface.name == name)
    }

    /// Whether a socket listens there; `None` when the sockets are not known.
    pub(crate) fn listens(&self, protocol: Protocol, to: SocketAddr) -> Option<bool> {
        let sockets = self.sockets.as_ref()?;
        Some(sockets.iter().any(|socket| {
            let address = socket.address.ip();
            let all = address.is_unspecified() && (address.is_ipv6() || to.is_ipv4());
            socket.protocol == protocol && socket.address.port() == to.port() && (all || address == to.ip())
        }))
    }
}
