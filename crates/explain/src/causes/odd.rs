//! What is odd about the endpoints that traffic reaches: terminating, unready, hinted, or written where nobody reads.

use super::endpoints::{Entry, Looked};
use super::{count, listed, of_service, pods, subject, workloads};
use crate::finding::{Advice, Cause, Finding};
use crate::world::World;
use model::{DesiredPort, ServiceName};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

impl Looked<'_> {
    /// What is odd about the endpoints that traffic reaches, and remarks on their number.
    pub(crate) fn odd(&self, port: &DesiredPort) -> Vec<Finding> {
        let entries = self.entries();
        let used = |ip: SocketAddr| port.reachable.contains(&ip);
        let reached: Vec<&Entry<'_>> = entries.iter().filter(|entry| used(entry.address())).collect();
        let mut found = Vec::new();
        found.extend(self.only_terminating(&reached));
        found.extend(self.unready_published(&reached));
        found.extend(self.hinted(port, &entries));
        found.extend(pods::not_in_slices(self.world, self.service, &entries));
        found.extend(self.without_the_port(&entries));
        found.extend(workloads::on_lost_nodes(self.world, self.service, &reached));
        found
    }

    fn only_terminating(&self, reached: &[&Entry<'_>]) -> Option<Finding> {
        let fallback =
            |entry: &&&Entry<'_>| !entry.endpoint.conditions.ready && entry.endpoint.conditions.is_fallback();
        if reached.is_empty() || reached.iter().filter(fallback).count() < reached.len() {
            return None;
        }
        let name = self.service;
        let what = format!(
            "only terminating endpoints are left for Service {name}: {}",
            count(reached.len(), "endpoint")
        );
        Some(
            Finding::warning(Cause::OnlyTerminating, what)
                .because(
                    "None is ready, so traffic goes to those that terminate and still serve, until they are gone; then \
                     connections are refused.",
                )
                .about(of_service(name))
                .advise(Advice::act("see why no new pod is ready: kubectl get pods and their events")),
        )
    }

    fn unready_published(&self, reached: &[&Entry<'_>]) -> Option<Finding> {
        let published =
            |entry: &&&Entry<'_>| entry.endpoint.conditions.ready && !entry.endpoint.conditions.serving;
        let odd: Vec<String> = reached
            .iter()
            .filter(published)
            .map(|entry| format!("{} ({})", entry.address(), entry.state()))
            .collect();
        if odd.is_empty() {
            return None;
        }
        let name = self.service;
        let is_asked = self
            .world
            .snapshot
            .service(name)
            .is_some_and(|service| service.publish_not_ready);
        let what = format!(
            "{} of {} endpoints are not serving and get traffic all the same",
            odd.len(),
            reached.len()
        );
        let mut finding = Finding::warning(Cause::UnreadyPublished, what).about(of_service(name));
        finding.why = if is_asked {
            format!(
                "Service {name} has publishNotReadyAddresses: true, so its slices say ready for every pod, and \
                 kube-proxy goes by ready. Not serving: {}.",
                listed(&odd, 4)
            )
        } else {
            format!(
                "Their slices say ready: true and serving: false: {}.",
                listed(&odd, 4)
            )
        };
        if is_asked {
            finding = finding.advise(Advice::change(
                of_service(name),
                "spec.publishNotReadyAddresses",
                "keep it for a headless Service alone, and give clients a second Service without it",
            ));
        }
        Some(finding)
    }

    /// Topology hints: that they limit the endpoints, or that they are ignored and why.
    fn hinted(&self, port: &DesiredPort, entries: &[Entry<'_>]) -> Option<Finding> {
        let ready: Vec<&Entry<'_>> = entries
            .iter()
            .filter(|entry| entry.endpoint.conditions.ready)
            .collect();
        let hinted = ready
            .iter()
            .filter(|entry| entry.endpoint.hints.is_some())
            .count();
        if hinted == 0 || port.cluster.is_empty() {
            return None;
        }
        let facts = &self.world.facts;
        let name = self.service;
        let addresses: BTreeSet<SocketAddr> = ready.iter().map(|entry| entry.address()).collect();
        let zone = facts.zone.as_deref();
        let finding = if port.cluster.len() < addresses.len() {
            let what = format!(
                "hints keep traffic of {} on {} of {} ready endpoints",
                self.world.node_words(),
                port.cluster.len(),
                addresses.len()
            );
            Finding::remark(Cause::Hints, what).because(format!(
                "Every ready endpoint has hints (trafficDistribution, or the annotation \
                 service.kubernetes.io/topology-mode), and some name this node or its zone {:?}.",
                zone.unwrap_or_default()
            ))
        } else {
            let why = match zone {
                _ if hinted < ready.len() => {
                    format!(
                        "{} of {} ready endpoints have none; all must have them.",
                        ready.len() - hinted,
                        ready.len()
                    )
                }
                None => format!("Node {} has no label topology.kubernetes.io/zone.", facts.name),
                Some(_) if is_meant_for_all(&ready, facts.zone.as_deref(), &facts.name) => return None,
                Some(zone) => format!("No hint names zone {zone:?} of Node {}.", facts.name),
            };
            Finding::remark(
                Cause::HintsIgnored,
                format!("the hints on endpoints of Service {name} have no effect here"),
            )
            .because(why)
        };
        Some(finding.about(of_service(name)))
    }
}

fn is_meant_for_all(ready: &[&Entry<'_>], zone: Option<&str>, node: &str) -> bool {
    ready.iter().all(|entry| {
        entry.endpoint.hints.as_ref().is_some_and(|hints| {
            hints.nodes.iter().any(|name| **name == *node)
                || hints.zones.iter().any(|name| Some(&**name) == zone)
        })
    })
}

/// An Endpoints object that says otherwise than the slices: somebody edited the one that is not read.
pub(crate) fn endpoints_object(world: &World, service: &ServiceName) -> Option<Finding> {
    let stated = world.objects.endpoints.get(service)?;
    let slices = world.snapshot.slices_of(service);
    let in_slices: BTreeSet<IpAddr> = slices
        .iter()
        .flat_map(|slice| &slice.endpoints)
        .map(|e| e.ip)
        .collect();
    let strange: Vec<String> = stated
        .iter()
        .filter(|address| !in_slices.contains(&address.ip()))
        .map(ToString::to_string)
        .collect();
    if strange.is_empty() {
        return None;
    }
    let object = subject("Endpoints", &service.namespace, &service.name);
    let has_selector = world
        .objects
        .services
        .get(service)
        .is_some_and(|details| !details.selector.is_empty());
    let what = format!(
        "the Endpoints object {service} lists {}, which no slice does; it is not read",
        listed(&strange, 3)
    );
    let why = if has_selector {
        "kube-proxy reads EndpointSlices only. The Service has a selector, so its slices come from its pods, and what \
             is written into Endpoints by hand leads nowhere."
    } else {
        "kube-proxy reads EndpointSlices only. Endpoints of a Service without selector are copied into a slice by the \
             control plane, unless they carry the label endpointslice.kubernetes.io/skip-mirror."
    };
    Some(
        Finding::warning(Cause::EndpointsObject, what)
            .because(why)
            .about(object)
            .about(of_service(service))
            .advise(Advice::act(
                "write an EndpointSlice with the label kubernetes.io/service-name, or change the pods",
            )),
    )
}
