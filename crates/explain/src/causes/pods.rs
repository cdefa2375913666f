//! Causes in the pods: which ones a Service selects, and why they are not ready. Where no Pods are known, what slices say
//! of them.

use super::endpoints::Entry;
use super::{keeper, listed, of_service, subject, workloads};
use crate::finding::{Advice, Cause, Finding};
use crate::objects::{Labels, Pod, PodName};
use crate::world::World;
use model::ServiceName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Labels as `kubectl -l` takes them.
pub(super) fn selector_words(selector: &Labels) -> String {
    let words: Vec<String> = selector
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    words.join(",")
}

pub(super) fn matches(selector: &Labels, pod: &Pod) -> bool {
    selector
        .iter()
        .all(|(key, value)| pod.labels.get(key) == Some(value))
}

pub(super) fn of_pod(name: &PodName) -> model::note::Subject {
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
    if let Some(without) = unlisted_workload(world, service, &selector) {
        return without;
    }
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
    let fitting: Vec<(&PodName, &Pod)> = here
        .iter()
        .copied()
        .filter(|(_, pod)| matches(&selector, pod))
        .collect();
    let (over, alive): (Vec<_>, Vec<_>) = fitting.iter().partition(|(_, pod)| workloads::has_ended(pod));
    if let Some((name, pod)) = alive.first() {
        return unlisted(service, &nothing, name, pod, look);
    }
    if let Some(ended) = workloads::ended(service, &over, look.clone()) {
        return ended;
    }
    unmatched(pods, service, &selector, look)
}

/// No pod of the namespace has the labels: which comes nearest, or where they are.
fn unmatched(
    pods: &BTreeMap<PodName, Pod>,
    service: &ServiceName,
    selector: &Labels,
    look: Advice,
) -> Finding {
    let words = selector_words(selector);
    let here: Vec<(&PodName, &Pod)> = pods
        .iter()
        .filter(|(name, _)| name.namespace == service.namespace)
        .collect();
    let what = format!("the selector of Service {service} ({words}) matches no pod in its namespace");
    let mut finding = Finding::fault(Cause::NothingSelected, what).about(of_service(service));
    let elsewhere = elsewhere(pods, selector, service);
    let near = nearest(selector, &here).filter(|near| near.lacks < selector.len() || elsewhere.is_empty());
    if let Some(Near { name, key, has, .. }) = near {
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
    match elsewhere.first() {
        Some(first) => in_another_namespace(finding, service, first, elsewhere.len()).advise(look),
        None => finding
            .because("A Service selects pods that have all of these labels; none comes near.")
            .advise(look),
    }
}

/// A Deployment or the like whose pods would be selected, where no pod is known to be.
fn unlisted_workload(world: &World, service: &ServiceName, selector: &Labels) -> Option<Finding> {
    let mut pods = world.objects.pods.iter().flatten();
    let is_there = pods.any(|(name, pod)| name.namespace == service.namespace && matches(selector, pod));
    if is_there {
        return None;
    }
    workloads::without_pods(world, service, selector)
}

/// The pods of other namespaces that have the labels.
fn elsewhere<'a>(
    pods: &'a BTreeMap<PodName, Pod>,
    selector: &Labels,
    service: &ServiceName,
) -> Vec<&'a PodName> {
    let fitting = pods
        .iter()
        .filter(|(name, pod)| name.namespace != service.namespace && matches(selector, pod));
    fitting.map(|(name, _)| name).collect()
}

