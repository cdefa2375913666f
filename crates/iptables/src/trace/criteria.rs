//! Whether one rule matches one packet: yes, no, by chance, or nobody can say.

use super::other;
use crate::ast::{AddrType, CtState, Is, Match, PortRange, Proto, RecentAction, Rule};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;
use traced::{Condition, Criterion, History, Hook, Interface, Site, State, Track, Truth, pattern_covers};

/// The truth of `! x`, when the rule says so.
pub(super) fn truth_of<T>(is: &Is<T>, plain: impl FnOnce(&T) -> Truth) -> Truth {
    match is {
        Is::Equal(value) => plain(value),
        Is::Not(value) => !plain(value),
    }
}

/// What a rule asks of a packet, all of which must be so.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Open {
    /// Conditions with the answer each must have.
    pub conditions: Vec<(Condition, bool)>,
    /// The probability that all its random matches match; 1 when it has none.
    pub probability: f64,
}

/// Whether a rule matches.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// It does not, and why.
    No(Criterion),
    /// It does, if this is so.
    If(Open),
}

/// One part of a rule and its truth.
type Part = (Criterion, Truth);

/// Whether `rule` matches the packet in `state` at `site`, on the branch whose history ends at `state.last`.
pub(super) fn ask(rule: &Rule, state: &State, site: &Site<'_>, history: &mut History) -> Answer {
    let mut open = Open {
        conditions: Vec::new(),
        probability: 1.0,
    };
    history.evaluated();
    let parts = header_parts(rule, state, site).chain(match_parts(rule, state, site));
    for (criterion, truth) in parts {
        match settle(truth, state, history) {
            Truth::Known(true) => {}
            Truth::Known(false) => return Answer::No(criterion),
            // Nobody will go on with this branch.
            Truth::Hangs(..) if history.exhausted() => break,
            Truth::Hangs(condition, when) => {
                history.compared(2 * open.conditions.len());
                let contradicted = open.conditions.contains(&(condition.clone(), !when));
                if contradicted {
                    return Answer::No(criterion);
                }
                if !open.conditions.contains(&(condition.clone(), when)) {
                    open.conditions.push((condition, when));
                }
            }
            Truth::Random(probability) => open.probability *= probability,
        }
    }
    Answer::If(open)
}

/// The truth, with what the branch already stands on put in.
fn settle(truth: Truth, state: &State, history: &mut History) -> Truth {
    match truth {
        Truth::Hangs(condition, when) => match history.answer(state.last, &condition) {
            Some(answer) => Truth::Known(answer == when),
            None => Truth::Hangs(condition, when),
        },
        Truth::Random(probability) if probability >= 1.0 => Truth::Known(true),
        Truth::Random(probability) if probability <= 0.0 => Truth::Known(false),
        known => known,
    }
}

fn header_parts<'a>(rule: &'a Rule, state: &'a State, site: &'a Site<'_>) -> impl Iterator<Item = Part> + 'a {
    let protocol = rule.protocol.iter().map(|p| {
        (
            Criterion::Protocol,
            Truth::Known(p.holds(|p| protocol_is(p, state))),
        )
    });
    let dst = rule.dst.iter().map(|net| {
        let inside = net.holds(|net| net.contains(&state.dst.ip()));
        (Criterion::Destination, Truth::Known(inside))
    });
    let src = rule.src.iter().map(|net| {
        (
            Criterion::Source,
            truth_of(net, |net| source_in(net, state, site)),
        )
    });
    let in_interface = rule.in_interface.iter().map(|pattern| {
        let truth = truth_of(pattern, |pattern| {
            interface_is(pattern, &site.in_interface, Condition::InInterface)
        });
        (Criterion::InInterface, truth)
    });
    let out_interface = rule.out_interface.iter().map(|pattern| {
        let truth = truth_of(pattern, |pattern| out_interface_is(pattern, site));
        (Criterion::OutInterface, truth)
    });
    protocol
        .chain(dst)
        .chain(src)
        .chain(in_interface)
        .chain(out_interface)
}

fn protocol_is(wanted: &Proto, state: &State) -> bool {
    match wanted {
        Proto::Tcp => state.protocol == model::Protocol::Tcp,
        Proto::Udp => state.protocol == model::Protocol::Udp,
        Proto::Sctp => state.protocol == model::Protocol::Sctp,
        // `-p all` and `-p 0` mean any.
        Proto::Other(word) => {
            matches!(&**word, "all" | "0")
                || **word == *state.protocol.number().to_string()
                || &**word == state.protocol.as_lower()
        }
    }
}

fn source_in(net: &IpNet, state: &State, site: &Site<'_>) -> Truth {
    if net.prefix_len() == 0 {
        return Truth::Known(true);
    }
    match state.src {
        Some(src) => Truth::Known(net.contains(&src)),
        None if translated_source_is_outside(net, site) => Truth::Known(false),
        None => Truth::Hangs(Condition::SourceIn(*net), true),
    }
}

/// A translated source is one of the host's addresses, so a network that has none of them is out of the question.
fn translated_source_is_outside(net: &IpNet, site: &Site<'_>) -> bool {
    match site.local {
        super::LocalAddresses::Unknown => false,
        super::LocalAddresses::Known(all) => !all.iter().any(|ip| net.contains(ip)),
    }
}

fn out_interface_is(pattern: &Arc<str>, site: &Site<'_>) -> Truth {
    // Nothing re-routes a packet between FORWARD and POSTROUTING, so the two ask the same question.
    let hook = match site.hook {
        Hook::Output => Hook::Output,
        _ => Hook::Postrouting,
    };
    interface_is(pattern, &site.out_interface, |pattern| Condition::OutInterface {
        pattern,
        hook,
    })
}

