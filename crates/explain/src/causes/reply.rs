//! The way back, and what the endpoint sees: bridged replies, rewritten sources, pods that reach themselves.

use super::host::Sent;
use super::{listed, of_service, subject};
use crate::fate::{Fate, SourceFate};
use crate::finding::{Advice, Cause, Finding};
use crate::sender::{SenderKind, Whose};
use model::{DesiredPort, Family, LocalDetector, Origin, Policy};
use std::net::SocketAddr;

impl Sent<'_> {
    /// Client and endpoint are on one bridge, and bridged packets do not pass netfilter: the reply keeps the pod's address.
    pub(crate) fn reply_is_bridged(&self, to: SocketAddr) -> Option<Finding> {
        let world = self.world;
        let sysctl = match Family::of(to.ip()) {
            Family::V4 => "net.bridge.bridge-nf-call-iptables",
            Family::V6 => "net.bridge.bridge-nf-call-ip6tables",
        };
        let is_kept = self
            .fates
            .iter()
            .any(|fate| fate.to == Some(to) && !fate.is_masqueraded());
        if self.sender.origin == Origin::Host || !is_kept || to.ip() == self.sender.ip {
            return None;
        }
        let (interface, network) = world.host_facts.connected(self.sender.ip)?;
        let is_bridge = interface.kind.as_deref().is_none_or(|kind| kind == "bridge");
        let is_pods = self.sender.kind == SenderKind::Pod || interface.kind.is_some();
        if !is_bridge
            || !is_pods
            || !network.contains(&to.ip())
            || world.host_facts.sysctl(sysctl) != Some("0")
        {
            return None;
        }
        let name = &interface.name;
        let what = format!(
            "the reply of {} is bridged on {name} past netfilter, since {sysctl} is 0",
            to.ip()
        );
        Some(
            Finding::fault(Cause::ReplyNotTranslated, what)
                .because(format!(
                    "Client and endpoint are both on {name}. The request passes the node's rules and is translated; the reply is \
                     switched on the bridge, so the client gets it from {} and not from {}, and refuses it.",
                    to.ip(),
                    self.target.at.ip()
                ))
                .advise(Advice::act(format!("modprobe br_netfilter, and sysctl -w {sysctl}=1 (write both into /etc)"))),
        )
    }

    /// A source that another program's rule rewrites although kube-proxy kept it.
    pub(crate) fn foreign_masquerade(&self) -> Option<Finding> {
        let fate = self.fates.iter().find(|fate| {
            fate.is_translated_by_kube_proxy() && matches!(fate.source, SourceFate::ByOthers(_))
        })?;
        let rule = fate.source_by.as_ref()?;
        let SourceFate::ByOthers(to) = fate.source else {
            return None;
        };
        let seen = to.map_or_else(|| "an address of the node".to_owned(), |ip| ip.to_string());
        let comment = rule
            .comment
            .as_ref()
            .map_or_else(String::new, |comment| format!(" # {comment}"));
        let what = format!(
            "the endpoint sees {seen} and not {}: {} of another program masquerades, kube-proxy preserved the source",
            self.sender.ip,
            rule.place()
        );
        Some(
            Finding::warning(Cause::ForeignMasquerade, what)
                .because(format!("The rule: {}{comment}", rule.text))
                .advise(Advice::act(
                    "have the network plugin leave out traffic that comes from outside (its masquerade or ipMasq option)",
                )),
        )
    }

    /// Why the source is rewritten, when kube-proxy does it.
    pub(crate) fn source_words(&self, port: Option<&DesiredPort>) -> Option<Finding> {
        let ours = |fate: &&Fate| matches!(fate.source, SourceFate::ByKubeProxy(_));
        let fate = self
            .fates
            .iter()
            .filter(ours)
            .find(|fate| !self.keeps_its_source(fate))?;
        if self
            .fates
            .iter()
            .filter(ours)
            .all(|fate| fate.to.is_some_and(|to| to.ip() == self.sender.ip) || self.keeps_its_source(fate))
        {
            return None;
        }
        let to = match fate.source {
            SourceFate::ByKubeProxy(Some(ip)) => format!("{ip}, the node's,"),
            _ => "an address of the node".to_owned(),
        };
        let is_external = self
            .target
            .known
            .as_ref()
            .is_some_and(|known| known.kind != crate::known::Kind::ClusterIp);
        let why = if is_external {
            "Replies have to come back through this node. With externalTrafficPolicy: Local the source is kept."
        } else {
            "The client is no pod of this cluster as far as kube-proxy can tell, so replies have to come back through this node."
        };
        let mut finding = Finding::remark(
            Cause::SourceRewritten,
            format!("the endpoint sees {to} in place of {} (SNAT)", self.sender.ip),
        )
        .because(why);
        if let Some(port) = port.filter(|port| is_external && port.external == Policy::Cluster) {
            finding = finding.about(of_service(&port.name.service));
        }
        Some(finding)
    }

    /// Whether masquerading gives the packet the very address that it has: the node's own.
    fn keeps_its_source(&self, fate: &Fate) -> bool {
        let is_some_node = (self.sender.kind, self.sender.whose) == (SenderKind::Node, Whose::MadeUp);
        match fate.source {
            SourceFate::ByKubeProxy(Some(to)) => to == self.sender.ip,
            SourceFate::ByKubeProxy(None) => is_some_node,
            SourceFate::Kept | SourceFate::ByOthers(_) => false,
        }
    }

    /// A pod that kube-proxy takes for an outsider, since its address is not in the pods' network that it was told.
    pub(crate) fn pod_not_detected(&self) -> Option<Finding> {
        let ip = self.sender.ip;
        let detector = self.world.desired.get(Family::of(ip)).node.detector.as_ref();
        let Some(LocalDetector::Cidr(net)) = detector else {
            return None;
        };
        let is_rewritten = self
            .fates
            .iter()
            .any(|fate| matches!(fate.source, SourceFate::ByKubeProxy(_)));
        if self.sender.kind != SenderKind::Pod || net.contains(&ip) || !is_rewritten {
            return None;
        }
        let what = format!("pod {ip} is not in {net}, which kube-proxy takes for the pods' network");
        Some(
            Finding::warning(Cause::PodNotDetected, what)
                .because(
                    "So its traffic counts as from outside: endpoints see the node's address, and policies for outside hold for it.",
                )
                .advise(Advice {
                    object: None,
                    field: Some("clusterCIDR".to_owned()),
                    action: "set clusterCIDR of kube-proxy's configuration to the network that pods really have, or another \
                             detectLocalMode"
                        .to_owned(),
                }),
        )
    }

    /// The sender may meet itself.
    pub(crate) fn hairpin(&self) -> Option<Finding> {
        let all: Vec<SocketAddr> = self.fates.iter().filter_map(|fate| fate.to).collect();
        let itself = all.iter().find(|to| to.ip() == self.sender.ip)?;
        let what = format!("one of {} endpoints is the client itself, {itself}", all.len());
        let mut finding = Finding::remark(Cause::Hairpin, what).because(
            "Such a connection leaves the pod and comes back to it: kube-proxy rewrites its source, and the pod's port on the bridge \
             needs hairpin mode (the network plugin's hairpinMode).",
        );
        if let Some(pod) = self.world.objects.pod_of(itself.ip()) {
            finding = finding.about(subject("Pod", &pod.namespace, &pod.name));
        }
        Some(finding)
    }

    /// Clients stay with one endpoint.
    pub(crate) fn affinity(&self, port: &DesiredPort) -> Option<Finding> {
        let affinity = port.affinity?;
        let endpoints: Vec<SocketAddr> = self.fates.iter().filter_map(|fate| fate.to).collect();
        if endpoints.len() < 2 {
            return None;
        }
        let what = format!(
            "a client stays with one endpoint for {} seconds after its last connection (sessionAffinity: ClientIP)",
            affinity.timeout_seconds
        );
        Some(
            Finding::remark(Cause::Affinity, what)
                .because(format!(
                    "Each port has affinity of its own. Endpoints: {}.",
                    listed(&endpoints, 4)
                ))
                .about(of_service(&port.name.service)),
        )
    }
}
