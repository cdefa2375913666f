//! The objects as they were converted, as text.

use super::{listed, policy, port_words};
use crate::object::{
    Eligibility, Node, Service, ServiceCidr, ServiceKind, ServicePort, ServiceSkip, Slice, SliceEndpoint,
    SliceSkip,
};
use crate::snapshot::Snapshot;
use crate::{Balancing, Family};
use std::fmt::{self, Write};

/// The objects of a snapshot: Nodes, `ServiceCIDRs`, Services, `EndpointSlices`, each kind by name.
///
/// Objects that are not served are there with the reason. Who has which address and port of several that ask for it
/// follows from the objects, and shows in what traffic should do.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotText<'a>(pub &'a Snapshot);

impl fmt::Display for SnapshotText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.nodes().try_for_each(|of| node(f, of))?;
        self.0.service_cidrs().try_for_each(|of| service_cidr(f, of))?;
        self.0.services().try_for_each(|of| service(f, of))?;
        self.0.slices().try_for_each(|of| slice(f, of))
    }
}

fn node(f: &mut fmt::Formatter<'_>, node: &Node) -> fmt::Result {
    writeln!(f, "Node {}", node.name)?;
    if let Some(zone) = &node.zone {
        writeln!(f, "  zone {zone}")?;
    }
    for address in &node.addresses {
        writeln!(f, "  address {address}")?;
    }
    for cidr in &node.pod_cidrs {
        writeln!(f, "  pods {cidr}")?;
    }
    match node.eligibility {
        Eligibility::Eligible => Ok(()),
        Eligibility::Deleting => writeln!(f, "  is being deleted"),
        Eligibility::ToBeDeleted => writeln!(f, "  is about to be deleted by the autoscaler"),
    }
}

fn service_cidr(f: &mut fmt::Formatter<'_>, of: &ServiceCidr) -> fmt::Result {
    writeln!(f, "ServiceCIDR {}", of.name)?;
    of.cidrs
        .iter()
        .try_for_each(|cidr| writeln!(f, "  services {cidr}"))
}

fn service(f: &mut fmt::Formatter<'_>, service: &Service) -> fmt::Result {
    let kind = match service.kind {
        ServiceKind::ClusterIp => "ClusterIP",
        ServiceKind::NodePort => "NodePort",
        ServiceKind::LoadBalancer => "LoadBalancer",
        ServiceKind::ExternalName => "ExternalName",
    };
    writeln!(f, "Service {} {kind}", service.name)?;
    if let Some(skip) = service.skipped {
        let why = match skip {
            ServiceSkip::OtherProxy => "another proxy's",
            ServiceSkip::Headless => "headless",
            ServiceSkip::ExternalName => "an external name",
            ServiceSkip::NoClusterIp => "no cluster IP",
        };
        writeln!(f, "  not served: {why}")?;
    }
    if let Some(seconds) = service.created.seconds() {
        writeln!(f, "  created {seconds}")?;
    }
    let (internal, external) = (policy(service.internal), policy(service.external));
    writeln!(f, "  policy internal {internal}, external {external}")?;
    if let Some(affinity) = service.affinity {
        writeln!(f, "  affinity {} s", affinity.timeout_seconds)?;
    }
    match service.balancing {
        Balancing::Random => {}
        Balancing::ClientHash => writeln!(f, "  to be balanced by the client's address")?,
    }
    if service.publish_not_ready {
        writeln!(f, "  publishes endpoints that are not ready")?;
    }
    addresses(f, service)?;
    service.ports.iter().try_for_each(|port| service_port(f, port))
}

fn addresses(f: &mut fmt::Formatter<'_>, service: &Service) -> fmt::Result {
    for ip in Family::ALL
        .iter()
        .filter_map(|family| *service.cluster_ips.get(*family))
    {
        writeln!(f, "  cluster IP {ip}")?;
    }
    for ip in &service.external_ips {
        writeln!(f, "  external IP {ip}")?;
    }
    for ip in &service.load_balancer_ips {
        writeln!(f, "  load-balancer IP {ip}")?;
    }
    for range in &service.source_ranges {
        writeln!(f, "  source range {range}")?;
    }
    if let Some(port) = service.health_check_node_port {
        writeln!(f, "  health check node port {port}")?;
    }
    Ok(())
}

fn service_port(f: &mut fmt::Formatter<'_>, port: &ServicePort) -> fmt::Result {
    f.write_str("  port ")?;
    port_words(f, &port.name, port.protocol)?;
    write!(f, " {}", port.port)?;
    if let Some(node_port) = port.node_port {
        write!(f, ", node port {node_port}")?;
    }
    writeln!(f)
}

fn slice(f: &mut fmt::Formatter<'_>, slice: &Slice) -> fmt::Result {
    write!(f, "EndpointSlice {}/{}", slice.name.namespace, slice.name.name)?;
    if let Some(service) = &slice.service {
        write!(f, " of {service}")?;
    }
    if let Some(family) = slice.family {
        write!(f, " {family}")?;
    }
    writeln!(f)?;
    if let Some(skip) = slice.skipped {
        let why = match skip {
            SliceSkip::Headless => "headless",
            SliceSkip::NoOwner => "no service is named",
            SliceSkip::AddressType => "its address type",
        };
        writeln!(f, "  not served: {why}")?;
    }
    for port in &slice.ports {
        f.write_str("  port ")?;
        port_words(f, &port.name, port.protocol)?;
        writeln!(f, " {}", port.port)?;
    }
    slice.endpoints.iter().try_for_each(|of| endpoint(f, of))
}

fn endpoint(f: &mut fmt::Formatter<'_>, endpoint: &SliceEndpoint) -> fmt::Result {
    write!(f, "  endpoint {}", endpoint.ip)?;
    let conditions = endpoint.conditions;
    let words = [
        (conditions.ready, "ready"),
        (conditions.serving, "serving"),
        (conditions.terminating, "terminating"),
    ];
    for (_, word) in words.iter().filter(|(holds, _)| *holds) {
        write!(f, " {word}")?;
    }
    if let Some(node) = &endpoint.node {
        write!(f, ", on {node}")?;
    }
    if let Some(hints) = &endpoint.hints {
        hinted(f, "zones", &hints.zones)?;
        hinted(f, "nodes", &hints.nodes)?;
    }
    f.write_char('\n')
}

fn hinted(f: &mut fmt::Formatter<'_>, what: &str, names: &[std::sync::Arc<str>]) -> fmt::Result {
    if names.is_empty() {
        return Ok(());
    }
    write!(f, ", for {what} ")?;
    listed(f, names)
}
