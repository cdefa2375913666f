//! Services and slices out of rules.

use explain::known::{self, Kind, Known};
use iptables::ast::{ChainName, Is, Match, RecentAction, Rule, Ruleset, TableName, Target};
use iptables::names::{OwnChain, PortChains, StaticChain};
use model::{Family, Protocol, ServiceName, ServicePortName};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// The chains that name Services, and what their rules are about.
const NAMING: [(TableName, StaticChain); 5] = [
    (TableName::Nat, StaticChain::Services),
    (TableName::Nat, StaticChain::NodePorts),
    (TableName::Filter, StaticChain::Services),
    (TableName::Filter, StaticChain::ExternalServices),
    (TableName::Filter, StaticChain::NodePorts),
];

/// Another node's name, for endpoints that are not on this one.
const ELSEWHERE: &str = "elsewhere";

/// This node's zone.
const HERE: &str = "here";

/// A Service in the making.
#[derive(Default)]
struct Told {
    cluster_ip: Option<IpAddr>,
    external_ips: BTreeSet<IpAddr>,
    load_balancers: BTreeSet<IpAddr>,
    health_check: Option<u16>,
    is_internal_local: bool,
    is_external_local: bool,
    has_elsewhere: bool,
    affinity: Option<u32>,
    ranges: Vec<String>,
    ports: BTreeMap<(String, Protocol), Port>,
}

#[derive(Default)]
struct Port {
    number: Option<u16>,
    on_node: Option<u16>,
    /// Each with the lists that it is in.
    endpoints: BTreeMap<SocketAddr, In>,
}

/// The lists that an endpoint is in.
#[derive(Clone, Copy, Default)]
struct In {
    cluster: bool,
    local: bool,
}

/// The objects, as manifests have them.
pub(super) fn documents(found: &Ruleset, family: Family, node: &str) -> Vec<Value> {
    let mut services: BTreeMap<ServiceName, Told> = BTreeMap::new();
    for (table, chain) in NAMING {
        for rule in super::rules(found, table, chain) {
            if let Some(known) = known::of_rule(rule) {
                let service = services.entry(known.service.clone()).or_default();
                service.take(table, chain, rule, &known);
            }
        }
    }
    let mut documents = vec![json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node, "labels": {"topology.kubernetes.io/zone": HERE}},
    })];
    for (name, mut service) in services {
        service.look_into_chains(found, &name);
        documents.push(service.object(&name, family));
        documents.extend(service.slices(&name, family, node));
    }
    documents
}

impl Told {
    /// What one rule that names it says.
    fn take(&mut self, table: TableName, chain: StaticChain, rule: &Rule, known: &Known) {
        let comment = rule.comment().unwrap_or_default();
        if (table, chain) == (TableName::Filter, StaticChain::NodePorts) {
            if comment.ends_with("health check node port") {
                self.health_check = Some(known.port);
                self.is_external_local = true;
            }
            return;
        }
        let no_local = comment.ends_with("has no local endpoints");
        self.has_elsewhere |= no_local;
        let port = self
            .ports
            .entry((known.port_name.clone(), known.protocol))
            .or_default();
        let Some(ip) = known.ip else {
            port.on_node = Some(known.port);
            self.is_external_local |= no_local;
            return;
        };
        port.number = Some(known.port);
        match (chain, known.kind) {
            (StaticChain::ExternalServices, _) => {
                self.is_external_local |= no_local;
                if !self.load_balancers.contains(&ip) {
                    self.external_ips.insert(ip);
                }
            }
            (_, Kind::ExternalIp) => drop(self.external_ips.insert(ip)),
            (_, Kind::LoadBalancerIp) => drop(self.load_balancers.insert(ip)),
            _ => {
                self.cluster_ip = Some(ip);
                let to_local = matches!(&rule.target, Target::Jump(to) if to.as_str().starts_with(OwnChain::Svl.prefix()));
                self.is_internal_local |= no_local || to_local;
            }
        }
    }

    /// What its own chains say.
    fn look_into_chains(&mut self, found: &Ruleset, name: &ServiceName) {
        for ((port_name, protocol), port) in &mut self.ports {
            let chains = PortChains::of(&ServicePortName {
                service: name.clone(),
                port: port_name.as_str().into(),
                protocol: *protocol,
            });
            let has_cluster_list =
                own_rules(found, &chains.svc).any(|rule| endpoint_of(found, rule).is_some());
            for (chain, is_local) in [(&chains.svc, false), (&chains.svl, true)] {
                for rule in own_rules(found, chain) {
                    self.affinity = self.affinity.or_else(|| stays(rule));
                    if let Some(endpoint) = endpoint_of(found, rule) {
                        let lists = port.endpoints.entry(endpoint).or_default();
                        lists.local |= is_local;
                        lists.cluster |= !is_local || !has_cluster_list;
                    }
                }
            }
            let by_source = |rule: &Rule| {
                let mut matches = rule.matches.iter();
                matches.any(|one| matches!(one, Match::AddrType { src: Some(_), .. }))
            };
            self.is_external_local |= own_rules(found, &chains.ext).any(by_source);
            let sources = own_rules(found, &chains.fw).filter(|rule| rule.target != Target::None);
            let ranges: Vec<String> = sources
                .filter_map(|rule| match &rule.src {
                    Some(Is::Equal(net)) => Some(net.to_string()),
                    _ => None,
                })
                .collect();
            if self.ranges.is_empty() {
                self.ranges = ranges;
            }
        }
    }

