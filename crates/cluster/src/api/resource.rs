//! The four watched resources: their paths, selectors and requests, which are upstream's.

use model::object::Kind;
use std::fmt::Write as _;

/// What one watch asks for.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) kind: Kind,
    /// Path under the server's URL.
    path: &'static str,
    /// Selectors, ready for a query string.
    selectors: String,
}

/// How a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start<'a> {
    /// With all objects there are, not older than the given version.
    InitialEvents(Option<&'a str>),
    /// With what happened since.
    After(&'a str),
}

impl Resource {
    /// The resource of a kind. `node` is this node's name, the only Node asked for.
    pub(crate) fn new(kind: Kind, node: &str) -> Self {
        let (path, selectors) = match kind {
            Kind::Service => (
                "/api/v1/services",
                selectors(
                    "!service.kubernetes.io/service-proxy-name",
                    "spec.clusterIP!=None",
                ),
            ),
            Kind::Slice => (
                "/apis/discovery.k8s.io/v1/endpointslices",
                selectors("!service.kubernetes.io/headless", ""),
            ),
            Kind::Node => ("/api/v1/nodes", selectors("", &format!("metadata.name={node}"))),
            Kind::ServiceCidr => ("/apis/networking.k8s.io/v1/servicecidrs", String::new()),
        };
        Resource {
            kind,
            path,
            selectors,
        }
    }

    /// The resource's plural, as RBAC rules spell it, with its API group when it has one.
    pub(crate) fn plural(kind: Kind) -> &'static str {
        match kind {
            Kind::Service => "services",
            Kind::Slice => "endpointslices.discovery.k8s.io",
            Kind::Node => "nodes",
            Kind::ServiceCidr => "servicecidrs.networking.k8s.io",
        }
    }

    /// The request for a list. Without a version the server answers from its cache, whatever its age, and never asks
    /// etcd: that is `resourceVersion=0`, and it keeps a fleet of restarting nodes cheap (upstream issue 85342).
    pub(crate) fn list(&self, not_older_than: Option<&str>) -> String {
        let mut uri = format!("{}?{}", self.path, self.selectors);
        match not_older_than {
            None => push(&mut uri, "resourceVersion", "0"),
            Some(version) => {
                push(&mut uri, "resourceVersion", version);
                push(&mut uri, "resourceVersionMatch", "NotOlderThan");
            }
        }
        uri
    }

    /// The request for a watch that the server ends after `seconds`.
    pub(crate) fn watch(&self, start: Start<'_>, seconds: u64) -> String {
        let mut uri = format!("{}?{}", self.path, self.selectors);
        push(&mut uri, "watch", "true");
        push(&mut uri, "allowWatchBookmarks", "true");
        push(&mut uri, "timeoutSeconds", &seconds.to_string());
        match start {
            Start::InitialEvents(version) => {
                push(&mut uri, "sendInitialEvents", "true");
                push(&mut uri, "resourceVersionMatch", "NotOlderThan");
                if let Some(version) = version {
                    push(&mut uri, "resourceVersion", version);
                }
            }
            Start::After(version) => push(&mut uri, "resourceVersion", version),
        }
        uri
    }
}

fn selectors(label: &str, field: &str) -> String {
    let mut query = String::new();
    for (key, value) in [("labelSelector", label), ("fieldSelector", field)] {
        if !value.is_empty() {
            push(&mut query, key, value);
        }
    }
    query
}

/// Adds `key=value` with the value escaped.
fn push(query: &mut String, key: &str, value: &str) {
    if !query.is_empty() && !query.ends_with('?') {
        query.push('&');
    }
    query.push_str(key);
    query.push('=');
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                query.push(char::from(byte));
            }
            _ => write!(query, "%{byte:02X}").expect("invariant: a String takes all text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_asked_for_with_upstreams_selectors() {
        let services = Resource::new(Kind::Service, "n1");
        assert_eq!(
            services.list(None),
            "/api/v1/services?labelSelector=%21service.kubernetes.io%2Fservice-proxy-name\
             &fieldSelector=spec.clusterIP%21%3DNone&resourceVersion=0"
        );
        assert_eq!(
            services.watch(Start::InitialEvents(None), 300),
            "/api/v1/services?labelSelector=%21service.kubernetes.io%2Fservice-proxy-name\
             &fieldSelector=spec.clusterIP%21%3DNone&watch=true&allowWatchBookmarks=true&timeoutSeconds=300\
             &sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        );
    }

    #[test]
    fn slices_leave_out_headless_services() {
        assert_eq!(
            Resource::new(Kind::Slice, "n1").list(Some("7")),
            "/apis/discovery.k8s.io/v1/endpointslices?labelSelector=%21service.kubernetes.io%2Fheadless\
             &resourceVersion=7&resourceVersionMatch=NotOlderThan"
        );
    }

    #[test]
    fn only_the_own_node_is_watched() {
        assert_eq!(
            Resource::new(Kind::Node, "node-a").watch(Start::After("9"), 400),
            "/api/v1/nodes?fieldSelector=metadata.name%3Dnode-a&watch=true&allowWatchBookmarks=true\
             &timeoutSeconds=400&resourceVersion=9"
        );
    }
}
