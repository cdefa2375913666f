//! Packets of pods as samples: who sends, through which interface, and to whom.

use super::Patient;
use crate::causes::listed;
use crate::known::Kind;
use crate::world::World;
use ipnet::IpNet;
use iptables::ast::{Is, TableName, Target};
use model::{Family, LocalDetector, Origin, Packet, Protocol};
use nftables::listed::{Expr, Op, Statement, Value};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// So many pods are tried beside the first.
const OTHERS: usize = 4;

/// A pod of this host, or the address of one that may be.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) ip: IpAddr,
    /// What its packets come in through.
    pub(super) interface: Arc<str>,
}

impl Pod {
    /// Whether nobody knows the interface.
    pub(super) fn is_somewhere(&self) -> bool {
        self.interface.is_empty()
    }

    /// Where it is, in words: `10.244.1.254 on cni0`.
    pub(super) fn words(&self) -> String {
        match &*self.interface {
            "" => format!("{} (a pod's address)", self.ip),
            interface => format!("{} on {interface}", self.ip),
        }
    }

    /// A connection of it.
    pub(super) fn sends(&self, to: SocketAddr, protocol: Protocol) -> Packet {
        Packet::new(self.ip, to, protocol, Origin::Interface(self.interface.clone()))
    }
}

impl Patient {
    /// The network that pods of all nodes have: as kube-proxy was told, as its rules show, or else what this Node has.
    pub(super) fn pod_network(&self, family: Family) -> Option<IpNet> {
        let world = &self.world;
        if let Some(LocalDetector::Cidr(net)) = &world.desired.get(family).node.detector {
            return Some(*net);
        }
        let of_family = |net: &&IpNet| Family::of(net.addr()) == family;
        let by_node = world.facts.pod_cidrs.iter().find(of_family).copied();
        by_rules(world, family)
            .or_else(|| by_table(world, family))
            .or(by_node)
    }

    /// That network for a command in an advice; where it is not known, a word in its place.
    pub(super) fn pod_network_words(&self, family: Family) -> String {
        let network = self.pod_network(family);
        network.map_or_else(|| "POD-CIDR".to_owned(), |net| net.to_string())
    }

    /// A pod of this host.
    pub(super) fn some_pod(&self, family: Family) -> Option<Pod> {
        let network = self.pod_network(family)?;
        let facts = &self.world.host_facts;
        let on_bridge = facts.interfaces.iter().find_map(|interface| {
            let mut nets = interface.addresses.iter().map(IpNet::trunc);
            let own =
                nets.find(|net| network.contains(net) && net.prefix_len() + 1 < net.max_prefix_len())?;
            Some(Pod {
                ip: an_address(own),
                interface: interface.name.clone(),
            })
        });
        let routed = || {
            facts.routes.iter().flatten().find_map(|of| {
                let to = of.route.to;
                let is_host = to.prefix_len() == to.max_prefix_len() && network.contains(&to);
                (is_host && of.route.via.is_none()).then(|| Pod {
                    ip: to.addr(),
                    interface: of.route.interface.clone(),
                })
            })
        };
        // Without a host's interfaces and routes, somewhere.
        let is_nothing_known = facts.interfaces.is_empty() && facts.routes.is_none();
        let somewhere = || {
            is_nothing_known.then(|| Pod {
                ip: an_address(network),
                interface: Arc::from(""),
            })
        };
        on_bridge.or_else(routed).or_else(somewhere)
    }

    /// Pods of this host that rules send to, beside the one that stands for all: a rule may be about some addresses only.
    pub(super) fn other_pods(&self, family: Family, than: &Pod) -> Vec<Pod> {
        let facts = &self.world.host_facts;
        let is_beside = |ip: IpAddr| {
            let connected = facts.connected(ip);
            ip != than.ip
                && !self.world.is_local(ip)
                && connected.is_some_and(|(of, _)| of.name == than.interface)
        };
        let mut all: Vec<IpAddr> = endpoints(&self.world, family)
            .map(|to| to.ip())
            .filter(|ip| is_beside(*ip))
            .collect();
        all.sort_unstable();
        all.dedup();
        all.truncate(OTHERS);
        let pod = |ip| Pod {
            ip,
            interface: than.interface.clone(),
        };
        all.into_iter().map(pod).collect()
    }

