//! Endpoints whose pods have gone: a slice that nobody keeps any more.

use super::endpoints::{Entry, Looked, of_slice};
use super::{count, listed, of_service};
use crate::finding::{Advice, Cause, Finding};
use crate::objects::{CONTROLLER, PodName};
use model::object::Slice;
use std::net::SocketAddr;

/// Endpoints that lead nowhere, and what to say of them.
pub(crate) struct Gone {
    pub(crate) finding: Finding,
    pub(crate) endpoints: Vec<SocketAddr>,
}

impl Looked<'_> {
    /// Endpoints that traffic reaches, and whose pods are no more.
    pub(crate) fn gone(&self, reached: &[&Entry<'_>]) -> Option<Gone> {
        let lost = reached
            .iter()
            .filter_map(|entry| Some((*entry, self.lost_pod(entry)?)));
        let lost: Vec<(&Entry<'_>, &PodName)> = lost.collect();
        let (first, _) = lost.first()?;
        let endpoints: Vec<SocketAddr> = lost.iter().map(|(entry, _)| entry.address()).collect();
        let names: Vec<&str> = lost.iter().map(|(_, name)| &*name.name).collect();
        let slice = first.slice;
        let (service, all) = (self.service, reached.len());
        let what = match (lost.len(), all) {
            (1, 1) => format!(
                "the only endpoint of Service {service} is a pod that has gone, in slice {}",
                slice.name.name
            ),
            (some, all) if some == all => {
                format!(
                    "all {all} endpoints of Service {service} are pods that have gone, in slice {}",
                    slice.name.name
                )
            }
            (1, all) => format!(
                "1 of {} of Service {service} is a pod that has gone, in slice {}",
                count(all, "endpoint"),
                slice.name.name
            ),
            (some, all) => format!(
                "{some} of {} of Service {service} are pods that have gone, in slice {}",
                count(all, "endpoint"),
                slice.name.name
            ),
        };
        let finding = Finding::fault(Cause::StaleSlices, what)
            .because(format!(
                "The slice lists {} as ready, and there is no such pod, or it has another address. {}",
                listed(&names, 3),
                self.keeper_words(slice)
            ))
            .about(of_slice(slice))
            .about(of_service(service))
            .advise(self.advice(slice));
        Some(Gone { finding, endpoints })
    }

    /// The pod that a slice names for an endpoint, and that is not there, or not at this address.
    fn lost_pod(&self, entry: &Entry<'_>) -> Option<&PodName> {
        let objects = &self.world.objects;
        let (pods, ip) = (objects.pods.as_ref()?, entry.endpoint.ip);
        let slice = objects.slices.get(&entry.slice.name)?;
        let name = slice.pods.get(&ip).filter(|_| slice.source_cluster.is_none())?;
        let is_lost = match pods.get(name) {
            Some(pod) => !pod.ips.is_empty() && !pod.has(ip) && slice.is_of_primary_addresses(),
            // Of a namespace without any pod, the pods were not given.
            None => pods.keys().any(|other| other.namespace == name.namespace),
        };
        is_lost.then_some(name)
    }

    fn keeper(&self, slice: &Slice) -> Option<&str> {
        let details = self.world.objects.slices.get(&slice.name)?;
        details.managed_by.as_deref()
    }

    fn keeper_words(&self, slice: &Slice) -> String {
        match self.keeper(slice) {
            Some(CONTROLLER) => {
                "The controller that writes slices has not taken it out: it is down, far behind, or may not.".to_owned()
            }
            Some(keeper) => format!(
                "{keeper} keeps this slice (label endpointslice.kubernetes.io/managed-by), and not the controller that follows the \
                 selector. kube-proxy joins all slices with the Service's label, whoever made them."
            ),
            None => "Nobody says that they keep this slice (label endpointslice.kubernetes.io/managed-by). kube-proxy joins all slices \
                     with the Service's label, whoever made them."
                .to_owned(),
        }
    }

    fn advice(&self, slice: &Slice) -> Advice {
        if self.keeper(slice) == Some(CONTROLLER) {
            return Advice::act("look at the log of kube-controller-manager (endpointslice-controller)");
        }
        Advice::change(
            of_slice(slice),
            "endpoints",
            format!(
                "take the addresses out, or delete the slice if nobody keeps it any more: kubectl delete endpointslice -n {} {}",
                slice.name.namespace, slice.name.name
            ),
        )
    }
}
