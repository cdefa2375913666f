//! One line of a watch, decoded.

use super::trouble::Trouble;
use kube::core::Status;
use model::object::{
    Converted, Kind, Object, convert_node, convert_service, convert_service_cidr, convert_slice, raw,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// What one event of a watch says.
#[derive(Debug)]
pub(crate) enum Frame {
    /// An object was added or modified.
    Applied(Item),
    /// An object went, or no longer matches the selectors.
    Deleted(Item),
    /// Nothing happened up to this version.
    Bookmark {
        version: String,
        /// Whether all initial events have been sent.
        end_of_initial_events: bool,
    },
    /// The server ends the watch with an error.
    Error(Box<Status>),
}

/// An object that came from the server.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) converted: Converted,
    /// `metadata.resourceVersion`.
    pub(crate) version: Option<String>,
}

/// A shape that can be watched.
trait Watched: DeserializeOwned {
    fn meta(&self) -> Option<&raw::Meta>;
    fn convert(&self) -> Converted;
}

macro_rules! watched {
    ($($shape:ident => $convert:ident,)*) => {$(
        impl Watched for raw::$shape {
            fn meta(&self) -> Option<&raw::Meta> {
                self.metadata.given()
            }

            fn convert(&self) -> Converted {
                $convert(self)
            }
        }
    )*};
}

watched! {
    Service => convert_service,
    EndpointSlice => convert_slice,
    Node => convert_node,
    ServiceCidr => convert_service_cidr,
}

#[derive(Deserialize)]
struct Line<T> {
    #[serde(rename = "type")]
    event: EventType,
    object: T,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// Decodes one line of a watch.
pub(crate) fn decode_frame(kind: Kind, line: &[u8]) -> Result<Frame, Trouble> {
    match kind {
        Kind::Service => frame::<raw::Service>(line),
        Kind::Slice => frame::<raw::EndpointSlice>(line),
        Kind::Node => frame::<raw::Node>(line),
        Kind::ServiceCidr => frame::<raw::ServiceCidr>(line),
    }
}

/// Decodes one item of a list.
pub(crate) fn decode_item(kind: Kind, json: &[u8]) -> Result<Item, Trouble> {
    match kind {
        Kind::Service => item::<raw::Service>(json),
        Kind::Slice => item::<raw::EndpointSlice>(json),
        Kind::Node => item::<raw::Node>(json),
        Kind::ServiceCidr => item::<raw::ServiceCidr>(json),
    }
}

/// The object in its JSON alone, when there is one of use in it.
pub(crate) fn decode_object(kind: Kind, json: &[u8]) -> Option<Object> {
    decode_item(kind, json).ok()?.converted.object
}

fn frame<T: Watched>(line: &[u8]) -> Result<Frame, Trouble> {
    let Line { event, object } = serde_json::from_slice::<Line<T>>(line).map_err(|error| garbled(&error))?;
    match event {
        EventType::Added | EventType::Modified => Ok(Frame::Applied(Item::of(&object))),
        EventType::Deleted => Ok(Frame::Deleted(Item::of(&object))),
        EventType::Bookmark => bookmark(object.meta()),
        EventType::Error => serde_json::from_slice::<Line<Status>>(line)
            .map(|line| Frame::Error(Box::new(line.object)))
            .map_err(|error| garbled(&error)),
    }
}

fn bookmark(meta: Option<&raw::Meta>) -> Result<Frame, Trouble> {
    let none = BTreeMap::new();
    let annotations = meta.and_then(|meta| meta.annotations.given()).unwrap_or(&none);
    let end = annotations
        .get("k8s.io/initial-events-end")
        .and_then(|value| value.given())
        .is_some_and(|value| value == "true");
    let version = meta
        .and_then(|meta| meta.resource_version.given())
        .ok_or_else(|| Trouble::Garbled("a bookmark without a version".to_owned()))?;
    Ok(Frame::Bookmark {
        version: version.clone(),
        end_of_initial_events: end,
    })
}

fn item<T: Watched>(json: &[u8]) -> Result<Item, Trouble> {
    serde_json::from_slice::<T>(json)
        .map(|object| Item::of(&object))
        .map_err(|error| garbled(&error))
}

impl Item {
    fn of<T: Watched>(object: &T) -> Self {
        Item {
            converted: object.convert(),
            version: object
                .meta()
                .and_then(|meta| meta.resource_version.given())
                .cloned(),
        }
    }
}

fn garbled(error: &serde_json::Error) -> Trouble {
    Trouble::Garbled(error.to_string())
}

/// What a list says besides its items.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Envelope {
    kind: String,
    metadata: EnvelopeMeta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EnvelopeMeta {
    resource_version: String,
}

/// The version of a list, out of everything but its items.
pub(crate) fn list_version(envelope: &[u8]) -> Result<String, Trouble> {
    let envelope: Envelope = serde_json::from_slice(envelope).map_err(|error| garbled(&error))?;
    if !envelope.kind.ends_with("List") || envelope.metadata.resource_version.is_empty() {
        return Err(Trouble::Garbled(format!(
            "a {:?} without a version where a list was asked for",
            envelope.kind
        )));
    }
    Ok(envelope.metadata.resource_version)
}
