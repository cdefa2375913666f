//! Causes in what pods declare: target ports that no container has, and pods of another kind among the endpoints.
//!
//! A port that a container declares is a note for people: a program may listen on others. So a number counts as not
//! declared only where every container that runs declares some port, and it is a warning, not a fault. A name is more
//! than a note: the controller that writes slices looks the number up there.

use super::endpoints::{Entry, Looked, of_slice};
use super::keeper::{Keeper, keeper};
use super::pods::{matches, of_pod, selector_words};
use super::{count, listed, of_service, port_words};
use crate::finding::{Advice, Cause, Finding};
use crate::objects::{Container, ContainerKind, ContainerPort, Labels, Pod, PodName, PortDetails, Target};
use crate::world::World;
use model::object::Slice;
use model::{Protocol, ServiceName};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The target port's name is no port of the pods, as far as the controller looks.
pub(super) fn target_port(
    world: &World,
    service: &ServiceName,
    port: &PortDetails,
    target: &str,
    slices: &[&Slice],
) -> Finding {
    let left_out = format!(
        "The controller leaves port {} out of the slices then, so it has no endpoint.",
        port_words(&port.name, port.port, port.protocol)
    );
    let named = Named {
        service,
        port,
        target,
        left_out,
    };
    let Some((name, pod)) = selected(world, service) else {
        let what = format!("targetPort {target:?} of Service {service} is the name of no port of its pods");
        let mut finding = Finding::fault(Cause::TargetPortName, what).about(of_service(service));
        if let Some(slice) = slices.first() {
            finding = finding.about(of_slice(slice));
        }
        return finding.because(named.left_out).advise(Advice::change(
            of_service(service),
            "spec.ports[].targetPort",
            "set it to a name among the containers' ports, or to the number that they listen on",
        ));
    };
    let finding = named
        .hidden(name, pod)
        .unwrap_or_else(|| named.unknown(name, pod));
    finding.about(of_pod(name))
}

/// The first pod that the Service selects.
fn selected<'a>(world: &'a World, service: &ServiceName) -> Option<(&'a PodName, &'a Pod)> {
    let selector = &world.objects.services.get(service)?.selector;
    let mut pods = world.objects.pods.iter().flatten();
    pods.find(|(name, pod)| name.namespace == service.namespace && matches(selector, pod))
}

/// A pod of the Service that declares the target of this port for another protocol, and not for the port's own.
pub(super) fn speaks(
    world: &World,
    service: &ServiceName,
    port: (u16, Protocol),
    instead: Protocol,
) -> Option<(String, u16)> {
    let details = world.objects.services.get(service)?;
    let mut ports = details.ports.iter();
    let port = ports.find(|of| (of.port, of.protocol) == port)?;
    let (name, pod) = selected(world, service)?;
    let target = match &port.target {
        Target::Same => port.port,
        Target::Number(number) => *number,
        Target::Name(wanted) => {
            let mut all = running(pod).flat_map(|of| &of.ports);
            all.find(|of| of.name == *wanted)?.number
        }
    };
    let is_so = declares(pod, target, instead) == Declares::It
        && declares(pod, target, port.protocol) != Declares::It;
    is_so.then(|| (name.name.to_string(), target))
}

/// A target port that is a name.
struct Named<'a> {
    service: &'a ServiceName,
    port: &'a PortDetails,
    target: &'a str,
    left_out: String,
}