    fn object(&self, name: &ServiceName, family: Family) -> Value {
        let policy = |is_local| if is_local { "Local" } else { "Cluster" };
        let has_node_port = self.ports.values().any(|port| port.on_node.is_some());
        let kind = if !self.load_balancers.is_empty() || self.health_check.is_some() {
            "LoadBalancer"
        } else if has_node_port {
            "NodePort"
        } else {
            "ClusterIP"
        };
        let ports = self.ports.iter().map(|((port_name, protocol), port)| {
            json!({
                "name": port_name,
                "protocol": protocol.to_string(),
                "port": port.number.or(port.on_node),
                "nodePort": port.on_node,
            })
        });
        let ingress: Vec<Value> = self.load_balancers.iter().map(|ip| json!({"ip": ip})).collect();
        let affinity = self
            .affinity
            .map(|seconds| json!({"clientIP": {"timeoutSeconds": seconds}}));
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": &*name.namespace, "name": &*name.name},
            "spec": {
                "type": kind,
                "clusterIP": self.cluster_ip,
                "clusterIPs": self.cluster_ip.into_iter().collect::<Vec<_>>(),
                "ipFamilies": [family.to_string()],
                "externalIPs": self.external_ips,
                "ports": ports.collect::<Vec<_>>(),
                "internalTrafficPolicy": policy(self.is_internal_local),
                "externalTrafficPolicy": if kind == "ClusterIP" && self.external_ips.is_empty() { Value::Null } else { policy(self.is_external_local).into() },
                "healthCheckNodePort": self.health_check,
                "sessionAffinity": if self.affinity.is_some() { "ClientIP" } else { "None" },
                "sessionAffinityConfig": affinity,
                "loadBalancerSourceRanges": self.ranges,
            },
            "status": {"loadBalancer": {"ingress": ingress}},
        })
    }

    /// A slice for each port and target port.
    fn slices(&self, name: &ServiceName, family: Family, node: &str) -> Vec<Value> {
        let mut slices = Vec::new();
        for ((port_name, protocol), port) in &self.ports {
            let mut by_target: BTreeMap<u16, Vec<Value>> = BTreeMap::new();
            let missing = why_missing(port);
            for (endpoint, lists) in &port.endpoints {
                let of_target = by_target.entry(endpoint.port()).or_default();
                of_target.push(listed(endpoint.ip(), *lists, missing, node));
            }
            if by_target.is_empty() && self.has_elsewhere {
                by_target.insert(1, vec![listed(unknown(family), In::default(), missing, node)]);
            }
            for (target, endpoints) in by_target {
                slices.push(json!({
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {
                        "namespace": &*name.namespace,
                        "name": format!("{}-{port_name}-{}-{target}", name.name, protocol.as_lower()),
                        "labels": {"kubernetes.io/service-name": &*name.name},
                    },
                    "addressType": family.to_string(),
                    "ports": [{"name": port_name, "protocol": protocol.to_string(), "port": target}],
                    "endpoints": endpoints,
                }));
            }
        }
        slices
    }
}

/// Why an endpoint is in the node's own list and not in the cluster's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// None of the node's is ready, and some serve while they end.
    Leaving,
    /// It is meant for another zone.
    OtherZone,
}

fn why_missing(port: &Port) -> Missing {
    if port.endpoints.values().any(|lists| lists.local && lists.cluster) {
        Missing::OtherZone
    } else {
        Missing::Leaving
    }
}

/// An endpoint of a slice.
fn listed(ip: IpAddr, lists: In, missing: Missing, node: &str) -> Value {
    let is_missing = lists.local && !lists.cluster;
    let is_leaving = is_missing && missing == Missing::Leaving;
    let zone = if is_missing { ELSEWHERE } else { HERE };
    let hints = (missing == Missing::OtherZone).then(|| json!({"forZones": [{"name": zone}]}));
    json!({
        "addresses": [ip],
        "nodeName": if lists.local { node } else { ELSEWHERE },
        "conditions": {"ready": !is_leaving, "serving": true, "terminating": is_leaving},
        "hints": hints,
    })
}

/// Stands for endpoints on other nodes, of which rules only say that there are some.
fn unknown(family: Family) -> IpAddr {
    match family {
        Family::V4 => [192, 0, 2, 254].into(),
        Family::V6 => [0x2001, 0xdb8, 0, 0, 0, 0, 0, 254].into(),
    }
}

fn own_rules<'a>(found: &'a Ruleset, chain: &ChainName) -> impl Iterator<Item = &'a Rule> {
    let chain = found.chain(TableName::Nat, chain.as_str());
    chain.into_iter().flat_map(|chain| &chain.rules)
}

/// Where the chain that a rule jumps to translates to.
fn endpoint_of(found: &Ruleset, rule: &Rule) -> Option<SocketAddr> {
    let Target::Jump(chain) = &rule.target else {
        return None;
    };
    own_rules(found, chain).find_map(|rule| match rule.target {
        Target::Dnat(to) => Some(to),
        _ => None,
    })
}

fn stays(rule: &Rule) -> Option<u32> {
    rule.matches.iter().find_map(|one| match one {
        Match::Recent(recent) => match recent.action {
            RecentAction::RcheckReap { seconds } => Some(seconds),
            RecentAction::Set => None,
        },
        _ => None,
    })
}
