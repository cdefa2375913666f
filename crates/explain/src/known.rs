//! The addresses and ports of Services that are known: from what is desired, or from the comments of somebody's rules.

use iptables::ast::{Is, Match, Proto, Rule, Ruleset, TableName};
use model::{Desired, FrontendKind, Protocol, ServiceName};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What kind of address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The cluster IP.
    ClusterIp,
    /// One of `spec.externalIPs`.
    ExternalIp,
    /// An address of a load balancer.
    LoadBalancerIp,
    /// A node port.
    NodePort,
}

impl Kind {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Kind::ClusterIp => "cluster IP",
            Kind::ExternalIp => "external IP",
            Kind::LoadBalancerIp => "load-balancer IP",
            Kind::NodePort => "node port",
        }
    }
}

/// One address and port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The Service.
    pub service: ServiceName,
    /// The port's name; empty when it has none.
    pub port_name: String,
    /// What kind of address.
    pub kind: Kind,
    /// The address; `None` for node ports.
    pub ip: Option<IpAddr>,
    /// The port that clients use.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
}

impl Known {
    /// Where clients find it: no two Services are at the same place.
    pub fn at(&self) -> (Option<IpAddr>, u16, Protocol) {
        (self.ip, self.port, self.protocol)
    }

    /// `cluster IP 10.96.0.10:53/UDP`, `node port 30080/TCP`.
    pub fn words(&self) -> String {
        let (kind, port, protocol) = (self.kind.words(), self.port, self.protocol);
        match self.ip {
            Some(ip) => format!("{kind} {}/{protocol}", std::net::SocketAddr::new(ip, port)),
            None => format!("{kind} {port}/{protocol}"),
        }
    }
}

/// What a family's intent serves.
pub fn of_desired(desired: &Desired) -> Vec<Known> {
    let ports = desired.services.values().flat_map(|service| &service.ports);
    ports
        .flat_map(|port| {
            port.frontends.iter().map(|frontend| {
                let (kind, ip) = match frontend.kind {
                    FrontendKind::ClusterIp(ip) => (Kind::ClusterIp, Some(ip)),
                    FrontendKind::ExternalIp(ip) => (Kind::ExternalIp, Some(ip)),
                    FrontendKind::LoadBalancerIp(ip) => (Kind::LoadBalancerIp, Some(ip)),
                    FrontendKind::NodePort => (Kind::NodePort, None),
                };
                Known {
                    service: port.name.service.clone(),
                    port_name: port.name.port.to_string(),
                    kind,
                    ip,
                    port: frontend.port,
                    protocol: port.name.protocol,
                }
            })
        })
        .collect()
}

/// Chains of kube-proxy that dispatch by address and port. Their comments name Services.
pub const DISPATCHING: [(TableName, &str); 5] = [
    (TableName::Nat, "KUBE-SERVICES"),
    (TableName::Nat, "KUBE-NODEPORTS"),
    (TableName::Filter, "KUBE-SERVICES"),
    (TableName::Filter, "KUBE-EXTERNAL-SERVICES"),
    (TableName::Filter, "KUBE-PROXY-FIREWALL"),
];

/// What rules say they serve.
pub fn of_rules(rules: &Ruleset) -> Vec<Known> {
    let mut all: Vec<Known> = Vec::new();
    let mut seen = BTreeSet::new();
    for (table, chain) in DISPATCHING {
        let found = rules.chain(table, chain).map_or(&[][..], |chain| &chain.rules);
        let new = found
            .iter()
            .filter_map(of_rule)
            .filter(|known| seen.insert(known.at()));
        all.extend(new);
    }
    all
}

/// The Service of a rule, by its comment and what it matches.
pub fn of_rule(rule: &Rule) -> Option<Known> {
    let (service, port_name, words) = service_of(rule.comment()?)?;
    let protocol = match rule.protocol.as_ref()? {
        Is::Equal(Proto::Tcp) => Protocol::Tcp,
        Is::Equal(Proto::Udp) => Protocol::Udp,
        Is::Equal(Proto::Sctp) => Protocol::Sctp,
        _ => return None,
    };
    let port = rule.matches.iter().find_map(|one| match one {
        Match::Ports {
            dst: Some(Is::Equal(range)),
            ..
        } if range.first == range.last => Some(range.first),
        _ => None,
    })?;
    let ip = match &rule.dst {
        Some(Is::Equal(net)) if net.prefix_len() == net.max_prefix_len() => Some(net.addr()),
        Some(_) => return None,
        None => None,
    };
    let kind = match (ip, words) {
        (None, _) => Kind::NodePort,
        (Some(_), words) if words.contains("cluster IP") => Kind::ClusterIp,
        (Some(_), words) if words.contains("loadbalancer IP") => Kind::LoadBalancerIp,
        (Some(_), words) if words.contains("external IP") => Kind::ExternalIp,
        // Rules that refuse do not say which kind of address they are about.
        (Some(_), _) => Kind::ClusterIp,
    };
    Some(Known {
        service,
        port_name,
        kind,
        ip,
        port,
        protocol,
    })
}

/// `namespace/name:port words` of a comment. Port names come last, since no name has a colon.
pub fn service_of(comment: &str) -> Option<(ServiceName, String, &str)> {
    let (first, words) = comment.split_once(' ').unwrap_or((comment, ""));
    let (namespace, rest) = first.split_once('/')?;
    let (name, port) = rest.split_once(':').unwrap_or((rest, ""));
    let is_name = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
    };
    (is_name(namespace) && is_name(name)).then(|| (ServiceName::new(namespace, name), port.to_owned(), words))
}
