//! Causes in what makes pods: Deployments without replicas, pods that have ended, nodes that do not answer.

use super::endpoints::Entry;
use super::pods::{of_pod, selector_words};
use super::{count, listed, of_service, subject};
use crate::finding::{Advice, Cause, Finding};
use crate::objects::{Labels, Pod, PodName, Workload};
use crate::world::World;
use model::ServiceName;

/// Nothing is selected, and a Deployment or the like is there whose pods would be.
pub(super) fn without_pods(world: &World, service: &ServiceName, selector: &Labels) -> Option<Finding> {
    let is_meant = |one: &&Workload| {
        let mut wanted = selector.iter();
        one.namespace == service.namespace && wanted.all(|(key, value)| one.labels.get(key) == Some(value))
    };
    let all: Vec<&Workload> = world.objects.workloads.iter().filter(is_meant).collect();
    if all.is_empty() && world.objects.pods.is_none() {
        return nearest(world, service, selector);
    }
    let (first, is_none_wanted) = match all.iter().find(|one| one.replicas > 0) {
        Some(wanted) => (*wanted, false),
        None => (*all.first()?, true),
    };
    let words = selector_words(selector);
    let object = subject(first.kind, &first.namespace, &first.name);
    let kind = first.kind.to_lowercase();
    let (namespace, name) = (&first.namespace, &first.name);
    if is_none_wanted {
        let what = format!("{first}, whose pods Service {service} selects, has no replicas");
        return Some(
            Finding::fault(Cause::NothingSelected, what)
                .because(format!(
                    "Its spec.replicas is 0, so there is no pod with the labels {words}."
                ))
                .about(of_service(service))
                .about(object.clone())
                .advise(Advice::change(
                    object,
                    "spec.replicas",
                    format!("scale it: kubectl scale {kind} -n {namespace} {name} --replicas=1"),
                )),
        );
    }
    // Without Pods among the objects it is not known that there is none.
    world.objects.pods.as_ref()?;
    let what = format!(
        "{first}, whose pods Service {service} selects, has none of its {}",
        count_replicas(first)
    );
    Some(
        Finding::fault(Cause::NothingSelected, what)
            .because(format!("There is no pod with the labels {words}: none was made, by its events for a quota or by who admits pods."))
            .about(of_service(service))
            .about(object)
            .advise(Advice::act(format!("see its events: kubectl describe {kind} -n {namespace} {name}"))),
    )
}

/// Where no Pods are known: what makes pods with nearly the labels.
fn nearest(world: &World, service: &ServiceName, selector: &Labels) -> Option<Finding> {
    let lacks = |of: &Workload| {
        let lacking = selector
            .iter()
            .filter(|(key, value)| of.labels.get(*key) != Some(*value));
        lacking
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<Vec<_>>()
    };
    let here = world
        .objects
        .workloads
        .iter()
        .filter(|of| of.namespace == service.namespace);
    let all = here.map(|of| (lacks(of), of));
    // With one label every other lacks one: then it has to have some value there.
    let is_near = |(lacking, of): &(Vec<(String, String)>, &Workload)| {
        lacking.len() < selector.len() || lacking.iter().any(|(key, _)| of.labels.contains_key(key))
    };
    let (lacking, of) = all.filter(is_near).min_by_key(|(lacking, _)| lacking.len())?;
    let (key, wanted) = lacking.first()?;
    let has = match of.labels.get(key) {
        Some(has) => format!("its pods have {key}={has}"),
        None => format!("its pods have no label {key}"),
    };
    let words = selector_words(selector);
    let what = format!("the selector of Service {service} ({words}) fits no pods; {of} comes nearest: {has}");
    let object = subject(of.kind, &of.namespace, &of.name);
    let action = match of.labels.get(key) {
        Some(has) => format!("set it to {has}, or label the pods {key}={wanted}"),
        None => format!("take it out, or label the pods {key}={wanted}"),
    };
    Some(
        Finding::fault(Cause::NothingSelected, what)
            .because(format!("A Service selects pods that have all of these labels, of namespace {}. No Pods were given to look at.", of.namespace))
            .about(of_service(service))
            .about(object)
            .advise(Advice::change(of_service(service), format!("spec.selector[{key}]"), action)),
    )
}

fn count_replicas(of: &Workload) -> String {
    count(usize::try_from(of.replicas).unwrap_or(usize::MAX), "replica")
}

/// Whether a pod has ended: slices leave it out, and it does not come back.
pub(super) fn has_ended(pod: &Pod) -> bool {
    ["Succeeded", "Failed"].contains(&pod.phase.as_str())
}

/// All pods that are selected have ended.
pub(super) fn ended(service: &ServiceName, pods: &[(&PodName, &Pod)], look: Advice) -> Option<Finding> {
    let (first, pod) = pods.first()?;
    let names: Vec<&PodName> = pods.iter().map(|(name, _)| *name).collect();
    let told = match pod.trouble.first() {
        Some(trouble) => format!("{}; {trouble}", pod.phase),
        None => pod.phase.clone(),
    };
    let what = match pods.len() {
        1 => format!("the only pod that Service {service} selects has ended: {first} ({told})"),
        all => format!(
            "all {all} pods that Service {service} selects have ended: {}",
            listed(&names, 3)
        ),
    };
    Some(
        Finding::fault(Cause::NotReady, what)
            .because("Slices leave out pods that have ended, and such a pod does not start again by itself.")
            .about(of_pod(first))
            .about(of_service(service))
            .advise(Advice::act(format!(
                "see why it ended: kubectl describe pod -n {} {}; what serves is run by a Deployment or StatefulSet, which replaces its pods",
                first.namespace, first.name
            )))
            .advise(look),
    )
}

/// That the node of a pod does not answer: what the pod's status says is old, then.
pub(super) fn node_words(world: &World, node: &str) -> Option<String> {
    let state = world.objects.nodes.get(node)?.not_ready.as_ref()?;
    let state = match state.trim_end_matches('.') {
        "" => String::new(),
        state => format!(" ({state})"),
    };
    Some(format!("Node {node} is not ready{state}"))
}

/// Endpoints that get traffic and are on nodes that do not answer: slices follow after a while.
pub(super) fn on_lost_nodes(world: &World, service: &ServiceName, reached: &[&Entry<'_>]) -> Option<Finding> {
    let node = |entry: &&&Entry<'_>| {
        let name = entry.endpoint.node.as_deref()?;
        Some((name.to_owned(), node_words(world, name)?))
    };
    let lost: Vec<(String, String)> = reached.iter().filter_map(|entry| node(&entry)).collect();
    let (first, words) = lost.first()?;
    let what = format!(
        "{} of {} of Service {service} on a node that does not answer: {words}",
        lost.len(),
        count(reached.len(), "endpoint")
    );
    Some(
        Finding::warning(Cause::NodeNotReady, what)
            .because(
                "Such an endpoint gets traffic until its node is given up on, which takes the better part of a minute; connections to it \
                 wait until their time-out.",
            )
            .about(subject("Node", "", first))
            .about(of_service(service))
            .advise(Advice::act(format!("see why its kubelet does not answer: kubectl describe node {first}"))),
    )
}
