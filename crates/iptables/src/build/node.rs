//! The part that no service owns: static chains, and the jumps into them.

use super::terms::{comment, commented, jump, network};
use super::{BuildContext, InvalidPackets, Nfacct};
use crate::ast::{AddrType, ChainName, CtState, Is, Match, Rule, TableName, Target};
use crate::names::{CANARY_TABLES, DISPATCH_CHAINS, NFACCT_INVALID_DROPPED, StaticChain};
use ipnet::{IpNet, Ipv4Net};
use model::{DesiredNode, Family, NodePortTargets};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The rules that no service owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRules {
    /// The static chains we fill, with their rules. The dispatch chains are not among them.
    pub chains: BTreeMap<TableName, BTreeMap<ChainName, Vec<Rule>>>,
    /// Chains that exist and are otherwise left alone: the canaries, which stay empty, and `KUBE-FIREWALL` when its
    /// content is the kubelet's alone.
    pub ensured: Vec<(TableName, ChainName)>,
    /// The jumps of built-in chains, each chain's from its top downward.
    pub jumps: Vec<Jump>,
    /// The last rules of nat `KUBE-SERVICES`: the jumps to the node ports.
    pub tail: Vec<Rule>,
}

/// A rule of a built-in chain that leads into one of our chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The table.
    pub table: TableName,
    /// The built-in chain.
    pub from: ChainName,
    /// The rule.
    pub rule: Rule,
    /// Whether a cleanup takes it out.
    pub at_cleanup: AtCleanup,
}

/// What a cleanup does to a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtCleanup {
    /// Takes it out.
    Removed,
    /// Leaves it: the kubelet wants it too.
    Kept,
}

/// The rules that no service owns.
pub fn node(node: &DesiredNode, context: &BuildContext) -> NodeRules {
    let mut rules = NodeRules {
        jumps: jumps(),
        tail: tail(node),
        ensured: CANARY_TABLES
            .iter()
            .map(|table| (*table, StaticChain::Canary.name()))
            .collect(),
        ..NodeRules::default()
    };
    let filter = rules.chains.entry(TableName::Filter).or_default();
    filter.insert(StaticChain::Forward.name(), forward(node, *context));
    if node.family == Family::V4 && node.localhost_node_ports {
        filter.insert(StaticChain::Firewall.name(), vec![no_martians()]);
    } else {
        rules
            .ensured
            .push((TableName::Filter, StaticChain::Firewall.name()));
    }
    let nat = rules.chains.entry(TableName::Nat).or_default();
    nat.insert(StaticChain::Postrouting.name(), postrouting(node, *context));
    nat.insert(StaticChain::MarkMasq.name(), vec![set_mark(node)]);
    rules
}

/// Where an empty dispatch chain is wanted: all of [`DISPATCH_CHAINS`].
pub(super) fn dispatch_chains() -> impl Iterator<Item = (TableName, ChainName)> {
    DISPATCH_CHAINS
        .iter()
        .map(|(table, chain)| (*table, chain.name()))
}

/// The jumps of built-in chains, the same for every node and family, each chain's from its top downward.
///
/// Upstream inserts each at the head, in the order of its `iptablesJumpChains`, and so they end up the other way round.
pub fn jumps() -> Vec<Jump> {
    use StaticChain::{ExternalServices, Firewall, Forward, NodePorts, Postrouting, ProxyFirewall, Services};
    const EXTERNAL: &str = "kubernetes externally-visible service portals";
    const HEALTH: &str = "kubernetes health check service ports";
    const PORTALS: &str = "kubernetes service portals";
    const FIREWALL: &str = "kubernetes load balancer firewall";
    const FORWARD: &str = "kubernetes forwarding rules";
    const POSTROUTING: &str = "kubernetes postrouting rules";
    let filter = |from, rule, at_cleanup| Jump::new(TableName::Filter, from, rule, at_cleanup);
    let ours = |from, rule| filter(from, rule, AtCleanup::Removed);
    let nat = |from, rule| Jump::new(TableName::Nat, from, rule, AtCleanup::Removed);
    vec![
        filter("INPUT", Rule::new(jump(Firewall)), AtCleanup::Kept),
        ours("INPUT", of_new(FIREWALL, ProxyFirewall)),
        ours("INPUT", commented(HEALTH, jump(NodePorts))),
        ours("INPUT", of_new(EXTERNAL, ExternalServices)),
        ours("FORWARD", of_new(FIREWALL, ProxyFirewall)),
        ours("FORWARD", commented(FORWARD, jump(Forward))),
        ours("FORWARD", of_new(PORTALS, Services)),
        ours("FORWARD", of_new(EXTERNAL, ExternalServices)),
        filter("OUTPUT", Rule::new(jump(Firewall)), AtCleanup::Kept),
        ours("OUTPUT", of_new(FIREWALL, ProxyFirewall)),
        ours("OUTPUT", of_new(PORTALS, Services)),
        nat("PREROUTING", commented(PORTALS, jump(Services))),
        nat("OUTPUT", commented(PORTALS, jump(Services))),
        nat("POSTROUTING", commented(POSTROUTING, jump(Postrouting))),
    ]
}

