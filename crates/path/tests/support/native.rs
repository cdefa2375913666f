//! The same clusters in the words of nftables mode: our layout, upstream's, and what is expected of both.

use ipnet::IpNet;
use model::snapshot::Snapshot;
use model::{
    Delivery, Desired, Frontend, FrontendKind, NodeFacts, NodePortTargets, Origin, Outcome, Packet, Route,
};
use nftables::build;
use nftables::{listed, parse, render};
use path::{Host, LocalAddresses};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Whose table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Sets and slots (ADR 50).
    Ours,
    /// Verdict maps, and chains for each service.
    Upstream,
}

/// Both.
pub const LAYOUTS: [Layout; 2] = [Layout::Ours, Layout::Upstream];

/// The networks that cluster IPs come from.
pub fn service_cidrs(snapshot: &Snapshot) -> Vec<IpNet> {
    let all = snapshot
        .service_cidrs()
        .flat_map(|cidr| cidr.cidrs.iter().copied());
    all.collect()
}

fn cluster_ips(desired: &Desired) -> BTreeSet<IpAddr> {
    let ports = desired.services.values().flat_map(|service| &service.ports);
    let frontends = ports.flat_map(|port| &port.frontends);
    let address = frontends.filter_map(|frontend| match frontend.kind {
        FrontendKind::ClusterIp(ip) => Some(ip),
        _ => None,
    });
    address.collect()
}

/// A host of which the addresses are known, and no routes.
pub fn host(facts: &NodeFacts, table: listed::Table) -> Host {
    hosting(facts, listed::Ruleset { tables: vec![table] })
}

/// The same with any tables.
pub fn hosting(facts: &NodeFacts, native: listed::Ruleset) -> Host {
    Host {
        addresses: LocalAddresses::Known(facts.interface_addresses.iter().copied().collect()),
        native,
        ..Host::default()
    }
}

/// What we build, as a table and as a file for `nft -f`.
pub fn ours(desired: &Desired, cidrs: &[IpNet]) -> (listed::Table, String) {
    let (shapes, elements) = build::parts(desired);
    let frame = build::frame(&desired.node, &shapes, cidrs);
    (
        listed::of_frame(&frame, &elements),
        render::file(&frame, &elements),
    )
}

/// The table in one of the layouts, and the file that makes it.
pub fn table(
    layout: Layout,
    desired: &Desired,
    cidrs: &[IpNet],
    masquerade_all: bool,
) -> (listed::Table, String) {
    match layout {
        Layout::Ours => ours(desired, cidrs),
        Layout::Upstream => {
            let file = super::upstream::file(desired, cidrs, masquerade_all);
            let mut ruleset = parse::ruleset(&file).unwrap_or_else(|error| panic!("{error}\n{file}"));
            (ruleset.tables.remove(0), file)
        }
    }
}

/// What the oracle says of iptables mode, with the differences that upstream's nftables mode has on purpose
/// (docs/nftables-mode.md). `None` when the outcome cannot be told from that of iptables mode.
pub fn expected(desired: &Desired, facts: &NodeFacts, cidrs: &[IpNet], packet: &Packet) -> Option<Outcome> {
    let to = packet.dst.ip();
    let served = match &desired.node.node_ports {
        NodePortTargets::AllLocal => true,
        NodePortTargets::Only(addresses) => addresses.contains(&to),
    };
    let outcome = match model::oracle::outcome(desired, facts, packet) {
        Outcome::Accepted => Outcome::Untouched,
        // Node ports without endpoints are refused where others are served.
        Outcome::Rejected | Outcome::Dropped
            if facts.is_local_address(to) && !served && refused(desired, packet).is_none() =>
        {
            Outcome::Untouched
        }
        // External addresses without endpoints are refused to the node itself as to everybody.
        Outcome::Untouched if packet.origin == Origin::Host => {
            refused(desired, packet).unwrap_or(Outcome::Untouched)
        }
        // Node ports are never served on loopback.
        Outcome::Delivered(_) | Outcome::Rejected | Outcome::Dropped if to.is_loopback() => {
            Outcome::Untouched
        }
        Outcome::Delivered(deliveries) => Outcome::Delivered(hairpins(desired, packet, deliveries)?),
        other => other,
    };
    if outcome != Outcome::Untouched || facts.is_local_address(to) {
        return Some(outcome);
    }
    let of_service = cidrs.iter().any(|net| net.contains(&to));
    Some(match (cluster_ips(desired).contains(&to), of_service) {
        (true, _) => Outcome::Rejected,
        (false, true) => Outcome::Dropped,
        _ => Outcome::Untouched,
    })
}

/// What the address that the packet is for, other than by a node port, does without endpoints.
fn refused(desired: &Desired, packet: &Packet) -> Option<Outcome> {
    let ports = desired.services.values().flat_map(|service| &service.ports);
    let mut of_protocol = ports.filter(|port| port.name.protocol == packet.protocol);
    of_protocol.find_map(|port| {
        let at = |frontend: &&Frontend| match frontend.kind {
            FrontendKind::ClusterIp(ip) | FrontendKind::ExternalIp(ip) | FrontendKind::LoadBalancerIp(ip) => {
                packet.dst == std::net::SocketAddr::new(ip, frontend.port)
            }
            FrontendKind::NodePort => false,
        };
        match port.frontends.iter().find(at)?.routes.outside {
            Route::Reject(_) => Some(Outcome::Rejected),
            Route::Drop(_) => Some(Outcome::Dropped),
            Route::Endpoints { .. } => None,
        }
    })
}

/// Only an endpoint on this node can reach itself through it, and only such a one is masqueraded then.
fn hairpins(
    desired: &Desired,
    packet: &Packet,
    deliveries: BTreeSet<Delivery>,
) -> Option<BTreeSet<Delivery>> {
    let ports = desired.services.values().flat_map(|service| &service.ports);
    let on_node: BTreeSet<_> = ports.flat_map(|port| &port.on_node).copied().collect();
    let elsewhere =
        |delivery: &Delivery| delivery.endpoint.ip() == packet.src && !on_node.contains(&delivery.endpoint);
    if !deliveries.iter().any(elsewhere) {
        return Some(deliveries);
    }
    let others = deliveries
        .iter()
        .find(|delivery| delivery.endpoint.ip() != packet.src);
    let masquerade = others?.masquerade;
    let fixed = deliveries.iter().map(|delivery| Delivery {
        endpoint: delivery.endpoint,
        masquerade: if elsewhere(delivery) {
            masquerade
        } else {
            delivery.masquerade
        },
    });
    Some(fixed.collect())
}
