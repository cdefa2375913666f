//! What is known of a host beside its rules: addresses, interfaces, routes, sysctls, sockets, tools, counters.
//!
//! Somebody wrote it down, or `kube-proxy doctor --save` did:
//!
//! ```yaml
//! hostname: node-a
//! addresses: [192.0.2.11/24]            # of the interface that the default route leaves through
//! interfaces:
//! - {name: cni0, type: bridge, addresses: [10.244.1.1/24]}
//! - {name: veth1, type: veth, bridge: cni0, hairpin: false}
//! routes: [default via 192.0.2.1 dev eth0, 10.244.2.0/24 via 192.0.2.12 dev eth0]   # as `ip route` prints them
//! rules: ["32765: not from all fwmark 0xca6c lookup 51820"]                          # as `ip rule` prints them
//! sysctl: {net.bridge.bridge-nf-call-iptables: absent}       # absent: the kernel has none, with no module for it
//! listening: [{proto: udp, address: 10.96.0.10, port: 53, process: node-cache}]
//! kernel: 6.1.0-13-amd64                                     # uname -r
//! tools: {iptables: v1.8.9 (nf_tables), nft: v1.0.6}         # what --version says
//! broken: {ip6tables-nft: "can't initialize table `nat'"}    # tools that do not work, and their words
//! modules: {br_netfilter: absent}                            # loaded, available, or absent
//! wireguard: {wg0: 0xca6c}                                   # wg show all fwmark
//! conntrack: {entries: 210, limit: 262144, insert_failed: 0, drop: 0, early_drop: 0, invalid: 0}
//! counters: {IPReversePathFilter: 0}                         # of /proc/net/netstat
//! clock: {synchronised: true, ahead: 0}                      # seconds before the API server's
//! xtables_lock: file                                         # what /run/xtables.lock is
//! config: {mode: iptables, clusterCIDR: 10.244.0.0/16}       # what differs from kube-proxy's defaults
//! ```

mod lines;
mod read;
mod write;

pub use lines::{PolicyRule, RouteFacts, RouteKind};
pub use read::BadFacts;

use ipnet::IpNet;
use model::Family;
use path::{Host, HostInterface, IpSets, LocalAddresses, Route, Socket};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The value of a sysctl that the kernel does not have.
pub const ABSENT: &str = "absent";

/// What is known of a host beside its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Its name.
    pub hostname: Option<String>,
    /// Its interfaces and their addresses.
    pub interfaces: Vec<InterfaceFacts>,
    /// Its sets of `ipset`, as far as they are known. They come with rules, and are not written among facts.
    pub sets: IpSets,
    /// Its routes; `None` when not known.
    pub routes: Option<Vec<RouteFacts>>,
    /// Sysctls by name, with dots.
    pub sysctl: BTreeMap<String, String>,
    /// Sockets that listen; `None` when not known.
    pub listening: Option<Vec<Listening>>,
    /// The rules of policy routing beside the usual three; `None` when not known.
    pub policy_rules: Option<Vec<PolicyRule>>,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// What tools say to `--version`, by name.
    pub tools: BTreeMap<String, String>,
    /// Tools that do not work, and their words.
    pub broken: BTreeMap<String, String>,
    /// Modules of the kernel, as far as one can tell.
    pub modules: BTreeMap<String, Module>,
    /// The marks that interfaces of `WireGuard` put on what they send.
    pub wireguard: BTreeMap<String, u32>,
    /// The connection table.
    pub conntrack: Option<ConntrackFacts>,
    /// Counters of the kernel's own packet handling, by name.
    pub counters: BTreeMap<String, u64>,
    /// The clock.
    pub clock: ClockFacts,
    /// What `/run/xtables.lock` is.
    pub xtables_lock: Option<Lock>,
    /// The parts of the proxy's configuration that differ from the default; `Null` when not said.
    pub config: Value,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Its name.
    pub name: Arc<str>,
    /// Its type, as `ip -d link` says (`bridge`, `veth`, `dummy`), when known.
    pub kind: Option<String>,
    /// Its addresses with their networks, the primary one first.
    pub addresses: Vec<IpNet>,
    /// The bridge that it is a port of.
    pub bridge: Option<Arc<str>>,
    /// Of a port of a bridge: whether frames may leave through the port that they came in by.
    pub hairpin: Option<bool>,
}

impl InterfaceFacts {
    /// One of which nothing else is known.
    pub fn named(name: Arc<str>, addresses: Vec<IpNet>) -> InterfaceFacts {
        InterfaceFacts {
            name,
            kind: None,
            addresses,
            bridge: None,
            hairpin: None,
        }
    }
}

