//! The frame: what is there whatever services there are.

use super::picks::{buckets, picks, slots};
use crate::ast::{
    Action, Base, BaseKind, Chain, Data, Element, ElementKey, Elements, Flags, Frame, Hook, InterfaceName,
    Match, Name, Part, Rule, Set, Value,
};
use crate::names::{self, Bound, Kind};
use ipnet::IpNet;
use model::{DesiredNode, Family, LocalDetector, NodePortTargets};
use std::collections::BTreeSet;

/// A list of endpoints that has chains of its own: all lists of one shape share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Which lists.
    pub kind: Kind,
    /// How one of a list's endpoints is chosen.
    pub choice: Choice,
}

/// How an endpoint is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// By a die, among the slots below a bound.
    Random(Bound),
    /// The same for clients that are not known; the others stay for so many seconds.
    Sticky(Bound, u32),
    /// By the client's address.
    Hashed,
}

impl Choice {
    /// What the slots lie below, if there are slots.
    pub fn bound(self) -> Option<Bound> {
        match self {
            Choice::Random(bound) | Choice::Sticky(bound, _) => Some(bound),
            Choice::Hashed => None,
        }
    }

    /// The same choice among half of the slots.
    fn half(self) -> Option<Choice> {
        match self {
            Choice::Random(bound) => bound.half().map(Choice::Random),
            Choice::Sticky(bound, timeout) => Some(Choice::Sticky(bound.half()?, timeout)),
            Choice::Hashed => None,
        }
    }
}

/// The shapes that chains are made for.
pub type Shapes = BTreeSet<Shape>;

const MASQUERADE_OFF_CLUSTER: &str = "masquerade clusterIP traffic from outside cluster";
const SHORT_CIRCUIT_PODS: &str = "short-circuit pod traffic";
const MASQUERADE_LOCAL: &str = "masquerade local traffic";
const SHORT_CIRCUIT_LOCAL: &str = "short-circuit local traffic";
const REJECT_INVALID_PORTS: &str = "Reject traffic to invalid ports of ClusterIPs";
const DROP_UNALLOCATED: &str = "Drop traffic to unallocated ClusterIPs";

/// The comments that rules have: upstream's, where it has the same rule.
pub const RULE_COMMENTS: [&str; 6] = [
    MASQUERADE_OFF_CLUSTER,
    SHORT_CIRCUIT_PODS,
    MASQUERADE_LOCAL,
    SHORT_CIRCUIT_LOCAL,
    REJECT_INVALID_PORTS,
    DROP_UNALLOCATED,
];

/// The frame for a node and its shapes. `service_cidrs` are the networks that cluster IPs come from, if known.
pub fn frame(node: &DesiredNode, shapes: &Shapes, service_cidrs: &[IpNet]) -> Frame {
    let shapes = with_halves(shapes);
    let mut sets = shared_sets(node);
    let mut chains = Vec::new();
    for kind in Kind::ALL {
        let of_kind: Vec<Shape> = shapes
            .iter()
            .copied()
            .filter(|shape| shape.kind == kind)
            .collect();
        slots(kind, &of_kind, &mut sets, &mut chains);
        if of_kind.iter().any(|shape| shape.choice == Choice::Hashed) {
            buckets(kind, &mut sets, &mut chains);
        }
        for shape in &of_kind {
            sets.push(plain(set_of(*shape), kind.key(), ""));
            picks(*shape, &mut chains);
        }
        chains.push(endpoints(kind, &of_kind));
    }
    chains.extend(by_source(node));
    chains.extend(checks(node, service_cidrs));
    chains.extend(bases());
    Frame {
        family: node.family,
        sets,
        chains,
    }
}

/// The elements that belong to the node: the addresses that node ports are served on.
pub fn node_elements(node: &DesiredNode) -> Elements {
    let NodePortTargets::Only(addresses) = &node.node_ports else {
        return Elements::new();
    };
    let serving = addresses.iter().filter(|address| !address.is_loopback());
    serving
        .map(|address| {
            let key = ElementKey {
                set: Name::new(names::NODEPORT_IPS),
                key: [Value::Address(*address)].into(),
            };
            (key, Element::default())
        })
        .collect()
}

