//! Services, in compact form, and their conversion.

use super::reading::{Reading, is_label};
use super::{Converted, Object, Scope, raw};
use crate::address::{parse_ip, parse_net, why_no_cluster_ip, why_no_destination, why_no_load_balancer};
use crate::{Affinity, Balancing, Family, PerFamily, Policy, Protocol, ServiceName};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// The label that hands a Service to another proxy, whatever its value.
pub const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// The annotation that says how connections are spread over endpoints (ADR 56).
pub const BALANCING_ANNOTATION: &str = "kube-proxy-rs.io/balancing";

/// Seconds of client-IP affinity when the object does not say (API server's default).
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;
/// Longest affinity the API allows, in seconds.
const MAX_AFFINITY_SECONDS: i64 = 86_400;

/// A Service, as far as the proxy looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub name: ServiceName,
    /// When it was created.
    pub created: Created,
    /// Why the proxy does not serve it; `None` when it does.
    pub skipped: Option<ServiceSkip>,
    /// Its type.
    pub kind: ServiceKind,
    /// The cluster IP of each family.
    pub cluster_ips: PerFamily<Option<IpAddr>>,
    /// External IPs of both families, in the object's order.
    pub external_ips: Box<[IpAddr]>,
    /// Load-balancer IPs (mode VIP) of both families, in the object's order.
    pub load_balancer_ips: Box<[IpAddr]>,
    /// Source ranges of both families, in the object's order, without host bits.
    pub source_ranges: Box<[IpNet]>,
    /// Client-IP affinity.
    pub affinity: Option<Affinity>,
    /// How connections are to be spread, where that is possible.
    pub balancing: Balancing,
    /// `internalTrafficPolicy`.
    pub internal: Policy,
    /// `externalTrafficPolicy`; `Cluster` when type and addresses give it no meaning (upstream `pkg/proxy/serviceport.go`).
    pub external: Policy,
    /// Health-check node port; only with type `LoadBalancer` and external policy Local.
    pub health_check_node_port: Option<u16>,
    /// Whether unready endpoints are published as ready. Only tools that explain look at it.
    pub publish_not_ready: bool,
    /// Its ports, sorted by name, then protocol.
    pub ports: Box<[ServicePort]>,
}

/// When an object was created: seconds since 1970. Unknown counts as youngest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Created(i64);

impl Created {
    /// Not said.
    pub const UNKNOWN: Created = Created(i64::MAX);

    /// From seconds since 1970.
    pub fn at(seconds: i64) -> Self {
        Created(seconds)
    }

    /// Seconds since 1970; `None` when it was not said.
    pub fn seconds(self) -> Option<i64> {
        (self != Created::UNKNOWN).then_some(self.0)
    }
}

/// Types of Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceKind {
    /// `ClusterIP`.
    #[default]
    ClusterIp,
    /// `NodePort`.
    NodePort,
    /// `LoadBalancer`.
    LoadBalancer,
    /// `ExternalName`.
    ExternalName,
}

/// Why a Service is not served: upstream's watch or its `ShouldSkipService` leaves it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceSkip {
    /// It carries the label `service.kubernetes.io/service-proxy-name`.
    OtherProxy,
    /// Its cluster IP is `None`.
    Headless,
    /// Its type is `ExternalName`.
    ExternalName,
    /// It has no cluster IP.
    NoClusterIp,
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServicePort {
    /// Its name, empty for an only port.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The port, never 0.
    pub port: u16,
    /// The node port, never 0.
    pub node_port: Option<u16>,
}

/// Converts a Service. Without a usable name there is no object.
pub fn convert(service: &raw::Service) -> Converted {
    let absent = raw::Meta::default();
    let meta = service.metadata.given().unwrap_or(&absent);
    let (mut reading, named) = super::begin("Service", meta, Scope::Namespaced, is_label);
    let object = named.map(|(namespace, name)| {
        let name = ServiceName::new(namespace, name);
        Object::Service(Box::new(read(&mut reading, name, meta, service)))
    });
    Converted {
        object,
        notes: reading.finish(),
    }
}

