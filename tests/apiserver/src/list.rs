//! Lists: of the newest state, of any, of an exact one, in pages.

use crate::query::{ListQuery, Version};
use crate::resource::Resource;
use crate::status::Status;
use crate::store::{Objects, Store};
use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};
use std::sync::Arc;

/// The list as an object.
pub(crate) fn list(store: &Store, resource: Resource, query: &ListQuery) -> Result<Value, Status> {
    if !query.continue_token.is_empty() {
        return next_page(store, resource, query);
    }
    let version = match query.version {
        Version::NotOlderThan(version) | Version::Exact(version) if version > store.version() => {
            return Err(Status::too_large(version, store.version()));
        }
        Version::Newest | Version::Any | Version::NotOlderThan(_) => store.version(),
        Version::Exact(version) if version < store.oldest() => {
            return Err(Status::expired(version, store.oldest()));
        }
        Version::Exact(version) => version,
    };
    // A list of any version comes whole from the server's cache, which knows no pages.
    let limit = match query.version {
        Version::Any => 0,
        _ => query.limit,
    };
    let page = Page {
        version,
        after: None,
        limit,
    };
    Ok(page.of(&store.at(version), resource, query))
}

fn next_page(store: &Store, resource: Resource, query: &ListQuery) -> Result<Value, Status> {
    let bad = || {
        Status::bad_request(
            "invalid continue token: continue key is not valid: it was not made by this server",
        )
    };
    let text = BASE64URL_NOPAD
        .decode(query.continue_token.as_bytes())
        .map_err(|_| bad())?;
    let token: Value = serde_json::from_slice(&text).map_err(|_| bad())?;
    let start = token["start"].as_str().ok_or_else(bad)?;
    let version = token["rv"].as_u64().ok_or_else(bad)?;
    if version < store.oldest() {
        let message = "The provided continue parameter is too old to display a consistent list result.";
        let mut status = Status::new(410, "Expired", message);
        status.continue_token = Some(token_of(store.version(), start));
        return Err(status);
    }
    let page = Page {
        version,
        after: Some(start),
        limit: query.limit,
    };
    Ok(page.of(&store.at(version), resource, query))
}

fn token_of(version: u64, start: &str) -> String {
    let token = json!({"v": "meta.k8s.io/v1", "rv": version, "start": start});
    BASE64URL_NOPAD.encode(token.to_string().as_bytes())
}

/// A part of a list.
struct Page<'a> {
    version: u64,
    /// The last item of the page before.
    after: Option<&'a str>,
    /// Most items; zero for no limit.
    limit: usize,
}

impl Page<'_> {
    fn of(&self, objects: &Objects, resource: Resource, query: &ListQuery) -> Value {
        let matching: Vec<(String, &Arc<Value>)> = objects
            .iter()
            .filter(|(key, object)| key.resource == resource && query.selector.matches(object))
            // The smallest character between the words keeps the order of the keys.
            .map(|(key, object)| (format!("{}\0{}", key.namespace, key.name), object))
            .filter(|(name, _)| self.after.is_none_or(|after| name.as_str() > after))
            .collect();
        let shown = match self.limit {
            0 => matching.len(),
            limit => limit.min(matching.len()),
        };
        let items: Vec<Value> = matching[..shown].iter().map(|(_, object)| item(object)).collect();
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if shown < matching.len() {
            metadata["continue"] = token_of(self.version, &matching[shown - 1].0).into();
            // What does not match the selectors is not counted by etcd, so nothing is said.
            if query.selector.is_all() {
                metadata["remainingItemCount"] = (matching.len() - shown).into();
            }
        }
        json!({
            "kind": format!("{}List", resource.kind()), "apiVersion": resource.api_version(),
            "metadata": metadata, "items": items,
        })
    }
}

/// Items of a list do not say what they are.
fn item(object: &Value) -> Value {
    let mut item = object.clone();
    if let Some(fields) = item.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    item
}
