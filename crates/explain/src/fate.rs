//! What can become of a packet: the ways through the host's rules, or what the oracle says, in one form.

use crate::known::Kind;
use crate::world::{Rules, World};
use iptables::ast::{Match, Rule, TableName};
use iptables::render::RuleText;
use iptables::trace::Track;
use model::{Family, Origin, Outcome, Packet, Protocol, oracle};
use nftables::listed;
use path::{Answer, Condition, Detail, Did, End, Event, Hook, Leg, Listener, Place, Policy, Step, Way};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// One thing that can become of a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Fate {
    /// How likely it is beside the others. They do not sum to one where conditions are open.
    pub chance: f64,
    /// The destination that a rule gave it.
    pub to: Option<SocketAddr>,
    /// The rule that gave it that, when one did.
    pub to_by: Option<RuleLine>,
    /// What became of it.
    pub end: Ended,
    /// Whether its source was rewritten, and by whom.
    pub source: SourceFate,
    /// The rule that decided the end, when one did.
    pub by: Option<RuleLine>,
    /// The rule that rewrote the source, when one did.
    pub source_by: Option<RuleLine>,
    /// Whether connection tracking was told not to look, and by which rule.
    pub untracked: Option<RuleLine>,
    /// Whether the host forwards it.
    pub is_forwarded: bool,
    /// The rules it meets.
    pub rules: Vec<RuleLine>,
    /// Rules of others that stop it if something is so that nobody told: what a set holds, how many packets came before,
    /// the time, who sends.
    pub perhaps: Vec<RuleLine>,
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It left the host, or passed through it.
    Left {
        /// The interface, when it is known.
        interface: Option<Arc<str>>,
        /// The next hop, when it is known.
        next_hop: Option<IpAddr>,
    },
    /// It reached the host's own sockets.
    Here(Listener),
    /// Our rules let it in for the health check of a load balancer.
    HealthCheck,
    /// It was delivered; how it gets there is not known.
    Delivered,
    /// It was refused, with this ICMP answer or `tcp-reset`.
    Refused(Arc<str>),
    /// It was dropped.
    Dropped,
    /// The host has no route for it.
    NoRoute,
    /// It keeps its destination; where that leads is not known.
    Unchanged,
    /// Nobody can say, and why.
    Undecided(Arc<str>),
}

/// Whether a source was rewritten, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceFate {
    /// It stayed.
    Kept,
    /// By kube-proxy; to this address, when it is known.
    ByKubeProxy(Option<IpAddr>),
    /// By somebody else's rule.
    ByOthers(Option<IpAddr>),
}

/// A rule, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLine {
    /// Its table.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// Its number in the chain, from 1; `None` for the chain's policy.
    pub number: Option<u32>,
    /// Its words as `iptables-save` prints them.
    pub text: String,
    /// Its comment.
    pub comment: Option<String>,
}

/// Whether a chain's name is one of kube-proxy's or the kubelet's. Kube-router's, which k3s has for network policies, begin
/// like these.
pub(crate) fn is_of_kubernetes(chain: &str) -> bool {
    const OTHERS: [&str; 3] = ["KUBE-ROUTER", "KUBE-POD-FW", "KUBE-NWPLCY"];
    chain.starts_with("KUBE-") && !OTHERS.iter().any(|prefix| chain.starts_with(prefix))
}

impl RuleLine {
    /// Whether kube-proxy wrote it, by the name of its chain. The kubelet's KUBE-FIREWALL is nobody's fault of ours.
    pub fn is_ours(&self) -> bool {
        let is_native = self.table.split_once(' ').map(|(_, name)| name) == Some(nftables::names::TABLE);
        (is_of_kubernetes(&self.chain) || is_native) && self.number.is_some()
    }

    /// What it does, without what it matches: `-j KUBE-SVC-...`. Policies whole.
    pub fn target(&self) -> &str {
        match (self.text.rfind(" -j "), self.text.rfind(" -g ")) {
            (Some(at), _) | (None, Some(at)) => &self.text[at + 1..],
            (None, None) => &self.text,
        }
    }

    /// `nat KUBE-SERVICES rule 3`, `policy of filter FORWARD`.
    pub fn place(&self) -> String {
        match self.number {
            Some(number) => format!("{} {} rule {number}", self.table, self.chain),
            None => format!("policy of {} {}", self.table, self.chain),
        }
    }
}