fn read(reading: &mut Reading, name: ServiceName, meta: &raw::Meta, service: &raw::Service) -> Service {
    let absent = raw::ServiceSpec::default();
    let spec = reading
        .take(&service.spec, format_args!("spec"))
        .unwrap_or(&absent);
    let kind = kind(reading, spec);
    let cluster_ips = cluster_ips(reading, spec);
    let skipped = skip(meta, spec, kind, &cluster_ips);
    // Upstream asks whether the list has entries at all, good or bad.
    let has_external_ips = spec.external_ips.given().is_some_and(|ips| !ips.is_empty());
    let external_meant = match kind {
        ServiceKind::NodePort | ServiceKind::LoadBalancer => true,
        ServiceKind::ClusterIp => has_external_ips,
        ServiceKind::ExternalName => false,
    };
    let external = policy(
        reading,
        &spec.external_traffic_policy,
        "spec.externalTrafficPolicy",
    );
    let external = if external_meant { external } else { Policy::Cluster };
    Service {
        name,
        created: super::created(reading, meta),
        skipped,
        kind,
        cluster_ips,
        external_ips: external_ips(reading, spec),
        load_balancer_ips: load_balancer_ips(reading, service),
        source_ranges: source_ranges(reading, spec),
        affinity: affinity(reading, spec),
        balancing: balancing(reading, meta),
        internal: policy(
            reading,
            &spec.internal_traffic_policy,
            "spec.internalTrafficPolicy",
        ),
        external,
        health_check_node_port: health_check(reading, spec, kind, external),
        publish_not_ready: spec.publish_not_ready_addresses.given() == Some(&true),
        ports: ports(reading, spec),
    }
}

fn kind(reading: &mut Reading, spec: &raw::ServiceSpec) -> ServiceKind {
    let text = reading.take(&spec.kind, format_args!("spec.type"));
    match text.map(String::as_str) {
        None | Some("ClusterIP" | "") => ServiceKind::ClusterIp,
        Some("NodePort") => ServiceKind::NodePort,
        Some("LoadBalancer") => ServiceKind::LoadBalancer,
        Some("ExternalName") => ServiceKind::ExternalName,
        Some(other) => {
            reading.bad(format_args!("spec.type"), other, "is no type of Service");
            ServiceKind::ClusterIp
        }
    }
}

fn skip(
    meta: &raw::Meta,
    spec: &raw::ServiceSpec,
    kind: ServiceKind,
    cluster_ips: &PerFamily<Option<IpAddr>>,
) -> Option<ServiceSkip> {
    let first = spec
        .cluster_ips
        .given()
        .and_then(|ips| ips.first())
        .and_then(super::Field::given);
    let cluster_ip = spec.cluster_ip.given().filter(|ip| !ip.is_empty()).or(first);
    if super::has_label(meta, PROXY_NAME_LABEL) {
        Some(ServiceSkip::OtherProxy)
    } else if kind == ServiceKind::ExternalName {
        Some(ServiceSkip::ExternalName)
    } else if cluster_ip.is_some_and(|ip| ip == "None") {
        Some(ServiceSkip::Headless)
    } else if cluster_ips.v4.is_none() && cluster_ips.v6.is_none() {
        Some(ServiceSkip::NoClusterIp)
    } else {
        None
    }
}

/// The cluster IP of each family: of `clusterIPs`, or of `clusterIP` alone, by `ipFamilies` where it is set
/// (upstream `GetClusterIPByFamily`).
fn cluster_ips(reading: &mut Reading, spec: &raw::ServiceSpec) -> PerFamily<Option<IpAddr>> {
    let mut texts = reading.items(&spec.cluster_ips, "spec.clusterIPs");
    let single = reading.take(&spec.cluster_ip, format_args!("spec.clusterIP"));
    if let (true, Some(ip)) = (texts.is_empty(), single) {
        texts.push((0, ip));
    }
    let families = families(reading, spec);
    let mut found: PerFamily<Option<IpAddr>> = PerFamily::default();
    for (i, text) in texts {
        if text.is_empty() || text == "None" {
            continue;
        }
        let path = format_args!("spec.clusterIPs[{i}]");
        let Some(ip) = parse_ip(text) else {
            reading.bad(path, text, "is no IP address");
            continue;
        };
        if let Some(reason) = why_no_cluster_ip(ip) {
            reading.bad(path, text, reason);
            continue;
        }
        let family = Family::of(ip);
        let slot = found.get_mut(family);
        match families.as_ref().map(|families| families.get(i)) {
            // Upstream sees no address where ipFamilies names none.
            Some(None) => {}
            Some(Some(meant)) if *meant != Some(family) => {
                let reason = format_args!("is {family}, which spec.ipFamilies[{i}] does not say").to_string();
                reading.bad(path, text, reason);
            }
            // The API server always sets ipFamilies; a manifest by hand may leave it to the addresses.
            None | Some(Some(_)) if slot.is_some() => {
                reading.bad(
                    path,
                    text,
                    format_args!("is a second {family} address").to_string(),
                );
            }
            None | Some(Some(_)) => *slot = Some(ip),
        }
    }
    found
}

