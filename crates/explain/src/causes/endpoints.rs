//! Causes in the slices: why a port has no endpoint.

use super::{count, declared, keeper, listed, of_service, pods, subject};
use crate::finding::{Advice, Cause, Finding};
use crate::objects::Target;
use crate::world::World;
use model::note::Subject;
use model::object::{Slice, SliceEndpoint, SlicePort, SliceSkip};
use model::{Family, NoteKind, Protocol, ServiceName};
use std::collections::BTreeSet;
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

/// The `addressType` of slices of host names.
const NAMES: &str = "FQDN";

pub(crate) fn of_slice(slice: &Slice) -> Subject {
    subject("EndpointSlice", &slice.name.namespace, &slice.name.name)
}

impl<'a> Looked<'a> {
    fn slices(&self) -> Vec<&'a Slice> {
        self.world.snapshot.slices_of(self.service)
    }

    fn read(&self) -> Vec<&'a Slice> {
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
        all.sort_by_key(|entry| entry.address().to_string());
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

    fn no_slices(&self) -> Finding {
        let name = self.service;
        let details = self.world.objects.services.get(name);
        let has_selector = details.is_some_and(|details| !details.selector.is_empty());
        if let Some(finding) = self.unlabelled() {
            return finding;
        }
        if has_selector {
            let nothing = format!("Service {name} has no EndpointSlice");
            return pods::selected(self.world, name, nothing);
        }
        if details.is_none() {
            return self.nothing(Cause::NoSlices, format!("Service {name} has no EndpointSlice"));
        }
        let mut why =
            "Without a selector nobody makes EndpointSlices for a Service: whoever made the Service has to."
                .to_owned();
        if self.world.objects.endpoints.contains_key(name) {
            why = format!(
                "{why} There is an Endpoints object, which kube-proxy does not read; the control plane copies it into a \
                 slice unless it carries the label endpointslice.kubernetes.io/skip-mirror."
            );
        }
        Finding::fault(
            Cause::NoSelector,
            format!("Service {name} has no selector, and no EndpointSlice was written for it"),
        )
        .because(why)
        .about(of_service(name))
        .advise(Advice::change(
            of_service(name),
            "spec.selector",
            "give it the labels of its pods",
        ))
        .advise(Advice::act(format!(
            "write an EndpointSlice with the label kubernetes.io/service-name: {}",
            name.name
        )))
    }

    /// Nothing is listed, and whether the Service has a selector is not known: a running proxy does not keep it.
    fn nothing(&self, cause: Cause, what: String) -> Finding {
        Finding::fault(cause, what)
            .because(
                "With a selector the slice controller lists the pods that have its labels, ready or not: there is none. Without one, \
                 whoever made the Service has to write slices. kube-proxy reads neither selectors nor pods.",
            )
            .about(of_service(self.service))
            .advise(keeper::see_pods(self.service))
    }

    /// A slice that looks like the Service's and lacks the label.
    fn unlabelled(&self) -> Option<Finding> {
        let name = self.service;
        let mut slices = self.world.snapshot.slices();
        let lost = slices.find(|slice| {
            let named =
                *slice.name.name == *name.name || slice.name.name.starts_with(&format!("{}-", name.name));
            slice.service.is_none() && slice.name.namespace == name.namespace && named
        })?;
        let what = format!(
            "EndpointSlice {} lacks the label kubernetes.io/service-name: {}, so it is nobody's",
            lost.name, name.name
        );
        let finding = Finding::fault(Cause::SliceWithoutOwner, what)
            .because(format!("That label, and not the slice's name, joins a slice to a Service; Service {name} has no other."))
            .about(of_slice(lost))
            .about(of_service(name));
        Some(finding.advise(Advice::change(
            of_slice(lost),
            "metadata.labels[kubernetes.io/service-name]",
            format!("set it to {}", name.name),
        )))
    }

    /// There are slices, and the proxy reads none of them for this family.
    fn none_read(&self, slices: &[&Slice]) -> Finding {
        let name = self.service;
        let headless: Vec<&&Slice> = slices
            .iter()
            .filter(|s| s.skipped == Some(SliceSkip::Headless))
            .collect();
        if let Some(slice) = headless.first() {
            let label = model::object::HEADLESS_LABEL;
            let what = format!(
                "slice {} carries the label {label}, so kube-proxy does not see it",
                slice.name.name
            );
            return Finding::fault(Cause::HeadlessSlices, what)
                .because(format!(
                    "It would match Service {name}, but kube-proxy's watch leaves such slices out, whatever the label's \
                     value. The label stays behind when a Service had no cluster IP once (headless or ExternalName)."
                ))
                .about(of_slice(slice))
                .about(of_service(name))
                .advise(Advice::act(format!(
                    "delete the slice, and its controller makes a clean one: kubectl delete endpointslice -n {} {}",
                    slice.name.namespace, slice.name.name
                )));
        }
        let types: BTreeSet<String> = slices.iter().map(|slice| self.address_type(slice)).collect();
        let types: Vec<String> = types.into_iter().collect();
        let first = slices.first().expect("the caller has some");
        if types.iter().all(|one| one == NAMES) {
            return self.slices_of_names(first);
        }
        let what = format!(
            "Service {name} has no {} slice: slice {} has addressType {}",
            self.family,
            first.name.name,
            listed(&types, 2)
        );
        Finding::fault(Cause::SlicesOfOtherFamily, what)
            .because(format!(
                "For an {} address of a Service only slices with addressType: {} are read.",
                self.family, self.family
            ))
            .about(of_slice(first))
            .about(of_service(name))
            .advise(Advice::change(
                of_service(name),
                "spec.ipFamilies",
                "give the Service the family that its pods have, or the pods an address of its family",
            ))
    }

    /// Slices of host names alone.
    fn slices_of_names(&self, slice: &Slice) -> Finding {
        let name = self.service;
        let details = self.world.objects.slices.get(&slice.name);
        let hosts = details
            .map(|details| details.addresses.clone())
            .unwrap_or_default();
        let what = format!(
            "slice {} of Service {name} has addressType {NAMES}, which kube-proxy does not read",
            slice.name.name
        );
        let alias = hosts
            .first()
            .map_or_else(|| "the name".to_owned(), |host| format!("externalName: {host}"));
        Finding::fault(Cause::SlicesOfOtherFamily, what)
            .because(format!(
                "Rules send packets to addresses: kube-proxy takes slices of IPv4 and IPv6, and nobody looks up {} for it.",
                match hosts.as_slice() {
                    [] => "names".to_owned(),
                    hosts => listed(hosts, 2),
                }
            ))
            .about(of_slice(slice))
            .about(of_service(name))
            .advise(Advice::change(
                of_slice(slice),
                "addressType",
                format!(
                    "make the slice anew with addressType: {} and the addresses that the name has (the type of a slice cannot be changed)",
                    self.family
                ),
            ))
            .advise(Advice::change(
                of_service(name),
                "spec.type",
                format!("make it ExternalName with {alias}; DNS answers with that name, and clients connect to it themselves"),
            ))
    }

    fn address_type(&self, slice: &Slice) -> String {
        let details = self.world.objects.slices.get(&slice.name);
        match (details, slice.family) {
            (Some(details), _) if !details.address_type.is_empty() => details.address_type.clone(),
            (_, Some(family)) => family.to_string(),
            _ => NAMES.to_owned(),
        }
    }

    /// Slices of the family whose addresses were all left out.
    fn bad_addresses(&self, read: &[&Slice]) -> Option<Finding> {
        let about = |slice: &&&Slice| {
            let subject = of_slice(slice);
            let world = self.world;
            let mut notes = world.notes.iter().filter(move |note| note.subject == subject);
            notes.find(
                |note| matches!(&note.kind, NoteKind::BadField { field, .. } if field.contains("addresses")),
            )
        };
        let slice = read
            .iter()
            .find(|slice| slice.endpoints.is_empty() && about(slice).is_some())?;
        let note = about(&slice)?;
        let what = format!("slice {} lists no address that can be used", slice.name.name);
        Some(
            Finding::fault(Cause::BadAddresses, what)
                .because(note.kind.to_string())
                .about(of_slice(slice))
                .about(of_service(self.service))
                .advise_all(keeper::change(
                    self.world,
                    slice,
                    "endpoints[].addresses",
                    &format!(
                        "write {} addresses there, or set addressType to what they are",
                        self.family
                    ),
                    keeper::see_pods(self.service),
                )),
        )
    }

    fn empty(&self) -> Finding {
        let name = self.service;
        let nothing = format!("the slices of Service {name} list no endpoint");
        let details = self.world.objects.services.get(name);
        match details {
            Some(details) if !details.selector.is_empty() => pods::selected(self.world, name, nothing),
            None => self.nothing(Cause::EmptySlices, nothing),
            _ => {
                let slices = self.slices();
                let mut finding = Finding::fault(Cause::EmptySlices, nothing).about(of_service(name));
                if let Some(slice) = slices.first() {
                    let by_hand = "list the addresses that serve it";
                    let selector = "give it the labels of its pods";
                    let followed = Advice::change(of_service(name), "spec.selector", selector);
                    let advice = keeper::change(self.world, slice, "endpoints", by_hand, followed);
                    finding = finding.about(of_slice(slice)).advise_all(advice);
                }
                finding
            }
        }
    }

    /// Slices with endpoints, and none of their ports is the Service's.
    fn other_port(&self, slices: &[&Slice]) -> Finding {
        let name = self.service;
        if let Some(finding) = self.named_target(slices) {
            return finding;
        }
        let slice = slices.first().expect("the caller has some");
        let same_name = slice.ports.iter().find(|port| *port.name == *self.port_name);
        if let Some(port) = same_name {
            let what = format!(
                "slice {} lists its {} addresses for {}, and the Service's port is {}",
                slice.name.name,
                slice.endpoints.len(),
                port.protocol,
                self.protocol
            );
            return Finding::fault(Cause::PortProtocolMismatch, what)
                .because("Service and slice are joined by port name and protocol, not by number.")
                .about(of_slice(slice))
                .about(of_service(name))
                .advise(Advice::change(
                    of_service(name),
                    "spec.ports[].protocol",
                    format!("set it to {}", port.protocol),
                ))
                .advise_all(keeper::change(
                    self.world,
                    slice,
                    "ports[].protocol",
                    &format!("set it to {}", self.protocol),
                    keeper::see_controller(),
                ));
        }
        self.other_name(slice)
    }

    /// The slice's port has another name.
    fn other_name(&self, slice: &Slice) -> Finding {
        let name = self.service;
        let usable = slice
            .endpoints
            .iter()
            .filter(|e| e.conditions.is_usable())
            .count();
        let names: Vec<String> = slice
            .ports
            .iter()
            .map(|port| format!("{:?}/{}", &*port.name, port.protocol))
            .collect();
        let theirs = match slice.ports.first() {
            Some(port) => port.name.to_string(),
            None => String::new(),
        };
        let what = match names.as_slice() {
            [] => format!("slice {} of Service {name} lists no port at all", slice.name.name),
            names => format!(
                "the port name differs: Service {name} calls its port {:?}, slice {} calls it {}",
                self.port_name,
                slice.name.name,
                listed(names, 4)
            ),
        };
        Finding::fault(Cause::PortNameMismatch, what)
            .because(format!(
                "Service and slice are joined by port name and protocol, not by number. The slice belongs to the \
                 Service and has {}, for another port.",
                count(usable, "usable endpoint")
            ))
            .about(of_service(name))
            .about(of_slice(slice))
            .advise(Advice::change(
                of_service(name),
                "spec.ports[].name",
                match theirs.as_str() {
                    "" => "remove the name from the Service's port".to_owned(),
                    theirs => format!("set it to {theirs:?}"),
                },
            ))
            .advise_all(keeper::change(
                self.world,
                slice,
                "ports[].name",
                &match self.port_name {
                    "" => "remove it there (set it to \"\")".to_owned(),
                    ours => format!("set it to {ours:?}"),
                },
                keeper::see_controller(),
            ))
    }

    /// The target port is a name that no container has: the controller leaves the port out of the slices.
    fn named_target(&self, slices: &[&Slice]) -> Option<Finding> {
        let details = self.world.objects.services.get(self.service)?;
        if details.selector.is_empty() {
            return None;
        }
        let port = details
            .ports
            .iter()
            .find(|port| (port.name.as_str(), port.protocol) == (self.port_name, self.protocol))?;
        let Target::Name(target) = &port.target else {
            return None;
        };
        Some(declared::target_port(
            self.world,
            self.service,
            port,
            target,
            slices,
        ))
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
        finding.advise_all(pods::look_at(self.world, name, entries))
    }
}
