//! Everything about one Service: why it works or fails, ports and addresses, endpoints and their health, notes, rules.

use crate::counted::{self, Counted};
use crate::difference::{self, policy};
use crate::explored::{note_json, skip_words};
use crate::{notes, rules, table, way};
use explain::question::Port;
use explain::{From, Question, Severity, To, World, screen};
use model::ServiceName;
use model::object::{Service, ServiceKind, ServicePort, Slice, SliceEndpoint, SliceSkip};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Endpoints that are told; of more, only how many there are.
const MOST_ENDPOINTS: usize = 500;
/// Ports that are explained by themselves.
const MOST_PORTS: usize = 8;

/// Everything about one Service; `None` when there is none of this name.
pub(crate) fn json(world: &World, name: &ServiceName, counted: Option<&[Counted]>) -> Option<Value> {
    let service = world.snapshot.service(name)?;
    let slices = world.snapshot.slices_of(name);
    let notes: Vec<Value> = world
        .notes
        .iter()
        .filter(|note| notes::concerns(&world.snapshot, note).as_ref() == Some(name))
        .map(note_json)
        .collect();
    let endpoints = endpoints(world, service, &slices);
    Some(json!({
        "name": name.to_string(),
        "type": difference::kind(service.kind),
        "not_served": service.skipped.map(skip_words),
        "internal_policy": policy(service.internal),
        "external_policy": policy(service.external),
        "affinity_seconds": service.affinity.map(|affinity| affinity.timeout_seconds),
        "source_ranges": service.source_ranges.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "health_check_node_port": service.health_check_node_port,
        "publishes_not_ready": service.publish_not_ready,
        "answers": answers(world, service),
        "ports": table::ports(world, service),
        "counted_every_seconds": counted::COUNTED_EVERY_SECONDS,
        "counters": counted::json(world.mode, counted),
        "endpoints_total": endpoints.len(),
        "endpoints": endpoints.into_iter().take(MOST_ENDPOINTS).collect::<Vec<_>>(),
        "notes": notes,
        "seen_from": way::seen_from(world),
        "rules_are": way::rules_word(world.rules),
        "rules": rules::json(world, name),
    }))
}

/// What a client sees: a pod, on each port, and somebody outside, where the Service has an address for them.
fn answers(world: &World, service: &Service) -> Vec<Value> {
    let cluster = || {
        service
            .ports
            .iter()
            .take(MOST_PORTS)
            .map(|port| (From::Pod, inside(service, port), Some(port.protocol)))
    };
    // Who has nothing for clients outside is not asked for what it was not made for.
    let is_for_outside = service.kind != ServiceKind::ClusterIp || !service.external_ips.is_empty();
    let outside = service
        .ports
        .first()
        .filter(|_| is_for_outside)
        .map(|port| (From::Outside, inside(service, port), Some(port.protocol)));
    let questions: Vec<_> = if service.ports.is_empty() || service.skipped.is_some() {
        vec![(From::Pod, To::Service(service.name.clone(), None), None)]
    } else {
        cluster().chain(outside).collect()
    };
    questions
        .into_iter()
        .map(|(from, to, protocol)| {
            let question = Question {
                from,
                to: to.clone(),
                protocol,
                in_interface: None,
            };
            let answer = explain::explain(world, &question);
            json!({
                "from": answer.from,
                "asked_from": match question.from { From::Outside => "outside", _ => "pod" },
                "asked_to": asked_words(&to),
                "protocol": protocol.map(model::Protocol::as_lower),
                "to": answer.to,
                "headline": screen::headline(&answer),
                "reachable": way::reach_word(answer.reach),
                "client": answer.client,
                "findings": way::findings(&answer, |severity| severity > Severity::Remark),
                "remarks": way::findings(&answer, |severity| severity == Severity::Remark),
            })
        })
        .collect()
}

fn inside(service: &Service, port: &ServicePort) -> To {
    To::Service(service.name.clone(), Some(Port::Number(port.port)))
}

fn asked_words(to: &To) -> String {
    match to {
        To::Service(name, None) => name.to_string(),
        To::Service(name, Some(Port::Number(port))) => format!("{name}:{port}"),
        To::Service(name, Some(Port::Name(port))) => format!("{name}:{port}"),
        To::Name(name, None) => name.to_string(),
        To::Name(name, Some(Port::Number(port))) => format!("{name}:{port}"),
        To::Name(name, Some(Port::Name(port))) => format!("{name}:{port}"),
        To::Address(ip, None) => ip.to_string(),
        To::Address(ip, Some(port)) => SocketAddr::new(*ip, *port).to_string(),
        To::NodePort(port) => format!("node:{port}"),
    }
}

/// One address that slices list, with the ports it is listed for.
struct Listed<'a> {
    endpoint: &'a SliceEndpoint,
    slice: &'a Slice,
    ports: Vec<String>,
}

fn endpoints(world: &World, service: &Service, slices: &[&Slice]) -> Vec<Value> {
    let mut all: BTreeMap<IpAddr, Listed<'_>> = BTreeMap::new();
    for slice in slices
        .iter()
        .filter(|slice| slice.skipped.is_none_or(|why| why == SliceSkip::Headless))
    {
        for endpoint in &slice.endpoints {
            let listed = all.entry(endpoint.ip).or_insert(Listed {
                endpoint,
                slice,
                ports: Vec::new(),
            });
            let is_better = endpoint.conditions.ready && !listed.endpoint.conditions.ready;
            if is_better {
                (listed.endpoint, listed.slice) = (endpoint, slice);
            }
            for port in &slice.ports {
                let number = format!("{}/{}", port.port, port.protocol);
                let fits = service
                    .ports
                    .iter()
                    .any(|own| (&own.name, own.protocol) == (&port.name, port.protocol));
                let told = if fits {
                    number
                } else {
                    format!("{number} (of no port of the Service: {:?})", &*port.name)
                };
                if !listed.ports.contains(&told) {
                    listed.ports.push(told);
                }
            }
        }
    }
    let mut rows: Vec<(bool, Value)> = all
        .values()
        .map(|listed| (listed.endpoint.conditions.ready, endpoint_json(world, listed)))
        .collect();
    // What is not well is looked for first.
    rows.sort_by_key(|(is_ready, _)| *is_ready);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn endpoint_json(world: &World, listed: &Listed<'_>) -> Value {
    let Listed {
        endpoint,
        slice,
        ports,
    } = listed;
    let details = world.objects.slices.get(&slice.name);
    let pod = details.and_then(|details| details.pods.get(&endpoint.ip));
    let trouble = pod
        .and_then(|pod| world.objects.pod(pod))
        .map(|pod| pod.trouble.iter().map(ToString::to_string).collect::<Vec<_>>());
    let here = !world.facts.name.is_empty() && endpoint.node.as_deref() == Some(&*world.facts.name);
    let hints = endpoint.hints.as_ref().map(|hints| {
        let all = hints.zones.iter().chain(hints.nodes.iter());
        all.map(ToString::to_string).collect::<Vec<_>>()
    });
    json!({
        "address": endpoint.ip.to_string(),
        "ports": ports,
        "state": difference::state(endpoint),
        "kind": difference::state_kind(endpoint),
        "node": endpoint.node.as_deref(),
        "here": here,
        "pod": pod.map(ToString::to_string),
        "trouble": trouble.unwrap_or_default(),
        "hints": hints.unwrap_or_default(),
        "slice": slice.name.to_string(),
    })
}
