//! What traffic should do, as text.

use super::{listed, policy, port_title};
use crate::desired::{
    Admission, Balancing, Desired, DesiredNode, DesiredPort, Frontend, FrontendKind, List, NodePortTargets,
    Reason, Route,
};
use crate::settings::LocalDetector;
use std::fmt;
use std::net::SocketAddr;

/// One family's intent: the node's part, then each service port with its endpoints and frontends.
///
/// ```text
/// IPv4
/// mark 0x4000
/// pods from 10.244.0.0/16
/// node ports on every local address, loopback too
///
/// shop/web:http TCP
///   policy internal Cluster, external Local
///   listed endpoints 2
///   endpoint 10.244.1.5:8080 in cluster,local,reachable
///   endpoint 10.244.2.7:8080 in cluster,reachable
///   cluster IP 10.96.0.9:80 from pod: cluster list, source kept (ClusterIpFromPod)
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DesiredText<'a>(pub &'a Desired);

impl fmt::Display for DesiredText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        node(f, &self.0.node)?;
        for service in self.0.services.values() {
            for of in &service.ports {
                writeln!(f)?;
                port(f, of)?;
            }
        }
        Ok(())
    }
}

fn node(f: &mut fmt::Formatter<'_>, node: &DesiredNode) -> fmt::Result {
    writeln!(f, "{}", node.family)?;
    writeln!(f, "mark {:#x}", node.mark.value())?;
    match &node.detector {
        None => writeln!(f, "pods cannot be told from others")?,
        Some(LocalDetector::Cidr(net)) => writeln!(f, "pods from {net}")?,
        Some(LocalDetector::Bridge(name)) => writeln!(f, "pods through interface {name}")?,
        Some(LocalDetector::InterfacePrefix(prefix)) => writeln!(f, "pods through interfaces {prefix}*")?,
    }
    let loopback = if node.localhost_node_ports {
        "loopback too"
    } else {
        "loopback not"
    };
    match &node.node_ports {
        NodePortTargets::AllLocal => writeln!(f, "node ports on every local address, {loopback}"),
        NodePortTargets::Only(addresses) if addresses.is_empty() => writeln!(f, "node ports nowhere"),
        NodePortTargets::Only(addresses) => {
            for address in addresses {
                writeln!(f, "node ports on {address}, {loopback}")?;
            }
            Ok(())
        }
    }
}

fn port(f: &mut fmt::Formatter<'_>, port: &DesiredPort) -> fmt::Result {
    port_title(f, &port.name)?;
    writeln!(f)?;
    let (internal, external) = (policy(port.internal), policy(port.external));
    writeln!(f, "  policy internal {internal}, external {external}")?;
    if let Some(affinity) = port.affinity {
        writeln!(f, "  affinity {} s", affinity.timeout_seconds)?;
    }
    match port.balancing {
        Balancing::Random => {}
        Balancing::ClientHash => writeln!(f, "  balanced by the client's address")?,
    }
    if let Some(health) = port.health_check_node_port {
        writeln!(f, "  health check node port {health}")?;
    }
    writeln!(f, "  listed endpoints {}", port.listed_endpoints)?;
    endpoints(f, port)?;
    port.frontends.iter().try_for_each(|of| frontend(f, of))
}

/// Each endpoint once, with the lists it is in, in the order of the lists.
fn endpoints(f: &mut fmt::Formatter<'_>, port: &DesiredPort) -> fmt::Result {
    let lists = [
        ("cluster", &port.cluster),
        ("local", &port.local),
        ("reachable", &port.reachable),
    ];
    let mut all: Vec<(String, SocketAddr)> = lists
        .iter()
        .flat_map(|(_, list)| list.iter().map(|endpoint| (endpoint.to_string(), *endpoint)))
        .collect();
    all.sort_unstable();
    all.dedup();
    for (text, endpoint) in all {
        write!(f, "  endpoint {text} in ")?;
        let within = lists.iter().filter(|(_, list)| list.contains(&endpoint));
        listed(f, within.map(|(name, _)| name))?;
        writeln!(f)?;
    }
    Ok(())
}

fn frontend(f: &mut fmt::Formatter<'_>, of: &Frontend) -> fmt::Result {
    let routes = [
        ("pod", of.routes.pod),
        ("node", of.routes.node),
        ("outside", of.routes.outside),
    ];
    for (source, route) in routes {
        write!(f, "  {} from {source}: ", Title(of))?;
        self::route(f, route)?;
        writeln!(f)?;
    }
    of.admission
        .as_ref()
        .map_or(Ok(()), |admitted| admission(f, of, admitted))
}

/// The kind of frontend, with address and port.
struct Title<'a>(&'a Frontend);

impl fmt::Display for Title<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0.port;
        match self.0.kind {
            FrontendKind::ClusterIp(ip) => write!(f, "cluster IP {}", SocketAddr::new(ip, port)),
            FrontendKind::ExternalIp(ip) => write!(f, "external IP {}", SocketAddr::new(ip, port)),
            FrontendKind::LoadBalancerIp(ip) => write!(f, "load-balancer IP {}", SocketAddr::new(ip, port)),
            FrontendKind::NodePort => write!(f, "node port {port}"),
        }
    }
}

fn route(f: &mut fmt::Formatter<'_>, route: Route) -> fmt::Result {
    match route {
        Route::Endpoints {
            list,
            masquerade,
            reason,
        } => {
            let list = match list {
                List::Cluster => "cluster",
                List::Local => "local",
            };
            let source = if masquerade { "masqueraded" } else { "source kept" };
            write!(f, "{list} list, {source} ({})", word(reason))
        }
        Route::Reject(reason) => write!(f, "reject ({})", word(reason)),
        Route::Drop(reason) => write!(f, "drop ({})", word(reason)),
    }
}

fn admission(f: &mut fmt::Formatter<'_>, of: &Frontend, admitted: &Admission) -> fmt::Result {
    for range in &admitted.ranges {
        writeln!(f, "  {} admits {range}", Title(of))?;
    }
    for ip in &admitted.self_sources {
        writeln!(f, "  {} admits {ip}, the node as itself", Title(of))?;
    }
    if admitted.ranges.is_empty() && admitted.self_sources.is_empty() {
        writeln!(f, "  {} admits nobody", Title(of))?;
    }
    Ok(())
}

/// A reason's word: the name it has in the code.
fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::NoEndpoints => "NoEndpoints",
        Reason::NoLocalEndpoints => "NoLocalEndpoints",
        Reason::ClusterIpFromPod => "ClusterIpFromPod",
        Reason::ClusterIpOffCluster => "ClusterIpOffCluster",
        Reason::ClusterIpUndetected => "ClusterIpUndetected",
        Reason::MasqueradeAll => "MasqueradeAll",
        Reason::ExternalCluster => "ExternalCluster",
        Reason::ExternalLocal => "ExternalLocal",
        Reason::ShortCircuitPod => "ShortCircuitPod",
        Reason::ShortCircuitNode => "ShortCircuitNode",
    }
}
