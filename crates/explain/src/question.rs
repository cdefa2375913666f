//! What is asked, as people write it.

use crate::objects::{Objects, PodName};
use model::object::{Node, Service};
use model::snapshot::Snapshot;
use model::{Protocol, ServiceName};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// What is asked: can this sender reach that Service, and why not?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who sends.
    pub from: From,
    /// Where to.
    pub to: To,
    /// The protocol, when it matters.
    pub protocol: Option<Protocol>,
    /// The interface the packet comes in through, when it is known.
    pub in_interface: Option<Arc<str>>,
}

/// Who sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// A Pod by its name, or a Node by its name: which, the objects say.
    Name(PodName),
    /// Some pod with this address.
    PodAddress(IpAddr),
    /// Any pod of the node.
    Pod,
    /// This address, whoever has it.
    Address(IpAddr),
    /// A process on the node itself.
    Node,
    /// A process on the Node of this name.
    NamedNode(Arc<str>),
    /// A client outside of the cluster.
    Outside,
}

/// Where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// A Service and one of its ports; without one, its only or first.
    Service(ServiceName, Option<Port>),
    /// A name that does not say what it is the name of, and a port: a Service without its namespace, or a Node. The objects
    /// say which.
    Name(Arc<str>, Option<Port>),
    /// An address; without a port, the first that a Service has there.
    Address(IpAddr, Option<u16>),
    /// A node port, on the node's own address.
    NodePort(u16),
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// By its number.
    Number(u16),
    /// By its name.
    Name(String),
}

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<From, String> {
        let bare = text.trim().trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = bare.parse() {
            return Ok(From::Address(ip));
        }
        match bare {
            "node" | "host" => return Ok(From::Node),
            "outside" => return Ok(From::Outside),
            "pod" => return Ok(From::Pod),
            _ => {}
        }
        if let Some(rest) = bare.strip_prefix("pod:") {
            let ip = rest.parse().map_err(|_| format!("{rest:?} is no IP address"))?;
            return Ok(From::PodAddress(ip));
        }
        if let Some(name) = bare.strip_prefix("node:").filter(|name| is_name(name)) {
            return Ok(From::NamedNode(name.into()));
        }
        let (namespace, name) = bare.split_once('/').unwrap_or(("default", bare));
        if is_name(namespace) && is_name(name) {
            return Ok(From::Name(PodName {
                namespace: namespace.into(),
                name: name.into(),
            }));
        }
        Err(format!(
            "{text:?} is no sender: give NAMESPACE/POD, an IP address, pod, node, the name of a Node, or outside"
        ))
    }
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<To, String> {
        let text = text.trim();
        if let Some((scheme, rest)) = text.split_once("://") {
            return of_url(scheme, rest);
        }
        let text = without_path(text);
        if let Ok(both) = text.parse::<SocketAddr>() {
            return Ok(To::Address(both.ip(), Some(both.port())));
        }
        if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse() {
            return Ok(To::Address(ip, None));
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(read_port(port)?)),
            None => (text, None),
        };
        let host = &in_small_letters(host);
        match (host.as_str(), &port) {
            ("node" | "host", Some(Port::Number(port))) => return Ok(To::NodePort(*port)),
            ("localhost", Some(Port::Number(port))) => return Ok(To::Address(LOCALHOST, Some(*port))),
            _ => {}
        }
        match service_name(host) {
            Some(name) => Ok(To::Service(name, port)),
            None if is_name(host) && host.contains(char::is_alphabetic) => {
                Ok(To::Name(host.as_str().into(), port))
            }
            None => Err(format!(
                "{text:?} is no destination: give NAMESPACE/SERVICE[:PORT], SERVICE.NAMESPACE.svc[:PORT], IP:PORT, \
                 NODE:NODEPORT, or node:NODEPORT"
            )),
        }
    }
}

const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// DNS answers without regard to capitals (RFC 4343). `namespace/name` is no name of DNS, and objects' names have none.
fn in_small_letters(host: &str) -> String {
    if host.contains('/') {
        host.to_owned()
    } else {
        host.to_ascii_lowercase()
    }
}

/// What people copy without its scheme: `cart.shop:80/healthz`.
fn without_path(text: &str) -> &str {
    let port = text.find(':').unwrap_or(text.len());
    let path = text[port..].find(['/', '?']);
    path.map_or(text, |path| &text[..port + path])
}

