//! Rules in a few words, and why a source is rewritten.

use super::stage::CLUSTER_CIDR;
use iptables::ast::{AddrType, ChainName, CtState, Is, Match, Rule, Target};
use iptables::render::RuleText;
use iptables::trace::Did;
use model::Family;
use std::net::IpAddr;

/// The rule as `iptables-save` prints it.
pub fn text(rule: &Rule, family: Family) -> String {
    RuleText { rule, family }.to_string()
}

/// What a rule asks and does, shorter than its own words. `did` is what it did to one packet, when that is known.
pub fn what(rule: &Rule, did: Option<&Did>) -> String {
    let condition = condition(rule);
    let target = target(&rule.target, did);
    let decides = matches!(
        rule.target,
        Target::Accept | Target::Drop | Target::Return | Target::Reject(_)
    );
    match (condition.as_str(), decides) {
        ("", _) => target,
        (condition, true) => format!("{condition} → {target}"),
        (condition, false) => format!("{condition} {target}"),
    }
}

fn condition(rule: &Rule) -> String {
    let mut words = Vec::new();
    match (&rule.src, &rule.dst, port(rule)) {
        // Who may be masqueraded: the destination is the dispatching rule's already.
        (Some(Is::Not(net)), ..) => words.push(format!("not from {net}")),
        (Some(Is::Equal(net)), ..) => words.push(format!("from {net}")),
        (None, Some(Is::Equal(net)), Some(port)) => words.push(format!("to {}:{port}", net.addr())),
        (None, Some(net), _) => words.push(negated(net, |net| format!("to {net}"))),
        (None, None, Some(port)) => words.push(format!("to port {port}")),
        (None, None, None) => {}
    }
    words.extend(rule.matches.iter().filter_map(matched));
    // The last endpoint of a list takes what chance gave to none before it.
    if words.is_empty()
        && matches!(&rule.target, Target::Jump(chain) if chain.as_str().starts_with("KUBE-SEP-"))
    {
        words.push("otherwise".to_owned());
    }
    words.join(", ")
}

fn port(rule: &Rule) -> Option<u16> {
    rule.matches.iter().find_map(|one| match one {
        Match::Ports {
            dst: Some(Is::Equal(range)),
            ..
        } if range.first == range.last => Some(range.first),
        _ => None,
    })
}

fn negated<T>(is: &Is<T>, word: impl Fn(&T) -> String) -> String {
    match is {
        Is::Equal(value) => word(value),
        Is::Not(value) => format!("not {}", word(value)),
    }
}

/// A match beside addresses and ports; a comment asks nothing, and an accounting object lets all pass.
fn matched(one: &Match) -> Option<String> {
    match one {
        Match::Comment(_) | Match::Ports { .. } | Match::Nfacct(_) => None,
        Match::CtState(is) => Some(negated(is, |states| match states.as_slice() {
            [CtState::New] => "new connection".to_owned(),
            all => all
                .iter()
                .map(|state| state.as_str())
                .collect::<Vec<_>>()
                .join("|"),
        })),
        Match::AddrType {
            dst: Some(Is::Equal(AddrType::Local)),
            ..
        } => Some("to this node".to_owned()),
        Match::AddrType { .. } => Some("by type of address".to_owned()),
        Match::Mark { is } => Some(negated(is, |(value, _)| format!("marked {value:#x}"))),
        Match::Probability(units) => Some(format!(
            "with chance {:.2}",
            f64::from(*units) / f64::from(1_u32 << 31)
        )),
        Match::Recent(recent) => Some(format!("client in list {}", recent.name)),
        Match::Other { module, .. } => Some(format!("-m {module}")),
    }
}

fn target(target: &Target, did: Option<&Did>) -> String {
    match (target, did) {
        (Target::Jump(chain) | Target::Goto(chain), _) => format!("→ {}", short(chain)),
        (Target::Dnat(to), _) => format!("destination becomes {to}"),
        (Target::Masquerade(_), Some(Did::Snat { to: Some(to), .. })) => format!("source becomes {to}"),
        (Target::Masquerade(_), _) => "source becomes the node's".to_owned(),
        (Target::Mark { .. }, Some(Did::Marked { from, to })) => format!("mark {from:#x} → {to:#x}"),
        (Target::Mark { value, mask }, _) => format!("mark {value:#x}/{mask:#x}"),
        (Target::Accept, _) => "accept".to_owned(),
        (Target::Drop, _) => "drop".to_owned(),
        (Target::Return, _) => "return".to_owned(),
        (Target::Reject(with), _) => format!("reject ({with})"),
        (Target::None, _) => "go on".to_owned(),
        (Target::Other { name, .. }, _) => name.to_string(),
    }
}

/// Of the chains with a hash in their names the next line of a table tells the rest.
fn short(chain: &ChainName) -> String {
    let name = chain.as_str();
    let hashed = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-EXT-", "KUBE-FW-"]
        .iter()
        .find(|prefix| name.starts_with(*prefix));
    match hashed {
        Some(prefix) if name.len() > prefix.len() + 4 => format!("{}…", &name[..prefix.len() + 4]),
        _ => name.to_owned(),
    }
}

/// Why a client's address reaches the endpoint, or does not. `marked_in` is the chain that marks the packet.
pub fn why(client: IpAddr, marked_in: Option<&str>) -> String {
    let Some(chain) = marked_in else {
        return format!(
            "{client} is a pod (in {CLUSTER_CIDR}): answers to pods come back through this node by themselves, so \
             nothing marks the packet and the endpoint sees the real client."
        );
    };
    if chain.starts_with("KUBE-EXT-") {
        format!(
            "a node port may lead to a pod of another node, whose answer must come back through this one: {chain} \
             marks the packet 0x4000, and KUBE-POSTROUTING puts this node's address in place of {client}."
        )
    } else if chain.starts_with("KUBE-SEP-") {
        format!(
            "{client} was sent to itself, and would not take an answer from its own address: {chain} marks the \
             packet 0x4000, and KUBE-POSTROUTING puts this node's address in its place."
        )
    } else {
        format!(
            "{client} is no pod (not in {CLUSTER_CIDR}), and whether its answers come back through this node nobody \
             can know: {chain} marks the packet 0x4000, and KUBE-POSTROUTING masquerades it."
        )
    }
}
