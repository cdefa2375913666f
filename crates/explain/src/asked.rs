//! A packet that can be sent, and what becomes of it: the layers asked one after the other.

use crate::causes::endpoints::{Entry, Looked};
use crate::causes::host::Sent;
use crate::causes::odd::endpoints_object;
use crate::causes::{address, policy};
use crate::explanation::{Delivery, Explanation};
use crate::fate::{self, Ended, Fate, RuleLine};
use crate::finding::{Cause, Finding, Severity};
use crate::known::Kind;
use crate::seen_from::{Undetected, no_pods_of_family};
use crate::sender::Sender;
use crate::stand_in;
use crate::target::Target;
use crate::world::{Rules, World};
use model::{
    Desired, DesiredPort, Family, Frontend, FrontendKind, List, NoteKind, Packet, Policy, Route, ServiceName,
    oracle,
};
use std::net::SocketAddr;

/// A packet that can be sent, and what becomes of it.
pub(crate) struct Asked<'a> {
    pub(crate) world: &'a World,
    pub(crate) sender: &'a Sender,
    pub(crate) target: &'a Target,
    pub(crate) packet: Packet,
    pub(crate) fates: Vec<Fate>,
}

/// What makes connections fail.
#[derive(Default)]
pub(crate) struct Failing {
    /// Endpoints that do not work.
    pub(crate) endpoints: Vec<SocketAddr>,
    /// Whether none does.
    pub(crate) all: bool,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(world: &'a World, sender: &'a Sender, target: &'a Target) -> Self {
        let packet = Packet::new(sender.ip, target.at, target.protocol, sender.origin.clone());
        let fates = fate::fates(world, &packet);
        Asked {
            world,
            sender,
            target,
            packet,
            fates,
        }
    }

    pub(crate) fn family(&self) -> Family {
        self.packet.family()
    }

    /// That the answer hangs on what kube-proxy takes for pods, where nobody told.
    pub(crate) fn hangs_on_pods(world: &World, sender: &Sender, target: &Target) -> Option<Finding> {
        let known = target.known.as_ref()?;
        let family = Family::of(target.at.ip());
        let port = world.port(family, &known.service, &known.port_name, known.protocol)?;
        let undetected = Undetected {
            world,
            sender,
            known,
            port,
        };
        undetected.no_answer()
    }

