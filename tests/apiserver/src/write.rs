//! Creating, changing and deleting objects.

use crate::asked::Asked;
use crate::event::{check_event, check_event_change};
use crate::reply::Reply;
use crate::resource::{Place, Resource, Scope};
use crate::status::Status;
use crate::store::{Key, Store};
use serde_json::{Map, Value, json};

/// Longest request body that is read, in bytes.
pub(crate) const MAX_BODY: usize = 3 << 20;

fn key(place: &Place, name: &str) -> Key {
    Key {
        resource: place.resource,
        namespace: place.namespace.clone().unwrap_or_default(),
        name: name.to_owned(),
    }
}

fn object_of(asked: &Asked) -> Result<Value, Status> {
    let kind = asked.header("content-type");
    if !kind.is_empty() && kind.split(';').next() != Some("application/json") {
        let message = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        return Err(Status::new(415, "UnsupportedMediaType", message));
    }
    serde_json::from_slice::<Map<String, Value>>(&asked.body)
        .map(Value::Object)
        .map_err(|error| Status::bad_request(format!("error decoding the body of the request: {error}")))
}

/// POST.
pub(crate) fn create(store: &mut Store, place: &Place, asked: &Asked) -> Result<Reply, Status> {
    let mut object = object_of(asked)?;
    check_envelope(&object, place)?;
    let mut name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        let stem = object["metadata"]["generateName"].as_str();
        let stem = stem.ok_or_else(|| nameless(place.resource))?;
        name = format!("{stem}{:05}", store.version());
        object["metadata"]["name"] = name.as_str().into();
    }
    let key = key(place, &name);
    if store.get(&key).is_some() {
        return Err(Status::already_exists(place.resource, &name));
    }
    if place.resource == Resource::Events {
        check_event(&object, place.namespace.as_deref().unwrap_or_default())?;
    }
    complete(store, &key, &mut object);
    Ok(Reply::object(201, &store.put(key, object)))
}

/// Writes an object whatever it is, as a test wants it.
pub(crate) fn apply(store: &mut Store, mut object: Value) -> u64 {
    let text =
        |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let kind = object["kind"].as_str().unwrap_or_default();
    let resource = Resource::of_kind(kind).unwrap_or_else(|| panic!("this server has no {kind}"));
    let mut namespace = text(&object, "namespace");
    if resource.scope() == Scope::Namespaced && namespace.is_empty() {
        "default".clone_into(&mut namespace);
    }
    let name = text(&object, "name");
    assert!(!name.is_empty(), "an object without a name: {object}");
    let key = Key {
        resource,
        namespace,
        name,
    };
    complete(store, &key, &mut object);
    store.put(key, object);
    store.version()
}

/// PATCH: a JSON merge patch. A strategic one is taken for the same; they differ only for lists.
pub(crate) fn patch(store: &mut Store, place: &Place, name: &str, asked: &Asked) -> Result<Reply, Status> {
    let kind = asked.header("content-type").split(';').next().unwrap_or_default();
    if !matches!(
        kind,
        "application/merge-patch+json" | "application/strategic-merge-patch+json"
    ) {
        return Err(Status::new(
            415,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
        ));
    }
    let change: Value = serde_json::from_slice(&asked.body)
        .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
    let key = key(place, name);
    let before = store
        .get(&key)
        .cloned()
        .ok_or_else(|| Status::not_found(place.resource, name))?;
    let mut after = Value::clone(&before);
    merge(&mut after, &change);
    if after == *before {
        return Ok(Reply::object(200, &before));
    }
    replace(store, key, &before, after)
}

/// PUT.
pub(crate) fn update(store: &mut Store, place: &Place, name: &str, asked: &Asked) -> Result<Reply, Status> {
    let object = object_of(asked)?;
    check_envelope(&object, place)?;
    let key = key(place, name);
    let before = store
        .get(&key)
        .cloned()
        .ok_or_else(|| Status::not_found(place.resource, name))?;
    replace(store, key, &before, object)
}

fn replace(store: &mut Store, key: Key, before: &Value, mut after: Value) -> Result<Reply, Status> {
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let wanted = version(&after);
    if !wanted.is_null() && wanted != "" && wanted != version(before) {
        return Err(Status::conflict(key.resource, &key.name));
    }
    if key.resource == Resource::Events {
        check_event_change(before, &after)?;
    }
    complete(store, &key, &mut after);
    Ok(Reply::object(200, &store.put(key, after)))
}