/// `ipFamilies` by position; `None` when unset or empty.
fn families(reading: &mut Reading, spec: &raw::ServiceSpec) -> Option<Vec<Option<Family>>> {
    let mut families = Vec::new();
    for (i, text) in reading.items(&spec.ip_families, "spec.ipFamilies") {
        let family = Family::ALL.into_iter().find(|family| family.to_string() == *text);
        if family.is_none() {
            reading.bad(
                format_args!("spec.ipFamilies[{i}]"),
                text,
                "is neither IPv4 nor IPv6",
            );
        }
        families.resize(i, None);
        families.push(family);
    }
    (!families.is_empty()).then_some(families)
}

fn external_ips(reading: &mut Reading, spec: &raw::ServiceSpec) -> Box<[IpAddr]> {
    let mut ips = Vec::new();
    for (i, text) in reading.items(&spec.external_ips, "spec.externalIPs") {
        let path = format_args!("spec.externalIPs[{i}]");
        match parse_ip(text).map(|ip| (ip, why_no_destination(ip))) {
            Some((ip, None)) => ips.push(ip),
            Some((_, Some(reason))) => reading.bad(path, text, reason),
            None if text.trim().is_empty() => {}
            None => reading.bad(path, text, "is no IP address"),
        }
    }
    ips.into()
}

fn load_balancer_ips(reading: &mut Reading, service: &raw::Service) -> Box<[IpAddr]> {
    let Some(status) = reading.take(&service.status, format_args!("status")) else {
        return Box::default();
    };
    let Some(status) = reading.take(&status.load_balancer, format_args!("status.loadBalancer")) else {
        return Box::default();
    };
    let path = "status.loadBalancer.ingress";
    let mut ips = Vec::new();
    for (i, ingress) in reading.items(&status.ingress, path) {
        let Some(text) = reading.take(&ingress.ip, format_args!("{path}[{i}].ip")) else {
            continue;
        };
        let Some(mode) = super::optional(reading, &ingress.ip_mode, format_args!("{path}[{i}].ipMode"))
        else {
            continue;
        };
        match (mode.map(String::as_str), parse_ip(text)) {
            (_, None) if text.is_empty() => {}
            (_, None) => reading.bad(format_args!("{path}[{i}].ip"), text, "is no IP address"),
            (None | Some("VIP"), Some(ip)) => match why_no_load_balancer(ip) {
                None => ips.push(ip),
                Some(reason) => reading.bad(format_args!("{path}[{i}].ip"), text, reason),
            },
            (Some("Proxy"), Some(_)) => {}
            (Some(other), Some(_)) => {
                reading.bad(
                    format_args!("{path}[{i}].ipMode"),
                    other,
                    "is neither VIP nor Proxy",
                );
            }
        }
    }
    ips.into()
}

fn source_ranges(reading: &mut Reading, spec: &raw::ServiceSpec) -> Box<[IpNet]> {
    let path = "spec.loadBalancerSourceRanges";
    let mut ranges = Vec::new();
    for (i, text) in reading.items(&spec.load_balancer_source_ranges, path) {
        match parse_net(text.trim()) {
            Some(net) => ranges.push(net),
            None => reading.bad(
                format_args!("{path}[{i}]"),
                text,
                "is no network in CIDR notation",
            ),
        }
    }
    ranges.into()
}

fn affinity(reading: &mut Reading, spec: &raw::ServiceSpec) -> Option<Affinity> {
    let path = "spec.sessionAffinity";
    match reading
        .take(&spec.session_affinity, format_args!("{path}"))?
        .as_str()
    {
        "ClientIP" => {}
        "None" | "" => return None,
        other => {
            reading.bad(format_args!("{path}"), other, "is neither None nor ClientIP");
            return None;
        }
    }
    let path = "spec.sessionAffinityConfig";
    let seconds = reading
        .take(&spec.session_affinity_config, format_args!("{path}"))
        .and_then(|config| reading.take(&config.client_ip, format_args!("{path}.clientIP")))
        .and_then(|config| {
            reading.take(
                &config.timeout_seconds,
                format_args!("{path}.clientIP.timeoutSeconds"),
            )
        });
    let timeout_seconds = match seconds {
        None => DEFAULT_AFFINITY_SECONDS,
        Some(seconds) => u32::try_from(*seconds)
            .ok()
            .filter(|_| (1..=MAX_AFFINITY_SECONDS).contains(seconds))
            .unwrap_or_else(|| {
                let reason = format_args!(
                    "is not in 1..={MAX_AFFINITY_SECONDS}; {DEFAULT_AFFINITY_SECONDS} seconds are used"
                )
                .to_string();
                reading.bad(format_args!("{path}.clientIP.timeoutSeconds"), seconds, reason);
                DEFAULT_AFFINITY_SECONDS
            }),
    };
    Some(Affinity { timeout_seconds })
}

