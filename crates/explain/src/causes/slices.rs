//! Causes in the slices themselves: there is none, the proxy reads none, or they list nothing that can be used.

use super::endpoints::{Looked, of_slice};
use super::{keeper, listed, of_service, pods, subject};
use crate::finding::{Advice, Cause, Finding};
use model::object::{Slice, SliceSkip};
use model::{NoteKind, ServiceName};
use std::collections::BTreeSet;

/// The `addressType` of slices of host names.
const NAMES: &str = "FQDN";

impl Looked<'_> {
    pub(super) fn no_slices(&self) -> Finding {
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
        let finding = Finding::fault(
            Cause::NoSelector,
            format!("Service {name} has no selector, and no EndpointSlice was written for it"),
        )
        .because(why)
        .about(of_service(name));
        if let Some(meant) = self.meant_for_it(&finding) {
            return meant;
        }
        finding
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

    /// What somebody wrote for it that does not fit: a slice in another namespace, or an Endpoints object of another name.
    fn meant_for_it(&self, nothing: &Finding) -> Option<Finding> {
        let name = self.service;
        let is_its = |of: &ServiceName| of.name == name.name && of.namespace != name.namespace;
        let is_nobodys = |of: &ServiceName| self.world.snapshot.service(of).is_none();
        let mut slices = self.world.snapshot.slices();
        let elsewhere = slices.find(|slice| {
            let of = slice.service.as_ref();
            of.is_some_and(|of| is_its(of) && is_nobodys(of))
        });
        if let Some(slice) = elsewhere {
            let finding = Finding {
                what: format!(
                    "{}; slice {} has its name, and is in another namespace",
                    nothing.what, slice.name
                ),
                ..nothing.clone()
            };
            return Some(finding.about(of_slice(slice)).advise(Advice::change(
                of_slice(slice),
                "metadata.namespace",
                format!(
                    "write the slice in namespace {}: its label names a Service of the slice's own namespace, and there is none",
                    name.namespace
                ),
            )));
        }
        let mut others = self.world.objects.endpoints.keys();
        let other = others.find(|other| other.namespace == name.namespace && is_nobodys(other))?;
        let finding = Finding {
            what: format!("{}; the Endpoints object {other} is of no Service", nothing.what),
            why: format!(
                "{} It is copied for the Service of its own name, and there is none.",
                nothing.why
            ),
            ..nothing.clone()
        };
        let endpoints = subject("Endpoints", &other.namespace, &other.name);
        Some(finding.about(endpoints.clone()).advise(Advice::change(
            endpoints,
            "metadata.name",
            format!("if it is meant for this Service, name it {}", name.name),
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
    pub(super) fn none_read(&self, slices: &[&Slice]) -> Finding {
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
    pub(super) fn bad_addresses(&self, read: &[&Slice]) -> Option<Finding> {
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

    pub(super) fn empty(&self) -> Finding {
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
}