/// DELETE of one object. Some resources answer with what went, others with a Status.
pub(crate) fn delete(store: &mut Store, place: &Place, name: &str) -> Result<Reply, Status> {
    let key = key(place, name);
    let object = store
        .remove(&key)
        .ok_or_else(|| Status::not_found(place.resource, name))?;
    if place.resource == Resource::Services {
        return Ok(Reply::object(200, &object));
    }
    let mut details = json!({"name": name});
    if !place.resource.group().is_empty() {
        details["group"] = place.resource.group().into();
    }
    details["kind"] = place.resource.plural().into();
    details["uid"] = object["metadata"]["uid"].clone();
    let success = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    });
    Ok(Reply::object(200, &success))
}

fn check_envelope(object: &Value, place: &Place) -> Result<(), Status> {
    let (version, kind) = (place.resource.api_version(), place.resource.kind());
    let said = |field: &str| object[field].as_str().unwrap_or_default();
    if !matches!(said("kind"), "" | "Null") && said("kind") != kind {
        return Err(Status::bad_request(format!(
            "{} in version \"{version}\" cannot be handled as a {kind}: no kind \"{0}\" is served here",
            said("kind")
        )));
    }
    if !said("apiVersion").is_empty() && said("apiVersion") != version {
        return Err(Status::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({version})",
            said("apiVersion")
        )));
    }
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if !namespace.is_empty() && Some(namespace) != place.namespace.as_deref() {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

fn nameless(resource: Resource) -> Status {
    let wrong = crate::status::Wrong {
        field: "metadata.name",
        reason: "FieldValueRequired",
        message: "Required value: name or generateName is required".to_owned(),
    };
    Status::invalid(resource.group(), resource.kind(), "", &[wrong])
}

/// What the server adds to every object, and the defaults of Services.
fn complete(store: &mut Store, key: &Key, object: &mut Value) {
    object["kind"] = key.resource.kind().into();
    object["apiVersion"] = key.resource.api_version().into();
    object["metadata"]["name"] = key.name.as_str().into();
    if !key.namespace.is_empty() {
        object["metadata"]["namespace"] = key.namespace.as_str().into();
    }
    let (uid, time) = if let Some(before) = store.get(key) {
        let metadata = &before["metadata"];
        (metadata["uid"].clone(), metadata["creationTimestamp"].clone())
    } else {
        let (uid, time) = store.birth();
        (uid.into(), time.into())
    };
    object["metadata"]["uid"] = uid;
    object["metadata"]["creationTimestamp"] = time;
    match key.resource {
        Resource::Services => complete_service(store, object),
        Resource::Events => complete_event(object),
        Resource::Nodes | Resource::EndpointSlices | Resource::ServiceCidrs => {}
    }
}

fn complete_event(event: &mut Value) {
    let fields = event
        .as_object_mut()
        .expect("invariant: objects were decoded as such");
    fields.retain(|_, value| *value != "");
    for (field, value) in [
        ("deprecatedSource", json!({})),
        ("deprecatedFirstTimestamp", Value::Null),
        ("deprecatedLastTimestamp", Value::Null),
    ] {
        fields.entry(field).or_insert(value);
    }
}

fn complete_service(store: &Store, service: &mut Value) {
    let spec = &mut service["spec"];
    let default = |spec: &mut Value, field: &str, value: Value| {
        if spec[field].is_null() {
            spec[field] = value;
        }
    };
    default(spec, "type", "ClusterIP".into());
    if spec["type"] != "ExternalName" {
        // Versions are never given twice, so addresses of services that are there differ.
        let free = store.version() % 60_000;
        default(
            spec,
            "clusterIP",
            format!("10.96.{}.{}", free / 250, free % 250 + 1).into(),
        );
        let address = spec["clusterIP"].clone();
        let is_six = address.as_str().is_some_and(|text| text.contains(':'));
        default(spec, "clusterIPs", json!([address]));
        default(spec, "ipFamilies", json!([if is_six { "IPv6" } else { "IPv4" }]));
        default(spec, "ipFamilyPolicy", "SingleStack".into());
        default(spec, "internalTrafficPolicy", "Cluster".into());
    }
    default(spec, "sessionAffinity", "None".into());
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        default(port, "protocol", "TCP".into());
        let same = port["port"].clone();
        default(port, "targetPort", same);
    }
    if service["status"].is_null() {
        service["status"] = json!({"loadBalancer": {}});
    }
}

/// RFC 7396.
fn merge(target: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *target = change.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().expect("invariant: made one above");
    for (key, value) in change {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