impl Named<'_> {
    fn advise(&self, finding: Finding, action: String) -> Finding {
        finding.advise(Advice::change(
            of_service(self.service),
            "spec.ports[].targetPort",
            action,
        ))
    }

    /// The name is there, where the controller does not see it.
    fn hidden(&self, name: &PodName, pod: &Pod) -> Option<Finding> {
        let all = pod
            .containers
            .iter()
            .flat_map(|of| of.ports.iter().map(move |port| (of, port)));
        let mut same: Vec<(&Container, &ContainerPort)> =
            all.filter(|(_, port)| port.name == self.target).collect();
        // The one that comes nearest to what was meant: the right protocol, and a container that runs.
        same.sort_by_key(|(of, port)| {
            (
                port.protocol != self.port.protocol,
                of.kind == ContainerKind::Init,
            )
        });
        let (of, has) = *same.first()?;
        let (service, target, number) = (self.service, self.target, has.number);
        let (what, why, action) = if has.protocol != self.port.protocol {
            (
                format!(
                    "targetPort {target:?} of Service {service} is a port for {} in its pods, and the Service's port is {}",
                    has.protocol, self.port.protocol
                ),
                "A name is looked up together with the protocol.".to_owned(),
                format!(
                    "set it to a port for {}, or spec.ports[].protocol to {}",
                    self.port.protocol, has.protocol
                ),
            )
        } else if of.kind == ContainerKind::Sidecar {
            (
                format!(
                    "targetPort {target:?} of Service {service} is a port of a sidecar, {}, and the controller did not look there",
                    of.name
                ),
                "The sidecar stands among initContainers (restartPolicy: Always). kube-controller-manager before 1.32 looks for names of \
                 ports in spec.containers alone."
                    .to_owned(),
                format!("set it to the number, {number}, which needs no looking up; or update the control plane to 1.32 or later"),
            )
        } else if of.kind == ContainerKind::Init {
            (
                format!("targetPort {target:?} of Service {service} is a port of {}, a container that ends before its pods serve", of.name),
                "Ports of initContainers are not Services', unless they are sidecars (restartPolicy: Always).".to_owned(),
                "set it to a port of a container that runs while the pod serves".to_owned(),
            )
        } else {
            return None;
        };
        let why = format!("Pod {} has {has}. {why} {}", name.name, self.left_out);
        let finding = Finding::fault(Cause::TargetPortName, what).because(why);
        Some(self.advise(finding.about(of_service(service)), action))
    }

    /// No port has the name.
    fn unknown(&self, name: &PodName, pod: &Pod) -> Finding {
        let (service, target) = (self.service, self.target);
        let what = format!("targetPort {target:?} of Service {service} is the name of no port of its pods");
        let ports: Vec<&ContainerPort> = running(pod).flat_map(|of| &of.ports).collect();
        let why = match ports.as_slice() {
            [] => format!(
                "The containers of pod {} name no port. {}",
                name.name, self.left_out
            ),
            has => format!(
                "The containers of pod {} have {}. {}",
                name.name,
                listed(has, 4),
                self.left_out
            ),
        };
        let right = |port: &&&ContainerPort| port.protocol == self.port.protocol;
        let action = match ports.iter().find(right) {
            Some(port) if !port.name.is_empty() => format!("set it to {:?}", port.name),
            Some(port) => format!("set it to {}", port.number),
            None => "set it to the number that the containers listen on".to_owned(),
        };
        let finding = Finding::fault(Cause::TargetPortName, what).because(why);
        self.advise(finding.about(of_service(service)), action)
    }
}

/// The containers that run while the pod serves.
fn running(pod: &Pod) -> impl Iterator<Item = &Container> {
    let containers = pod.containers.iter();
    containers.filter(|of| of.kind != ContainerKind::Init)
}

/// Whether the pod declares a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declares {
    /// It does.
    It,
    /// Each of its containers declares ports, and none of them is it.
    Others,
    /// Some container declares nothing, so it may be there.
    Nothing,
}

fn declares(pod: &Pod, number: u16, protocol: Protocol) -> Declares {
    let is_it = |port: &ContainerPort| (port.number, port.protocol) == (number, protocol);
    let mut containers = running(pod).peekable();
    if containers.peek().is_none() {
        return Declares::Nothing;
    }
    let mut is_complete = true;
    for container in containers {
        if container.ports.iter().any(is_it) {
            return Declares::It;
        }
        is_complete &= !container.ports.is_empty();
    }
    if is_complete {
        Declares::Others
    } else {
        Declares::Nothing
    }
}