/// What a client was given, as people copy it: of `http://cart.shop:80/path` the host and port count.
fn of_url(scheme: &str, rest: &str) -> Result<To, String> {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let to: To = host.parse().map_err(|_| {
        format!(
            "{host:?} of {scheme}://{rest} is no name and no IP address (give --to NAMESPACE/SERVICE:PORT)"
        )
    })?;
    let usual = match scheme.to_ascii_lowercase().as_str() {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    };
    Ok(match to {
        To::Service(name, None) => To::Service(name, usual.map(Port::Number)),
        To::Name(name, None) => To::Name(name, usual.map(Port::Number)),
        To::Address(ip, None) => To::Address(ip, usual),
        given => given,
    })
}

fn read_port(text: &str) -> Result<Port, String> {
    match text.parse::<u16>() {
        Ok(0) => Err("0 is no port".to_owned()),
        Ok(number) => Ok(Port::Number(number)),
        // A port's name has a letter (IANA_SVC_NAME).
        Err(_) if is_name(text) && text.contains(char::is_alphabetic) => Ok(Port::Name(text.to_owned())),
        Err(_) => Err(format!(
            "{text:?} is neither a port number nor the name of a port"
        )),
    }
}

/// `namespace/name`, or `name.namespace` with or without `.svc` and a cluster domain, as pods write it.
fn service_name(text: &str) -> Option<ServiceName> {
    if let Some((namespace, name)) = text.split_once('/') {
        return (is_name(namespace) && is_name(name)).then(|| ServiceName::new(namespace, name));
    }
    let mut labels = text.trim_end_matches('.').split('.');
    let name = labels.next()?;
    let namespace = labels.next()?;
    let rest = labels.next();
    let is_dns = matches!(rest, None | Some("svc"));
    (is_dns && is_name(name) && is_name(namespace)).then(|| ServiceName::new(namespace, name))
}

