//! From objects, node and settings to what traffic should do: one service at a time.
//!
//! * In and out: [`resolve`] makes a [`DesiredService`] of one service and its slices; [`resolve_node`] makes the
//!   part that no service owns; [`Desired::from_snapshot`] does it for a whole cluster.
//! * What it deliberately does not know: other services, except through [`Claims`] (see [`crate::crossing`]).
//! * Where to start reading: [`resolve`], then `routes`.

pub mod categorize;
pub mod endpoints;
mod node;
mod routes;

#[cfg(test)]
mod tests;

pub use node::resolve_node;

use crate::address::family_of_net;
use crate::crossing::{ClaimKey, Claims};
use crate::desired::{
    Admission, Balancing, Desired, DesiredPort, DesiredService, Frontend, FrontendKind, Policy, Reason,
    Route, Routes,
};
use crate::note::Subject;
use crate::object::{Service, ServicePort, Slice};
use crate::settings::{ClientHashing, ExternalIps};
use crate::snapshot::Snapshot;
use crate::{BalancingIgnored, Family, NodeFacts, Note, NoteKind, ServicePortName, Settings, Severity};
use categorize::{Categorized, Uses, categorize};
use ipnet::IpNet;
use routes::{Detection, MasqueradeAll};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// What a service's meaning depends on besides its own objects.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The family resolved for.
    pub family: Family,
    /// The node.
    pub node: &'a NodeFacts,
    /// The operator's decisions.
    pub settings: &'a Settings,
    /// Who has which address and node port.
    pub claims: &'a Claims,
}

/// Resolves one service for one family. `slices` are the service's, sorted by name.
///
/// `None` when the service wants nothing of this family: it is skipped, or has no cluster IP of the family, or no
/// port. A service whose every frontend belongs to others is there, with ports that have no frontends.
pub fn resolve(
    service: &Service,
    slices: &[&Slice],
    context: &Context<'_>,
) -> (Option<DesiredService>, Vec<Note>) {
    let cluster_ip = *service.cluster_ips.get(context.family);
    let Some(cluster_ip) = cluster_ip.filter(|_| service.skipped.is_none() && !service.ports.is_empty())
    else {
        return (None, Vec::new());
    };
    let mut resolution = Resolution {
        service,
        context,
        cluster_ip,
        notes: Vec::new(),
    };
    let ports = service
        .ports
        .iter()
        .map(|port| resolution.port(port, slices))
        .collect();
    let mut notes = resolution.notes;
    // Several ports of a service tend to have the same to say.
    notes.sort();
    notes.dedup();
    let name = service.name.clone();
    (Some(DesiredService { name, ports }), notes)
}

impl Desired {
    /// Resolves a whole cluster for one family.
    pub fn from_snapshot(
        snapshot: &Snapshot,
        family: Family,
        node: &NodeFacts,
        settings: &Settings,
    ) -> (Desired, Vec<Note>) {
        let claims = snapshot.claims();
        let context = Context {
            family,
            node,
            settings,
            claims,
        };
        let mut desired = Desired {
            node: resolve_node(family, node, settings),
            services: std::collections::BTreeMap::new(),
        };
        let mut notes = Vec::new();
        for service in snapshot.services() {
            let slices = snapshot.slices_of(&service.name);
            let (resolved, new) = resolve(service, &slices, &context);
            notes.extend(new);
            desired
                .services
                .extend(resolved.map(|resolved| (service.name.clone(), resolved)));
        }
        (desired, notes)
    }
}

fn on_node(reachable: &[SocketAddr], listed: &[endpoints::Listed<'_>]) -> Vec<SocketAddr> {
    let local: BTreeSet<SocketAddr> = listed
        .iter()
        .filter(|endpoint| endpoint.is_local)
        .map(|endpoint| endpoint.address)
        .collect();
    reachable
        .iter()
        .copied()
        .filter(|address| local.contains(address))
        .collect()
}

/// One service being resolved.
struct Resolution<'a> {
    service: &'a Service,
    context: &'a Context<'a>,
    cluster_ip: IpAddr,
    notes: Vec<Note>,
}

