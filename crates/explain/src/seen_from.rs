//! From where is looked: the node whose rules were asked and the one that the client is on, and what kube-proxy takes for pods.

use crate::causes::{listed, of_service};
use crate::explanation::{Explanation, Reach};
use crate::finding::{Advice, Cause, Finding, Severity, subject};
use crate::known::{Kind, Known};
use crate::question::Question;
use crate::sender::{Sender, SenderKind, Whose};
use crate::target::Target;
use crate::world::{PodsTold, Rules, World};
use ipnet::IpNet;
use model::{DesiredPort, Family, Policy};

/// That the client is on another node than the one whose rules were asked: its packets meet those of its own first.
pub(crate) fn other_node(world: &World, question: &Question, answer: &Explanation) -> Option<Finding> {
    let packet = answer.packet.as_ref()?;
    let node = question.node_of_sender(&world.snapshot, &world.objects)?;
    let here = world.node_words();
    let is_told = answer
        .findings
        .iter()
        .any(|finding| finding.cause == Cause::SeenFrom && finding.severity > Severity::Remark);
    if is_told || world.facts.name.is_empty() || *node == *world.facts.name || *node == *here {
        return None;
    }
    let client = &answer.from;
    if world.is_local(packet.dst.ip()) {
        return comes_over(world, answer, &node);
    }
    let severity = match answer.reach {
        Reach::Yes | Reach::Fails(_) => Severity::Warning,
        Reach::No | Reach::NotOurs | Reach::Unknown => Severity::Remark,
    };
    let what = format!("{client} is on node {node}, and the rules of {here} were asked");
    let advice = match world.rules {
        Rules::Observed => format!("give the rules of {node}: --dump of that node"),
        Rules::Rendered | Rules::None => format!("ask its own node: --node {node}"),
    };
    Some(
        Finding::new(Cause::SeenFrom, severity, what)
            .because("A packet for a Service is translated by the node that its client is on.")
            .about(subject("Node", "", &node))
            .advise(Advice::act(advice)),
    )
}

/// The client is a pod of another node than the one that has the address: which source its packets come with is the network
/// plugin's to say.
fn comes_over(world: &World, answer: &Explanation, node: &str) -> Option<Finding> {
    let packet = answer.packet.as_ref()?;
    let service = world.snapshot.service(answer.service.as_ref()?)?;
    let is_pod = world.objects.pod_of(packet.src).is_some();
    if !is_pod || service.external != Policy::Local {
        return None;
    }
    let what = format!(
        "the client's packets come from node {node}; where the network plugin gives them that node's address, they count as from \
         outside, and externalTrafficPolicy: Local holds for them"
    );
    Some(Finding::remark(Cause::SeenFrom, what).about(subject("Node", "", node)))
}

/// That pods are known to have addresses of the other family alone, where one was made up to ask at the Service's.
pub(crate) fn no_pods_of_family(world: &World, sender: &Sender, target: &Target) -> Option<Finding> {
    let family = Family::of(sender.ip);
    let other = Family::ALL.into_iter().find(|other| *other != family)?;
    let nets: Vec<IpNet> = world.pod_networks(other).into_iter().collect();
    let is_made_up = (sender.kind, sender.whose) == (SenderKind::Pod, Whose::MadeUp);
    if !is_made_up || nets.is_empty() || !world.pod_networks(family).is_empty() {
        return None;
    }
    let name = target.service.as_ref()?;
    let what = format!(
        "{} is an {family} address, and pods are known to have {other} alone ({})",
        target.at.ip(),
        listed(&nets, 3)
    );
    Some(
        Finding::warning(Cause::NoAddressOfFamily, what)
            .because("A packet and its destination are of one family. Pods of a dual-stack cluster have addresses of both.")
            .about(of_service(name))
            .advise(Advice::change(
                of_service(name),
                "spec.ipFamilyPolicy",
                format!("in a dual-stack cluster set it to PreferDualStack, and add {other} to spec.ipFamilies; else create the Service anew with {other}"),
            )),
    )
}

/// Whether kube-proxy takes the client for a pod hangs on the pods' networks, of which nobody told.
pub(crate) struct Undetected<'a> {
    pub(crate) world: &'a World,
    pub(crate) sender: &'a Sender,
    pub(crate) known: &'a Known,
    pub(crate) port: &'a DesiredPort,
}

/// What was not told: how to give it.
const GIVE: &str = "give them: --cluster-cidr, or kube-proxy's configuration with --config";

impl Undetected<'_> {
    /// Whether nothing counts as a pod here.
    fn is_so(&self) -> bool {
        let family = Family::of(self.sender.ip);
        let detector = self.world.desired.get(family).node.detector.as_ref();
        detector.is_none() && self.world.rules != Rules::Observed
    }

    /// Whether a pod gets to other endpoints than a client outside.
    fn is_local(&self) -> bool {
        let is_external = self.known.kind != Kind::ClusterIp && self.sender.kind == SenderKind::Pod;
        is_external && self.port.external == Policy::Local && !self.port.cluster.is_empty()
    }

    /// Where the answer is another for a pod: no endpoint is on this node, and a pod would get to one elsewhere.
    pub(crate) fn no_answer(&self) -> Option<Finding> {
        let is_open = self.is_so() && self.world.pods_told == PodsTold::No;
        if !is_open || !self.is_local() || !self.port.local.is_empty() {
            return None;
        }
        let what =
            "it depends on whether kube-proxy takes the client for a pod, which hangs on the pods' networks";
        Some(
            Finding::fault(Cause::NotKnown, what)
                .because(
                    "externalTrafficPolicy is Local and no endpoint is on this node: clients outside are dropped, pods are sent to \
                     endpoints elsewhere. kube-proxy tells pods by clusterCIDR, and nobody told which it is.",
                )
                .advise(Advice::act(GIVE)),
        )
    }

    /// Where only the source, or the choice of endpoints, is another.
    pub(crate) fn remark(&self) -> Option<Finding> {
        if !self.is_so() || self.world.pods_told == PodsTold::Yes {
            return None;
        }
        let is_masqueraded = self.known.kind == Kind::ClusterIp && self.sender.kind == SenderKind::Outside;
        let what = if is_masqueraded {
            format!(
                "whether endpoints see {} or an address of the node",
                self.sender.ip
            )
        } else if self.is_local() {
            "whether a pod is sent to all endpoints, or to those of this node".to_owned()
        } else {
            return None;
        };
        let what = format!("{what} hangs on the pods' networks, of which nobody told; {GIVE}");
        Some(Finding::remark(Cause::NotKnown, what))
    }

    /// A pod is dropped that a configuration with the pods' networks would let through.
    pub(crate) fn not_configured(&self) -> Option<Finding> {
        let is_dropped = self.is_local() && self.port.local.is_empty();
        if !self.is_so() || !is_dropped || self.world.pods_told == PodsTold::No {
            return None;
        }
        let what = format!(
            "kube-proxy knows no network of pods, so pod {} counts as a client outside",
            self.sender.ip
        );
        Some(
            Finding::warning(Cause::PodNotDetected, what)
                .because(
                    "clusterCIDR is not set. With it, externalTrafficPolicy: Local would not hold for pods, and they would be sent to \
                     endpoints elsewhere.",
                )
                .advise(Advice {
                    object: None,
                    field: Some("clusterCIDR".to_owned()),
                    action: "set clusterCIDR of kube-proxy's configuration to the pods' networks, or another detectLocalMode"
                        .to_owned(),
                }),
        )
    }
}