/// Smaller bounds are made with a larger one, so that a list that shrinks finds them.
fn with_halves(shapes: &Shapes) -> Shapes {
    let mut all = shapes.clone();
    for shape in shapes {
        let mut choice = shape.choice;
        while let Some(half) = choice.half() {
            choice = half;
            all.insert(Shape { choice, ..*shape });
        }
    }
    all
}

pub(super) fn plain(name: Name, key: &'static [Part], comment: &'static str) -> Set {
    Set {
        name,
        key,
        data: Data::None,
        flags: Flags::Plain,
        comment,
    }
}

fn shared_sets(node: &DesiredNode) -> Vec<Set> {
    let address = &[Part::Destination];
    let mut sets = vec![plain(Name::new(names::CLUSTER_IPS), address, "Active ClusterIPs")];
    if matches!(node.node_ports, NodePortTargets::Only(_)) {
        sets.push(plain(
            Name::new(names::NODEPORT_IPS),
            address,
            "IPs that accept NodePort traffic",
        ));
    }
    sets.push(plain(
        Name::new(names::HAIRPIN),
        names::CONNECTION_KEY,
        "endpoints that reach themselves through a service",
    ));
    sets.push(plain(
        Name::new(names::GUARDED),
        names::SERVICE_KEY,
        "subject to loadBalancerSourceRanges",
    ));
    sets.push(Set {
        flags: Flags::Interval,
        ..plain(
            Name::new(names::ALLOWED),
            names::CONNECTION_KEY,
            "loadBalancerSourceRanges",
        )
    });
    for kind in [Kind::Service, Kind::NodePort] {
        sets.push(plain(kind.masqueraded(), kind.key(), "source is rewritten"));
        sets.push(plain(
            kind.policy_local(),
            kind.key(),
            "externalTrafficPolicy Local",
        ));
        sets.push(plain(kind.rejected(), kind.key(), "no endpoints"));
        sets.push(plain(kind.dropped(), kind.key(), "no endpoints on this node"));
    }
    sets
}

/// The set of the frontends of a shape.
pub(super) fn set_of(shape: Shape) -> Name {
    match shape.choice {
        Choice::Random(bound) => shape.kind.within(bound),
        Choice::Sticky(bound, timeout) => shape.kind.within_sticky(bound, timeout),
        Choice::Hashed => shape.kind.hashed(),
    }
}

pub(super) fn rule(matches: Vec<Match>, actions: Vec<Action>) -> Rule {
    Rule {
        matches,
        actions,
        comment: None,
    }
}

pub(super) fn always(action: Action) -> Rule {
    rule(Vec::new(), vec![action])
}

pub(super) fn chain(name: Name, rules: Vec<Rule>) -> Chain {
    Chain {
        name,
        base: None,
        rules,
    }
}

/// Who finds nobody comes back and looks into the next set: while a list goes from one set to another it is in both.
fn endpoints(kind: Kind, shapes: &[Shape]) -> Chain {
    let rules = shapes.iter().map(|shape| {
        let pick = match shape.choice {
            Choice::Random(bound) => kind.pick(bound),
            Choice::Sticky(bound, timeout) => kind.pick_sticky(bound, timeout),
            Choice::Hashed => kind.hash(),
        };
        rule(
            vec![Match::In(kind.key(), set_of(*shape))],
            vec![Action::Jump(pick)],
        )
    });
    chain(kind.endpoints(), rules.collect())
}

fn local(detector: &LocalDetector) -> Match {
    match detector {
        LocalDetector::Cidr(net) => Match::SourceIn(*net),
        LocalDetector::Bridge(name) => Match::Interface(InterfaceName::Is(name.clone())),
        LocalDetector::InterfacePrefix(name) => Match::Interface(InterfaceName::BeginsWith(name.clone())),
    }
}