impl Fate {
    /// Whether it went where it was sent to.
    pub fn got_through(&self) -> bool {
        matches!(
            self.end,
            Ended::Left { .. }
                | Ended::Here(Listener::Present | Listener::Unknown)
                | Ended::HealthCheck
                | Ended::Delivered
                | Ended::Unchanged
        )
    }

    /// Whether a rule refused or dropped it that is not kube-proxy's.
    pub fn is_stopped_by_others(&self) -> bool {
        let is_stopped = matches!(self.end, Ended::Refused(_) | Ended::Dropped);
        is_stopped && self.by.as_ref().is_some_and(|rule| !rule.is_ours())
    }

    /// Whether a rule sent it to an endpoint.
    pub fn is_translated(&self) -> bool {
        self.to.is_some()
    }

    /// Whether a rule of kube-proxy did.
    pub fn is_translated_by_kube_proxy(&self) -> bool {
        self.to_by.as_ref().is_some_and(RuleLine::is_ours)
    }

    /// Whether a rule of others did.
    pub fn is_translated_by_others(&self) -> bool {
        self.to_by.as_ref().is_some_and(|rule| !rule.is_ours())
    }

    /// Whether its source is another when it arrives.
    pub fn is_masqueraded(&self) -> bool {
        self.source != SourceFate::Kept
    }
}

/// Everything that can become of a packet, in the order of the rules.
pub fn fates(world: &World, packet: &Packet) -> Vec<Fate> {
    if world.rules == Rules::None {
        return by_oracle(world, packet);
    }
    let answer = path::trace(&world.host, packet, Detail::Met);
    let likely: Vec<&Way> = answer
        .ways
        .iter()
        .filter(|way| is_likely(world, &answer, way))
        .collect();
    let all = || answer.ways.iter().collect();
    let ways = if likely.is_empty() { all() } else { likely }.into_iter();
    let told = ways.map(|way| {
        let told = Told {
            world,
            answer: &answer,
            way,
        };
        (told.fate(), told.hangs_on_what_nobody_told())
    });
    surely(told.collect())
}

/// Without the ends at rules of others that may not be met: a packet with the same destination goes on instead, and which of
/// the two it is, nobody told. Blocklists, limits and checks of the way back are on many hosts, and hurt nobody there.
fn surely(told: Vec<(Fate, bool)>) -> Vec<Fate> {
    let through = told.iter().filter(|(fate, _)| fate.got_through());
    let through: BTreeSet<Option<SocketAddr>> = through.map(|(fate, _)| fate.to).collect();
    let goes_on = |fate: &Fate| match fate.to {
        Some(_) => through.contains(&fate.to),
        None => !through.is_empty(),
    };
    let (open, mut sure): (Vec<_>, Vec<_>) = told
        .into_iter()
        .partition(|(fate, hangs)| *hangs && fate.is_stopped_by_others() && goes_on(fate));
    let mut perhaps: Vec<RuleLine> = open.into_iter().filter_map(|(fate, _)| fate.by).collect();
    perhaps.dedup();
    for (fate, _) in &mut sure {
        fate.perhaps.clone_from(&perhaps);
    }
    sure.into_iter().map(|(fate, _)| fate).collect()
}

/// Where nobody told the node's addresses, one is taken for the node's, or is not.
fn is_likely(world: &World, answer: &Answer, way: &Way) -> bool {
    if !world.addresses_are_unknown() {
        return true;
    }
    let dst = answer.packet.dst;
    let is_own = world.is_taken_for_own(dst);
    let expected = |ip: IpAddr| ip == dst.ip() && is_own;
    let claims = answer.claims(way);
    claims.iter().all(|claim| match claim.condition {
        Condition::Local(ip) => claim.holds == expected(*ip),
        _ => true,
    })
}

/// What the objects ask for, whatever the host's rules do.
pub fn wanted(world: &World, packet: &Packet) -> Vec<Fate> {
    by_oracle(world, packet)
}

/// One way, told.
struct Told<'a> {
    world: &'a World,
    answer: &'a Answer,
    way: &'a Way,
}

