//! `NetworkPolicies` that are about the client or about the endpoints. kube-proxy enforces none, so what they let through is not
//! judged; that they are there is told.

use super::listed;
use crate::explanation::{Explanation, Reach};
use crate::finding::{Cause, Finding, subject};
use crate::objects::{Direction, Labels, NetworkPolicy, Objects, PodName};
use crate::question::{From, Question};
use crate::world::World;
use std::sync::Arc;

/// A pod that policies may be about, as far as it is known.
struct Concerned<'a> {
    namespace: Arc<str>,
    labels: Option<&'a Labels>,
}

/// Whether a policy is about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selects {
    It,
    Not,
    /// Nobody told which labels the pod has.
    Perhaps,
}

/// What is to be said of `NetworkPolicies` where kube-proxy does its part: nothing else keeps the client from the pods.
pub(crate) fn remarks(world: &World, question: &Question, answer: &Explanation) -> Vec<Finding> {
    let objects = &world.objects;
    let to = endpoints(objects, answer);
    if objects.policies.is_empty() || to.is_empty() || matches!(answer.reach, Reach::No | Reach::Unknown) {
        return Vec::new();
    }
    let out = client(objects, question).and_then(|client| egress(objects, &client));
    out.into_iter().chain(ingress(objects, &to)).collect()
}

/// The pods that the packet may be sent to.
fn endpoints<'a>(objects: &'a Objects, answer: &Explanation) -> Vec<Concerned<'a>> {
    let pod_of = |name: &str| {
        let (namespace, name) = name.split_once('/')?;
        Some(PodName {
            namespace: namespace.into(),
            name: name.into(),
        })
    };
    let of_service = answer.service.as_ref().map(|name| name.namespace.clone());
    let delivered = answer
        .deliveries
        .iter()
        .filter_map(|to| match to.pod.as_deref().and_then(pod_of) {
            Some(name) => Some(concerned(objects, &name)),
            None => Some(Concerned {
                namespace: of_service.clone()?,
                labels: None,
            }),
        });
    let direct = answer
        .findings
        .iter()
        .filter(|finding| finding.cause == Cause::DirectToEndpoint)
        .flat_map(|finding| &finding.objects)
        .filter(|object| object.kind == "Pod")
        .map(|pod| {
            let name = PodName {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
            };
            concerned(objects, &name)
        });
    delivered.chain(direct).collect()
}

/// The client, where the question names a pod.
fn client<'a>(objects: &'a Objects, question: &Question) -> Option<Concerned<'a>> {
    let name = match &question.from {
        From::Name(name) => objects.pod(name).map(|_| name.clone())?,
        From::PodAddress(ip) | From::Address(ip) => objects.pod_of(*ip)?,
        From::Pod | From::Node | From::NamedNode(_) | From::Outside => return None,
    };
    Some(concerned(objects, &name))
}

fn concerned<'a>(objects: &'a Objects, name: &PodName) -> Concerned<'a> {
    Concerned {
        namespace: name.namespace.clone(),
        labels: objects.pod(name).map(|pod| &pod.labels),
    }
}

fn selects(policy: &NetworkPolicy, pod: &Concerned<'_>) -> Selects {
    match pod.labels {
        _ if policy.pods.is_all() => Selects::It,
        Some(labels) if policy.pods.selects(labels) => Selects::It,
        Some(_) => Selects::Not,
        None => Selects::Perhaps,
    }
}

/// The policies of one direction of which this is so for some of the pods, and how many pods that are.
fn those_that<'a>(
    objects: &'a Objects,
    direction: Direction,
    pods: &[Concerned<'_>],
    wanted: Selects,
) -> (Vec<&'a PodName>, usize) {
    let is_so = |(name, policy): &(&PodName, &NetworkPolicy), pod: &Concerned<'_>| {
        name.namespace == pod.namespace && selects(policy, pod) == wanted
    };
    let all = objects.policies.iter();
    let mut all: Vec<(&PodName, &NetworkPolicy)> = all
        .filter(|(_, policy)| policy.directions.contains(&direction))
        .collect();
    all.retain(|policy| pods.iter().any(|pod| is_so(policy, pod)));
    let number = pods
        .iter()
        .filter(|pod| all.iter().any(|policy| is_so(policy, pod)));
    (all.iter().map(|(name, _)| *name).collect(), number.count())
}

/// Policies for what comes to the endpoints' pods.
fn ingress(objects: &Objects, pods: &[Concerned<'_>]) -> Option<Finding> {
    let word = "whether the network plugin lets this client in is its word, not kube-proxy's";
    let (sure, number) = those_that(objects, Direction::Ingress, pods, Selects::It);
    if !sure.is_empty() {
        let what = format!("{} {number} of the endpoints' pods: {word}", selecting(&sure));
        return Some(finding(&sure, what));
    }
    let (perhaps, _) = those_that(objects, Direction::Ingress, pods, Selects::Perhaps);
    let what = format!(
        "{} may select the endpoints' pods, whose labels nobody told: {word}",
        words(&perhaps)
    );
    (!perhaps.is_empty()).then(|| finding(&perhaps, what))
}

/// Policies for what the client sends.
fn egress(objects: &Objects, client: &Concerned<'_>) -> Option<Finding> {
    let (sure, _) = those_that(
        objects,
        Direction::Egress,
        std::slice::from_ref(client),
        Selects::It,
    );
    let what = format!(
        "{} the client: whether the network plugin lets it send there is its word, not kube-proxy's",
        selecting(&sure)
    );
    (!sure.is_empty()).then(|| finding(&sure, what))
}

fn finding(policies: &[&PodName], what: String) -> Finding {
    let about = |finding: Finding, name: &&PodName| {
        finding.about(subject("NetworkPolicy", &name.namespace, &name.name))
    };
    let finding = Finding::remark(Cause::NetworkPolicy, what);
    policies.iter().fold(finding, about)
}

fn selecting(names: &[&PodName]) -> String {
    let verb = if names.len() == 1 { "selects" } else { "select" };
    format!("{} {verb}", words(names))
}

fn words(names: &[&PodName]) -> String {
    let kind = if names.len() == 1 {
        "NetworkPolicy"
    } else {
        "NetworkPolicies"
    };
    format!("{kind} {}", listed(names, 3))
}