fn not_local(detector: &LocalDetector) -> Match {
    match detector {
        LocalDetector::Cidr(net) => Match::SourceNotIn(*net),
        LocalDetector::Bridge(name) => Match::NotInterface(InterfaceName::Is(name.clone())),
        LocalDetector::InterfacePrefix(name) => Match::NotInterface(InterfaceName::BeginsWith(name.clone())),
    }
}

/// The chains between the base chains of nat and the lists.
fn by_source(node: &DesiredNode) -> Vec<Chain> {
    let mut chains = Vec::new();
    for (kind, outside) in [
        (Kind::Service, Kind::ServiceLocal),
        (Kind::NodePort, Kind::NodePortLocal),
    ] {
        let to_all = || Action::Goto(kind.endpoints());
        let mut rules: Vec<Rule> = node
            .detector
            .iter()
            .map(|detector| commented(vec![local(detector)], to_all(), SHORT_CIRCUIT_PODS))
            .collect();
        rules.push(commented(
            vec![Match::SourceIsLocal],
            Action::SetMark(node.mark),
            MASQUERADE_LOCAL,
        ));
        rules.push(commented(
            vec![Match::SourceIsLocal],
            to_all(),
            SHORT_CIRCUIT_LOCAL,
        ));
        rules.push(always(Action::Goto(outside.endpoints())));
        chains.push(chain(kind.by_source(), rules));
    }
    let all = Name::new(NODEPORTS);
    let mut rules = vec![masqueraded(Kind::NodePort, node), policy_local(Kind::NodePort)];
    rules.push(always(Action::Goto(Kind::NodePort.endpoints())));
    chains.push(chain(all.clone(), rules));

    let mut rules: Vec<Rule> = node
        .detector
        .iter()
        .map(|detector| {
            commented(
                vec![in_cluster_ips(), not_local(detector)],
                Action::SetMark(node.mark),
                MASQUERADE_OFF_CLUSTER,
            )
        })
        .collect();
    rules.extend([masqueraded(Kind::Service, node), policy_local(Kind::Service)]);
    rules.push(always(Action::Jump(Kind::Service.endpoints())));
    rules.push(rule(
        to_node_ports(node, Where::BeforeRouting),
        vec![Action::Goto(all)],
    ));
    chains.push(chain(Name::new("services"), rules));
    chains
}

/// The chain of all node ports.
const NODEPORTS: &str = "nodeport/all";

fn commented(matches: Vec<Match>, action: Action, comment: &'static str) -> Rule {
    Rule {
        matches,
        actions: vec![action],
        comment: Some(comment),
    }
}

fn in_cluster_ips() -> Match {
    Match::In(&[Part::Destination], Name::new(names::CLUSTER_IPS))
}

fn masqueraded(kind: Kind, node: &DesiredNode) -> Rule {
    rule(
        vec![Match::In(kind.key(), kind.masqueraded())],
        vec![Action::SetMark(node.mark)],
    )
}

fn policy_local(kind: Kind) -> Rule {
    rule(
        vec![Match::In(kind.key(), kind.policy_local())],
        vec![Action::Goto(kind.by_source())],
    )
}

/// Where a packet is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// Nobody knows yet whom it is for.
    BeforeRouting,
    /// In `input`: it is for this host.
    Input,
}

/// What must hold for a packet's port to be a node port. Loopback never serves them here (ADR 50).
fn to_node_ports(node: &DesiredNode, place: Where) -> Vec<Match> {
    if matches!(node.node_ports, NodePortTargets::Only(_)) {
        let address = Name::new(names::NODEPORT_IPS);
        return vec![Match::In(&[Part::Destination], address)];
    }
    let mut matches = vec![Match::DestinationNotIn(loopback(node.family))];
    if place == Where::BeforeRouting {
        matches.insert(0, Match::DestinationIsLocal);
    }
    matches
}

