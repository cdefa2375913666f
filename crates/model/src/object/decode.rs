//! From a document of any kind to objects.

use super::{Converted, Object, convert_node, convert_service, convert_service_cidr, convert_slice};
use crate::note::Subject;
use crate::{Note, NoteKind, Severity};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// What a document holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The objects the proxy reads, in the document's order.
    pub objects: Vec<Object>,
    /// Objects of kinds the proxy does not read.
    pub not_read: Vec<NotRead>,
    /// What was left out, and why.
    pub notes: Vec<Note>,
}

/// An object of a kind the proxy does not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotRead {
    /// `apiVersion`, as found.
    pub api_version: String,
    /// `kind`, as found.
    pub kind: String,
    /// `metadata.namespace`, as found.
    pub namespace: String,
    /// `metadata.name`, as found.
    pub name: String,
}

/// Decodes one document: an object, a `List`, or a list of one kind (`ServiceList`, ...), at any depth.
///
/// A total function: what cannot be used becomes a note.
pub fn decode(document: Value) -> Decoded {
    let mut decoded = Decoded::default();
    decode_into(document, None, &mut decoded);
    decoded
}

/// Which objects the proxy reads.
fn convert(api_version: &str, kind: &str, document: &Value) -> Option<Converted> {
    let group_is = |group: &str| api_version.is_empty() || api_version == group;
    match kind {
        "Service" if group_is("v1") => Some(convert_service(&shaped(document))),
        "Node" if group_is("v1") => Some(convert_node(&shaped(document))),
        "EndpointSlice" if group_is("discovery.k8s.io/v1") => Some(convert_slice(&shaped(document))),
        "ServiceCIDR" if group_is("networking.k8s.io/v1") || api_version == "networking.k8s.io/v1beta1" => {
            Some(convert_service_cidr(&shaped(document)))
        }
        _ => None,
    }
}

/// The document in the shape of its kind. Every field takes anything, so an object never fails.
fn shaped<T: DeserializeOwned + Default>(document: &Value) -> T {
    T::deserialize(document).unwrap_or_default()
}

fn decode_into(document: Value, item_kind: Option<(&str, &str)>, decoded: &mut Decoded) {
    let text = |path: &str| {
        document
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if !document.is_object() {
        if !document.is_null() {
            decoded.notes.push(no_object(&document));
        }
        return;
    }
    let mut api_version = text("/apiVersion");
    let mut kind = text("/kind");
    if let (true, Some((list_version, list_kind))) = (kind.is_empty(), item_kind) {
        list_version.clone_into(&mut api_version);
        list_kind.clone_into(&mut kind);
    }
    if let Some(of) = kind.strip_suffix("List") {
        let Value::Object(mut fields) = document else {
            return;
        };
        let Some(Value::Array(items)) = fields.remove("items") else {
            return;
        };
        let of = (!of.is_empty()).then_some((api_version.as_str(), of));
        for item in items {
            decode_into(item, of, decoded);
        }
        return;
    }
    match convert(&api_version, &kind, &document) {
        Some(converted) => {
            decoded.objects.extend(converted.object);
            decoded.notes.extend(converted.notes);
        }
        None => decoded.not_read.push(NotRead {
            api_version,
            kind,
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        }),
    }
}

fn no_object(document: &Value) -> Note {
    Note {
        severity: Severity::Error,
        subject: Subject {
            kind: "Document",
            namespace: Arc::from(""),
            name: Arc::from(""),
        },
        kind: NoteKind::BadField {
            field: String::new(),
            value: document.to_string().chars().take(80).collect(),
            reason: "is no object".to_owned(),
        },
    }
}