    /// A pod of another host, as far as one can tell: an endpoint that rules send to, or an address in a network that is
    /// routed there.
    pub(super) fn some_peer(&self, family: Family, than: &Pod) -> Option<SocketAddr> {
        let network = self.pod_network(family)?;
        let facts = &self.world.host_facts;
        let is_elsewhere = |ip: IpAddr| {
            let own = facts
                .connected(ip)
                .is_some_and(|(of, _)| of.name == than.interface);
            network.contains(&ip) && ip != than.ip && !own && !self.world.is_local(ip)
        };
        let by_rules = endpoints(&self.world, family).find(|to| is_elsewhere(to.ip()));
        let routed = || {
            let routes = facts.routes.iter().flatten().map(|of| &of.route);
            let mut to_nodes =
                routes.filter(|route| network.contains(&route.to) && route.interface != than.interface);
            let ip = to_nodes
                .find(|route| is_elsewhere(an_address(route.to)))
                .map(|route| an_address(route.to))?;
            Some(SocketAddr::new(ip, 8080))
        };
        by_rules.or_else(routed)
    }

    /// The addresses that packets for Services are sent to, by rules and by slices, each once.
    pub(super) fn endpoints(&self, family: Family) -> Vec<IpAddr> {
        let of_slices = self.world.snapshot.slices().flat_map(|slice| &slice.endpoints);
        let usable =
            of_slices.filter(|endpoint| endpoint.conditions.is_usable() && Family::of(endpoint.ip) == family);
        let by_rules = endpoints(&self.world, family).map(|to| to.ip());
        let mut all: Vec<IpAddr> = by_rules.chain(usable.map(|endpoint| endpoint.ip)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Cluster IPs with ports and protocols, at most so many.
    pub(super) fn cluster_ips(&self, family: Family, most: usize) -> Vec<(SocketAddr, Protocol, String)> {
        let known = self.known(family).iter();
        let of_kind = known.filter(|known| known.kind == Kind::ClusterIp);
        let with_ip = of_kind.filter_map(|known| {
            let at = SocketAddr::new(known.ip?, known.port);
            Some((at, known.protocol, known.service.to_string()))
        });
        with_ip.take(most).collect()
    }
}

/// Some address of a network, seldom anybody's: the last but one.
fn an_address(net: IpNet) -> IpAddr {
    if net.prefix_len() == net.max_prefix_len() {
        return net.addr();
    }
    match net {
        IpNet::V4(net) => IpAddr::from(u32::from(net.broadcast()).saturating_sub(1).to_be_bytes()),
        IpNet::V6(net) => IpAddr::from((u128::from(net.network()) | 0xfffe).to_be_bytes()),
    }
}

/// `! -s NETWORK ... -j KUBE-MARK-MASQ` of a Service's chain: who is not a pod is masqueraded.
fn by_rules(world: &World, family: Family) -> Option<IpNet> {
    let chains = &world.host.rules.get(family).tables.get(&TableName::Nat)?.chains;
    let services = chains
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("KUBE-SV") || name.as_str() == "KUBE-SERVICES");
    services
        .flat_map(|(_, chain)| &chain.rules)
        .find_map(|rule| match (&rule.src, &rule.target) {
            (Some(Is::Not(net)), Target::Jump(to)) if to.as_str() == "KUBE-MARK-MASQ" => Some(*net),
            _ => None,
        })
}

/// `ip saddr != NETWORK` of nftables mode, upstream's and ours.
fn by_table(world: &World, family: Family) -> Option<IpNet> {
    let tables = world.host.native.tables.iter();
    let ours = tables.filter(|table| &*table.name == nftables::names::TABLE);
    let rules = ours
        .flat_map(|table| &table.chains)
        .flat_map(|chain| &chain.rules);
    let mut nets = rules
        .flat_map(|rule| &rule.statements)
        .filter_map(|statement| match statement {
            Statement::Match {
                left: Expr::Field(words),
                op: Op::Not,
                right: Expr::Value(Value::Network(net)),
            } if words.last().is_some_and(|word| &**word == "saddr") => Some(*net),
            _ => None,
        });
    nets.find(|net| Family::of(net.addr()) == family)
}

fn endpoints(world: &World, family: Family) -> impl Iterator<Item = SocketAddr> {
    let nat = world.host.rules.get(family).tables.get(&TableName::Nat);
    let chains = nat.into_iter().flat_map(|table| &table.chains);
    let of_endpoints = chains.filter(|(name, _)| name.as_str().starts_with("KUBE-SEP-"));
    of_endpoints
        .flat_map(|(_, chain)| &chain.rules)
        .filter_map(|rule| match rule.target {
            Target::Dnat(to) => Some(to),
            _ => None,
        })
}

/// Names in words, each once.
pub(super) fn names(mut all: Vec<String>, most: usize) -> String {
    all.sort();
    all.dedup();
    listed(&all, most)
}