fn loopback(family: Family) -> IpNet {
    let text = match family {
        Family::V4 => "127.0.0.0/8",
        Family::V6 => "::1/128",
    };
    text.parse().expect("invariant: a literal network")
}

/// The chains for packets that go nowhere, and the one for packets that go out.
fn checks(node: &DesiredNode, service_cidrs: &[IpNet]) -> Vec<Chain> {
    let refuse = |kind: Kind, before: &[Match]| {
        [(kind.rejected(), Action::Reject), (kind.dropped(), Action::Drop)].map(|(set, action)| {
            let mut matches = before.to_vec();
            matches.push(Match::In(kind.key(), set));
            rule(matches, vec![action])
        })
    };
    let mut cluster_ips = vec![commented(
        vec![in_cluster_ips()],
        Action::Reject,
        REJECT_INVALID_PORTS,
    )];
    let of_family = |net: &&IpNet| Family::of(net.addr()) == node.family;
    cluster_ips.extend(
        service_cidrs
            .iter()
            .filter(of_family)
            .map(|net| commented(vec![Match::DestinationIn(*net)], Action::Drop, DROP_UNALLOCATED)),
    );
    let guarded = vec![
        Match::In(names::SERVICE_KEY, Name::new(names::GUARDED)),
        Match::NotIn(names::CONNECTION_KEY, Name::new(names::ALLOWED)),
    ];
    let hairpin = vec![
        Match::StatusDnat,
        Match::In(names::CONNECTION_KEY, Name::new(names::HAIRPIN)),
    ];
    let marked = rule(
        vec![Match::Marked(node.mark)],
        vec![Action::FlipMark(node.mark), Action::Masquerade],
    );
    let node_port = to_node_ports(node, Where::Input);
    vec![
        chain(Name::new("cluster-ips-check"), cluster_ips),
        chain(
            Name::new("service-endpoints-check"),
            refuse(Kind::Service, &[]).into(),
        ),
        chain(
            Name::new("nodeport-endpoints-check"),
            refuse(Kind::NodePort, &node_port).into(),
        ),
        chain(
            Name::new("firewall-check"),
            vec![rule(guarded, vec![Action::Drop])],
        ),
        chain(
            Name::new("masquerading"),
            vec![marked, rule(hairpin, vec![Action::Masquerade])],
        ),
    ]
}

/// The base chains, with upstream's names, hooks and priorities.
fn bases() -> Vec<Chain> {
    let base = |name, kind, hook, priority, jumps: &[&str]| {
        let matches = match kind {
            BaseKind::Filter => vec![Match::StateNew],
            BaseKind::Nat => Vec::new(),
        };
        let jump = |to: &&str| rule(matches.clone(), vec![Action::Jump(Name::new(*to))]);
        Chain {
            name: Name::new(name),
            base: Some(Base { kind, hook, priority }),
            rules: jumps.iter().map(jump).collect(),
        }
    };
    let refuse = ["service-endpoints-check", "cluster-ips-check"];
    vec![
        base(
            "filter-prerouting-pre-dnat",
            BaseKind::Filter,
            Hook::Prerouting,
            -110,
            &["firewall-check"],
        ),
        base(
            "filter-output-pre-dnat",
            BaseKind::Filter,
            Hook::Output,
            -110,
            &["firewall-check"],
        ),
        base(
            "filter-input",
            BaseKind::Filter,
            Hook::Input,
            0,
            &["nodeport-endpoints-check", "service-endpoints-check"],
        ),
        base("filter-forward", BaseKind::Filter, Hook::Forward, 0, &refuse),
        base("filter-output", BaseKind::Filter, Hook::Output, 0, &refuse),
        base(
            "nat-prerouting",
            BaseKind::Nat,
            Hook::Prerouting,
            -100,
            &["services"],
        ),
        base("nat-output", BaseKind::Nat, Hook::Output, -100, &["services"]),
        base(
            "nat-postrouting",
            BaseKind::Nat,
            Hook::Postrouting,
            100,
            &["masquerading"],
        ),
    ]
}
