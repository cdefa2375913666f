//! Causes in the pods: which ones a Service selects, and why they are not ready. Where no Pods are known, what slices say
//! of them.

use super::endpoints::{Entry, of_slice};
use super::{listed, of_service, subject};
use crate::finding::{Advice, Cause, Finding};
use crate::objects::{Labels, Pod, PodName, PortDetails};
use crate::world::World;
use model::ServiceName;
use model::object::Slice;

/// Labels as `kubectl -l` takes them.
fn selector_words(selector: &Labels) -> String {
    let words: Vec<String> = selector
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    words.join(",")
}

fn matches(selector: &Labels, pod: &Pod) -> bool {
    selector
        .iter()
        .all(|(key, value)| pod.labels.get(key) == Some(value))
}

fn of_pod(name: &PodName) -> model::note::Subject {
    subject("Pod", &name.namespace, &name.name)
}

/// What is selected by a Service whose slices have nothing: nothing, pods without an address, or pods that the slices lack.
pub(super) fn selected(world: &World, service: &ServiceName, nothing: String) -> Finding {
    let selector = world
        .objects
        .services
        .get(service)
        .map(|details| details.selector.clone());
    let selector = selector.unwrap_or_default();
    let words = selector_words(&selector);
    let look = Advice::act(format!("kubectl get pods -n {} -l {words}", service.namespace));
    let Some(pods) = &world.objects.pods else {
        return Finding::fault(Cause::NothingSelected, nothing)
            .because(format!(
                "Its selector is {words}. Slices list the pods that have these labels, ready or not: either there is none, or \
                 the slice controller does not work. No Pods were given to look at."
            ))
            .about(of_service(service))
            .advise(look);
    };
    let here: Vec<(&PodName, &Pod)> = pods
        .iter()
        .filter(|(name, _)| name.namespace == service.namespace)
        .collect();
    let fitting: Vec<&(&PodName, &Pod)> = here.iter().filter(|(_, pod)| matches(&selector, pod)).collect();
    if let Some((name, pod)) = fitting.first() {
        return unlisted(service, &nothing, name, pod, look);
    }
    let what = format!("the selector of Service {service} ({words}) matches no pod in its namespace");
    let mut finding = Finding::fault(Cause::NothingSelected, what).about(of_service(service));
    if let Some((name, key, has)) = nearest(&selector, &here) {
        let wanted = selector.get(&key).cloned().unwrap_or_default();
        finding.why = match has {
            Some(has) => format!(
                "Pod {} comes nearest: its label {key} is {has}, and the Service selects {wanted}.",
                name.name
            ),
            None => format!(
                "Pod {} comes nearest: it has no label {key}, and the Service selects {wanted}.",
                name.name
            ),
        };
        let change = match pods.get(&name).and_then(|pod| pod.labels.get(&key)) {
            Some(has) => format!("set it to {has}, or label the pods {key}={wanted}"),
            None => format!("take it out, or label the pods {key}={wanted}"),
        };
        return finding.about(of_pod(&name)).advise(Advice::change(
            of_service(service),
            format!("spec.selector[{key}]"),
            change,
        ));
    }
    let elsewhere = pods
        .iter()
        .find(|(name, pod)| name.namespace != service.namespace && matches(&selector, pod));
    finding.why = match elsewhere {
        Some((name, _)) => {
            format!("Pod {name} has these labels, in another namespace; a Service selects in its own.")
        }
        None => "A Service selects pods that have all of these labels; none comes near.".to_owned(),
    };
    finding.advise(look)
}

/// A pod is selected, and no slice lists it.
fn unlisted(service: &ServiceName, nothing: &str, name: &PodName, pod: &Pod, look: Advice) -> Finding {
    let (what, why) = if pod.ips.is_empty() {
        let told = match pod.trouble.first() {
            Some(trouble) => format!("; {trouble}"),
            None => String::new(),
        };
        let what = format!("pod {name} has no address yet: it is {}{told}", phase(pod));
        (
            what,
            format!("It is selected by Service {service}; slices list pods once they have an address."),
        )
    } else {
        let what = format!("{nothing}, though pod {name} has an address and the labels that it selects");
        (
            what,
            "The controller that writes slices has not done so: it is down, far behind, or may not."
                .to_owned(),
        )
    };
    let cause = if pod.ips.is_empty() {
        Cause::NotReady
    } else {
        Cause::StaleSlices
    };
    Finding::fault(cause, what)
        .because(why)
        .about(of_pod(name))
        .about(of_service(service))
        .advise(if pod.ips.is_empty() {
            Advice::act(format!(
                "kubectl describe pod -n {} {}",
                name.namespace, name.name
            ))
        } else {
            Advice::act("look at the log of kube-controller-manager (endpointslice-controller)")
        })
        .advise(look)
}

fn phase(pod: &Pod) -> &str {
    match pod.phase.as_str() {
        "" => "not started",
        phase => phase,
    }
}

/// The pod that lacks just one of the labels, with the label's key and what the pod has there.
fn nearest(selector: &Labels, pods: &[(&PodName, &Pod)]) -> Option<(PodName, String, Option<String>)> {
    let missing = |pod: &Pod| -> Vec<String> {
        let lacks = selector
            .iter()
            .filter(|(key, value)| pod.labels.get(*key) != Some(*value));
        lacks.map(|(key, _)| key.clone()).collect()
    };
    let mut best: Option<(usize, PodName, String, Option<String>)> = None;
    for (name, pod) in pods {
        let lacks = missing(pod);
        let Some(key) = lacks.first() else { continue };
        let has = pod.labels.get(key).cloned();
        // With a selector of one label every pod lacks one: then it has to have some value there.
        let is_near = lacks.len() < selector.len() || has.is_some();
        if is_near && best.as_ref().is_none_or(|(least, ..)| lacks.len() < *least) {
            best = Some((lacks.len(), (*name).clone(), key.clone(), has));
        }
    }
    best.map(|(_, name, key, has)| (name, key, has))
}

