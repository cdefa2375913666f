//! Causes on the host: its routes, other programs' rules, sockets, sysctls.

use super::endpoints::of_slice;
use super::{foreign, of_service, subject};
use crate::fate::{Ended, Fate, RuleLine};
use crate::finding::{Advice, Cause, Finding};
use crate::known::{Kind, Known, service_of};
use crate::sender::{Sender, SenderKind};
use crate::target::Target;
use crate::world::{Rules, World};
use model::{Family, Origin};
use path::Listener;
use std::net::SocketAddr;

/// A packet, who sends it, and what can become of it.
pub(crate) struct Sent<'a> {
    pub(crate) world: &'a World,
    pub(crate) sender: &'a Sender,
    pub(crate) target: &'a Target,
    pub(crate) fates: &'a [Fate],
}

impl Sent<'_> {
    fn family(&self) -> Family {
        Family::of(self.target.at.ip())
    }

    /// The destination lies in the client's own network: it is asked for by ARP there, and nobody answers.
    pub(crate) fn on_link(&self) -> Option<Finding> {
        let world = self.world;
        let ip = self.target.at.ip();
        if self.sender.origin == Origin::Host || world.is_local(ip) {
            return None;
        }
        let is_service = self.target.known.is_some() || self.target.service.is_some();
        let (interface, network) = world.host_facts.connected(self.sender.ip)?;
        if !is_service || self.sender.kind != SenderKind::Pod || !network.contains(&ip) {
            return None;
        }
        let ranges = world.snapshot.service_cidrs().flat_map(|cidr| &cidr.cidrs);
        let range = ranges.into_iter().find(|range| range.contains(&ip));
        let overlap = match range {
            Some(range) => format!(" The service range {range} overlaps the pods' network."),
            None => String::new(),
        };
        let what = format!(
            "{ip} is on-link for the pod: it lies in {network}, the network of {}",
            interface.name
        );
        Some(
            Finding::fault(Cause::OnLink, what)
                .because(format!(
                    "The pod asks for it on its own link, and nobody there has it: the packet never reaches the node's rules, which \
                     are right.{overlap}"
                ))
                .advise(Advice::act(format!(
                    "give pods and Services networks that do not overlap: the network plugin's {network}, or the API server's \
                     --service-cluster-ip-range"
                ))),
        )
    }

    /// A process of the node has no route for the destination, so no rule is asked.
    pub(crate) fn no_route(&self) -> Option<Finding> {
        if self.fates.is_empty() || self.fates.iter().any(|fate| fate.end != Ended::NoRoute) {
            return None;
        }
        let at = self.target.at.ip();
        let to = self.fates.first().and_then(|fate| fate.to);
        let node = self.world.node_words();
        if let Some(to) = to {
            let what = format!("{node} has no route to endpoint {}", to.ip());
            return Some(
                Finding::fault(Cause::NoRoute, what)
                    .because(
                        "The rules translated the packet, and the node does not know where that endpoint is.",
                    )
                    .advise(Advice::act(
                        "look at `ip route` and at the network plugin, which should have made the route",
                    )),
            );
        }
        let what = format!("no route of {node} leads to {at}");
        Some(
            Finding::fault(Cause::NoRoute, what)
                .because(
                    "A process of the node needs a route before its packet meets any rule; the rules, which are right, are not \
                     asked. Pods' packets are translated before they are routed, so pods are not concerned.",
                )
                .advise(Advice::act(format!(
                    "add any route for the service range, a default route or one such as: ip route add {} dev IF",
                    self.service_range()
                ))),
        )
    }

    fn service_range(&self) -> String {
        let ip = self.target.at.ip();
        let mut ranges = self.world.snapshot.service_cidrs().flat_map(|cidr| &cidr.cidrs);
        match ranges.find(|range| range.contains(&ip)) {
            Some(range) => range.to_string(),
            None => match ipnet::IpNet::new(ip, if ip.is_ipv4() { 12 } else { 108 }) {
                Ok(net) => net.trunc().to_string(),
                Err(_) => ip.to_string(),
            },
        }
    }

    /// A packet that is not tracked never meets nat.
    pub(crate) fn untracked(&self) -> Option<Finding> {
        let rule = self.fates.iter().find_map(|fate| fate.untracked.as_ref())?;
        let world = self.world;
        let ip = self.target.at.ip();
        let local = self
            .fates
            .iter()
            .all(|fate| matches!(fate.end, Ended::Here(Listener::Present | Listener::Unknown)));
        let place = rule.place();
        if local && world.is_local(ip) {
            let what = format!(
                "{ip} is an address of the node itself, and {place} keeps it from kube-proxy (notrack)"
            );
            return Some(
                Finding::remark(Cause::Untracked, what)
                    .because(format!("A local cache answers: {}", quoted(rule))),
            );
        }
        let what = format!("{place} marks the packet notrack, so no nat rule sees it");
        Some(
            Finding::fault(Cause::Untracked, what)
                .because(format!(
                    "{} Untracked packets skip nat: it keeps the destination {ip}, which is no address of the node, and leaves. A \
                     node-local cache that died leaves such rules behind.",
                    quoted(rule)
                ))
                .advise(Advice::act("start that cache again, or remove its rules: iptables -t raw -S | grep -i notrack")),
        )
    }

    /// A rule that is not kube-proxy's ends the way, or one of ours without an object that says why.
    pub(crate) fn stopped(&self) -> Vec<Finding> {
        let mut found: Vec<Finding> = Vec::new();
        let stopped = self
            .fates
            .iter()
            .filter(|fate| matches!(fate.end, Ended::Refused(_) | Ended::Dropped));
        for fate in stopped {
            let finding = match &fate.by {
                Some(rule) if rule.is_ours() && !is_kubelets(rule) => ours(rule),
                Some(rule) => foreign::stops(fate, rule, Family::of(self.target.at.ip())),
                None => continue,
            };
            // One for all endpoints that are stopped at the same place.
            if !found.iter().any(|other| other.what == finding.what) {
                found.push(finding);
            }
        }
        found
    }

    /// A program of the node listens on the node port, and hears nothing of what comes there.
    pub(crate) fn shadowed_socket(&self) -> Option<Finding> {
        let known = self.target.known.as_ref()?;
        let is_here = match known.ip {
            Some(ip) => known.kind != Kind::ClusterIp && self.world.is_local(ip),
            None => true,
        };
        let sockets = self.world.host_facts.listening.iter().flatten();
        let mut same = sockets.map(|of| &of.socket).filter(|socket| {
            let ip = socket.address.ip();
            let is_asked = known.ip.is_none_or(|at| ip.is_unspecified() || ip == at);
            (socket.protocol, socket.address.port()) == (known.protocol, known.port)
                && !ip.is_loopback()
                && is_asked
        });
        same.next().filter(|_| is_here)?;
        let (port, protocol, name) = (known.port, known.protocol, &known.service);
        let (whose, field, action) = match known.ip {
            None => (
                format!("the node port of Service {name}"),
                "spec.ports[].nodePort",
                "take a port that nothing listens on",
            ),
            Some(ip) => (
                format!("a port of Service {name} at {ip}, an address of the node"),
                "spec.externalIPs",
                "take an address that is no node's, or a port that nothing listens on",
            ),
        };
        let what = format!("a program of the node listens on {port}/{protocol} too, which is {whose}");
        Some(
            Finding::warning(Cause::SocketShadowed, what)
                .because(
                    "What comes to it is translated before sockets are asked, so that program hears nothing from outside.",
                )
                .about(of_service(name))
                .advise(Advice::change(of_service(name), field, action)),
        )
    }

    /// The endpoint is the address of another Service, and a connection is translated once.
    pub(crate) fn translated_once(&self, to: SocketAddr) -> Option<Finding> {
        let world = self.world;
        let known = world.known(Family::of(to.ip()));
        let own = self.target.service.as_ref();
        let protocol = self.target.protocol;
        let fits = |one: &&Known| {
            (one.port, one.protocol) == (to.port(), protocol)
                && (own != Some(&one.service) || one.ip != Some(self.target.at.ip()))
        };
        let is_here = world.is_local(to.ip());
        let other = known.iter().find(|one| match one.kind {
            Kind::NodePort => is_here && fits(one),
            _ => one.ip == Some(to.ip()) && fits(one),
        })?;
        let has_listener = self
            .fates
            .iter()
            .any(|fate| fate.to == Some(to) && fate.end == Ended::Here(Listener::Present));
        if has_listener {
            return None;
        }
        let name = &other.service;
        let what = match other.kind {
            Kind::NodePort => format!(
                "endpoint {to} is this node's own node port {} of Service {name}",
                other.port
            ),
            kind => format!("endpoint {to} is the {} of Service {name}", kind.words()),
        };
        let then = match other.kind {
            Kind::NodePort => {
                "here it ends at the node's own port, where nothing listens. On another node it would work"
            }
            _ => "the packet leaves for an address that no machine has",
        };
        let mut finding = Finding::fault(Cause::TranslatedOnce, what)
            .because(format!("A connection is translated once on a node: {then}."))
            .about(of_service(name));
        if let Some(own) = own {
            let mut slices = self.world.snapshot.slices_of(own).into_iter();
            let its = slices.find(|slice| slice.endpoints.iter().any(|one| one.ip == to.ip()));
            finding = finding.about(of_service(own)).advise(Advice::change(
                its.map_or_else(|| of_service(own), of_slice),
                "endpoints[].addresses",
                "list the pods' own addresses there (or have the Service select them), not another Service's address",
            ));
        }
        Some(finding)
    }

    /// The endpoint is this host, and nothing listens there.
    pub(crate) fn no_listener(&self, to: SocketAddr) -> Option<Finding> {
        let is_refused = self
            .fates
            .iter()
            .any(|fate| fate.to == Some(to) && fate.end == Ended::Here(Listener::Absent));
        is_refused.then(|| {
            Finding::fault(
                Cause::NoListener,
                format!("nothing listens on {to}, which is an address of the node itself"),
            )
            .because("The endpoint's program is not there, or listens on another address.")
            .advise(Advice::act(format!(
                "look on the node: ss -lnp 'sport = :{}'",
                to.port()
            )))
        })
    }

    /// Sysctls without which packets do not get far.
    pub(crate) fn sysctls(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let forward = match self.family() {
            Family::V4 => "net.ipv4.ip_forward",
            Family::V6 => "net.ipv6.conf.all.forwarding",
        };
        let is_forwarded = self
            .fates
            .iter()
            .any(|fate| fate.is_forwarded && fate.got_through());
        if is_forwarded && self.world.host_facts.sysctl(forward) == Some("0") {
            found.push(
                Finding::fault(
                    Cause::NotForwarding,
                    format!("{forward} is 0: the node forwards no packet"),
                )
                .because("The packet comes in and has to leave again for its endpoint.")
                .advise(Advice::act(format!(
                    "sysctl -w {forward}=1, and write it into /etc/sysctl.d"
                ))),
            );
        }
        let localnet = "net.ipv4.conf.all.route_localnet";
        let from_loopback = self.target.at.ip().is_loopback() && self.fates.iter().any(Fate::is_translated);
        if from_loopback && self.family() == Family::V4 && self.world.host_facts.sysctl(localnet) == Some("0")
        {
            found.push(
                Finding::fault(Cause::RouteLocalnet, format!("{localnet} is 0: packets from 127.0.0.1 may not leave loopback"))
                    .because("A node port on loopback is translated to an endpoint elsewhere. kube-proxy sets this to 1 when it serves loopback.")
                    .advise(Advice::act(format!("sysctl -w {localnet}=1, or use the node's own address"))),
            );
        }
        found
    }

    /// The host's saved rules do something else than the objects ask for.
    pub(crate) fn rules_differ(&self, wanted: &[Fate]) -> Option<Finding> {
        let world = self.world;
        if world.rules != Rules::Observed || !world.has_objects() {
            return None;
        }
        let target = |fates: &[Fate]| {
            let mut to: Vec<Option<SocketAddr>> = fates.iter().map(|fate| fate.to).collect();
            to.sort();
            to.dedup();
            to
        };
        let (has, wants) = (target(self.fates), target(wanted));
        // What a firewall stops before Services are asked says nothing of kube-proxy's rules.
        let is_stopped_early = self
            .fates
            .iter()
            .all(|fate| !fate.is_translated() && fate.is_stopped_by_others());
        if has == wants
            || is_stopped_early
            || self
                .fates
                .iter()
                .any(|fate| fate.untracked.is_some() || fate.end == Ended::NoRoute)
        {
            return None;
        }
        let words = |to: &[Option<SocketAddr>]| {
            let words: Vec<String> = to
                .iter()
                .map(|to| to.map_or_else(|| "no endpoint".to_owned(), |to| to.to_string()))
                .collect();
            super::listed(&words, 4)
        };
        let node = world.node_words();
        let what = format!(
            "the rules of {node} are not what the objects ask for: they lead to {}",
            words(&has)
        );
        Some(
            Finding::fault(Cause::RulesDiffer, what)
                .because(format!(
                    "The objects ask for {}. kube-proxy is not running there, cannot write, or has not seen the last change; or the \
                     dump is older than the objects.",
                    words(&wants)
                ))
                .about(subject("Node", "", &node))
                .advise(Advice::act("look at kube-proxy's log and at its /healthz on that node")),
        )
    }
}

