//! `EndpointSlices`, in compact form, and their conversion.

use super::reading::{Reading, is_label, is_subdomain};
use super::{Converted, Field, Object, Scope, raw};
use crate::address::{parse_ip, why_no_destination};
use crate::{Family, Protocol, ServiceName, SliceName};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

/// The label that names the Service a slice belongs to.
pub const OWNER_LABEL: &str = "kubernetes.io/service-name";
/// The label, of any value, that keeps a slice from proxies. Upstream's watch leaves such slices out.
pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// The annotation in which whoever wrote a slice says when what made it do so happened.
pub const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// When what led to a slice's last change happened, as its writer says. Means nothing to traffic; latency is counted
/// from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TriggerTime {
    nanos: i64,
}

impl TriggerTime {
    /// Reads RFC 3339; `None` for anything else and for times beyond the years 1677 to 2262.
    pub fn parse(text: &str) -> Option<TriggerTime> {
        let time: jiff::Timestamp = text.parse().ok()?;
        let nanos = i64::try_from(time.as_nanosecond()).ok()?;
        Some(TriggerTime { nanos })
    }

    /// Nanoseconds since 1970.
    pub fn since_1970(self) -> i64 {
        self.nanos
    }

    /// Seconds since 1970, to about a microsecond.
    #[expect(clippy::cast_precision_loss, reason = "a microsecond is enough for a latency")]
    pub fn seconds(self) -> f64 {
        self.nanos as f64 / 1e9
    }
}

/// An `EndpointSlice`, as far as the proxy looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Namespace and name.
    pub name: SliceName,
    /// The Service it belongs to, by label, whether skipped or not.
    pub service: Option<ServiceName>,
    /// Why the proxy does not read it; `None` when it does.
    pub skipped: Option<SliceSkip>,
    /// The family of its addresses; `None` for FQDN and for junk.
    pub family: Option<Family>,
    /// When what led to its last change happened, when said.
    pub triggered: Option<TriggerTime>,
    /// Its ports, in the object's order.
    pub ports: Box<[SlicePort]>,
    /// Its endpoints, in the object's order. Invariant: all addresses are of `family`.
    pub endpoints: Box<[SliceEndpoint]>,
}

/// Why a slice is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SliceSkip {
    /// It carries the label `service.kubernetes.io/headless`: the watch leaves it out.
    Headless,
    /// It has no label `kubernetes.io/service-name`, or an empty one.
    NoOwner,
    /// Its address type is FQDN, or no known one.
    AddressType,
}

/// One port of a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlicePort {
    /// Its name, which is the Service port's name.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The endpoints' port, never 0.
    pub port: u16,
}

/// One endpoint of a slice. Kept small: a cluster has 100,000 of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SliceEndpoint {
    /// Its address.
    pub ip: IpAddr,
    /// Its state.
    pub conditions: Conditions,
    /// Where it is: what it says of that reads as its own.
    pub place: Arc<Place>,
}

/// Where endpoints are. Many are in one place, and share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The Node they are on, when said.
    pub node: Option<Arc<str>>,
    /// For whom they are meant, when said.
    pub hints: Option<Arc<Hints>>,
}

impl Deref for SliceEndpoint {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

/// An endpoint's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conditions {
    /// Ready for traffic. Absent means true.
    pub ready: bool,
    /// Able to serve, whether terminating or not. Absent means true.
    pub serving: bool,
    /// Being deleted. Absent means false.
    pub terminating: bool,
}

impl Conditions {
    /// Whether it may get traffic when no endpoint is ready.
    pub fn is_fallback(self) -> bool {
        self.serving && self.terminating
    }

    /// Whether it may get traffic at all.
    pub fn is_usable(self) -> bool {
        self.ready || self.is_fallback()
    }
}

/// For whom an endpoint is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hints {
    /// Zones.
    pub zones: Box<[Arc<str>]>,
    /// Nodes.
    pub nodes: Box<[Arc<str>]>,
}

/// Converts an `EndpointSlice`. Without a usable name there is no object.
pub fn convert(slice: &raw::EndpointSlice) -> Converted {
    let absent = raw::Meta::default();
    let meta = slice.metadata.given().unwrap_or(&absent);
    let (mut reading, named) = super::begin("EndpointSlice", meta, Scope::Namespaced, is_subdomain);
    let object = named.map(|(namespace, name)| {
        let name = SliceName::new(namespace, name);
        Object::Slice(Box::new(read(&mut reading, name, meta, slice)))
    });
    Converted {
        object,
        notes: reading.finish(),
    }
}

fn read(reading: &mut Reading, name: SliceName, meta: &raw::Meta, slice: &raw::EndpointSlice) -> Slice {
    let service = owner(reading, &name, meta);
    let family = family(reading, slice);
    let skipped = if super::has_label(meta, HEADLESS_LABEL) {
        Some(SliceSkip::Headless)
    } else if service.is_none() {
        Some(SliceSkip::NoOwner)
    } else if family.is_none() {
        Some(SliceSkip::AddressType)
    } else {
        None
    };
    Slice {
        name,
        service,
        skipped,
        family,
        triggered: triggered(reading, meta),
        ports: ports(reading, slice),
        endpoints: family.map_or_else(Box::default, |family| endpoints(reading, slice, family)),
    }
}

fn owner(reading: &mut Reading, name: &SliceName, meta: &raw::Meta) -> Option<ServiceName> {
    let labels = reading.take(&meta.labels, format_args!("metadata.labels"))?;
    let path = format_args!("metadata.labels[{OWNER_LABEL}]");
    let owner = reading.take(labels.get(OWNER_LABEL)?, path)?;
    if owner.is_empty() {
        return None;
    }
    if !is_label(owner) {
        reading.useless(path, owner, "is no Service name");
        return None;
    }
    Some(ServiceName::new(name.namespace.clone(), owner.as_str()))
}

