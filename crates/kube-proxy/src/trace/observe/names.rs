//! The names of services and endpoints by their addresses, from the objects of a cluster.

use anyhow::{Context as _, Result, bail};
use cluster::manifests;
use model::Protocol;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Who is at an address, as far as objects say.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// `kube-system/coredns-1 of kube-system/kube-dns:dns`.
    endpoints: BTreeMap<(u8, SocketAddr), String>,
    /// `kube-system/kube-dns:dns`.
    services: BTreeMap<(u8, SocketAddr), String>,
    node_ports: BTreeMap<(u8, u16), String>,
}

impl Names {
    /// Reads Services and `EndpointSlices`.
    pub(super) fn read(path: &Path) -> Result<Names> {
        let found = manifests::values_in(path).context("cannot read --manifests")?;
        if let ([], [first, ..]) = (found.values.as_slice(), found.errors.as_slice()) {
            bail!("{first}");
        }
        for error in &found.errors {
            anstream::eprintln!("warning: {error}");
        }
        let mut names = Names::default();
        found.values.iter().for_each(|value| names.add(value));
        Ok(names)
    }

    /// The endpoint at an address, for a protocol by its number.
    pub(super) fn endpoint(&self, protocol: u8, at: SocketAddr) -> Option<&str> {
        self.endpoints.get(&(protocol, at)).map(String::as_str)
    }

    /// The service at an address, or of a node port.
    pub(super) fn service(&self, protocol: u8, at: SocketAddr) -> Option<&str> {
        let by_port = || self.node_ports.get(&(protocol, at.port()));
        self.services
            .get(&(protocol, at))
            .or_else(by_port)
            .map(String::as_str)
    }

    fn add(&mut self, value: &Value) {
        match text(value, "/kind") {
            "Service" => self.add_service(value),
            "EndpointSlice" => self.add_slice(value),
            kind if kind.ends_with("List") => items(value, "/items").iter().for_each(|item| self.add(item)),
            _ => {}
        }
    }

    fn add_service(&mut self, service: &Value) {
        let mut addresses: Vec<IpAddr> = Vec::new();
        for field in ["/spec/clusterIPs", "/spec/externalIPs"] {
            let ips = items(service, field).iter().filter_map(Value::as_str);
            addresses.extend(ips.filter_map(|ip| ip.parse::<IpAddr>().ok()));
        }
        let ingress = items(service, "/status/loadBalancer/ingress");
        addresses.extend(
            ingress
                .iter()
                .filter_map(|one| text(one, "/ip").parse::<IpAddr>().ok()),
        );
        addresses.extend(text(service, "/spec/clusterIP").parse::<IpAddr>().ok());
        for port in items(service, "/spec/ports") {
            let name = named(&owner(service), text(port, "/name"));
            if let Some(number) = number(port, "/port") {
                for ip in &addresses {
                    let at = SocketAddr::new(*ip, number);
                    self.services.insert((protocol(port), at), name.clone());
                }
            }
            if let Some(number) = number(port, "/nodePort") {
                self.node_ports.insert((protocol(port), number), name);
            }
        }
    }

    fn add_slice(&mut self, slice: &Value) {
        let namespace = text(slice, "/metadata/namespace");
        let service = slice.pointer("/metadata/labels/kubernetes.io~1service-name");
        let service = service.and_then(Value::as_str).unwrap_or_default();
        for port in items(slice, "/ports") {
            let Some(number) = number(port, "/port") else {
                continue;
            };
            let of = named(&format!("{namespace}/{service}"), text(port, "/name"));
            for endpoint in items(slice, "/endpoints") {
                let name = match (
                    text(endpoint, "/targetRef/kind"),
                    text(endpoint, "/targetRef/name"),
                ) {
                    ("Pod", pod) if !pod.is_empty() => format!("pod {namespace}/{pod} of {of}"),
                    _ => format!("an endpoint of {of}"),
                };
                let addresses = items(endpoint, "/addresses").iter().filter_map(Value::as_str);
                for ip in addresses.filter_map(|ip| ip.parse::<IpAddr>().ok()) {
                    let at = SocketAddr::new(ip, number);
                    self.endpoints.insert((protocol(port), at), name.clone());
                }
            }
        }
    }
}

fn owner(object: &Value) -> String {
    let namespace = text(object, "/metadata/namespace");
    format!("{namespace}/{}", text(object, "/metadata/name"))
}

fn named(service: &str, port: &str) -> String {
    match port {
        "" => service.to_owned(),
        port => format!("{service}:{port}"),
    }
}

fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(value: &'a Value, at: &str) -> &'a [Value] {
    value
        .pointer(at)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The number of a port's protocol; TCP where nothing is said.
fn protocol(port: &Value) -> u8 {
    let word = text(port, "/protocol");
    let known = Protocol::ALL
        .into_iter()
        .find(|protocol| protocol.as_lower().eq_ignore_ascii_case(word));
    known.unwrap_or(Protocol::Tcp).number()
}

fn number(value: &Value, at: &str) -> Option<u16> {
    value.pointer(at)?.as_u64()?.try_into().ok()
}
