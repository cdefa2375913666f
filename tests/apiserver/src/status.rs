//! Status objects: how an API server says that something went wrong.
//!
//! Shapes and texts are those that the conformance checks found a real server to use.

use crate::resource::{Place, Resource};
use serde_json::{Value, json};

/// An error as the server says it.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// HTTP status.
    pub code: u16,
    /// One word for programs; empty for none.
    pub reason: &'static str,
    /// A line for people.
    pub message: String,
    /// `details`, if any.
    pub details: Option<Value>,
    /// `metadata.continue`, if any.
    pub continue_token: Option<String>,
}

impl Status {
    /// One without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Status {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
        }
    }

    fn with(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The object.
    pub fn json(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = token.as_str().into();
        }
        let mut object = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message,
        });
        if !self.reason.is_empty() {
            object["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            object["details"] = details.clone();
        }
        object["code"] = self.code.into();
        object
    }

    /// Nobody knows who asks.
    pub fn unauthorized() -> Self {
        Status::new(401, "Unauthorized", "Unauthorized")
    }

    /// Somebody may not do this.
    pub fn forbidden(user: &str, verb: &str, place: &Place, name: Option<&str>) -> Self {
        let resource = place.resource;
        let area = match &place.namespace {
            Some(namespace) => format!("in the namespace \"{namespace}\""),
            None => "at the cluster scope".to_owned(),
        };
        let what = match name {
            Some(name) => format!("{} \"{name}\"", resource.full_name()),
            None => resource.full_name(),
        };
        let message = format!(
            "{what} is forbidden: User \"{user}\" cannot {verb} resource \"{}\" in API group \"{}\" {area}",
            resource.plural(),
            resource.group()
        );
        Status::new(403, "Forbidden", message).with(details(resource, name))
    }

    /// The API group has no such resource.
    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Status::new(404, "NotFound", message).with(json!({}))
    }

    /// There is no such object.
    pub fn not_found(resource: Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.full_name());
        Status::new(404, "NotFound", message).with(details(resource, Some(name)))
    }

    /// There is one already.
    pub fn already_exists(resource: Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.full_name());
        Status::new(409, "AlreadyExists", message).with(details(resource, Some(name)))
    }

    /// The object is not what the writer believes.
    pub fn conflict(resource: Resource, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": the object has been modified; please apply your changes to the latest version and try again",
            resource.full_name()
        );
        Status::new(409, "Conflict", message).with(details(resource, Some(name)))
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Status::new(400, "BadRequest", message)
    }

    /// Fields of an object, or options of a request, are wrong.
    pub fn invalid(group: &str, kind: &str, name: &str, wrong: &[Wrong]) -> Self {
        let mut texts: Vec<String> = wrong
            .iter()
            .map(|wrong| format!("{}: {}", wrong.field, wrong.message))
            .collect();
        // Fields are checked twice here and there: all are counted, and each is said once.
        texts.dedup();
        let texts = match texts.as_slice() {
            [text] => text.clone(),
            texts => format!("[{}]", texts.join(", ")),
        };
        let full = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let causes: Vec<Value> = wrong
            .iter()
            .map(|wrong| json!({"reason": wrong.reason, "message": wrong.message, "field": wrong.field}))
            .collect();
        let mut details = json!({"kind": kind, "causes": causes});
        for (key, value) in [("group", group), ("name", name)] {
            if !value.is_empty() {
                details[key] = value.into();
            }
        }
        Status::new(422, "Invalid", format!("{full} \"{name}\" is invalid: {texts}")).with(details)
    }

    /// The version asked for lies before what is kept.
    pub fn expired(version: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {version} ({oldest})");
        Status::new(410, "Expired", message)
    }

    /// The version asked for lies ahead.
    pub fn too_large(version: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {version}, current: {current}");
        Status::new(504, "Timeout", format!("Timeout: {message}")).with(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }

    /// None of the media types that the client takes is to be had.
    pub fn not_acceptable() -> Self {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        Status::new(406, "NotAcceptable", message).with(json!({}))
    }
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its path.
    pub field: &'static str,
    /// `FieldValueInvalid` and the like.
    pub reason: &'static str,
    /// A line for people.
    pub message: String,
}

impl Wrong {
    pub(crate) fn forbidden(field: &'static str, why: &str) -> Self {
        Wrong {
            field,
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {why}"),
        }
    }

    pub(crate) fn required(field: &'static str) -> Self {
        Wrong {
            field,
            reason: "FieldValueRequired",
            message: "Required value".to_owned(),
        }
    }

    pub(crate) fn invalid(field: &'static str, value: &Value, why: &str) -> Self {
        Wrong {
            field,
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {why}"),
        }
    }
}

fn details(resource: Resource, name: Option<&str>) -> Value {
    let mut details = json!({});
    if let Some(name) = name {
        details["name"] = name.into();
    }
    if !resource.group().is_empty() {
        details["group"] = resource.group().into();
    }
    details["kind"] = resource.plural().into();
    details
}
