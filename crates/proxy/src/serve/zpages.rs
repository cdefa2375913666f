//! `/flagz` and `/statusz`: text for people, or an object of `config.k8s.io` for programs that ask for just that kind.

use super::Serving;
use super::pages::{answer_of, json, rfc3339, text};
use axum::body::Body;
use axum::http::header::ACCEPT;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// The group of both objects.
const GROUP: &str = "config.k8s.io";

/// What `kubectl version` would call this: the release whose behaviour this has, and our own version.
const VERSION: &str = concat!("1.36.2+rs.", env!("CARGO_PKG_VERSION"));

/// What a request wants to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Text,
    Object(Syntax, Version),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Deprecated.
    V1Alpha1,
    V1Beta1,
}

/// `/flagz`.
#[derive(Clone)]
pub(super) struct Flagz {
    /// Every flag and its value, by name.
    pub(super) flags: Vec<(String, String)>,
}

impl Flagz {
    pub(super) fn answer(&self, request: &Request<Body>) -> Response {
        answer(request, "Flagz", "flagz", || self.text(), || self.fields())
    }

    fn text(&self) -> String {
        let mut lines = String::new();
        for (name, value) in &self.flags {
            let _ = writeln!(lines, "{name}: {value}");
        }
        lines
    }

    fn fields(&self) -> Value {
        let flags: Map<String, Value> = self
            .flags
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        json!({ "flags": flags })
    }
}

/// `/statusz`.
#[derive(Clone)]
pub(super) struct Statusz {
    pub(super) serving: Serving,
    pub(super) has_flagz: bool,
}

impl Statusz {
    pub(super) fn answer(&self, request: &Request<Body>) -> Response {
        answer(request, "Statusz", "statusz", || self.text(), || self.fields())
    }

    fn paths(&self) -> Vec<&'static str> {
        let all = ["/configz", "/flagz", "/healthz", "/metrics", "/proxyMode"];
        let there = all.into_iter().filter(|path| self.has_flagz || *path != "/flagz");
        there.collect()
    }

    fn up(&self) -> u64 {
        self.serving.now().since_start.as_secs()
    }

    fn text(&self) -> String {
        let (started, up) = (rfc3339(self.serving.0.started_wall), self.up());
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        let paths = self.paths().join(" ");
        format!(
            "Started: {started}\nUp: {hours:02} hr {minutes:02} min {seconds:02} sec\nGo version: none (Rust)\n\
             Binary version: {VERSION}\nEmulation version: 1.36\nPaths: {paths}\n"
        )
    }

    fn fields(&self) -> Value {
        json!({
            "startTime": rfc3339(self.serving.0.started_wall),
            "uptimeSeconds": self.up(),
            "goVersion": "none (Rust)",
            "binaryVersion": VERSION,
            "emulationVersion": "1.36",
            "paths": self.paths(),
        })
    }
}

fn answer(
    request: &Request<Body>,
    kind: &str,
    page: &str,
    lines: impl FnOnce() -> String,
    fields: impl FnOnce() -> Value,
) -> Response {
    let headers = request.headers().get_all(ACCEPT).into_iter();
    let accept: Vec<&str> = headers.filter_map(|value| value.to_str().ok()).collect();
    match wanted(&accept.join(","), kind) {
        None => not_acceptable(kind),
        Some(Wanted::Text) => text(
            StatusCode::OK,
            format!(
                "\nkube-proxy {page}\nFor people; the form may change.\n\n{}",
                lines()
            ),
        ),
        Some(Wanted::Object(syntax, version)) => object(kind, page, syntax, version, fields()),
    }
}

/// The first of the accepted forms that there is, by weight. Without any, text.
fn wanted(accept: &str, kind: &str) -> Option<Wanted> {
    if accept.trim().is_empty() {
        return Some(Wanted::Text);
    }
    let mut clauses: Vec<(f32, &str)> = accept.split(',').map(|clause| (weight(clause), clause)).collect();
    clauses.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    clauses
        .into_iter()
        .filter(|(weight, _)| *weight > 0.0)
        .find_map(|(_, clause)| form(clause, kind))
}

fn weight(clause: &str) -> f32 {
    parameter(clause, "q").and_then(|q| q.parse().ok()).unwrap_or(1.0)
}

