//! API objects: trimmed to what the proxy reads, converted to compact values, with a note for all that is left out.
//!
//! [`raw`] holds the API's shapes, for any deserializer. `convert` functions turn them into [`Service`], [`Slice`],
//! [`Node`] and [`ServiceCidr`]: total functions, a bad field costs only what it holds, and nothing that is no name,
//! no address of the right family or no port gets past them. [`decode()`] takes whole documents of any kind, lists
//! included, and fills in what the API server would fill in.
//!
//! What the proxy's watches leave out by selector is left out here too, with the reason kept in
//! `skipped`, so that files and the API server lead to the same answer and tools can say why.

mod decode;
pub mod field;
mod node;
pub mod raw;
mod reading;
mod service;
mod slice;

#[cfg(test)]
mod tests;

pub use crate::name::SliceName;
pub use decode::{Decoded, NotRead, decode};
pub use field::Field;
pub use node::{AUTOSCALER_TAINT, Eligibility, Node, ServiceCidr, ZONE_LABEL};
pub use node::{convert_node, convert_service_cidr};
pub use service::convert as convert_service;
pub use service::{
    BALANCING_ANNOTATION, Created, PROXY_NAME_LABEL, Service, ServiceKind, ServicePort, ServiceSkip,
};
pub use slice::SliceSkip;
pub use slice::convert as convert_slice;
pub use slice::{Conditions, HEADLESS_LABEL, Hints, OWNER_LABEL, Place, Slice, SliceEndpoint, SlicePort};
pub use slice::{TRIGGER_ANNOTATION, TriggerTime};

use crate::{Note, Protocol, ServiceName};
use reading::{Reading, is_label};
use std::fmt::Arguments;
use std::sync::Arc;

/// An object the proxy reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A Service.
    Service(Box<Service>),
    /// An `EndpointSlice`.
    Slice(Box<Slice>),
    /// A Node.
    Node(Node),
    /// A `ServiceCIDR`.
    ServiceCidr(ServiceCidr),
}

/// The kinds of object the proxy reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `v1` Service.
    Service,
    /// `discovery.k8s.io/v1` `EndpointSlice`.
    Slice,
    /// `v1` Node.
    Node,
    /// `networking.k8s.io/v1` `ServiceCIDR`.
    ServiceCidr,
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectRef {
    /// A Service.
    Service(ServiceName),
    /// An `EndpointSlice`.
    Slice(SliceName),
    /// A Node.
    Node(Arc<str>),
    /// A `ServiceCIDR`.
    ServiceCidr(Arc<str>),
}

/// What conversion makes of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// The object; `None` when its name cannot be used.
    pub object: Option<Object>,
    /// What was left out, and why.
    pub notes: Vec<Note>,
}

impl Object {
    /// Its name.
    pub fn reference(&self) -> ObjectRef {
        match self {
            Object::Service(service) => ObjectRef::Service(service.name.clone()),
            Object::Slice(slice) => ObjectRef::Slice(slice.name.clone()),
            Object::Node(node) => ObjectRef::Node(node.name.clone()),
            Object::ServiceCidr(cidr) => ObjectRef::ServiceCidr(cidr.name.clone()),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.reference().kind()
    }
}

impl ObjectRef {
    /// The kind of object.
    pub fn kind(&self) -> Kind {
        match self {
            ObjectRef::Service(_) => Kind::Service,
            ObjectRef::Slice(_) => Kind::Slice,
            ObjectRef::Node(_) => Kind::Node,
            ObjectRef::ServiceCidr(_) => Kind::ServiceCidr,
        }
    }
}

/// Whether a kind of object lives in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Namespaced,
    ClusterWide,
}

/// Starts reading an object: its namespace (empty for cluster-wide kinds) and name, or a note why it has none.
fn begin<'m>(
    kind: &'static str,
    meta: &'m raw::Meta,
    scope: Scope,
    is_name: fn(&str) -> bool,
) -> (Reading, Option<(&'m str, &'m str)>) {
    let text = |field: &'m Field<String>| match field {
        Field::Absent => "",
        Field::Given(text) | Field::Wrong(text) => text.as_str(),
    };
    let namespace = match (scope, text(&meta.namespace)) {
        (Scope::ClusterWide, _) => "",
        (Scope::Namespaced, "") => "default",
        (Scope::Namespaced, namespace) => namespace,
    };
    let name = text(&meta.name);
    let mut reading = Reading::new(kind, namespace, name);
    let is_wrong = |field: &Field<String>| matches!(field, Field::Wrong(_));
    let bad_namespace = is_wrong(&meta.namespace) || !is_label(namespace);
    if scope == Scope::Namespaced && bad_namespace {
        reading.useless(format_args!("metadata.namespace"), namespace, "is no DNS label");
        (reading, None)
    } else if is_wrong(&meta.name) || !is_name(name) {
        reading.useless(
            format_args!("metadata.name"),
            name,
            "is no name for this kind of object",
        );
        (reading, None)
    } else {
        (reading, Some((namespace, name)))
    }
}

fn has_label(meta: &raw::Meta, label: &str) -> bool {
    meta.labels
        .given()
        .is_some_and(|labels| labels.contains_key(label))
}

fn created(reading: &mut Reading, meta: &raw::Meta) -> Created {
    let path = format_args!("metadata.creationTimestamp");
    let Some(text) = reading.take(&meta.creation_timestamp, path) else {
        return Created::UNKNOWN;
    };
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        Created::at(time.as_second())
    } else {
        reading.bad(path, text, "is no RFC 3339 time");
        Created::UNKNOWN
    }
}

/// The field when it is given, nothing when it is absent, `None` when it is wrong (with a note).
#[expect(clippy::option_option, reason = "absent and wrong cost different things")]
fn optional<'f, T: field::Shape>(
    reading: &mut Reading,
    field: &'f Field<T>,
    path: Arguments<'_>,
) -> Option<Option<&'f T>> {
    let value = reading.take(field, path);
    (value.is_some() || matches!(field, Field::Absent)).then_some(value)
}

/// A protocol; absent means TCP, as the API server has it.
fn protocol(reading: &mut Reading, field: &Field<String>, path: Arguments<'_>) -> Option<Protocol> {
    match optional(reading, field, path)?.map(String::as_str) {
        None | Some("TCP" | "") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some("SCTP") => Some(Protocol::Sctp),
        Some(other) => {
            reading.bad(path, other, "is none of TCP, UDP and SCTP");
            None
        }
    }
}

/// A port number, never 0.
fn port_number(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port != 0)
}