/// The target port's name is no port of the pods.
pub(super) fn target_port(
    world: &World,
    service: &ServiceName,
    port: &PortDetails,
    target: &str,
    slices: &[&Slice],
) -> Finding {
    let details = world.objects.services.get(service);
    let selector = details
        .map(|details| details.selector.clone())
        .unwrap_or_default();
    let selected = world.objects.pods.iter().flatten();
    let mut selected =
        selected.filter(|(name, pod)| name.namespace == service.namespace && matches(&selector, pod));
    let what = format!("targetPort {target:?} of Service {service} is the name of no port of its pods");
    let mut finding = Finding::fault(Cause::TargetPortName, what).about(of_service(service));
    let left_out = format!(
        "The controller leaves port {} out of the slices then, so it has no endpoint.",
        super::port_words(&port.name, port.port, port.protocol)
    );
    let Some((name, pod)) = selected.next() else {
        if let Some(slice) = slices.first() {
            finding = finding.about(of_slice(slice));
        }
        return finding.because(left_out).advise(Advice::change(
            of_service(service),
            "spec.ports[].targetPort",
            "set it to a name among the containers' ports, or to the number that they listen on",
        ));
    };
    let has: Vec<String> = pod
        .ports
        .iter()
        .map(|(name, protocol, number)| format!("{name:?} {number}/{protocol}"))
        .collect();
    finding.why = match has.as_slice() {
        [] => format!("The containers of pod {} name no port. {left_out}", name.name),
        has => format!(
            "The containers of pod {} have {}. {left_out}",
            name.name,
            listed(has, 4)
        ),
    };
    let action = match pod
        .ports
        .iter()
        .find(|(_, protocol, _)| *protocol == port.protocol)
    {
        Some((name, ..)) if !name.is_empty() => format!("set it to {name:?}"),
        Some((_, _, number)) => format!("set it to {number}"),
        None => "set it to the number that the containers listen on".to_owned(),
    };
    finding.about(of_pod(name)).advise(Advice::change(
        of_service(service),
        "spec.ports[].targetPort",
        action,
    ))
}

/// An endpoint and why it is not ready, in words.
pub(super) fn state(world: &World, entry: &Entry<'_>) -> String {
    let ip = entry.endpoint.ip;
    let Some(name) = world.objects.pod_of(ip) else {
        return format!("{ip} ({})", entry.state());
    };
    let trouble = world
        .objects
        .pod(&name)
        .and_then(|pod| pod.trouble.first().cloned());
    match trouble {
        Some(trouble) => format!("pod {} ({}; {trouble})", name.name, entry.state()),
        None => format!("pod {} at {ip} ({})", name.name, entry.state()),
    }
}

/// Where to look why endpoints are not ready.
pub(super) fn look_at(world: &World, service: &ServiceName, entries: &[Entry<'_>]) -> Advice {
    let mut pods = entries
        .iter()
        .filter_map(|entry| world.objects.pod_of(entry.endpoint.ip));
    if let Some(pod) = pods.next() {
        return Advice {
            object: Some(of_pod(&pod)),
            field: Some("status.conditions[Ready]".to_owned()),
            action: format!(
                "see why it is not ready: kubectl describe pod -n {} {}",
                pod.namespace, pod.name
            ),
        };
    }
    let details = world.objects.services.get(service);
    let selector = details.map(|details| selector_words(&details.selector));
    match (selector.filter(|words| !words.is_empty()), entries.first()) {
        (Some(words), _) => Advice::act(format!(
            "see why they are not ready: kubectl describe pods -n {} -l {words}",
            service.namespace
        )),
        (None, Some(entry)) => Advice::change(
            of_slice(entry.slice),
            "endpoints[].conditions.ready",
            "whoever writes this slice has to say ready: true once the address serves",
        ),
        (None, None) => Advice::act("see why no endpoint is ready"),
    }
}

/// Ready pods that the Service selects and that no slice lists.
pub(super) fn not_in_slices(world: &World, service: &ServiceName, entries: &[Entry<'_>]) -> Option<Finding> {
    let selector = &world.objects.services.get(service)?.selector;
    if selector.is_empty() {
        return None;
    }
    let family = entries
        .first()
        .map(|entry| model::Family::of(entry.endpoint.ip))?;
    let is_listed = |pod: &Pod| {
        let mut ips = pod.ips.iter().filter(|ip| model::Family::of(**ip) == family);
        ips.all(|ip| entries.iter().any(|entry| entry.endpoint.ip == *ip))
    };
    let pods = world.objects.pods.as_ref()?.iter();
    let lost: Vec<&PodName> = pods
        .filter(|(name, pod)| {
            name.namespace == service.namespace && matches(selector, pod) && pod.is_ready && !is_listed(pod)
        })
        .map(|(name, _)| name)
        .collect();
    let first = lost.first()?;
    let what = format!(
        "{} of Service {service} ready and in no slice: {}",
        count_pods(lost.len()),
        listed(&lost, 3)
    );
    Some(
        Finding::warning(Cause::StaleSlices, what)
            .because("The controller that writes slices has not done so: it is down, far behind, or may not.")
            .about(of_pod(first))
            .about(of_service(service))
            .advise(Advice::act(
                "look at the log of kube-controller-manager (endpointslice-controller)",
            )),
    )
}

fn count_pods(number: usize) -> String {
    match number {
        1 => "1 pod is".to_owned(),
        number => format!("{number} pods are"),
    }
}
