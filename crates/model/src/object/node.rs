//! Nodes and `ServiceCIDRs`, in compact form, and their conversion.

use super::reading::{Reading, is_subdomain};
use super::{Converted, Object, Scope, raw};
use crate::NodeFacts;
use crate::address::{parse_ip, parse_net, why_no_service_cidr};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// The label that names a Node's zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// The taint, of any value and effect, of a Node that the cluster autoscaler is about to delete.
pub const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// A Node, as far as the proxy looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name.
    pub name: Arc<str>,
    /// The label `topology.kubernetes.io/zone`.
    pub zone: Option<Arc<str>>,
    /// `InternalIPs` in order, then `ExternalIPs` (upstream `GetNodeHostIPs`).
    pub addresses: Box<[IpAddr]>,
    /// `spec.podCIDRs`, in order, without host bits.
    pub pod_cidrs: Box<[IpNet]>,
    /// Whether load balancers should still send here.
    pub eligibility: Eligibility,
}

/// Whether a Node is a good target for load balancers: not while it is deleted, or tainted
/// `ToBeDeletedByClusterAutoscaler` (KEP-3836).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Eligibility {
    /// It is.
    Eligible,
    /// It has a deletion timestamp.
    Deleting,
    /// It has the cluster autoscaler's taint.
    ToBeDeleted,
}

impl Node {
    /// Writes what this object says into the facts: name, zone, pod CIDRs.
    ///
    /// Addresses are not among them: configuration has a say there.
    pub fn tell(&self, facts: &mut NodeFacts) {
        facts.name = self.name.clone();
        facts.zone.clone_from(&self.zone);
        facts.pod_cidrs = self.pod_cidrs.to_vec();
    }
}

/// A `ServiceCIDR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCidr {
    /// Name.
    pub name: Arc<str>,
    /// Its networks, without host bits.
    pub cidrs: Box<[IpNet]>,
}

/// Converts a Node. Without a usable name there is no object.
pub fn convert_node(node: &raw::Node) -> Converted {
    let absent = raw::Meta::default();
    let meta = node.metadata.given().unwrap_or(&absent);
    let (mut reading, named) = super::begin("Node", meta, Scope::ClusterWide, is_subdomain);
    let object = named.map(|(_, name)| Object::Node(read_node(&mut reading, Arc::from(name), meta, node)));
    Converted {
        object,
        notes: reading.finish(),
    }
}

fn read_node(reading: &mut Reading, name: Arc<str>, meta: &raw::Meta, node: &raw::Node) -> Node {
    let absent = raw::NodeSpec::default();
    let spec = reading.take(&node.spec, format_args!("spec")).unwrap_or(&absent);
    let taints = reading.items(&spec.taints, "spec.taints");
    let tainted = taints
        .iter()
        .any(|(_, taint)| taint.key.given().is_some_and(|key| key == AUTOSCALER_TAINT));
    let eligibility = if meta.deletion_timestamp.given().is_some() {
        Eligibility::Deleting
    } else if tainted {
        Eligibility::ToBeDeleted
    } else {
        Eligibility::Eligible
    };
    let zone = meta.labels.given().and_then(|labels| labels.get(ZONE_LABEL));
    let zone = zone.and_then(|zone| reading.take(zone, format_args!("metadata.labels[{ZONE_LABEL}]")));
    Node {
        name,
        zone: zone.map(|zone| Arc::from(zone.as_str())),
        addresses: addresses(reading, node),
        pod_cidrs: pod_cidrs(reading, spec),
        eligibility,
    }
}

fn addresses(reading: &mut Reading, node: &raw::Node) -> Box<[IpAddr]> {
    let Some(status) = reading.take(&node.status, format_args!("status")) else {
        return Box::default();
    };
    let items = reading.items(&status.addresses, "status.addresses");
    let mut ips = Vec::new();
    for kind in ["InternalIP", "ExternalIP"] {
        for (i, address) in &items {
            if address.kind.given().is_none_or(|found| found != kind) {
                continue;
            }
            let path = format_args!("status.addresses[{i}].address");
            let Some(text) = reading.take(&address.address, path) else {
                continue;
            };
            match parse_ip(text) {
                Some(ip) => ips.push(ip),
                None => reading.bad(path, text, "is no IP address"),
            }
        }
    }
    ips.into()
}

fn pod_cidrs(reading: &mut Reading, spec: &raw::NodeSpec) -> Box<[IpNet]> {
    let mut texts = reading.items(&spec.pod_cidrs, "spec.podCIDRs");
    if texts.is_empty() {
        let single = reading.take(&spec.pod_cidr, format_args!("spec.podCIDR"));
        texts.extend(single.filter(|text| !text.is_empty()).map(|text| (0, text)));
    }
    nets(reading, &texts, "spec.podCIDRs")
}

/// Converts a `ServiceCIDR`. Without a usable name there is no object.
pub fn convert_service_cidr(cidr: &raw::ServiceCidr) -> Converted {
    let absent = raw::Meta::default();
    let meta = cidr.metadata.given().unwrap_or(&absent);
    let (mut reading, named) = super::begin("ServiceCIDR", meta, Scope::ClusterWide, is_subdomain);
    let object = named.map(|(_, name)| {
        let texts = match reading.take(&cidr.spec, format_args!("spec")) {
            Some(spec) => reading.items(&spec.cidrs, "spec.cidrs"),
            None => Vec::new(),
        };
        Object::ServiceCidr(ServiceCidr {
            name: Arc::from(name),
            cidrs: service_nets(&mut reading, &texts),
        })
    });
    Converted {
        object,
        notes: reading.finish(),
    }
}

fn service_nets(reading: &mut Reading, texts: &[(usize, &String)]) -> Box<[IpNet]> {
    let path = "spec.cidrs";
    let mut good = Vec::new();
    for (i, text) in texts {
        match parse_net(text).as_ref().and_then(why_no_service_cidr) {
            Some(reason) => reading.bad(format_args!("{path}[{i}]"), text, reason),
            None => good.push((*i, *text)),
        }
    }
    nets(reading, &good, path)
}

fn nets(reading: &mut Reading, texts: &[(usize, &String)], path: &str) -> Box<[IpNet]> {
    let mut nets = Vec::new();
    for (i, text) in texts {
        match parse_net(text) {
            Some(net) => nets.push(net),
            None => reading.bad(
                format_args!("{path}[{i}]"),
                text,
                "is no network in CIDR notation",
            ),
        }
    }
    nets.into()
}