/// A socket that listens, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The socket.
    pub socket: Socket,
    /// The name of the process that has it open, when it is known.
    pub process: Option<String>,
}

/// What is known of a module of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// It is loaded, or built in.
    Loaded,
    /// The kernel can load it.
    Available,
    /// It is not there.
    Absent,
}

impl Module {
    /// All of them with their words.
    pub const ALL: [(Module, &'static str); 3] = [
        (Module::Loaded, "loaded"),
        (Module::Available, "available"),
        (Module::Absent, "absent"),
    ];
}

/// The connection table: how full it is, and what went wrong since the host started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConntrackFacts {
    /// Entries there are.
    pub entries: u64,
    /// Entries there may be; 0 when that is not known.
    pub limit: u64,
    /// New connections that could not be entered, since another had the same addresses and ports after NAT.
    pub insert_failed: u64,
    /// Packets dropped because the table was full, or memory short.
    pub drop: u64,
    /// Entries thrown out early to make room.
    pub early_drop: u64,
    /// Packets of which nothing could be made.
    pub invalid: u64,
}

/// The clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockFacts {
    /// Whether the kernel says that it is kept in step with others.
    pub is_synchronised: Option<bool>,
    /// Seconds that it is before the API server's; negative behind.
    pub ahead: Option<i64>,
}

/// What `/run/xtables.lock` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// A file, as it should be.
    File,
    /// A folder: a container runtime made it for a mount of something that was not there.
    Folder,
    /// Not there: the first who needs it makes it.
    Absent,
}

impl Lock {
    /// All of them with their words.
    pub const ALL: [(Lock, &'static str); 3] = [
        (Lock::File, "file"),
        (Lock::Folder, "folder"),
        (Lock::Absent, "absent"),
    ];
}

impl HostFacts {
    /// Addresses without an interface belong to the one whose network or default route the routes name.
    fn give_to_uplink(&mut self, loose: Vec<IpNet>) {
        for address in loose {
            let name = self.uplink(&address).unwrap_or_else(|| "eth0".into());
            match self
                .interfaces
                .iter_mut()
                .find(|interface| interface.name == name)
            {
                Some(interface) => interface.addresses.push(address),
                None => self
                    .interfaces
                    .insert(0, InterfaceFacts::named(name, vec![address])),
            }
        }
    }

    fn uplink(&self, address: &IpNet) -> Option<Arc<str>> {
        let routes = self.routes.iter().flatten();
        let of_family = routes.filter(|of| of.route.to.addr().is_ipv4() == address.addr().is_ipv4());
        let mut best: Option<(bool, &Route)> = None;
        for RouteFacts { route, .. } in of_family {
            let names_it = route.via.is_none() && route.to == address.trunc();
            let is_default = route.to.prefix_len() == 0;
            if names_it || (is_default && best.is_none()) {
                best = Some((names_it, route));
            }
        }
        best.map(|(_, route)| route.interface.clone())
    }

    /// Every address of the host.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        let all = self.interfaces.iter().flat_map(|interface| &interface.addresses);
        all.map(IpNet::addr).collect()
    }

    /// Adds them to a host whose rules are known.
    pub fn tell(&self, host: &mut Host) {
        let addresses = self.addresses();
        if !addresses.is_empty() {
            host.addresses = LocalAddresses::Known(addresses);
        }
        host.interfaces = self
            .interfaces
            .iter()
            .map(|interface| HostInterface {
                name: interface.name.clone(),
                addresses: interface.addresses.clone(),
            })
            .collect();
        let main = |of: &&RouteFacts| of.kind == RouteKind::Unicast && of.is_main();
        host.routes = self
            .routes
            .as_ref()
            .map(|routes| routes.iter().filter(main).map(|of| of.route.clone()).collect());
        host.sets = self.sets.clone();
        host.sockets = self
            .listening
            .as_ref()
            .map(|all| all.iter().map(|of| of.socket.clone()).collect());
    }

    /// A sysctl's value. One that the kernel does not have, since a module is not there, has none.
    pub fn sysctl(&self, name: &str) -> Option<&str> {
        self.sysctl
            .get(name)
            .map(String::as_str)
            .filter(|value| *value != ABSENT)
    }

    /// A sysctl's value as a number.
    pub fn sysctl_number(&self, name: &str) -> Option<i64> {
        self.sysctl(name)?.parse().ok()
    }