impl Told<'_> {
    fn fate(&self) -> Fate {
        let events = self.events();
        let met = |wanted: fn(&Did) -> bool| {
            let mut found = events.iter().rev().filter_map(|event| match event {
                Event::Met { place, did } if wanted(did) => Some(self.line(place)),
                _ => None,
            });
            found.next()
        };
        let source_by = met(|did| matches!(did, Did::Snat { .. }));
        Fate {
            chance: self.way.state.chance,
            to: self.way.translated,
            to_by: met(|did| matches!(did, Did::Dnat { .. })),
            end: self.end(&events),
            source: match (self.way.source, &source_by) {
                (path::Source::Kept, _) => SourceFate::Kept,
                (path::Source::Rewritten(to), Some(rule)) if !rule.is_ours() => SourceFate::ByOthers(to),
                (path::Source::Rewritten(to), _) => SourceFate::ByKubeProxy(to),
            },
            by: self.decided_by(&events),
            source_by,
            untracked: (self.way.state.connection.track == Track::Untracked)
                .then(|| met(|did| *did == Did::Untracked))
                .flatten(),
            is_forwarded: self.is_forwarded(),
            rules: self.rules(&events),
            perhaps: Vec::new(),
        }
    }

    /// Whether it stands on a match that looks at something the trace knows nothing of.
    fn hangs_on_what_nobody_told(&self) -> bool {
        let claims = self.answer.claims(self.way);
        claims.iter().any(|claim| {
            matches!(
                claim.condition,
                Condition::Match { .. }
                    | Condition::Holds { .. }
                    | Condition::Element { .. }
                    | Condition::ConnectionMark { .. }
            )
        })
    }

    fn events(&self) -> Vec<&Event> {
        let steps = self.answer.steps(self.way);
        let of_rules = steps.into_iter().filter_map(|step| match step {
            Step::Rules(event) => Some(event),
            _ => None,
        });
        of_rules.collect()
    }

    fn end(&self, events: &[&Event]) -> Ended {
        let accepts_health_check = |event: &&&Event| {
            matches!(event, Event::Met { place, did: Did::Accepted }
                if place.table == TableName::Filter.as_str() && place.chain.as_str() == "KUBE-NODEPORTS")
        };
        match &self.way.end {
            End::Local(_)
                if self.way.translated.is_none()
                    && events.iter().any(|event| accepts_health_check(&event)) =>
            {
                Ended::HealthCheck
            }
            End::Local(listener) => Ended::Here(*listener),
            End::Left { interface, next_hop } => Ended::Left {
                interface: match interface {
                    path::Interface::Named(name) => Some(name.clone()),
                    _ => None,
                },
                next_hop: *next_hop,
            },
            End::Rejected(with) => Ended::Refused(with.clone()),
            End::Dropped => Ended::Dropped,
            End::NoRoute => Ended::NoRoute,
            End::Undecided(why) => Ended::Undecided(why.clone()),
        }
    }

    fn decided_by(&self, events: &[&Event]) -> Option<RuleLine> {
        if !matches!(self.way.end, End::Rejected(_) | End::Dropped) {
            return None;
        }
        match events.last()? {
            Event::Met { place, .. } => Some(self.line(place)),
            Event::Policy {
                table, chain, policy, ..
            } => Some(RuleLine {
                table: table.to_string(),
                chain: chain.to_string(),
                number: None,
                text: format!("policy {}", policy.as_str()),
                comment: None,
            }),
            _ => None,
        }
    }

    fn is_forwarded(&self) -> bool {
        let comes_in = matches!(self.answer.packet.origin, Origin::Interface(_));
        let at_forward = |leg: &Leg| {
            matches!(
                leg,
                Leg::Table {
                    hook: Hook::Forward,
                    ..
                }
            )
        };
        comes_in && (self.way.legs.iter().any(at_forward) || matches!(self.way.end, End::Left { .. }))
    }

    /// The rules that say something: of kube-proxy's chains, and whatever changes or ends.
    fn rules(&self, events: &[&Event]) -> Vec<RuleLine> {
        let told = events.iter().filter_map(|event| match event {
            Event::Met { place, did } => {
                let says = match did {
                    Did::Jumped(to) | Did::WentTo(to) => is_service_chain(to.as_str()),
                    Did::Nothing | Did::Returned | Did::Accepted => false,
                    _ => true,
                };
                says.then(|| self.line(place))
            }
            Event::Policy { policy, .. } if *policy == Policy::Drop => self.decided_by(events),
            _ => None,
        });
        told.collect()
    }

    fn line(&self, place: &Place) -> RuleLine {
        let family = self.answer.packet.family();
        if let Some(rule) = self.native_rule(place) {
            let bare = listed::Rule {
                comment: None,
                ..rule.clone()
            };
            return RuleLine {
                table: place.table.to_string(),
                chain: place.chain.to_string(),
                number: Some(place.rule),
                text: listed::RuleText(&bare).to_string(),
                comment: rule.comment.as_ref().map(ToString::to_string),
            };
        }
        let rule = self.rule(family, place);
        RuleLine {
            table: place.table.to_string(),
            chain: place.chain.to_string(),
            number: Some(place.rule),
            text: rule.map_or_else(String::new, |rule| words(rule, family)),
            comment: rule.and_then(Rule::comment).map(str::to_owned),
        }
    }

    fn native_rule(&self, place: &Place) -> Option<&listed::Rule> {
        let mut tables = self.world.host.native.tables.iter();
        let table = tables.find(|table| place.table == table.title().as_str())?;
        let index = usize::try_from(place.rule).ok()?.checked_sub(1)?;
        table.chain(place.chain.as_str())?.rules.get(index)
    }

    fn rule(&self, family: Family, place: &Place) -> Option<&Rule> {
        let (table, chain) = iptables::trace::of_iptables(place)?;
        let table = self.world.host.rules.get(family).tables.get(&table)?;
        let index = usize::try_from(place.rule).ok()?.checked_sub(1)?;
        table.chains.get(&chain)?.rules.get(index)
    }
}