fn is_name(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    !text.is_empty() && text.bytes().all(good)
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Question {
    /// The node whose rules matter, as far as the question names one: that of a Node's address which is asked for, else the
    /// sender's.
    pub fn node(&self, snapshot: &Snapshot, objects: &Objects) -> Option<Arc<str>> {
        let sender = self.node_of_sender(snapshot, objects);
        let is_outside = match self.from {
            From::Outside => true,
            From::Address(_) => sender.is_none(),
            _ => false,
        };
        self.asked_node(snapshot, is_outside).or(sender)
    }

    /// The Node that is asked for by an address or name of its own: it translates node ports there, whoever sends. An address
    /// that is a Service's as well is translated where its clients are; those outside come to the node that has it.
    fn asked_node(&self, snapshot: &Snapshot, is_outside: bool) -> Option<Arc<str>> {
        let node = match &self.to {
            To::Address(ip, _) => {
                let is_services = |service: &Service| {
                    service.external_ips.contains(ip) || service.load_balancer_ips.contains(ip)
                };
                let node = snapshot.nodes().find(|node| node.addresses.contains(ip));
                node.filter(|_| is_outside || !snapshot.services().any(is_services))
            }
            To::Name(name, _) => {
                let is_service = snapshot.services().any(|service| *service.name.name == **name);
                snapshot.node(name).filter(|_| !is_service)
            }
            // `worker-2.example` may be either.
            To::Service(name, _) => {
                let node = snapshot.node(&format!("{}.{}", name.name, name.namespace));
                node.filter(|_| snapshot.service(name).is_none())
            }
            To::NodePort(_) => None,
        };
        node.map(|node| node.name.clone())
    }

    /// The node that the sender is on.
    pub(crate) fn node_of_sender(&self, snapshot: &Snapshot, objects: &Objects) -> Option<Arc<str>> {
        let of_pod = |name: &PodName| objects.pod(name).and_then(|pod| pod.node.clone());
        let by_slices = |ip: IpAddr| {
            let endpoints = snapshot.slices().flat_map(|slice| &slice.endpoints);
            let mut of_ip = endpoints.filter(|endpoint| endpoint.ip == ip);
            of_ip.find_map(|endpoint| endpoint.node.clone())
        };
        let first = |is_it: &dyn Fn(&&Node) -> bool| {
            let node = snapshot.nodes().find(is_it);
            node.map(|node| node.name.clone())
        };
        match &self.from {
            From::Name(name) => of_pod(name)
                .or_else(|| objects.addresses_of(name).first().and_then(|ip| by_slices(*ip)))
                .or_else(|| snapshot.node(&name.name).map(|node| node.name.clone())),
            From::PodAddress(ip) | From::Address(ip) => objects
                .pod_of(*ip)
                .and_then(|pod| of_pod(&pod))
                .or_else(|| by_slices(*ip))
                .or_else(|| first(&|node| node.addresses.contains(ip)))
                .or_else(|| first(&|node| node.pod_cidrs.iter().any(|cidr| cidr.contains(ip)))),
            From::NamedNode(name) => Some(name.clone()),
            From::Pod | From::Node | From::Outside => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read_as_people_write_them() {
        let service =
            |namespace: &str, name: &str, port| To::Service(ServiceName::new(namespace, name), port);
        let name = |name: &str, port| To::Name(name.into(), port);
        let cases = [
            ("shop/cart", service("shop", "cart", None)),
            ("shop/cart:80", service("shop", "cart", Some(Port::Number(80)))),
            (
                "shop/cart:http",
                service("shop", "cart", Some(Port::Name("http".to_owned()))),
            ),
            ("cart", name("cart", None)),
            ("cart:80", name("cart", Some(Port::Number(80)))),
            ("cart:80/healthz?a=b", name("cart", Some(Port::Number(80)))),
            (
                "worker-2.example.com:30080",
                name("worker-2.example.com", Some(Port::Number(30080))),
            ),
            ("cart.shop", service("shop", "cart", None)),
            (
                "cart.shop.svc.cluster.local:80",
                service("shop", "cart", Some(Port::Number(80))),
            ),
            (
                "Cart.Shop.SVC:http",
                service("shop", "cart", Some(Port::Name("http".to_owned()))),
            ),
            ("CART:80", name("cart", Some(Port::Number(80)))),
            ("10.96.0.10:53/x", To::Address([10, 96, 0, 10].into(), Some(53))),
            ("10.96.0.10:53", To::Address([10, 96, 0, 10].into(), Some(53))),
            ("10.96.0.10", To::Address([10, 96, 0, 10].into(), None)),
            (
                "[2001:db8::1]:53",
                To::Address("2001:db8::1".parse().expect("an address"), Some(53)),
            ),
            (
                "2001:db8::1",
                To::Address("2001:db8::1".parse().expect("an address"), None),
            ),
            ("node:30080", To::NodePort(30080)),
        ];
        for (text, wanted) in cases {
            assert_eq!(text.parse::<To>(), Ok(wanted), "{text}");
        }
        for text in [
            "",
            "a b",
            "10.96.0.300:80",
            "shop/cart:0",
            "Shop/Cart:80",
            "shop/cart:70000",
            "/",
            "x/",
            ":80",
        ] {
            assert!(text.parse::<To>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_a_client_was_given_is_a_destination() {
        let service =
            |namespace: &str, name: &str, port| To::Service(ServiceName::new(namespace, name), port);
        let cases = [
            (
                "http://cart.shop:8080/path?q=1#top",
                service("shop", "cart", Some(Port::Number(8080))),
            ),
            (
                "https://cart.shop.svc.cluster.local/a:b",
                service("shop", "cart", Some(Port::Number(443))),
            ),
            (
                "http://user:word@10.96.0.10/",
                To::Address([10, 96, 0, 10].into(), Some(80)),
            ),
            (
                "grpc://[2001:db8::1]:53",
                To::Address("2001:db8::1".parse().expect("an address"), Some(53)),
            ),
            ("redis://cart.shop", service("shop", "cart", None)),
            (
                "http://worker-2:30080/",
                To::Name("worker-2".into(), Some(Port::Number(30080))),
            ),
            ("https://cart", To::Name("cart".into(), Some(Port::Number(443)))),
            ("localhost:30080", To::Address([127, 0, 0, 1].into(), Some(30080))),
            (
                "http://localhost:30080/",
                To::Address([127, 0, 0, 1].into(), Some(30080)),
            ),
        ];
        for (text, wanted) in cases {
            assert_eq!(text.parse::<To>(), Ok(wanted), "{text}");
        }
        for text in ["http://", "http://a b/"] {
            assert!(text.parse::<To>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn senders_are_read_as_people_write_them() {
        let pod = |namespace: &str, name: &str| {
            From::Name(PodName {
                namespace: namespace.into(),
                name: name.into(),
            })
        };
        let cases = [
            ("shop/web-1", pod("shop", "web-1")),
            ("node-a", pod("default", "node-a")),
            ("pod", From::Pod),
            ("pod:10.244.1.5", From::PodAddress([10, 244, 1, 5].into())),
            ("198.51.100.7", From::Address([198, 51, 100, 7].into())),
            ("node", From::Node),
            ("node:node-b", From::NamedNode("node-b".into())),
            ("outside", From::Outside),
        ];
        for (text, wanted) in cases {
            assert_eq!(text.parse::<From>(), Ok(wanted), "{text}");
        }
        for text in ["", "pod:x", "A/B", "x y"] {
            assert!(text.parse::<From>().is_err(), "{text:?}");
        }
    }
}
