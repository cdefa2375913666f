//! Why a port has no endpoint: which stage lost them, and whether those that are listed may have traffic.

use super::{count, listed, of_service, pods, subject};
use crate::finding::{Advice, Cause, Finding};
use crate::world::World;
use model::note::Subject;
use model::object::{Slice, SliceEndpoint, SlicePort};
use model::{Family, Protocol, ServiceName};
use std::net::SocketAddr;

/// One port of a Service, looked at for a family.
pub(crate) struct Looked<'a> {
    pub(crate) world: &'a World,
    pub(crate) service: &'a ServiceName,
    pub(crate) port_name: &'a str,
    pub(crate) protocol: Protocol,
    pub(crate) family: Family,
}

/// An endpoint of the port, as a slice lists it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) slice: &'a Slice,
    pub(crate) endpoint: &'a SliceEndpoint,
    pub(crate) port: u16,
}

impl Entry<'_> {
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.endpoint.ip, self.port)
    }

    /// Its state, as the conditions have it.
    pub(crate) fn state(&self) -> &'static str {
        let conditions = self.endpoint.conditions;
        match (conditions.ready, conditions.serving, conditions.terminating) {
            (true, true, false) => "ready",
            (true, true, true) => "ready, terminating",
            (true, false, false) => "ready, not serving",
            (true, false, true) => "ready, not serving, terminating",
            (false, true, true) => "serving, terminating",
            (false, false, true) => "terminating",
            (false, _, false) => "not ready",
        }
    }
}

pub(crate) fn of_slice(slice: &Slice) -> Subject {
    subject("EndpointSlice", &slice.name.namespace, &slice.name.name)
}

impl<'a> Looked<'a> {
    pub(super) fn slices(&self) -> Vec<&'a Slice> {
        self.world.snapshot.slices_of(self.service)
    }

    pub(super) fn read(&self) -> Vec<&'a Slice> {
        let usable = |slice: &&Slice| slice.skipped.is_none() && slice.family == Some(self.family);
        self.slices().into_iter().filter(usable).collect()
    }

    fn is_port(&self, port: &SlicePort) -> bool {
        (&*port.name, port.protocol) == (self.port_name, self.protocol)
    }

    /// Every endpoint that the slices list for the port, ready or not.
    pub(crate) fn entries(&self) -> Vec<Entry<'a>> {
        let mut all = Vec::new();
        for slice in self.read() {
            for port in slice.ports.iter().filter(|port| self.is_port(port)) {
                let entry = |endpoint| Entry {
                    slice,
                    endpoint,
                    port: port.port,
                };
                all.extend(slice.endpoints.iter().map(entry));
            }
        }
        all.sort_by_cached_key(|entry| entry.address().to_string());
        all
    }

    /// Why there is no endpoint at all: one finding that says which stage lost them.
    pub(crate) fn none(&self) -> Finding {
        let slices = self.slices();
        if slices.is_empty() {
            return self.no_slices();
        }
        let entries = self.entries();
        if !entries.is_empty() {
            return self.none_usable(&entries);
        }
        let read = self.read();
        if read.is_empty() {
            return self.none_read(&slices);
        }
        if let Some(finding) = self.bad_addresses(&read) {
            return finding;
        }
        let with_endpoints: Vec<&Slice> = read
            .iter()
            .copied()
            .filter(|slice| !slice.endpoints.is_empty())
            .collect();
        if with_endpoints.is_empty() {
            return self.empty();
        }
        self.other_port(&with_endpoints)
    }

    /// Endpoints are listed, and none may have traffic.
    fn none_usable(&self, entries: &[Entry<'_>]) -> Finding {
        let name = self.service;
        let all = entries.len();
        let terminating = entries
            .iter()
            .filter(|entry| entry.endpoint.conditions.terminating)
            .count();
        let told: Vec<String> = entries
            .iter()
            .map(|entry| pods::state(self.world, entry))
            .collect();
        let what = match (terminating, all) {
            (0, 1) => format!(
                "the only endpoint of Service {name} is not ready: {}",
                told.concat()
            ),
            (0, all) => format!("none of the {all} endpoints of Service {name} is ready"),
            (1, 1) => format!("the only endpoint of Service {name} terminates and no longer serves"),
            (some, all) if some == all => {
                format!(
                    "the last {} of Service {name} terminate and no longer serve",
                    count(all, "endpoint")
                )
            }
            (some, all) => format!(
                "none of the {all} endpoints of Service {name} is ready, and {some} of them terminate"
            ),
        };
        let what = match pods::closed_gate(self.world, entries) {
            Some(gate) if all > 1 => format!("{what}: readiness gate {gate} is not True"),
            _ => what,
        };
        let mut finding = Finding::fault(Cause::NotReady, what)
            .because(match all {
                1 => "An endpoint gets traffic while its condition ready is true.".to_owned(),
                _ => format!("{}.", listed(&told, 4)),
            })
            .about(of_service(name));
        for entry in entries.iter().take(4) {
            finding = match self
                .world
                .objects
                .pod_behind(&entry.slice.name, entry.endpoint.ip)
            {
                Some(pod) => finding.about(subject("Pod", &pod.namespace, &pod.name)),
                None => finding.about(of_slice(entry.slice)),
            };
        }
        if terminating == all {
            return finding.advise(Advice::act(format!(
                "see why no new pod has taken their place: kubectl get pods -n {0} -o wide; kubectl get events -n {0}",
                name.namespace
            )));
        }
        finding.advise_all(pods::look_at(self.world, name, entries))
    }
}