fn parameter<'a>(clause: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = clause
        .split(';')
        .skip(1)
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// What one accepted form means: text as it is, or this kind of object in a version that there is.
fn form(clause: &str, kind: &str) -> Option<Wanted> {
    let media = clause.split(';').next().unwrap_or_default().trim();
    let asked = ["as", "g", "v"].map(|name| parameter(clause, name));
    if asked == [None; 3] {
        return ["text/plain", "text/*", "*/*"]
            .contains(&media)
            .then_some(Wanted::Text);
    }
    let syntax = match media {
        "application/json" | "application/*" | "*/*" => Syntax::Json,
        "application/yaml" => Syntax::Yaml,
        _ => return None,
    };
    let version = match asked {
        [Some(of), Some(GROUP), Some("v1beta1")] if of == kind => Version::V1Beta1,
        [Some(of), Some(GROUP), Some("v1alpha1")] if of == kind => Version::V1Alpha1,
        _ => return None,
    };
    Some(Wanted::Object(syntax, version))
}

fn object(kind: &str, page: &str, syntax: Syntax, version: Version, fields: Value) -> Response {
    let word = match version {
        Version::V1Alpha1 => "v1alpha1",
        Version::V1Beta1 => "v1beta1",
    };
    let mut object = json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/{word}"),
        "metadata": {"name": "kube-proxy"},
    });
    if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
        object.extend(fields);
    }
    let mut response = match syntax {
        Syntax::Json => json(StatusCode::OK, format!("{object}\n")),
        Syntax::Yaml => answer_of(StatusCode::OK, "application/yaml", yaml(&object, 0)),
    };
    if version == Version::V1Alpha1 {
        let warning = format!(
            "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
        );
        let warning = HeaderValue::from_str(&warning).expect("invariant: no control characters in it");
        response
            .headers_mut()
            .insert(HeaderName::from_static("warning"), warning);
    }
    response
}

/// Objects of objects, lists of words, and values.
fn yaml(value: &Value, depth: usize) -> String {
    let mut text = String::new();
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let _ = match value {
                    Value::Object(inner) if inner.is_empty() => writeln!(text, "{indent}{name}: {{}}"),
                    Value::Object(_) | Value::Array(_) => {
                        write!(text, "{indent}{name}:\n{}", yaml(value, depth + 1))
                    }
                    value => writeln!(text, "{indent}{name}: {value}"),
                };
            }
        }
        Value::Array(items) => {
            for item in items {
                let _ = writeln!(text, "{indent}- {item}");
            }
        }
        value => drop(writeln!(text, "{indent}{value}")),
    }
    text
}

/// As the API says it; the message names what there is.
fn not_acceptable(kind: &str) -> Response {
    let forms = ["application/json", "application/yaml"]
        .map(|media| format!("{media};v=v1beta1;g={GROUP};as={kind}"))
        .join(", ");
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("only the following media types are accepted: text/plain, {forms}"),
        "reason": "NotAcceptable",
        "code": 406,
    });
    json(StatusCode::NOT_ACCEPTABLE, format!("{status}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_given_to_those_alone_who_ask_for_their_kind() {
        let json = |version| Some(Wanted::Object(Syntax::Json, version));
        for (accept, expected) in [
            ("", Some(Wanted::Text)),
            ("*/*", Some(Wanted::Text)),
            ("text/plain", Some(Wanted::Text)),
            ("application/json", None),
            ("text/html", None),
            (
                "application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
                json(Version::V1Beta1),
            ),
            (
                "application/json; as=Flagz; g=config.k8s.io; v=v1alpha1",
                json(Version::V1Alpha1),
            ),
            (
                "application/yaml;v=v1beta1;g=config.k8s.io;as=Flagz",
                Some(Wanted::Object(Syntax::Yaml, Version::V1Beta1)),
            ),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Statusz", None),
            ("application/json;v=v1;g=config.k8s.io;as=Flagz", None),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Some(Wanted::Text)),
            (
                "text/plain;q=0.5,application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
                json(Version::V1Beta1),
            ),
            ("text/plain;q=0", None),
        ] {
            assert_eq!(wanted(accept, "Flagz"), expected, "{accept}");
        }
    }

    #[test]
    fn yaml_says_what_json_says() {
        let value = json!({"flags": {"a": "", "b": "x: \"y\""}, "none": {}, "paths": ["/a", "/b"], "up": 3});
        let expected =
            "flags:\n  a: \"\"\n  b: \"x: \\\"y\\\"\"\nnone: {}\npaths:\n  - \"/a\"\n  - \"/b\"\nup: 3\n";
        assert_eq!(yaml(&value, 0), expected);
    }
}