fn interface_is(pattern: &Arc<str>, has: &Interface, ask: impl FnOnce(Arc<str>) -> Condition) -> Truth {
    match has {
        _ if &**pattern == "+" => Truth::Known(true),
        Interface::Absent => Truth::Known(false),
        Interface::Named(name) => Truth::Known(pattern_covers(pattern, name)),
        Interface::Unknown => Truth::Hangs(ask(pattern.clone()), true),
    }
}

fn match_parts<'a>(rule: &'a Rule, state: &'a State, site: &'a Site<'_>) -> impl Iterator<Item = Part> + 'a {
    rule.matches.iter().enumerate().flat_map(move |(index, one)| {
        let truths = match_truths(one, state, site);
        truths
            .into_iter()
            .map(move |truth| (Criterion::Match(index), truth))
    })
}

/// The truth of each part of one match; all must be true.
fn match_truths(one: &Match, state: &State, site: &Site<'_>) -> Vec<Truth> {
    match one {
        Match::Comment(_) | Match::Nfacct(_) => Vec::new(),
        Match::Ports { module, src, dst } => {
            let mut truths = vec![Truth::Known(*module == state.protocol)];
            truths.extend(
                src.iter()
                    .map(|is| truth_of(is, |range| source_port_in(*range, state))),
            );
            truths.extend(
                dst.iter()
                    .map(|is| Truth::Known(is.holds(|range| port_in(*range, state.dst.port())))),
            );
            truths
        }
        Match::CtState(is) => vec![Truth::Known(is.holds(|states| ct_state_in(states, state)))],
        Match::AddrType { src, dst } => {
            let mut truths = Vec::new();
            truths.extend(
                src.iter()
                    .map(|is| truth_of(is, |kind| source_type(kind, state, site))),
            );
            truths.extend(
                dst.iter()
                    .map(|is| truth_of(is, |kind| address_type(kind, state.dst.ip(), site))),
            );
            truths
        }
        Match::Mark { is } => vec![truth_of(is, |&(value, mask)| mark_is(state, value, mask))],
        Match::Probability(units) => vec![Truth::Random(f64::from(*units) / f64::from(1_u32 << 31))],
        Match::Recent(recent) => match recent.action {
            // It also notes the client down, and always matches.
            RecentAction::Set => Vec::new(),
            RecentAction::RcheckReap { seconds } => vec![Truth::Hangs(
                Condition::SeenRecently {
                    list: recent.name.clone(),
                    client: state.src,
                    seconds,
                },
                true,
            )],
        },
        Match::Other { module, words } => other::truths(module, words, state, site),
    }
}

pub(super) fn port_in(range: PortRange, port: u16) -> bool {
    (range.first..=range.last).contains(&port)
}

pub(super) fn source_port_in(range: PortRange, state: &State) -> Truth {
    if let Some(port) = state.src_port {
        return Truth::Known(port_in(range, port));
    }
    let printed = if range.first == range.last {
        range.first.to_string()
    } else {
        format!("{}:{}", range.first, range.last)
    };
    Truth::Hangs(Condition::SourcePort(printed.into()), true)
}

/// `xt_conntrack` ors the packet's state with the translations of its connection, and matches when any bit is wanted.
pub(super) fn ct_state_in(wanted: &[CtState], state: &State) -> bool {
    let connection = &state.connection;
    let is = match connection.track {
        Track::Unseen | Track::Invalid => CtState::Invalid,
        Track::New => CtState::New,
        Track::Established => CtState::Established,
        Track::Untracked => CtState::Untracked,
    };
    wanted.iter().any(|state| match state {
        CtState::Snat => connection.snat == super::Nat::Changed,
        CtState::Dnat => connection.dnat == super::Nat::Changed,
        other => *other == is,
    })
}

fn source_type(kind: &AddrType, state: &State, site: &Site<'_>) -> Truth {
    match state.src {
        Some(src) => address_type(kind, src, site),
        // A source translated to an unknown address was translated to one of the host's.
        None => Truth::Known(*kind == AddrType::Local),
    }
}

pub(super) fn address_type(kind: &AddrType, ip: IpAddr, site: &Site<'_>) -> Truth {
    let local = match site.local.has(ip) {
        Some(local) => Truth::Known(local),
        None => Truth::Hangs(Condition::Local(ip), true),
    };
    let AddrType::Other(word) = kind else {
        return local;
    };
    let multicast = ip.is_multicast();
    match (&**word, site.is_broadcast(ip)) {
        ("LOCAL", _) => local,
        ("MULTICAST", _) => Truth::Known(multicast),
        ("UNSPEC", _) => Truth::Known(ip.is_unspecified()),
        ("BROADCAST", Some(is)) => Truth::Known(is),
        ("UNICAST", Some(true)) => Truth::Known(false),
        ("UNICAST", _) if multicast || ip.is_unspecified() => Truth::Known(false),
        ("UNICAST", Some(false)) => !local,
        ("UNICAST", None) if local == Truth::Known(true) => Truth::Known(false),
        _ => Truth::Hangs(
            Condition::AddressType {
                ip,
                kind: word.clone(),
            },
            true,
        ),
    }
}

pub(super) fn mark_is(state: &State, value: u32, mask: u32) -> Truth {
    match state.mark.equals(value, mask) {
        Some(is) => Truth::Known(is),
        None => Truth::Hangs(Condition::Mark { value, mask }, true),
    }
}