/// The kubelet has a chain with a name like ours.
fn is_kubelets(rule: &RuleLine) -> bool {
    ["KUBE-FIREWALL", "KUBE-MARK-DROP"].contains(&rule.chain.as_str())
}

pub(super) fn quoted(rule: &RuleLine) -> String {
    let comment = rule
        .comment
        .as_ref()
        .map_or_else(String::new, |comment| format!(" # {comment}"));
    format!("The rule: {}{comment}.", rule.text)
}

/// One of kube-proxy's own rules stops the packet. Its comment says for whom and why.
fn ours(rule: &RuleLine) -> Finding {
    let comment = rule.comment.clone().unwrap_or_default();
    let place = rule.place();
    let Some((name, _, words)) = service_of(&comment) else {
        let what = format!("kube-proxy's {place} stops the packet");
        return Finding::fault(Cause::OwnRule, what).because(quoted(rule));
    };
    let slices = format!(
        "kubectl get endpointslices -n {} -l kubernetes.io/service-name={} -o yaml",
        name.namespace, name.name
    );
    let (cause, what, why) = if words.contains("has no endpoints") {
        (
            Cause::NotReady,
            format!("Service {name} had no endpoint when the rules were written"),
            "Why, its slices say: none ready, another port name, or no pod selected.",
        )
    } else if words.contains("has no local endpoints") {
        (
            Cause::NoLocalEndpoints,
            format!("Service {name} has policy Local, and had no endpoint on this node"),
            "internalTrafficPolicy or externalTrafficPolicy: Local sends to endpoints of the same node alone.",
        )
    } else if rule.chain == "KUBE-PROXY-FIREWALL" {
        (
            Cause::SourceRange,
            format!("the client is in none of the loadBalancerSourceRanges of Service {name}"),
            "Whoever is in no range is dropped at the load balancer's address.",
        )
    } else {
        (
            Cause::OwnRule,
            format!("kube-proxy's {place} stops the packet for Service {name}"),
            "",
        )
    };
    Finding::fault(cause, what)
        .because(format!("{why} {}", quoted(rule)).trim_start().to_owned())
        .about(of_service(&name))
        .advise(Advice::act(slices))
}
