//! What a change changes, in a line.

use model::object::{Object, Service, ServiceKind, Slice, SliceEndpoint};
use model::{Family, Policy};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;

/// Parts that are told; of more, only how many there are.
const MOST_PARTS: usize = 6;

/// What there was becomes what there is now. `None` when nothing is different that anybody would look for.
pub(crate) fn words(before: Option<&Object>, after: Option<&Object>) -> Option<String> {
    let parts = match (before, after) {
        (None, None) => return None,
        (Some(_), None) => return Some("went".to_owned()),
        (None, Some(now)) => return Some(came(now)),
        (Some(Object::Service(old)), Some(Object::Service(new))) => services(old, new),
        (Some(Object::Slice(old)), Some(Object::Slice(new))) => slices(old, new),
        (Some(old), Some(new)) if old == new => Vec::new(),
        (Some(_), Some(_)) => vec!["changed".to_owned()],
    };
    (!parts.is_empty()).then(|| joined(&parts))
}

fn came(object: &Object) -> String {
    match object {
        Object::Service(service) => {
            let ports = ports(service);
            let ips = cluster_ips(service);
            format!("came: {} {ips}, {ports}", kind(service.kind))
        }
        Object::Slice(slice) => {
            let ready = slice.endpoints.iter().filter(|one| one.conditions.ready).count();
            format!("came: {} endpoints, {ready} ready", slice.endpoints.len())
        }
        Object::Node(_) | Object::ServiceCidr(_) => "came".to_owned(),
    }
}

fn joined(parts: &[String]) -> String {
    let told = parts
        .iter()
        .take(MOST_PARTS)
        .map(String::as_str)
        .collect::<Vec<_>>();
    match parts.len().saturating_sub(MOST_PARTS) {
        0 => told.join("; "),
        more => format!("{}; and {more} more", told.join("; ")),
    }
}

fn services(old: &Service, new: &Service) -> Vec<String> {
    let mut parts = Vec::new();
    let mut differs = |what: &str, before: String, after: String| {
        if before != after {
            parts.push(format!("{what} {before} → {after}"));
        }
    };
    differs("type", kind(old.kind).to_owned(), kind(new.kind).to_owned());
    differs("cluster IP", cluster_ips(old), cluster_ips(new));
    differs("ports", ports(old), ports(new));
    differs("external IPs", list(&old.external_ips), list(&new.external_ips));
    differs(
        "load balancer",
        list(&old.load_balancer_ips),
        list(&new.load_balancer_ips),
    );
    differs(
        "source ranges",
        list(&old.source_ranges),
        list(&new.source_ranges),
    );
    differs("internal policy", policy(old.internal), policy(new.internal));
    differs("external policy", policy(old.external), policy(new.external));
    let affinity = |service: &Service| {
        service.affinity.map_or_else(
            || "none".to_owned(),
            |it| format!("ClientIP {} s", it.timeout_seconds),
        )
    };
    differs("affinity", affinity(old), affinity(new));
    let health = |service: &Service| {
        service
            .health_check_node_port
            .map_or_else(|| "none".to_owned(), |port| port.to_string())
    };
    differs("health-check node port", health(old), health(new));
    if parts.is_empty() && old != new {
        parts.push("changed".to_owned());
    }
    parts
}

fn slices(old: &Slice, new: &Slice) -> Vec<String> {
    let mut parts = Vec::new();
    if old.service != new.service {
        parts.push("belongs to another Service".to_owned());
    }
    let of_slice = |slice: &Slice| {
        let all = slice.ports.iter().map(|port| {
            let name = if port.name.is_empty() { "" } else { &*port.name };
            format!("{name} {}/{}", port.port, port.protocol)
                .trim_start()
                .to_owned()
        });
        all.collect::<Vec<_>>().join(", ")
    };
    if old.ports != new.ports {
        parts.push(format!("ports {} → {}", of_slice(old), of_slice(new)));
    }
    let before = by_ip(old);
    let after = by_ip(new);
    for (ip, now) in &after {
        match before.get(ip) {
            None => parts.push(format!("+ {ip} {}", state(now))),
            Some(was) if was.conditions != now.conditions => {
                parts.push(format!("{ip} {} → {}", state(was), state(now)));
            }
            Some(was) if was.place != now.place => {
                parts.push(format!("{ip} has another place or other hints"));
            }
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|ip| !after.contains_key(*ip));
    parts.extend(gone.map(|ip| format!("− {ip}")));
    parts
}

fn by_ip(slice: &Slice) -> BTreeMap<IpAddr, &SliceEndpoint> {
    slice.endpoints.iter().map(|one| (one.ip, one)).collect()
}

/// An endpoint's state in a word that programs read. Stable.
pub(crate) fn state_kind(endpoint: &SliceEndpoint) -> &'static str {
    let conditions = endpoint.conditions;
    match (conditions.ready, conditions.serving, conditions.terminating) {
        (true, _, _) => "ready",
        (false, true, true) => "serving-while-terminating",
        (false, false, true) => "terminating",
        (false, _, false) => "not-ready",
    }
}

/// An endpoint's state in a word or two.
pub(crate) fn state(endpoint: &SliceEndpoint) -> &'static str {
    let conditions = endpoint.conditions;
    match (conditions.ready, conditions.serving, conditions.terminating) {
        (true, _, _) => "ready",
        (false, true, true) => "terminating, serving",
        (false, false, true) => "terminating",
        (false, _, false) => "not ready",
    }
}

pub(crate) fn kind(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::ClusterIp => "ClusterIP",
        ServiceKind::NodePort => "NodePort",
        ServiceKind::LoadBalancer => "LoadBalancer",
        ServiceKind::ExternalName => "ExternalName",
    }
}

pub(crate) fn policy(policy: Policy) -> String {
    match policy {
        Policy::Cluster => "Cluster".to_owned(),
        Policy::Local => "Local".to_owned(),
    }
}

pub(crate) fn ports(service: &Service) -> String {
    let port = |port: &model::object::ServicePort| match port.node_port {
        Some(node_port) => format!("{}:{node_port}/{}", port.port, port.protocol),
        None => format!("{}/{}", port.port, port.protocol),
    };
    service.ports.iter().map(port).collect::<Vec<_>>().join(", ")
}

fn cluster_ips(service: &Service) -> String {
    let ips: Vec<IpAddr> = Family::ALL
        .into_iter()
        .filter_map(|family| *service.cluster_ips.get(family))
        .collect();
    list(&ips)
}

fn list<T: Display>(all: &[T]) -> String {
    if all.is_empty() {
        return "none".to_owned();
    }
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