fn is_service_chain(name: &str) -> bool {
    let of_service = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"];
    of_service.iter().any(|prefix| name.starts_with(prefix)) || name == "KUBE-MARK-MASQ"
}

/// A rule's words without its comment, which stands beside them.
fn words(rule: &Rule, family: Family) -> String {
    let mut bare = rule.clone();
    bare.matches.retain(|one| !matches!(one, Match::Comment(_)));
    RuleText { rule: &bare, family }.to_string()
}

/// What the oracle says: where there are no rules to walk.
fn by_oracle(world: &World, packet: &Packet) -> Vec<Fate> {
    let desired = world.desired.get(packet.family());
    let fate = |chance, end| Fate {
        chance,
        to: None,
        to_by: None,
        end,
        source: SourceFate::Kept,
        by: None,
        source_by: None,
        untracked: None,
        is_forwarded: false,
        rules: Vec::new(),
        perhaps: Vec::new(),
    };
    let refused = || Ended::Refused("icmp-port-unreachable".into());
    let mut facts = Cow::Borrowed(&world.facts);
    if world.is_taken_for_own(packet.dst) {
        facts.to_mut().interface_addresses.push(packet.dst.ip());
    }
    match oracle::outcome(desired, &facts, packet) {
        Outcome::Rejected => vec![fate(1.0, refused())],
        Outcome::Dropped => vec![fate(1.0, Ended::Dropped)],
        Outcome::Accepted => vec![fate(1.0, Ended::HealthCheck)],
        Outcome::Untouched => vec![fate(1.0, undeclared(world, packet).unwrap_or(Ended::Unchanged))],
        Outcome::Delivered(to) => {
            let all = u32::try_from(to.len()).unwrap_or(u32::MAX);
            let chance = 1.0 / f64::from(all.max(1));
            let delivered = to.into_iter().map(|delivery| Fate {
                to: Some(delivery.endpoint),
                source: if delivery.masquerade {
                    SourceFate::ByKubeProxy(None)
                } else {
                    SourceFate::Kept
                },
                ..fate(chance, Ended::Delivered)
            });
            delivered.collect()
        }
    }
}

/// What nftables mode does to cluster IPs that serve nothing on the packet's port: it refuses what is a Service's and
/// drops what is nobody's.
fn undeclared(world: &World, packet: &Packet) -> Option<Ended> {
    let ip = packet.dst.ip();
    let known = world.known(packet.family());
    let is_cluster_ip = known
        .iter()
        .any(|known| known.kind == Kind::ClusterIp && known.ip == Some(ip));
    let in_range = || {
        let mut nets = world.snapshot.service_cidrs().flat_map(|cidr| &cidr.cidrs);
        nets.any(|net| net.contains(&ip))
    };
    if is_cluster_ip {
        Some(Ended::Refused("icmp-port-unreachable".into()))
    } else {
        in_range().then_some(Ended::Dropped)
    }
}

/// What a client is told by an ICMP answer or a reset.
pub fn answer_words(with: &str, protocol: Protocol) -> &'static str {
    match (with, protocol) {
        (
            "icmp-port-unreachable" | "icmp6-port-unreachable" | "port-unreach" | "tcp-reset",
            Protocol::Tcp,
        ) => "is refused at once (\"Connection refused\")",
        ("icmp-port-unreachable" | "icmp6-port-unreachable" | "port-unreach", _) => {
            "is told at once that the port is unreachable (\"Connection refused\")"
        }
        _ => "is refused at once (\"No route to host\")",
    }
}