impl Jump {
    fn new(table: TableName, from: &str, rule: Rule, at_cleanup: AtCleanup) -> Jump {
        Jump {
            table,
            from: ChainName::new(from).expect("invariant: built-in chains have good names"),
            rule,
            at_cleanup,
        }
    }
}

/// A jump for the first packets of connections.
fn of_new(text: &str, chain: StaticChain) -> Rule {
    Rule {
        matches: vec![Match::CtState(Is::Equal(vec![CtState::New])), comment(text)],
        ..Rule::new(jump(chain))
    }
}

fn forward(node: &DesiredNode, context: BuildContext) -> Vec<Rule> {
    let mark = node.mark.value();
    let mut marked = commented("kubernetes forwarding rules", Target::Accept);
    marked.matches.push(Match::Mark {
        is: Is::Equal((mark, mark)),
    });
    let mut known = commented("kubernetes forwarding conntrack rule", Target::Accept);
    let states = vec![CtState::Related, CtState::Established];
    known.matches.push(Match::CtState(Is::Equal(states)));
    let invalid = match context.invalid {
        InvalidPackets::Dropped => Some(drop_invalid(context.capabilities.nfacct)),
        InvalidPackets::Passed => None,
    };
    invalid.into_iter().chain([marked, known]).collect()
}

fn drop_invalid(nfacct: Nfacct) -> Rule {
    let mut matches = vec![Match::CtState(Is::Equal(vec![CtState::Invalid]))];
    if nfacct == Nfacct::Present {
        matches.push(Match::Nfacct(NFACCT_INVALID_DROPPED.into()));
    }
    Rule {
        matches,
        ..Rule::new(Target::Drop)
    }
}

/// With `route_localnet` on, neighbours could reach what listens on loopback. The kubelet writes the same rule.
pub(crate) fn no_martians() -> Rule {
    let states = vec![CtState::Related, CtState::Established, CtState::Dnat];
    Rule {
        src: Some(Is::Not(loopback_v4())),
        dst: Some(Is::Equal(loopback_v4())),
        matches: vec![
            comment("block incoming localnet connections"),
            Match::CtState(Is::Not(states)),
        ],
        ..Rule::new(Target::Drop)
    }
}

/// The mark is cleared before MASQUERADE, so that a packet that passes here again (an overlay) isn't masqueraded twice.
fn postrouting(node: &DesiredNode, context: BuildContext) -> Vec<Rule> {
    let mark = node.mark.value();
    let unmarked = Rule {
        matches: vec![Match::Mark {
            is: Is::Not((mark, mark)),
        }],
        ..Rule::new(Target::Return)
    };
    let clear = Rule::new(Target::Mark { value: mark, mask: 0 });
    let masquerade = Target::Masquerade(context.capabilities.masquerade_ports);
    vec![
        unmarked,
        clear,
        commented("kubernetes service traffic requiring SNAT", masquerade),
    ]
}

fn set_mark(node: &DesiredNode) -> Rule {
    let mark = node.mark.value();
    Rule::new(Target::Mark {
        value: mark,
        mask: mark,
    })
}

/// The jumps to the node ports: for every local address, or for some.
fn tail(node: &DesiredNode) -> Vec<Rule> {
    const TEXT: &str = "kubernetes service nodeports; NOTE: this must be the last rule in this chain";
    let rule = commented(TEXT, jump(StaticChain::NodePorts));
    match &node.node_ports {
        NodePortTargets::AllLocal => {
            let mut rule = Rule {
                dst: spared_loopback(node).map(Is::Not),
                ..rule
            };
            rule.matches.push(Match::AddrType {
                src: None,
                dst: Some(Is::Equal(AddrType::Local)),
            });
            vec![rule]
        }
        NodePortTargets::Only(addresses) => addresses
            .iter()
            .map(|ip| Rule {
                dst: network(IpNet::from(*ip)),
                ..rule.clone()
            })
            .collect(),
    }
}

/// Loopback where node ports are not served on it. The kernel has nothing like `route_localnet` for IPv6.
fn spared_loopback(node: &DesiredNode) -> Option<IpNet> {
    match node.family {
        Family::V4 => (!node.localhost_node_ports).then(loopback_v4),
        Family::V6 => Some(IpNet::from(IpAddr::V6(Ipv6Addr::LOCALHOST))),
    }
}

/// 127.0.0.0/8
pub(super) fn loopback_v4() -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8))
}
