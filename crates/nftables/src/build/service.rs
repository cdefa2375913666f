//! One service's elements.

use super::frame::{Choice, Shape, Shapes, set_of};
use crate::ast::{COMMENT_LIMIT, Element, ElementKey, Elements, Name, Value};
use crate::names::{self, Form, Kind, Role};
use crate::slots::{Keeping, Slots};
use ipnet::IpNet;
use model::desired::Admission;
use model::object::{Service, ServicePort};
use model::{
    Balancing, DesiredPort, DesiredService, Frontend, FrontendKind, List, Route, ServicePortName, balance,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where each list's endpoints lie: in slots, or for a service that is balanced by the client's address in buckets.
pub type ServiceSlots = BTreeMap<(ServicePortName, List), Slots>;

/// Finds the endpoints' places, given where they were.
pub fn place(before: &ServiceSlots, service: &DesiredService) -> ServiceSlots {
    let mut all = ServiceSlots::new();
    for port in &service.ports {
        for (list, endpoints) in [(List::Cluster, &port.cluster), (List::Local, &port.local)] {
            let key = (port.name.clone(), list);
            let old = || before.get(&key).cloned().unwrap_or_default();
            let slots = match (port.balancing, port.affinity) {
                (Balancing::ClientHash, _) => Slots::from_taken((0..).zip(balance::endpoints(endpoints))),
                (Balancing::Random, None) => old().changed_to(endpoints, Keeping::Dense),
                (Balancing::Random, Some(_)) => old().changed_to(endpoints, Keeping::InPlace),
            };
            if slots.bound().is_some() {
                all.insert(key, slots);
            }
        }
    }
    all
}

/// Slots of one list that are taken.
type Taken = Vec<(u32, SocketAddr)>;

/// The slots in which the endpoints of a service's lists lie, by the elements that are there. Buckets have no past.
pub fn placed(service: &DesiredService, there: &Elements) -> ServiceSlots {
    let mut taken: BTreeMap<(Kind, &[Value]), Taken> = BTreeMap::new();
    for (key, element) in there {
        let form = names::form_of(key.set.as_str());
        if let Some(Form {
            kind: Some(kind),
            role: Role::Slot(slot),
            ..
        }) = form
            && let Some(endpoint) = element.endpoint
        {
            taken.entry((kind, &key.key)).or_default().push((slot, endpoint));
        }
    }
    let mut all = ServiceSlots::new();
    for port in &service.ports {
        for frontend in &port.frontends {
            let key = key_of(port, frontend);
            for (kind, list) in lists(frontend) {
                if let Some(taken) = taken.get(&(kind, key.as_slice())) {
                    let slots = || Slots::from_taken(taken.iter().copied());
                    all.entry((port.name.clone(), list)).or_insert_with(slots);
                }
            }
        }
    }
    all
}

/// The shapes that a service's lists have.
pub fn shapes(service: &DesiredService, slots: &ServiceSlots) -> Shapes {
    let mut shapes = Shapes::new();
    for port in &service.ports {
        for frontend in &port.frontends {
            let lists = lists(frontend);
            shapes.extend(
                lists
                    .into_iter()
                    .filter_map(|(kind, list)| shape(port, kind, list, slots)),
            );
        }
    }
    shapes
}

/// The frontends of a service: whatever lies under one of these keys is the service's own.
pub fn frontends(service: &DesiredService) -> Vec<(Kind, Arc<[Value]>)> {
    let of_port = |port: &DesiredPort| {
        let keys = port
            .frontends
            .iter()
            .map(|frontend| (kind_of(frontend), key_of(port, frontend).into()));
        keys.collect::<Vec<_>>()
    };
    service.ports.iter().flat_map(of_port).collect()
}

/// The elements that a service wants.
pub fn service(service: &DesiredService, slots: &ServiceSlots) -> Elements {
    let mut elements = Elements::new();
    for port in &service.ports {
        for frontend in &port.frontends {
            self::frontend(port, frontend, slots, &mut elements);
        }
        // Only an endpoint on this node can reach itself through this node.
        for endpoint in &port.on_node {
            let address = Value::Address(endpoint.ip());
            let protocol = Value::Protocol(port.name.protocol);
            let key = vec![address, address, protocol, Value::Port(endpoint.port())];
            put(&mut elements, Name::new(names::HAIRPIN), key, Element::default());
        }
    }
    elements
}

fn put(elements: &mut Elements, set: Name, key: impl Into<Arc<[Value]>>, element: Element) {
    let key = key.into();
    elements.insert(ElementKey { set, key }, element);
}

fn frontend(port: &DesiredPort, frontend: &Frontend, slots: &ServiceSlots, elements: &mut Elements) {
    let kind = kind_of(frontend);
    // All that lies under it shares it.
    let key: Arc<[Value]> = key_of(port, frontend).into();
    let comment = comment(&port.name);
    let named = || Element {
        endpoint: None,
        comment: Some(comment.clone()),
    };
    if let FrontendKind::ClusterIp(ip) = frontend.kind {
        let key = vec![Value::Address(ip)];
        put(elements, Name::new(names::CLUSTER_IPS), key, Element::default());
    }
    match frontend.routes.outside {
        Route::Reject(_) => put(elements, kind.rejected(), key.clone(), named()),
        Route::Drop(_) => put(elements, kind.dropped(), key.clone(), named()),
        Route::Endpoints { .. } => {}
    }
    if is_masqueraded(frontend) {
        put(elements, kind.masqueraded(), key.clone(), named());
    }
    let lists = lists(frontend);
    if is_by_source(frontend) {
        put(elements, kind.policy_local(), key.clone(), named());
    }
    for (kind, list) in lists {
        let Some(shape) = shape(port, kind, list, slots) else {
            continue;
        };
        put(elements, set_of(shape), key.clone(), named());
        for (slot, endpoint) in slots[&(port.name.clone(), list)].taken() {
            let element = Element {
                endpoint: Some(endpoint),
                comment: None,
            };
            let map = match shape.choice {
                Choice::Hashed => kind.bucket(slot),
                Choice::Random(_) | Choice::Sticky(..) => kind.slot(slot),
            };
            put(elements, map, key.clone(), element);
        }
    }
    if let (Some(admission), Some(address)) = (&frontend.admission, address_of(frontend)) {
        put(elements, Name::new(names::GUARDED), key, named());
        admit(port, frontend, address, admission, elements);
    }
}

fn admit(
    port: &DesiredPort,
    frontend: &Frontend,
    address: IpAddr,
    admission: &Admission,
    elements: &mut Elements,
) {
    // Networks that lie in or touch one another would be refused: the set takes no overlap.
    let own = admission.self_sources.iter().map(|ip| IpNet::from(*ip));
    let networks: Vec<IpNet> = admission.ranges.iter().copied().chain(own).collect();
    for network in IpNet::aggregate(&networks) {
        let key = vec![
            Value::Network(network),
            Value::Address(address),
            Value::Protocol(port.name.protocol),
            Value::Port(frontend.port),
        ];
        put(elements, Name::new(names::ALLOWED), key, Element::default());
    }
}

fn kind_of(frontend: &Frontend) -> Kind {
    match frontend.kind {
        FrontendKind::NodePort => Kind::NodePort,
        _ => Kind::Service,
    }
}

fn address_of(frontend: &Frontend) -> Option<IpAddr> {
    match frontend.kind {
        FrontendKind::ClusterIp(ip) | FrontendKind::ExternalIp(ip) | FrontendKind::LoadBalancerIp(ip) => {
            Some(ip)
        }
        FrontendKind::NodePort => None,
    }
}

fn key_of(port: &DesiredPort, frontend: &Frontend) -> Vec<Value> {
    let address = address_of(frontend).map(Value::Address);
    let rest = [Value::Protocol(port.name.protocol), Value::Port(frontend.port)];
    address.into_iter().chain(rest).collect()
}

/// Whether every source is masqueraded. What pods are spared is a rule for all cluster IPs.
fn is_masqueraded(frontend: &Frontend) -> bool {
    let routes = &frontend.routes;
    [routes.pod, routes.node, routes.outside]
        .iter()
        .all(|route| matches!(route, Route::Endpoints { masquerade: true, .. }))
}

/// Whether clients from outside are served otherwise than the node itself.
fn is_by_source(frontend: &Frontend) -> bool {
    list_of(frontend.routes.node).is_some()
        && list_of(frontend.routes.node) != list_of(frontend.routes.outside)
}

fn list_of(route: Route) -> Option<List> {
    match route {
        Route::Endpoints { list, .. } => Some(list),
        Route::Reject(_) | Route::Drop(_) => None,
    }
}

/// The lists that a frontend uses.
fn lists(frontend: &Frontend) -> Vec<(Kind, List)> {
    let kind = kind_of(frontend);
    let outside = match kind {
        Kind::NodePort => Kind::NodePortLocal,
        _ => Kind::ServiceLocal,
    };
    let mut lists: Vec<(Kind, List)> = list_of(frontend.routes.node)
        .map(|list| (kind, list))
        .into_iter()
        .collect();
    if is_by_source(frontend) {
        lists.extend(list_of(frontend.routes.outside).map(|list| (outside, list)));
    }
    lists
}

fn shape(port: &DesiredPort, kind: Kind, list: List, slots: &ServiceSlots) -> Option<Shape> {
    let bound = slots.get(&(port.name.clone(), list))?.bound()?;
    let choice = match (port.balancing, port.affinity) {
        (Balancing::ClientHash, _) => Choice::Hashed,
        (Balancing::Random, None) => Choice::Random(bound),
        (Balancing::Random, Some(affinity)) => Choice::Sticky(bound, affinity.timeout_seconds),
    };
    Some(Shape { kind, choice })
}

/// The comment of a service's element, if it has one. What is held has none; the object still tells.
pub fn comment_of(key: &ElementKey, service: &Service) -> Option<Arc<str>> {
    let form = names::form_of(key.set.as_str())?;
    let has_one = match form.role {
        Role::Treated | Role::Refused | Role::Within(..) | Role::Hashed => true,
        Role::Admission => key.set.as_str() == names::GUARDED,
        Role::Shared | Role::Slot(_) | Role::Bucket(_) | Role::Clients(_) => false,
    };
    if !has_one {
        return None;
    }
    let [.., Value::Protocol(protocol), Value::Port(number)] = *key.key else {
        return None;
    };
    let is_it = |port: &&ServicePort| {
        let own = match form.kind {
            Some(Kind::NodePort | Kind::NodePortLocal) => port.node_port,
            _ => Some(port.port),
        };
        (own, port.protocol) == (Some(number), protocol)
    };
    let port = service.ports.iter().find(is_it)?;
    Some(comment(&ServicePortName {
        service: service.name.clone(),
        port: port.name.clone(),
        protocol,
    }))
}

/// `ns/name:port`, as much as fits.
fn comment(name: &ServicePortName) -> Arc<str> {
    let text = name.to_string();
    let fits = (0..=COMMENT_LIMIT.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text[..fits.unwrap_or(0)].into()
}