fn balancing(reading: &mut Reading, meta: &raw::Meta) -> Balancing {
    // What is wrong with annotations as such is no matter of a Service that needs none.
    let annotation = meta.annotations.given();
    let Some(field) = annotation.and_then(|all| all.get(BALANCING_ANNOTATION)) else {
        return Balancing::Random;
    };
    let path = format_args!("metadata.annotations[{BALANCING_ANNOTATION}]");
    match reading.take(field, path).map(String::as_str) {
        None | Some("random") => Balancing::Random,
        Some("client-hash") => Balancing::ClientHash,
        Some(other) => {
            reading.bad(
                path,
                other,
                "is neither random nor client-hash; endpoints are chosen at random",
            );
            Balancing::Random
        }
    }
}

fn policy(reading: &mut Reading, field: &super::Field<String>, path: &str) -> Policy {
    match reading.take(field, format_args!("{path}")).map(String::as_str) {
        None | Some("Cluster" | "") => Policy::Cluster,
        Some("Local") => Policy::Local,
        Some(other) => {
            reading.bad(format_args!("{path}"), other, "is neither Cluster nor Local");
            Policy::Cluster
        }
    }
}

fn health_check(
    reading: &mut Reading,
    spec: &raw::ServiceSpec,
    kind: ServiceKind,
    external: Policy,
) -> Option<u16> {
    let path = format_args!("spec.healthCheckNodePort");
    let number = reading
        .take(&spec.health_check_node_port, path)
        .copied()
        .unwrap_or(0);
    if kind != ServiceKind::LoadBalancer || external != Policy::Local {
        return None;
    }
    let port = super::port_number(number);
    if port.is_none() {
        reading.bad(
            path,
            number,
            "is no port: load balancers cannot ask for local endpoints",
        );
    }
    port
}

fn ports(reading: &mut Reading, spec: &raw::ServiceSpec) -> Box<[ServicePort]> {
    let mut ports: Vec<ServicePort> = Vec::new();
    for (i, port) in reading.items(&spec.ports, "spec.ports") {
        let Some(port) = read_port(reading, i, port) else {
            continue;
        };
        let same_name = |other: &&ServicePort| (&other.name, other.protocol) == (&port.name, port.protocol);
        let same_number = |other: &&ServicePort| (other.port, other.protocol) == (port.port, port.protocol);
        if ports.iter().any(|other| same_name(&other)) {
            let reason = "is the name of an earlier port of the same protocol";
            reading.bad(format_args!("spec.ports[{i}].name"), &port.name, reason);
        } else if ports.iter().any(|other| same_number(&other)) {
            let reason = "is an earlier port of the same protocol";
            reading.bad(format_args!("spec.ports[{i}].port"), port.port, reason);
        } else {
            ports.push(port);
        }
    }
    ports.sort();
    ports.into()
}

fn read_port(reading: &mut Reading, i: usize, port: &raw::ServicePort) -> Option<ServicePort> {
    let name = super::optional(reading, &port.name, format_args!("spec.ports[{i}].name"))?;
    let name = name.map_or("", String::as_str);
    if !name.is_empty() && !is_label(name) {
        reading.bad(format_args!("spec.ports[{i}].name"), name, "is no DNS label");
        return None;
    }
    let protocol = super::protocol(reading, &port.protocol, format_args!("spec.ports[{i}].protocol"))?;
    let number = super::optional(reading, &port.port, format_args!("spec.ports[{i}].port"))?;
    let number = number.copied().unwrap_or(0);
    let Some(number) = super::port_number(number) else {
        reading.bad(
            format_args!("spec.ports[{i}].port"),
            number,
            "is not in 1..=65535",
        );
        return None;
    };
    let path = format_args!("spec.ports[{i}].nodePort");
    let node_port = match reading.take(&port.node_port, path) {
        None | Some(0) => None,
        Some(node_port) => {
            let usable = super::port_number(*node_port);
            if usable.is_none() {
                reading.bad(path, node_port, "is not in 1..=65535");
            }
            usable
        }
    };
    Some(ServicePort {
        name: Arc::from(name),
        protocol,
        port: number,
        node_port,
    })
}