fn triggered(reading: &mut Reading, meta: &raw::Meta) -> Option<TriggerTime> {
    let annotations = reading.take(&meta.annotations, format_args!("metadata.annotations"))?;
    let path = format_args!("metadata.annotations[{TRIGGER_ANNOTATION}]");
    let text = reading.take(annotations.get(TRIGGER_ANNOTATION)?, path)?;
    let time = TriggerTime::parse(text);
    if time.is_none() {
        reading.bad(path, text, "is no RFC 3339 time");
    }
    time
}

fn family(reading: &mut Reading, slice: &raw::EndpointSlice) -> Option<Family> {
    let path = format_args!("addressType");
    match reading.take(&slice.address_type, path).map(String::as_str) {
        Some("IPv4") => Some(Family::V4),
        Some("IPv6") => Some(Family::V6),
        Some("FQDN") => None,
        other => {
            reading.useless(path, other.unwrap_or_default(), "is none of IPv4, IPv6 and FQDN");
            None
        }
    }
}

fn ports(reading: &mut Reading, slice: &raw::EndpointSlice) -> Box<[SlicePort]> {
    let mut ports = Vec::new();
    for (i, port) in reading.items(&slice.ports, "ports") {
        ports.extend(read_port(reading, i, port));
    }
    ports.into()
}

fn read_port(reading: &mut Reading, i: usize, port: &raw::EndpointPort) -> Option<SlicePort> {
    // The API server turns an absent name into the empty one.
    let name = super::optional(reading, &port.name, format_args!("ports[{i}].name"))?;
    let name = name.map_or("", String::as_str);
    if !name.is_empty() && !is_label(name) {
        reading.bad(format_args!("ports[{i}].name"), name, "is no DNS label");
        return None;
    }
    let protocol = super::protocol(reading, &port.protocol, format_args!("ports[{i}].protocol"))?;
    let path = format_args!("ports[{i}].port");
    let number = super::optional(reading, &port.port, path)?.copied().unwrap_or(0);
    let Some(number) = super::port_number(number) else {
        reading.bad(path, number, "is not in 1..=65535");
        return None;
    };
    Some(SlicePort {
        name: Arc::from(name),
        protocol,
        port: number,
    })
}

fn endpoints(reading: &mut Reading, slice: &raw::EndpointSlice, family: Family) -> Box<[SliceEndpoint]> {
    let mut endpoints = Vec::new();
    for (i, endpoint) in reading.items(&slice.endpoints, "endpoints") {
        endpoints.extend(read_endpoint(reading, i, endpoint, family));
    }
    endpoints.into()
}

fn read_endpoint(
    reading: &mut Reading,
    i: usize,
    endpoint: &raw::Endpoint,
    family: Family,
) -> Option<SliceEndpoint> {
    // Only the first address of an endpoint counts, as in upstream's `pkg/proxy/endpointslicecache.go`.
    let path = format_args!("endpoints[{i}].addresses");
    let addresses = reading.take(&endpoint.addresses, path)?;
    let Some(first) = addresses.first() else {
        reading.bad(path, "[]", "has no address");
        return None;
    };
    let path = format_args!("endpoints[{i}].addresses[0]");
    let text = reading.take(first, path)?;
    let Some(ip) = parse_ip(text) else {
        reading.bad(path, text, "is no IP address");
        return None;
    };
    if Family::of(ip) != family {
        let reason = format!("is {}, and addressType says {family}", Family::of(ip));
        reading.bad(path, text, reason);
        return None;
    }
    if let Some(reason) = why_no_destination(ip) {
        reading.bad(path, text, reason);
        return None;
    }
    let path = format_args!("endpoints[{i}].nodeName");
    let node = reading
        .take(&endpoint.node_name, path)
        .filter(|name| !name.is_empty());
    let conditions = conditions(reading, i, endpoint);
    let place = Place {
        node: node.map(|name| Arc::from(name.as_str())),
        hints: hints(reading, i, endpoint).map(Arc::new),
    };
    Some(SliceEndpoint {
        ip,
        conditions,
        place: Arc::new(place),
    })
}

fn conditions(reading: &mut Reading, i: usize, endpoint: &raw::Endpoint) -> Conditions {
    let absent = raw::Conditions::default();
    let path = format_args!("endpoints[{i}].conditions");
    let found = reading.take(&endpoint.conditions, path).unwrap_or(&absent);
    let mut take = |field: &Field<bool>, name: &str, absent: bool| {
        let path = format_args!("endpoints[{i}].conditions.{name}");
        reading.take(field, path).copied().unwrap_or(absent)
    };
    Conditions {
        ready: take(&found.ready, "ready", true),
        serving: take(&found.serving, "serving", true),
        terminating: take(&found.terminating, "terminating", false),
    }
}

fn hints(reading: &mut Reading, i: usize, endpoint: &raw::Endpoint) -> Option<Hints> {
    let path = format_args!("endpoints[{i}].hints");
    let hints = reading.take(&endpoint.hints, path)?;
    let mut names = |list: &raw::List<raw::Hint>, field: &str| -> Box<[Arc<str>]> {
        let path = format!("endpoints[{i}].hints.{field}");
        let mut names: Vec<Arc<str>> = Vec::new();
        for (j, hint) in reading.items(list, &path) {
            let name = reading.take(&hint.name, format_args!("{path}[{j}].name"));
            names.extend(name.map(|name| Arc::from(name.as_str())));
        }
        names.sort();
        names.dedup();
        names.into()
    };
    let found = Hints {
        zones: names(&hints.for_zones, "forZones"),
        nodes: names(&hints.for_nodes, "forNodes"),
    };
    (found != Hints::default()).then_some(found)
}
