//! Whose a chain, a rule or an element is, and what it is for.

use super::Owner;
use iptables::ast::{ChainName, Rule, TableName};
use iptables::names::{OwnChain, PortChains, StaticChain, endpoint_chain};
use model::{Desired, DesiredPort, FrontendKind};
use nftables::ast::{ElementKey, Value};
use nftables::build;
use nftables::held::frontend_of;
use nftables::names::{self, Kind, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// Owners of the chains of iptables mode.
pub(super) struct OfChains {
    by_name: BTreeMap<ChainName, (Owner, String)>,
}

impl OfChains {
    /// Of all service ports that are wanted.
    pub(super) fn new(want: &Desired) -> OfChains {
        let mut by_name = BTreeMap::new();
        for port in want.services.values().flat_map(|service| &service.ports) {
            let owner = || Owner::Port(port.name.to_string());
            let PortChains { svc, svl, ext, fw } = PortChains::of(&port.name);
            for (chain, about) in [
                (svc, "its endpoints"),
                (svl, "its endpoints on this node"),
                (ext, "traffic from outside the cluster"),
                (fw, "source ranges"),
            ] {
                by_name.insert(chain, (owner(), about.to_owned()));
            }
            for endpoint in endpoints(port) {
                let chain = endpoint_chain(&port.name.to_string(), port.name.protocol, endpoint);
                by_name.insert(chain, (owner(), format!("endpoint {endpoint}")));
            }
        }
        OfChains { by_name }
    }

    /// Whose a chain is, and what it is for. Of a service's chain that is not wanted, its rules' comments tell.
    pub(super) fn of(&self, table: TableName, chain: &ChainName, rules: &[Rule]) -> (Owner, String) {
        if let Some(known) = self.by_name.get(chain) {
            return known.clone();
        }
        if OwnChain::of(chain.as_str()).is_some() && table == TableName::Nat {
            let named = rules.iter().find_map(of_comment);
            return (named.unwrap_or(Owner::Nobody), String::new());
        }
        (Owner::Node, about_static(table, chain).to_owned())
    }
}

/// The service port that a rule's comment begins with.
pub(super) fn of_comment(rule: &Rule) -> Option<Owner> {
    let word = rule.comment()?.split(' ').next()?;
    word.contains('/').then(|| Owner::Port(word.to_owned()))
}

fn about_static(table: TableName, chain: &ChainName) -> &'static str {
    if table.built_in().contains(&chain.as_str()) {
        return "where packets enter kube-proxy's chains";
    }
    match StaticChain::of(table, chain.as_str()) {
        Some(StaticChain::Services | StaticChain::ExternalServices) => "addresses of all Services",
        Some(StaticChain::NodePorts) => "node ports of all Services",
        Some(StaticChain::Forward) => "what may be forwarded",
        Some(StaticChain::ProxyFirewall) => "source ranges of all Services",
        Some(StaticChain::Firewall) => "packets to loopback from elsewhere",
        Some(StaticChain::Postrouting) => "masquerading",
        Some(StaticChain::MarkMasq) => "the mark of what is masqueraded",
        Some(StaticChain::Canary) => "tells when rules are flushed",
        None => "",
    }
}

/// Every endpoint that a port may send packets to.
fn endpoints(port: &DesiredPort) -> BTreeSet<SocketAddr> {
    let lists = [&port.cluster, &port.local, &port.reachable];
    lists.into_iter().flatten().copied().collect()
}

/// Owners of the elements of nftables mode.
pub(super) struct OfElements {
    frontends: BTreeMap<(Kind, Arc<[Value]>), String>,
    cluster_ips: BTreeMap<Value, String>,
    endpoints: BTreeMap<SocketAddr, String>,
}

impl OfElements {
    /// Of all service ports that are wanted.
    pub(super) fn new(want: &Desired) -> OfElements {
        let mut owners = OfElements {
            frontends: BTreeMap::new(),
            cluster_ips: BTreeMap::new(),
            endpoints: BTreeMap::new(),
        };
        for service in want.services.values() {
            let mut named = service.ports.iter().flat_map(|port| {
                let name = port.name.to_string();
                port.frontends.iter().map(move |_| name.clone())
            });
            for frontend in build::frontends(service) {
                let name = named
                    .next()
                    .expect("invariant: a port's frontends come in its order");
                owners.frontends.insert(frontend, name);
            }
            for port in &service.ports {
                for endpoint in &port.on_node {
                    owners.endpoints.insert(*endpoint, port.name.to_string());
                }
                for frontend in &port.frontends {
                    if let FrontendKind::ClusterIp(ip) = frontend.kind {
                        let name = service.name.to_string();
                        owners.cluster_ips.insert(Value::Address(ip), name);
                    }
                }
            }
        }
        owners
    }

    /// Whose an element is. `comment` is its own, which names the service port of one that nobody wants.
    pub(super) fn of(&self, key: &ElementKey, comment: Option<&str>) -> Owner {
        let set = key.set.as_str();
        if set == names::NODEPORT_IPS {
            return Owner::Node;
        }
        let known = match (set, &*key.key) {
            (names::CLUSTER_IPS, [address]) => self.cluster_ips.get(address),
            (names::HAIRPIN, [Value::Address(ip), _, _, Value::Port(port)]) => {
                self.endpoints.get(&SocketAddr::new(*ip, *port))
            }
            _ => frontend_of(key).and_then(|frontend| self.frontends.get(&frontend)),
        };
        let named = known.map(String::as_str).or(comment);
        named.map_or(Owner::Nobody, |name| Owner::Port(name.to_owned()))
    }
}

/// What a set's elements are for, in words.
pub(super) fn about_set(set: &str) -> &'static str {
    match set {
        names::CLUSTER_IPS => "cluster IPs",
        names::NODEPORT_IPS => "addresses that node ports are served on",
        names::HAIRPIN => "endpoints that reach themselves through a Service",
        names::GUARDED => "addresses with source ranges",
        names::ALLOWED => "source ranges",
        _ => match names::form_of(set).map(|form| form.role) {
            Some(Role::Slot(_)) => "endpoints",
            Some(Role::Bucket(_)) => "endpoints by the hash of the client",
            Some(Role::Hashed) => "addresses whose clients are hashed",
            Some(Role::Within(_, None)) => "addresses with endpoints",
            Some(Role::Within(_, Some(_))) => "addresses with endpoints and session affinity",
            Some(Role::Refused) => "addresses without endpoints",
            Some(Role::Treated) if set.ends_with("masqueraded") => "addresses whose clients are masqueraded",
            Some(Role::Treated) => "addresses with policy Local",
            Some(Role::Clients(_)) => "clients that stay with their endpoint",
            Some(Role::Shared | Role::Admission) | None => "",
        },
    }
}
