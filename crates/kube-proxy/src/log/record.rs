//! An event's message and values, under the keys that upstream's log has.

use serde_json::{Map, Value, json};
use std::fmt::{Debug, Write};
use tracing::Event;
use tracing::field::{Field, Visit};

/// What a line says.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) message: String,
    pub(super) values: Vec<(String, Value)>,
    /// The verbosity that the line names.
    pub(super) verbosity: Option<u32>,
    /// Where the line comes from, of lines that the `log` crate brings.
    pub(super) place: Option<(String, u32)>,
}

/// Keys whose values are names of objects: `namespace/name`, or a name alone.
const OBJECTS: [&str; 5] = ["service", "endpointSlice", "node", "serviceCIDR", "pod"];

impl Record {
    pub(super) fn of(event: &Event<'_>) -> Record {
        let mut record = Record::default();
        event.record(&mut record);
        record
    }

    /// Field names are Rust's, keys are Kubernetes'. `object = "Service ns/name"` becomes `service="ns/name"`.
    pub(super) fn put(&mut self, name: &str, value: Value) {
        match (name, value) {
            ("v", Value::Number(number)) => {
                self.verbosity = number.as_u64().and_then(|number| number.try_into().ok());
            }
            ("log.file", Value::String(file)) => self.place.get_or_insert_default().0 = file,
            ("log.line", Value::Number(line)) => {
                let line = line.as_u64().and_then(|line| line.try_into().ok());
                self.place.get_or_insert_default().1 = line.unwrap_or(0);
            }
            ("log.target" | "log.module_path", _) => {}
            ("object", Value::String(object)) => {
                let (kind, object) = object.split_once(' ').unwrap_or(("object", &object));
                let mut key = kind.to_owned();
                if let Some(first) = key.get_mut(..1) {
                    first.make_ascii_lowercase();
                }
                self.values.push((key, json!(object)));
            }
            (name, value) => self.values.push((key(name), value)),
        }
    }
}

fn key(name: &str) -> String {
    match name {
        "family" => return "ipFamily".to_owned(),
        "error" => return "err".to_owned(),
        _ => {}
    }
    let mut words = name.split('_');
    let mut key = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        key.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        key.push_str(letters.as_str());
    }
    key
}

/// The JSON form of a value: objects' names in parts.
pub(super) fn in_json(key: &str, value: Value) -> Value {
    match value {
        Value::String(name) if OBJECTS.contains(&key) => {
            let mut object = Map::new();
            let (namespace, name) = name.split_once('/').unwrap_or(("", &name));
            object.insert("name".to_owned(), json!(name));
            if !namespace.is_empty() {
                object.insert("namespace".to_owned(), json!(namespace));
            }
            Value::Object(object)
        }
        value => value,
    }
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field.name(), Value::String(text));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.put(field.name(), json!(value));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), json!(value));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        let value = u64::try_from(value).map_or_else(|_| json!(value.to_string()), |value| json!(value));
        self.put(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), json!(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(next) = cause {
            let _ = write!(text, ": {next}");
            cause = next.source();
        }
        self.put(field.name(), json!(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(given: &[(&str, Value)]) -> Vec<(String, Value)> {
        let mut record = Record::default();
        for (name, value) in given {
            record.put(name, value.clone());
        }
        record.values
    }

    #[test]
    fn keys_are_those_of_upstreams_log() {
        let given = [
            ("family", json!("IPv4")),
            ("error", json!("no")),
            ("in_a_row", json!(3)),
            ("object", json!("Service ns/web")),
            ("object", json!("ServiceCIDR kubernetes")),
            ("log.target", json!("x")),
        ];
        let expected = [
            ("ipFamily", json!("IPv4")),
            ("err", json!("no")),
            ("inARow", json!(3)),
            ("service", json!("ns/web")),
            ("serviceCIDR", json!("kubernetes")),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value));
        assert_eq!(keys(&given), expected);
    }

    #[test]
    fn the_json_form_has_objects_in_parts() {
        let web = json!({"name": "web", "namespace": "ns"});
        assert_eq!(in_json("service", json!("ns/web")), web);
        assert_eq!(in_json("node", json!("n1")), json!({"name": "n1"}));
        assert_eq!(in_json("service", json!(3)), json!(3));
        assert_eq!(in_json("setting", json!("a/b")), json!("a/b"));
    }
}