    fn sent(&self) -> Sent<'_> {
        Sent {
            world: self.world,
            sender: self.sender,
            target: self.target,
            fates: &self.fates,
        }
    }

    pub(crate) fn answer(self) -> Explanation {
        let mut failing = Failing::default();
        let mut findings = self.findings(&mut failing);
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let deliveries = self.deliveries(&failing);
        let reach = self.reach(&failing, &findings);
        let verdict = self.verdict(&findings);
        Explanation {
            from: self.sender.words.clone(),
            to: self.to_words(),
            node: self.world.node_words(),
            mode: self.world.mode,
            rules_are: self.world.rules,
            service: self.target.service.clone(),
            verdict,
            reach,
            client: self.client(verdict, reach),
            rules: self.rules(),
            addresses: self.addresses(),
            next: self.next(&findings, reach),
            packet: Some(self.packet),
            deliveries,
            findings,
        }
    }

    fn to_words(&self) -> String {
        let Target {
            at,
            protocol,
            known,
            service,
            ..
        } = self.target;
        match (known, service) {
            (Some(known), _) if known.kind == Kind::NodePort => {
                format!("{}, {} on {}", known.service, known.words(), self.place())
            }
            (Some(known), _) => format!("{}, {}", known.service, known.words()),
            (None, Some(name)) => format!("{name}, {at}/{protocol}"),
            (None, None) if stand_in::is_nodes(self.world, at.ip()) => {
                format!("port {}/{protocol} on {}", at.port(), self.place())
            }
            (None, None) => format!("{at}/{protocol}"),
        }
    }

    /// The address of the node that is asked for; one that was made up is nobody's.
    fn place(&self) -> String {
        let ip = self.target.at.ip();
        if stand_in::is_nodes(self.world, ip) {
            return "an address of the node, of which none is known".to_owned();
        }
        ip.to_string()
    }

    fn findings(&self, failing: &mut Failing) -> Vec<Finding> {
        let sent = self.sent();
        let before_rules: Vec<Finding> = [sent.on_link(), sent.no_route(), sent.untracked()]
            .into_iter()
            .flatten()
            .collect();
        let stops = |findings: &[Finding]| findings.iter().any(|finding| finding.severity == Severity::Fault);
        failing.all |= stops(&before_rules);
        let mut all = before_rules;
        let kept_away = sent.kept_away().filter(|_| all.is_empty());
        let is_kept_away = kept_away.is_some();
        failing.all |= is_kept_away;
        all.extend(kept_away);
        let of_objects = if all.is_empty() {
            self.of_objects()
        } else {
            Vec::new()
        };
        let explained = stops(&of_objects);
        failing.all |= explained;
        all.extend(of_objects);
        if !explained && all.iter().all(|finding| finding.cause != Cause::NoRoute) {
            all.extend(sent.stopped());
        }
        all.extend(self.of_endpoints(&sent, failing));
        let sysctls = sent.sysctls();
        failing.all |= !sysctls.is_empty();
        all.extend(sysctls);
        let differs = sent.rules_differ(&fate::wanted(self.world, &self.packet));
        if let Some(differs) = differs.filter(|_| !is_kept_away) {
            failing.all |= !self.fates.iter().any(Fate::is_translated);
            // The objects explain what the rules should do, not what these do.
            all.insert(0, differs);
        }
        all.extend(self.oddities(&sent));
        all
    }

    /// Why the objects have no endpoint for this packet.
    fn of_objects(&self) -> Vec<Finding> {
        let world = self.world;
        let is_served = self.fates.iter().any(Fate::is_translated);
        let is_health_check = self.fates.iter().any(|fate| fate.end == Ended::HealthCheck);
        let Some(known) = &self.target.known else {
            // What a firewall refuses before anybody asks for a Service is the firewall's doing.
            let is_stopped = self.fates.iter().all(Fate::is_stopped_by_others);
            return if is_served || is_health_check || is_stopped {
                Vec::new()
            } else {
                match self.no_endpoint_of_node_port() {
                    Some(none) => vec![none],
                    None => address::not_served(world, self.target),
                }
            };
        };
        let Some(port) = self.port() else {
            // Known by rules alone: their comments say what there is to say.
            let unchanged = !is_served && self.fates.iter().any(Fate::got_through);
            return if unchanged {
                address::not_served(world, self.target)
            } else {
                Vec::new()
            };
        };
        let Some(frontend) = self.frontend(port) else {
            return Vec::new();
        };
        let looked = self.looked(&known.service, port);
        match self.route(frontend) {
            Route::Reject(_) => vec![looked.none()],
            Route::Drop(_) => policy::no_local(&looked, known),
            Route::Endpoints { .. } => {
                let at = self.target.at.ip();
                let admission = frontend.admission.as_ref();
                let kept_out = admission.and_then(|admission| {
                    policy::admitted(world, &known.service, admission, self.sender, at)
                });
                if let Some(kept_out) = kept_out {
                    return vec![kept_out];
                }
                let passes = !is_served && world.rules != Rules::Observed && known.kind == Kind::NodePort;
                if passes {
                    address::not_served(world, self.target)
                } else {
                    Vec::new()
                }
            }
        }
    }

    /// Why a node port has no endpoint, where it is asked for at an address that is not this node's: whoever has the address,
    /// it is so there as well.
    fn no_endpoint_of_node_port(&self) -> Option<Finding> {
        let at = self.target.at;
        if self.world.is_local(at.ip()) || self.target.service.is_some() {
            return None;
        }
        let known = self.world.known(self.family()).into_iter().find(|known| {
            known.kind == Kind::NodePort && (known.port, known.protocol) == (at.port(), self.target.protocol)
        })?;
        let port = self
            .world
            .port(self.family(), &known.service, &known.port_name, known.protocol)?;
        let mut frontends = port.frontends.iter();
        let frontend = frontends.find(|frontend| frontend.kind == FrontendKind::NodePort)?;
        match frontend.routes.outside {
            Route::Reject(_) => Some(self.looked(&known.service, port).none()),
            _ => None,
        }
    }

    fn looked<'s>(&'s self, service: &ServiceName, port: &'s DesiredPort) -> Looked<'s> {
        Looked {
            world: self.world,
            service: match self.world.snapshot.service(service) {
                Some(service) => &service.name,
                None => &port.name.service,
            },
            port_name: &port.name.port,
            protocol: port.name.protocol,
            family: self.family(),
        }
    }

    fn desired(&self) -> &Desired {
        self.world.desired.get(self.family())
    }

    fn port(&self) -> Option<&DesiredPort> {
        let known = self.target.known.as_ref()?;
        self.world
            .port(self.family(), &known.service, &known.port_name, known.protocol)
    }

    fn frontend<'p>(&self, port: &'p DesiredPort) -> Option<&'p Frontend> {
        let known = self.target.known.as_ref()?;
        port.frontends.iter().find(|frontend| {
            let ip = match frontend.kind {
                FrontendKind::ClusterIp(ip)
                | FrontendKind::ExternalIp(ip)
                | FrontendKind::LoadBalancerIp(ip) => Some(ip),
                FrontendKind::NodePort => None,
            };
            (ip, frontend.port) == (known.ip, known.port)
        })
    }

    fn route(&self, frontend: &Frontend) -> Route {
        let detector = self.desired().node.detector.as_ref();
        match oracle::source(&self.packet, detector, &self.world.facts) {
            oracle::Source::Pod => frontend.routes.pod,
            oracle::Source::Node => frontend.routes.node,
            oracle::Source::Outside => frontend.routes.outside,
        }
    }

    /// What is wrong with single endpoints.
    fn of_endpoints(&self, sent: &Sent<'_>, failing: &mut Failing) -> Vec<Finding> {
        let mut found: Vec<Finding> = Vec::new();
        for to in self.endpoints() {
            let finding = sent
                .translated_once(to)
                .or_else(|| sent.no_listener(to))
                .or_else(|| sent.reply_is_bridged(to));
            if let Some(finding) = finding {
                failing.endpoints.push(to);
                if !found.contains(&finding) {
                    found.push(finding);
                }
            }
        }
        found.extend(self.of_pods(failing));
        found
    }

    /// What is wrong with the pods behind the endpoints: that they have gone, or are of another kind.
    fn of_pods(&self, failing: &mut Failing) -> Vec<Finding> {
        let (Some(port), Some(known)) = (self.port(), &self.target.known) else {
            return Vec::new();
        };
        let looked = self.looked(&known.service, port);
        let entries = looked.entries();
        let endpoints = self.endpoints();
        let reached = entries
            .iter()
            .filter(|entry| endpoints.contains(&entry.address()));
        let reached: Vec<&Entry<'_>> = reached.collect();
        let mut found = Vec::new();
        if let Some(gone) = looked.gone(&reached) {
            failing.endpoints.extend(gone.endpoints);
            found.push(gone.finding);
        }
        found.extend(looked.undeclared(&reached));
        found
    }

    pub(crate) fn endpoints(&self) -> Vec<SocketAddr> {
        let mut all = Vec::new();
        for to in self.fates.iter().filter_map(|fate| fate.to) {
            if !all.contains(&to) {
                all.push(to);
            }
        }
        all
    }

    /// What is odd although it works, and remarks.
    fn oddities(&self, sent: &Sent<'_>) -> Vec<Finding> {
        let mut found = Vec::new();
        let service = self.target.service.as_ref();
        found.extend(service.and_then(|name| endpoints_object(self.world, name)));
        found.extend(sent.foreign_masquerade());
        found.extend(sent.perhaps_stopped());
        let port = self.port();
        if let (Some(port), Some(known)) = (port, &self.target.known) {
            let looked = self.looked(&known.service, port);
            if self.fates.iter().any(Fate::is_translated) {
                found.extend(looked.odd(port));
                found.extend(self.limited_by_policy(&looked, port, known.kind));
                found.extend(sent.affinity(port));
            }
            found.extend(self.left_out(&known.service));
            let undetected = Undetected {
                world: self.world,
                sender: self.sender,
                known,
                port,
            };
            found.extend(undetected.remark());
            found.extend(undetected.not_configured());
        }
        found.extend(address::claimed_by_others(self.world, self.target));
        found.extend(sent.shadowed_socket());
        found.extend(sent.pod_not_detected());
        found.extend(sent.source_words(port));
        found.extend(sent.hairpin());
        found.extend(self.world.mode_remark());
        found.extend(self.address_remark());
        found.extend(no_pods_of_family(self.world, self.sender, self.target));
        found.extend(self.world.node_remark());
        found.extend(other_ports(&self.target.others));
        found
    }

    /// That the address asked for was made up, since the question names none and none is known.
    fn address_remark(&self) -> Option<Finding> {
        let ip = self.target.at.ip();
        let what = format!(
            "no address of the node is known, since no Node object was given: {ip} is made up, and stands for any of them"
        );
        stand_in::is_nodes(self.world, ip).then(|| Finding::remark(Cause::NotKnown, what))
    }

    fn limited_by_policy(&self, looked: &Looked<'_>, port: &DesiredPort, kind: Kind) -> Option<Finding> {
        let frontend = self.frontend(port)?;
        let Route::Endpoints {
            list: List::Local, ..
        } = self.route(frontend)
        else {
            return None;
        };
        let entries = looked.entries();
        let all = entries
            .iter()
            .filter(|entry| entry.endpoint.conditions.is_usable())
            .count();
        policy::local_words(looked, kind, Policy::Local, port.local.len(), all)
    }

    /// Parts of the Service that were left out when it was read.
    fn left_out(&self, name: &ServiceName) -> Vec<Finding> {
        let subject = crate::causes::of_service(name);
        let notes = self
            .world
            .notes_of(&subject)
            .filter(|note| matches!(note.kind, NoteKind::BadField { .. }));
        let mut found: Vec<Finding> = notes
            .map(|note| Finding::remark(Cause::BadField, format!("{note}")).about(subject.clone()))
            .collect();
        found.dedup();
        found
    }

    fn deliveries(&self, failing: &Failing) -> Vec<Delivery> {
        let mut all: Vec<Delivery> = Vec::new();
        let total: f64 = self.fates.iter().map(|fate| fate.chance).sum();
        for fate in &self.fates {
            let Some(endpoint) = fate.to else { continue };
            let works = fate.got_through() && !failing.all && !failing.endpoints.contains(&endpoint);
            if let Some(same) = all.iter_mut().find(|other| other.endpoint == endpoint) {
                same.chance += fate.chance / total;
                same.is_masqueraded |= fate.is_masqueraded();
                same.works &= works;
                continue;
            }
            all.push(self.delivery(fate, endpoint, fate.chance / total, works));
        }
        all
    }

    fn delivery(&self, fate: &Fate, endpoint: SocketAddr, chance: f64, works: bool) -> Delivery {
        let entries = match (self.port(), &self.target.known) {
            (Some(port), Some(known)) => self.looked(&known.service, port).entries(),
            _ => Vec::new(),
        };
        let entry = entries.iter().find(|entry| entry.address() == endpoint);
        let source = match fate.source {
            fate::SourceFate::Kept => Some(self.sender.ip),
            fate::SourceFate::ByKubeProxy(ip) | fate::SourceFate::ByOthers(ip) => ip,
        };
        Delivery {
            endpoint,
            chance,
            is_masqueraded: fate.is_masqueraded(),
            source,
            pod: match entry {
                Some(entry) => self.world.objects.pod_behind(&entry.slice.name, endpoint.ip()),
                None => self.world.objects.pod_of(endpoint.ip()),
            }
            .map(|pod| pod.to_string()),
            node: entry
                .and_then(|entry| entry.endpoint.node.as_ref())
                .map(ToString::to_string),
            state: entry.map(Entry::state),
            works,
        }
    }

    /// The rules of the way that tells most: the first that fails, else the first.
    pub(crate) fn rules(&self) -> Vec<RuleLine> {
        let failing = self.fates.iter().find(|fate| !fate.got_through());
        let told = failing.or(self.fates.first());
        told.map(|fate| fate.rules.clone()).unwrap_or_default()
    }
}

/// That a question without a port was answered for one of several.
pub(crate) fn other_ports(others: &[String]) -> Option<Finding> {
    let what = format!(
        "no port was asked for; the Service has also {}",
        others.join(", ")
    );
    (!others.is_empty()).then(|| Finding::remark(Cause::NotKnown, what))
}