    /// Whether a sysctl is 0, or the kernel has none.
    pub fn is_off(&self, name: &str) -> bool {
        let value = self.sysctl.get(name).map(String::as_str);
        matches!(value, Some("0" | ABSENT))
    }

    /// The route that a packet of this host takes to an address; `None` when no route is known to lead there.
    pub fn route_to(&self, to: IpAddr) -> Option<&RouteFacts> {
        let leads = |of: &&RouteFacts| of.route.to.contains(&to) && of.is_main();
        let routes = self.routes.iter().flatten().filter(leads);
        let best = routes.fold(None, |best: Option<&RouteFacts>, of| match best {
            Some(best) if best.route.to.prefix_len() >= of.route.to.prefix_len() => Some(best),
            _ => Some(of),
        });
        best.filter(|of| of.kind == RouteKind::Unicast)
    }

    /// The interface whose own network holds this address.
    pub fn connected(&self, ip: IpAddr) -> Option<(&InterfaceFacts, IpNet)> {
        let networks = self
            .interfaces
            .iter()
            .flat_map(|of| of.addresses.iter().map(move |net| (of, net.trunc())));
        networks
            .filter(|(_, net)| net.contains(&ip) && net.prefix_len() < net.max_prefix_len())
            .max_by_key(|(_, net)| net.prefix_len())
    }

    /// The source that a socket of this host gets for packets to an address: what the route prefers, else the first
    /// address of the interface it leaves through. Local destinations are their own source.
    pub fn source_towards(&self, to: IpAddr) -> Option<IpAddr> {
        if to.is_loopback() || self.addresses().contains(&to) {
            return Some(to);
        }
        if let Some(of) = self.route_to(to) {
            return of.source.or_else(|| self.first_address(&of.route.interface, to));
        }
        let (interface, _) = self.connected(to)?;
        self.first_address(&interface.name, to)
    }

    /// The address that stands for the host: the first of the interface that the default route leaves through, else of
    /// the first interface that has one.
    pub fn primary_address(&self, family: Family) -> Option<IpAddr> {
        let of_family = |ip: &IpAddr| Family::of(*ip) == family && !ip.is_loopback();
        let mut defaults = self
            .routes
            .iter()
            .flatten()
            .filter(|of| of.route.to.prefix_len() == 0);
        let uplink = defaults.find(|of| Family::of(of.route.to.addr()) == family);
        let by_route = uplink.and_then(|of| self.first_address(&of.route.interface, of.route.to.addr()));
        let mut all = self
            .interfaces
            .iter()
            .flat_map(|of| &of.addresses)
            .map(IpNet::addr);
        by_route.or_else(|| all.find(of_family))
    }

    fn first_address(&self, interface: &str, family_of: IpAddr) -> Option<IpAddr> {
        let found = self.interfaces.iter().find(|of| *of.name == *interface)?;
        let mut addresses = found.addresses.iter().map(IpNet::addr);
        addresses.find(|ip| ip.is_ipv4() == family_of.is_ipv4())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_source_of_a_local_packet_is_what_the_route_prefers() {
        let facts = HostFacts::read(&json!({
            "addresses": ["192.0.2.11/24"],
            "interfaces": [{"name": "k8s0", "addresses": ["10.96.0.1/16"]}],
            "routes": [
                "default via 192.0.2.1 dev eth0 proto dhcp metric 100",
                "10.96.0.0/16 dev k8s0 proto kernel scope link src 10.96.0.1",
            ],
        }));
        let facts = facts.expect("good facts");
        let towards = |text: &str| {
            facts
                .source_towards(text.parse().expect("an address"))
                .map(|ip| ip.to_string())
        };
        assert_eq!(towards("10.96.0.10").as_deref(), Some("10.96.0.1"));
        assert_eq!(towards("198.51.100.7").as_deref(), Some("192.0.2.11"));
        assert_eq!(towards("192.0.2.11").as_deref(), Some("192.0.2.11"));
        assert_eq!(facts.primary_address(Family::V4), Some([192, 0, 2, 11].into()));
        assert_eq!(towards("2001:db8::1"), None);
    }

    #[test]
    fn a_slip_of_the_pen_is_refused_with_its_field() {
        let wrong = [
            (json!({"adresses": []}), "adresses"),
            (json!({"addresses": ["192.0.2"]}), "addresses"),
            (json!({"routes": ["default via"]}), "routes"),
            (json!({"listening": [{"port": 70_000}]}), "listening"),
            (json!([1]), "the file"),
        ];
        for (document, field) in wrong {
            let error = HostFacts::read(&document).expect_err("it is wrong");
            assert!(error.to_string().contains(field), "{error}");
        }
    }
}