/// An endpoint with its pod.
#[derive(Clone, Copy)]
struct Told<'a> {
    name: &'a PodName,
    pod: &'a Pod,
    port: u16,
    declares: Declares,
}

impl Looked<'_> {
    /// Pods that are ready and listed, and not for this port: its target port is a name that they do not have.
    pub(super) fn without_the_port(&self, entries: &[Entry<'_>]) -> Option<Finding> {
        let objects = &self.world.objects;
        let details = objects.services.get(self.service)?;
        let mut ports = details.ports.iter();
        let port = ports.find(|of| (of.name.as_str(), of.protocol) == (self.port_name, self.protocol))?;
        let Target::Name(target) = &port.target else {
            return None;
        };
        let has_it = |ip: IpAddr| entries.iter().any(|entry| entry.endpoint.ip == ip);
        let slices = self.read().into_iter();
        let kept = slices.filter(|slice| keeper(self.world, slice) == Keeper::Controller);
        let ready = kept.flat_map(|slice| slice.endpoints.iter().map(move |endpoint| (slice, endpoint)));
        let lacking: Vec<(&Slice, IpAddr)> = ready
            .filter(|(_, endpoint)| endpoint.conditions.ready && !has_it(endpoint.ip))
            .map(|(slice, endpoint)| (slice, endpoint.ip))
            .collect();
        let (slice, ip) = *lacking.first()?;
        let usable = entries
            .iter()
            .filter(|entry| entry.endpoint.conditions.is_usable())
            .count();
        let what = format!(
            "{} of {} of Service {} have no port {target:?}, which its targetPort names, and get no traffic",
            lacking.len(),
            count(lacking.len() + usable, "ready pod"),
            self.service
        );
        let finding = Finding::warning(Cause::TargetPortName, what).about(of_service(self.service));
        let finding = match objects.pod_behind(&slice.name, ip) {
            Some(name) => {
                let has = objects.pod(&name).map(|pod| {
                    let ports = running(pod).flat_map(|of| &of.ports);
                    ports.map(ToString::to_string).collect::<Vec<_>>()
                });
                let has = has.filter(|has| !has.is_empty()).map_or_else(
                    || format!("Pod {} is one of them.", name.name),
                    |has| format!("Pod {} has {}.", name.name, listed(&has, 4)),
                );
                finding.because(has).about(of_pod(&name))
            }
            None => finding
                .because(format!("{ip} is one of them."))
                .about(of_slice(slice)),
        };
        Some(finding.advise(Advice::change(
            of_service(self.service),
            "spec.ports[].targetPort",
            "while pods name it differently, set it to the number that all of them listen on",
        )))
    }

    /// Endpoints that traffic reaches, at a port that their pods do not declare though they declare others.
    pub(crate) fn undeclared(&self, reached: &[&Entry<'_>]) -> Option<Finding> {
        let told: Vec<Told<'_>> = reached.iter().filter_map(|entry| self.told(entry)).collect();
        let of = |wanted: Declares| -> Vec<Told<'_>> {
            let fitting = told.iter().filter(|told| told.declares == wanted);
            fitting.copied().collect()
        };
        let (with, without) = (of(Declares::It), of(Declares::Others));
        let first = *without.first()?;
        if !with.is_empty() {
            return Some(self.of_another_kind(&with, &without, reached.len()));
        }
        // Where only some declare anything, what the others listen on is not known.
        (without.len() == reached.len()).then(|| self.nobodys_port(first))
    }

    fn told(&self, entry: &Entry<'_>) -> Option<Told<'_>> {
        let objects = &self.world.objects;
        let name = objects.pod_behind(&entry.slice.name, entry.endpoint.ip)?;
        let (name, pod) = objects.pods.as_ref()?.get_key_value(&name)?;
        Some(Told {
            name,
            pod,
            port: entry.port,
            declares: declares(pod, entry.port, self.protocol),
        })
    }

    /// No endpoint's pod declares the port.
    fn nobodys_port(&self, first: Told<'_>) -> Finding {
        let (service, number, protocol) = (self.service, first.port, self.protocol);
        let has: Vec<&ContainerPort> = running(first.pod).flat_map(|of| &of.ports).collect();
        let other = has.iter().find(|port| port.number == number);
        let what = format!(
            "targetPort {number}/{protocol} of Service {service} is a port that no container of its pods declares"
        );
        let finding = Finding::warning(Cause::TargetPortUndeclared, what)
            .because(format!(
                "The containers of pod {} declare {}. What they declare need not be all that they listen on; if nothing listens on \
                 {number}/{protocol}, the pod refuses the connection.",
                first.name.name,
                listed(&has, 4)
            ))
            .about(of_service(service))
            .about(of_pod(first.name));
        if let Some(other) = other {
            return finding.advise(Advice::change(
                of_service(service),
                "spec.ports[].protocol",
                format!("set it to {}, if that is what the program speaks", other.protocol),
            ));
        }
        let fitting: Vec<String> = has
            .iter()
            .filter(|port| port.protocol == protocol)
            .map(|port| port.number.to_string())
            .collect();
        let action = match fitting.as_slice() {
            [] => "set it to the number that the program listens on".to_owned(),
            numbers => format!(
                "set it to the number that the program listens on: {}?",
                numbers.join(", or ")
            ),
        };
        finding.advise(Advice::change(
            of_service(service),
            "spec.ports[].targetPort",
            action,
        ))
    }

    /// Some endpoints' pods declare the port and others do not: they are of two kinds.
    fn of_another_kind(&self, with: &[Told<'_>], without: &[Told<'_>], all: usize) -> Finding {
        let (service, protocol) = (self.service, self.protocol);
        let first = without.first().expect("the caller has some");
        let names: Vec<&str> = without.iter().map(|told| &*told.name.name).collect();
        let has: BTreeSet<String> = running(first.pod)
            .flat_map(|of| &of.ports)
            .map(ToString::to_string)
            .collect();
        let has: Vec<String> = has.into_iter().collect();
        let number = first.port;
        let what = format!(
            "{} of {} of Service {service} are pods that declare no port {number}/{protocol}, as the others do",
            without.len(),
            count(all, "endpoint")
        );
        let selector = self.world.objects.services.get(service);
        let selector = selector
            .map(|details| details.selector.clone())
            .unwrap_or_default();
        Finding::warning(Cause::SelectorTooWide, what)
            .because(format!(
                "They declare {}: {}. The selector ({}) takes them in as well, so they get their share of connections; where nothing \
                 listens on {number}/{protocol}, each of these is refused.",
                listed(&has, 3),
                listed(&names, 3),
                selector_words(&selector)
            ))
            .about(of_service(service))
            .about(of_pod(first.name))
            .advise(Advice::change(
                of_service(service),
                "spec.selector",
                match label_that_tells(with, without) {
                    Some((key, value)) => format!("add {key}: {value}, which the right pods have and the others do not"),
                    None => "add a label that the right pods have and the others do not".to_owned(),
                },
            ))
    }
}

/// Labels that controllers give to each pod, or to each of its generations.
const OF_CONTROLLERS: [&str; 5] = [
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
];

/// A label that all of the first have, and none of the others.
fn label_that_tells(with: &[Told<'_>], without: &[Told<'_>]) -> Option<(String, String)> {
    let labels: &Labels = &with.first()?.pod.labels;
    let is_everywhere = |key: &str, value: &str, of: &[Told<'_>]| {
        let has = |told: &Told<'_>| told.pod.labels.get(key).is_some_and(|has| has == value);
        (of.iter().all(has), of.iter().any(has))
    };
    let mut fitting = labels.iter().filter(|(key, value)| {
        let (all, _) = is_everywhere(key, value, with);
        let (_, any) = is_everywhere(key, value, without);
        all && !any && !OF_CONTROLLERS.contains(&key.as_str())
    });
    fitting.next().map(|(key, value)| (key.clone(), value.clone()))
}