/// Pods with the labels are there, in another namespace.
fn in_another_namespace(
    mut finding: Finding,
    service: &ServiceName,
    first: &PodName,
    pods: usize,
) -> Finding {
    let there = &first.namespace;
    finding.what = match pods {
        1 => format!("{}; pod {first} has these labels", finding.what),
        pods => format!("{}; {pods} pods have these labels, such as {first}", finding.what),
    };
    finding
        .because("A Service selects pods of its own namespace alone.")
        .about(of_pod(first))
        .advise(Advice::change(
            of_service(service),
            "metadata.namespace",
            format!(
                "make the Service in namespace {there}, where the pods are; clients in other namespaces call it {}.{there}",
                service.name
            ),
        ))
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

/// A pod that has nearly the labels.
struct Near {
    name: PodName,
    /// So many labels it lacks.
    lacks: usize,
    /// One of them.
    key: String,
    /// What the pod has there.
    has: Option<String>,
}

/// The pod that lacks the fewest of the labels.
fn nearest(selector: &Labels, pods: &[(&PodName, &Pod)]) -> Option<Near> {
    let missing = |pod: &Pod| -> Vec<String> {
        let lacks = selector
            .iter()
            .filter(|(key, value)| pod.labels.get(*key) != Some(*value));
        lacks.map(|(key, _)| key.clone()).collect()
    };
    let mut best: Option<Near> = None;
    for (name, pod) in pods {
        let lacks = missing(pod);
        let Some(key) = lacks.first() else { continue };
        let has = pod.labels.get(key).cloned();
        // With a selector of one label every pod lacks one: then it has to have some value there.
        let is_near = lacks.len() < selector.len() || has.is_some();
        if is_near && best.as_ref().is_none_or(|best| lacks.len() < best.lacks) {
            best = Some(Near {
                name: (*name).clone(),
                lacks: lacks.len(),
                key: key.clone(),
                has,
            });
        }
    }
    best
}

/// An endpoint and why it is not ready, in words.
pub(super) fn state(world: &World, entry: &Entry<'_>) -> String {
    let ip = entry.endpoint.ip;
    let Some(name) = world.objects.pod_behind(&entry.slice.name, ip) else {
        return format!("{ip} ({})", entry.state());
    };
    let trouble = world
        .objects
        .pod(&name)
        .and_then(|pod| pod.trouble.first().map(ToString::to_string));
    // What its status says is old where its node does not answer.
    let of_node = entry.endpoint.node.as_ref();
    let of_node = of_node.and_then(|node| workloads::node_words(world, node));
    match of_node.or(trouble) {
        Some(trouble) => format!("pod {} ({}; {trouble})", name.name, entry.state()),
        None => format!("pod {} at {ip} ({})", name.name, entry.state()),
    }
}

/// The readiness gate that keeps all of these from being ready.
pub(super) fn closed_gate<'a>(world: &'a World, entries: &[Entry<'_>]) -> Option<&'a str> {
    let gate = |entry: &Entry<'_>| {
        let name = world.objects.pod_behind(&entry.slice.name, entry.endpoint.ip)?;
        world.objects.pod(&name)?.closed_gate()
    };
    let first = gate(entries.first()?)?;
    entries
        .iter()
        .all(|entry| gate(entry) == Some(first))
        .then_some(first)
}

/// Where to look why endpoints are not ready.
pub(super) fn look_at(world: &World, service: &ServiceName, entries: &[Entry<'_>]) -> Vec<Advice> {
    let mut pods = entries
        .iter()
        .filter_map(|entry| world.objects.pod_behind(&entry.slice.name, entry.endpoint.ip));
    if let Some(pod) = pods.next() {
        if let Some(gate) = world.objects.pod(&pod).and_then(Pod::closed_gate) {
            return vec![Advice::change(
                of_pod(&pod),
                format!("status.conditions[{gate}]"),
                format!(
                    "the controller that owns this readiness gate has to set it to True, and says there why it does not (kubectl get pod -n {} \
                     {} -o yaml); probes have no part in it. Without the gate in spec.readinessGates, new pods do not wait for it",
                    pod.namespace, pod.name
                ),
            )];
        }
        let node = entries.first().and_then(|entry| entry.endpoint.node.as_ref());
        let down = node.filter(|node| workloads::node_words(world, node).is_some());
        if let Some(node) = down {
            return vec![Advice::act(format!(
                "see why its kubelet does not answer: kubectl describe node {node}; pods of a node that is gone are replaced after minutes, or once it is deleted"
            ))];
        }
        return vec![Advice {
            object: Some(of_pod(&pod)),
            field: Some("status.conditions[Ready]".to_owned()),
            action: format!(
                "see why it is not ready: kubectl describe pod -n {} {}",
                pod.namespace, pod.name
            ),
        }];
    }
    let details = world.objects.services.get(service);
    let selector = details.map(|details| selector_words(&details.selector));
    match (selector.filter(|words| !words.is_empty()), entries.first()) {
        (Some(words), _) => vec![Advice::act(format!(
            "see why they are not ready: kubectl describe pods -n {} -l {words}",
            service.namespace
        ))],
        (None, Some(entry)) => {
            let ip = entry.endpoint.ip;
            let followed = Advice::act(format!(
                "see why the pod at {ip} is not ready: kubectl get pods -n {} -o wide --field-selector status.podIP={ip}",
                service.namespace
            ));
            let by_hand = "whoever writes this slice has to say ready: true once the address serves";
            keeper::change(
                world,
                entry.slice,
                "endpoints[].conditions.ready",
                by_hand,
                followed,
            )
        }
        (None, None) => vec![Advice::act("see why no endpoint is ready")],
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
    // Those without this port are listed, too.
    let slices = world.snapshot.slices_of(service);
    let listed_ips: BTreeSet<IpAddr> = slices
        .iter()
        .flat_map(|slice| &slice.endpoints)
        .map(|endpoint| endpoint.ip)
        .collect();
    let is_listed = |pod: &Pod| {
        let mut ips = pod.ips.iter().filter(|ip| model::Family::of(**ip) == family);
        ips.all(|ip| listed_ips.contains(ip))
    };
    // By an address of another network, of which the pod's status does not tell.
    let is_listed_elsewhere = |name: &PodName, pod: &Pod| {
        entries.iter().any(|entry| {
            let slice = world.objects.slices.get(&entry.slice.name);
            let is_its = slice.is_some_and(|slice| {
                slice.pods.get(&entry.endpoint.ip) == Some(name) && !slice.is_of_primary_addresses()
            });
            is_its || pod.further_ips.contains(&entry.endpoint.ip)
        })
    };
    let pods = world.objects.pods.as_ref()?.iter();
    let lost: Vec<&PodName> = pods
        .filter(|(name, pod)| {
            let is_meant = name.namespace == service.namespace && matches(selector, pod) && pod.is_ready;
            is_meant && !is_listed(pod) && !is_listed_elsewhere(name, pod)
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