impl Resolution<'_> {
    fn port(&mut self, port: &ServicePort, slices: &[&Slice]) -> DesiredPort {
        let Context {
            family,
            node,
            settings,
            ..
        } = *self.context;
        let kinds = self.frontend_kinds(port);
        let accessible = kinds
            .iter()
            .any(|(kind, _)| !matches!(kind, FrontendKind::ClusterIp(_)));
        let service = self.service;
        let uses = Uses {
            cluster: service.internal == Policy::Cluster || accessible,
            local: service.internal == Policy::Local || (service.external == Policy::Local && accessible),
        };
        let listed = endpoints::listed(port, slices, family, node);
        for address in &listed.duplicates {
            let endpoint = address.to_string();
            self.note(Severity::Info, NoteKind::DuplicateEndpoint { endpoint });
        }
        let lists = categorize(&listed.endpoints, uses, node);
        let detection = match settings.detectors.get(family) {
            Some(_) => Detection::Possible,
            None => Detection::None,
        };
        let masquerade_all = if settings.masquerade_all {
            MasqueradeAll::Yes
        } else {
            MasqueradeAll::No
        };
        let internal = routes::internal(service.internal, &lists, detection, masquerade_all);
        let external = routes::external(service.external, &lists, detection);
        let frontends = self.frontends(&kinds, &internal, &external, &lists);
        self.note_drops(&frontends);
        DesiredPort {
            name: ServicePortName {
                service: service.name.clone(),
                port: port.name.clone(),
                protocol: port.protocol,
            },
            internal: service.internal,
            external: service.external,
            affinity: service.affinity,
            balancing: self.balancing(),
            cluster: lists.cluster,
            local: lists.local,
            on_node: on_node(&lists.reachable, &listed.endpoints),
            reachable: lists.reachable,
            frontends,
            health_check_node_port: service.health_check_node_port,
            listed_endpoints: listed.endpoints.len(),
        }
    }

    /// A client's stay with its endpoint is promised by the API, so affinity goes first.
    fn balancing(&mut self) -> Balancing {
        let ignored = match (
            self.service.balancing,
            self.context.settings.client_hashing,
            self.service.affinity,
        ) {
            (Balancing::Random, ..) => return Balancing::Random,
            (Balancing::ClientHash, ClientHashing::Possible, None) => return Balancing::ClientHash,
            (Balancing::ClientHash, ClientHashing::Impossible, _) => BalancingIgnored::Mode,
            (Balancing::ClientHash, ClientHashing::Possible, Some(_)) => BalancingIgnored::Affinity,
        };
        self.note(Severity::Warning, NoteKind::BalancingIgnored { why: ignored });
        Balancing::Random
    }

    /// The frontends this service has, in order: those that belong to other services are left out, with a note.
    fn frontend_kinds(&mut self, port: &ServicePort) -> Vec<(FrontendKind, u16)> {
        let family = self.context.family;
        let external_ips = &self.context.settings.external_ips;
        let service = self.service;
        let of_family = move |ip: &IpAddr| Family::of(*ip) == family;
        let mut kinds = vec![(FrontendKind::ClusterIp(self.cluster_ip), port.port)];
        for ip in service.external_ips.iter().copied().filter(of_family) {
            if external_ips.honours(ip) {
                kinds.push((FrontendKind::ExternalIp(ip), port.port));
            } else if *external_ips != ExternalIps::Ignored {
                self.note(Severity::Warning, NoteKind::ExternalIpNotAllowed { ip });
            }
        }
        let ips = service.load_balancer_ips.iter().copied().filter(of_family);
        kinds.extend(ips.map(|ip| (FrontendKind::LoadBalancerIp(ip), port.port)));
        kinds.extend(
            port.node_port
                .map(|node_port| (FrontendKind::NodePort, node_port)),
        );
        kinds.retain(|(kind, number)| {
            let key = ClaimKey::of(*kind, *number, port.protocol, family);
            match self.context.claims.winner(key, external_ips) {
                Some(winner) if *winner != service.name => {
                    let frontend = key.to_string();
                    let winner = winner.clone();
                    self.note(Severity::Warning, NoteKind::Claimed { frontend, winner });
                    false
                }
                _ => true,
            }
        });
        kinds
    }

    fn frontends(
        &self,
        kinds: &[(FrontendKind, u16)],
        internal: &Routes,
        external: &Routes,
        lists: &Categorized,
    ) -> Vec<Frontend> {
        let admission = lists.has_any.then(|| self.admission(kinds)).flatten();
        let frontend = |(kind, port): &(FrontendKind, u16)| Frontend {
            kind: *kind,
            port: *port,
            routes: match kind {
                FrontendKind::ClusterIp(_) => internal.clone(),
                _ => external.clone(),
            },
            admission: match kind {
                FrontendKind::LoadBalancerIp(_) => admission.clone(),
                _ => None,
            },
        };
        kinds.iter().map(frontend).collect()
    }

    /// Who may use the load-balancer IPs; `None` for everybody. A range of all addresses is no restriction.
    fn admission(&self, kinds: &[(FrontendKind, u16)]) -> Option<Admission> {
        let family = self.context.family;
        let ranges = self.service.source_ranges.iter().copied();
        let ranges: Vec<IpNet> = ranges.filter(|range| family_of_net(range) == family).collect();
        if ranges.is_empty() || ranges.iter().any(|range| range.prefix_len() == 0) {
            return None;
        }
        let node_ip = *self.context.node.node_ips.get(family);
        let node_is_admitted = node_ip.is_some_and(|ip| ranges.iter().any(|range| range.contains(&ip)));
        let mut self_sources = Vec::new();
        if node_is_admitted {
            self_sources.extend(kinds.iter().filter_map(|(kind, _)| match kind {
                FrontendKind::LoadBalancerIp(ip) => Some(*ip),
                _ => None,
            }));
        }
        Some(Admission { ranges, self_sources })
    }

    fn note_drops(&mut self, frontends: &[Frontend]) {
        let family = self.context.family;
        for frontend in frontends {
            if frontend.routes.outside == Route::Drop(Reason::NoLocalEndpoints) {
                let policy = match frontend.kind {
                    FrontendKind::ClusterIp(_) => "internal",
                    _ => "external",
                };
                self.note(Severity::Info, NoteKind::NoLocalEndpoints { family, policy });
            }
        }
    }

    fn note(&mut self, severity: Severity, kind: NoteKind) {
        self.notes.push(Note {
            severity,
            subject: Subject::service(&self.service.name),
            kind,
        });
    }
}
