//! What a Service's endpoints amount to, as this node sees it.

use explain::World;
use model::desired::{FrontendKind, Reason, Route};
use model::object::{Conditions, Service, Slice};
use model::resolve::endpoints::listed;
use model::{Family, Frontend};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What a Service's endpoints amount to. What is worse comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// No endpoint that could be used.
    Failing,
    /// Endpoints that could be used, and none of them for a port of the Service.
    OtherPorts,
    /// Only endpoints that serve while they end.
    Ending,
    /// `internalTrafficPolicy: Local`, and none on this node: this node's pods and processes have none.
    NotHere,
    /// Some endpoint is not ready, or some port has none.
    Partly,
    /// `externalTrafficPolicy: Local`, and none on this node: what clients outside send to this node is dropped.
    NotHereOutside,
    /// Every endpoint is ready.
    Ready,
    /// No proxy's part.
    NotServed,
}

impl State {
    pub(crate) const ALL: [State; 8] = [
        State::Failing,
        State::OtherPorts,
        State::Ending,
        State::NotHere,
        State::Partly,
        State::NotHereOutside,
        State::Ready,
        State::NotServed,
    ];

    /// The word that programs read. Stable.
    pub(crate) fn word(self) -> &'static str {
        match self {
            State::Failing => "failing",
            State::OtherPorts => "other-ports",
            State::Ending => "ending",
            State::NotHere => "not-here",
            State::Partly => "partly",
            State::NotHereOutside => "not-here-outside",
            State::Ready => "ready",
            State::NotServed => "not-served",
        }
    }
}

/// What the endpoints of one family amount to.
pub(crate) struct Amounts {
    pub(crate) state: State,
    pub(crate) ready: usize,
    pub(crate) endpoints: usize,
}

/// Of a dual-stack Service's pods each is in both families: the family that fares worse tells.
pub(crate) fn amounts(world: &World, service: &Service, slices: &[&Slice]) -> Amounts {
    let has_address = |family: &Family| service.cluster_ips.get(*family).is_some();
    let has_slice = |family: &Family| slices.iter().any(|slice| slice.family == Some(*family));
    let mut families: Vec<Family> = Family::ALL.into_iter().filter(has_address).collect();
    if families.is_empty() {
        let of_slices = Family::ALL.into_iter().find(has_slice);
        families.push(of_slices.unwrap_or(Family::V4));
    }
    let found = families
        .iter()
        .map(|family| of_family(world, service, slices, *family));
    found
        .min_by_key(|found| found.state)
        .expect("one family at least")
}

fn of_family(world: &World, service: &Service, slices: &[&Slice], family: Family) -> Amounts {
    let mut all: BTreeMap<IpAddr, Conditions> = BTreeMap::new();
    let mut usable_ports = 0;
    let mut ready_ports = 0;
    for port in &service.ports {
        let found = listed(port, slices, family, &world.facts).endpoints;
        ready_ports += usize::from(found.iter().any(|one| one.conditions.ready));
        usable_ports += usize::from(found.iter().any(|one| one.conditions.is_usable()));
    }
    for slice in slices.iter().filter(|slice| slice.family == Some(family)) {
        for endpoint in &slice.endpoints {
            let known = all.entry(endpoint.ip).or_insert(endpoint.conditions);
            if endpoint.conditions.ready {
                *known = endpoint.conditions;
            }
        }
    }
    let count = |fits: fn(&Conditions) -> bool| all.values().filter(|conditions| fits(conditions)).count();
    // publishNotReadyAddresses says ready of all.
    let serving = count(|conditions| conditions.ready && conditions.serving);
    let has_usable = count(|conditions| conditions.is_usable()) > 0;
    let of_endpoints = match () {
        () if usable_ports == 0 && has_usable => State::OtherPorts,
        () if usable_ports == 0 => State::Failing,
        () if ready_ports == 0 => State::Ending,
        () if serving < all.len() || ready_ports < service.ports.len() => State::Partly,
        () => State::Ready,
    };
    Amounts {
        state: match service.skipped {
            Some(_) => State::NotServed,
            None => of_endpoints.min(of_this_node(world, service, family)),
        },
        ready: count(|conditions| conditions.ready),
        endpoints: all.len(),
    }
}

/// What policy Local makes of it on this node.
fn of_this_node(world: &World, service: &Service, family: Family) -> State {
    // A node without a name has no endpoint of its own to tell.
    if world.facts.name.is_empty() {
        return State::Ready;
    }
    let ports = service.ports.iter();
    let desired = ports.filter_map(|port| world.port(family, &service.name, &port.name, port.protocol));
    let frontends = desired.flat_map(|port| &port.frontends);
    let has_none = |route: Route| {
        matches!(
            route,
            Route::Reject(Reason::NoLocalEndpoints) | Route::Drop(Reason::NoLocalEndpoints)
        )
    };
    let state = |frontend: &Frontend| match frontend.kind {
        FrontendKind::ClusterIp(_) if has_none(frontend.routes.pod) => State::NotHere,
        FrontendKind::ClusterIp(_) => State::Ready,
        _ if has_none(frontend.routes.outside) => State::NotHereOutside,
        _ => State::Ready,
    };
    frontends.map(state).min().unwrap_or(State::Ready)
}
