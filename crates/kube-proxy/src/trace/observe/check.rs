//! Whether the way that a real packet took is one that `trace` gives.
//!
//! Rules are compared by table, chain and words: a rule that was put in or taken out elsewhere shifts numbers, and
//! changes nothing for this packet.

mod rule;
#[cfg(test)]
mod tests;

use super::rulebook::{Witness, Witnessed};
use crate::trace::describe;
use iptables::ast::TableName;
use kernel::PacketView;
use kernel::passage::{Passage, Seen};
use model::{Family, Origin, Packet, Protocol};
use nftables::listed::{RuleText, TableFamily};
use path::{Answer, Detail, Host, Source, Step, Way};
use rule::Rule;
use std::net::SocketAddr;
use traced::{Event, Place};

/// What came of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Check {
    /// The way is one of those, with this chance.
    Agrees { chance: f64, ways: usize },
    /// It is none of them, and why not the one that is most like it.
    Disagrees(String),
    /// It cannot be compared, and why.
    NotCompared(&'static str),
}

/// A way that `trace` gives.
struct Expected {
    rules: Vec<Meeting>,
    /// It stands for others that end alike: see [`thrown_again`].
    stands_for_others: bool,
}

/// A rule on a way that `trace` gives.
struct Meeting {
    rule: Rule,
    /// It may or may not be met, and nothing hangs on it.
    perhaps: bool,
}

/// Rules to compare with, and those that the packet could meet.
#[derive(Clone, Copy)]
pub(super) struct Hosts<'a> {
    pub(super) expected: &'a Host,
    /// This host.
    pub(super) own: Option<&'a Host>,
}

/// A packet as it was followed.
pub(super) struct Followed<'a> {
    pub(super) passage: &'a Passage,
    /// The interface it came in through.
    pub(super) interface: Option<&'a str>,
    pub(super) met: &'a [Witnessed],
    /// Whether it is told what a packet meets in tables of nftables.
    pub(super) tells_of_native: bool,
}

/// Compares a packet's way with what `trace` says over the rules that are expected.
pub(super) fn check(hosts: Hosts<'_>, followed: &Followed<'_>) -> Check {
    let host = hosts.expected;
    let &Followed {
        passage,
        interface,
        met,
        tells_of_native,
    } = followed;
    let packet = match packet(passage, interface) {
        Ok(packet) => packet,
        Err(why) => return Check::NotCompared(why),
    };
    if passage.has_gaps {
        return Check::NotCompared(
            "the kernel had more to tell than could be taken, and steps of it may be missing",
        );
    }
    // NAT is asked once for a connection: what it said is not to be seen in a later packet, nor in the first one sent again.
    let translates = |host: &Host| translates(host, packet.family());
    let asked = met.iter().any(|one| one.translates) || passage.seen == Seen::Dropped;
    // Where this host has nobody to ask, that nobody was asked says nothing of the packet.
    let would_be_asked = translates(host) && hosts.own.is_some_and(translates);
    if passage.is_first == Some(false) || !asked && would_be_asked {
        return Check::NotCompared("it is not the first packet of its connection");
    }
    let seen = match rules_of(met) {
        Ok(seen) => seen,
        Err(why) => return Check::NotCompared(why),
    };
    let answer = path::trace(host, &packet, Detail::Met);
    let mut ways: Vec<Expected> = answer
        .ways
        .iter()
        .map(|way| expected(host, &answer, way))
        .collect();
    if !tells_of_native {
        let is_told = |one: &Meeting| TableName::from_word(one.rule.table.as_str()).is_some();
        for way in &mut ways {
            way.rules.retain(is_told);
        }
    }
    let mut nearest: Option<(usize, String)> = None;
    for (way, expected) in answer.ways.iter().zip(&ways) {
        let difference = difference(expected, (host, &ways), &seen)
            .or_else(|| end(way, passage).map(|why| (seen.len(), why)));
        match difference {
            None => {
                return Check::Agrees {
                    chance: way.state.chance,
                    ways: answer.ways.len(),
                };
            }
            Some((common, why)) => {
                if nearest.as_ref().is_none_or(|(most, _)| common > *most) {
                    nearest = Some((common, why));
                }
            }
        }
    }
    Check::Disagrees(nearest.map_or_else(|| "trace gives no way".to_owned(), |(_, why)| why))
}

/// The rules that were met.
fn rules_of(met: &[Witnessed]) -> Result<Vec<Rule>, &'static str> {
    let mut seen = Vec::new();
    for one in met {
        match &one.what {
            Witness::Rule { text, .. } => seen.push(Rule {
                table: one.table.clone(),
                chain: one.chain.clone(),
                text: text.clone(),
            }),
            Witness::Gone { .. } | Witness::NoSuchRule { .. } => {
                return Err("a rule that it met is not there any more");
            }
            Witness::Policy(_) | Witness::EmptyChain => {}
        }
    }
    Ok(seen)
}

/// Whether there are chains that translate packets of a family.
fn translates(host: &Host, family: Family) -> bool {
    let nat = host.rules.get(family).tables.get(&TableName::Nat);
    let has_rules = nat.is_some_and(|table| table.chains.values().any(|chain| !chain.rules.is_empty()));
    let own = TableFamily::of(family);
    let tables = host.native.tables.iter();
    let seeing = tables.filter(|table| table.family == own || table.family == TableFamily::Inet);
    let mut bases = seeing
        .flat_map(|table| &table.chains)
        .filter_map(|chain| chain.base.as_ref());
    has_rules || bases.any(|base| &*base.kind == "nat")
}

/// The packet as a question.
fn packet(passage: &Passage, interface: Option<&str>) -> Result<Packet, &'static str> {
    let view = &passage.before;
    let protocol = Protocol::ALL
        .into_iter()
        .find(|protocol| protocol.number() == view.protocol);
    let (Some(protocol), Some(from), Some(to)) = (protocol, view.source_port, view.destination_port) else {
        return Err("it is neither TCP, UDP nor SCTP");
    };
    let origin = match interface {
        _ if passage.sent_here => Origin::Host,
        Some(name) => Origin::Interface(name.into()),
        None => Origin::Interface("".into()),
    };
    let mut packet = Packet::new(
        view.source,
        SocketAddr::new(view.destination, to),
        protocol,
        origin,
    );
    packet.src_port = from;
    packet.mark = passage.mark;
    Ok(packet)
}

/// How far a way is the one that was seen, and what differs then; `None` when it is that one.
fn difference(way: &Expected, all: (&Host, &[Expected]), seen: &[Rule]) -> Option<(usize, String)> {
    let (mut at, mut next) = (0, 0);
    while let Some(one) = way.rules.get(next) {
        if seen.get(at) == Some(&one.rule) {
            at += 1;
            next += 1;
        } else if one.perhaps {
            next += 1;
        } else if let Some(behind) = thrown_again(way, all, (seen.get(at), next)) {
            at += 1;
            next = behind;
        } else {
            return Some((at, unlike(seen.get(at), Some(&one.rule))));
        }
    }
    (at < seen.len()).then(|| (at, unlike(seen.get(at), None)))
}

/// A die that is thrown until it shows an endpoint is one way for `trace`, and the kernel tells every throw: the place on the
/// way behind a rule that was met in place of the endpoint's.
fn thrown_again(
    way: &Expected,
    (host, all): (&Host, &[Expected]),
    (seen, next): (Option<&Rule>, usize),
) -> Option<usize> {
    let rule = seen?;
    let [.., leads, die] = way.rules.get(..next)? else {
        return None;
    };
    if !way.stands_for_others || !die.rule.text.contains("numgen ") {
        return None;
    }
    if leads.rule == *rule {
        return Some(next - 1);
    }
    if die.rule == *rule {
        return Some(next);
    }
    let parts = |c: char| c.is_whitespace() || c == ',';
    let is_side = |word: &str| die.rule.text.split(parts).any(|side| side == word);
    // Rules of a slot that remember a client, and forget it when nobody is there, are on no way.
    let is_of_a_way = |one: &Meeting| !one.perhaps && one.rule.chain == rule.chain;
    let is_empty_slot =
        is_side(rule.chain.as_str()) && !all.iter().any(|way| way.rules.iter().any(is_of_a_way));
    // When the last throw showed nobody, slots are asked one by one.
    let is_last_resort = rule.chain == leads.rule.chain && rule.text.rsplit(' ').next().is_some_and(is_side);
    ((is_empty_slot || is_last_resort) && has(host, rule)).then_some(next)
}

/// Whether a rule is among those of the host's tables.
fn has(host: &Host, rule: &Rule) -> bool {
    let mut tables = host.native.tables.iter();
    let table = tables.find(|table| rule.table == table.title().as_str());
    let chain = table.and_then(|table| table.chain(rule.chain.as_str()));
    let mut rules = chain.iter().flat_map(|chain| &chain.rules);
    rules.any(|one| {
        let text = RuleText(one).to_string();
        *rule == Rule { text, ..rule.clone() }
    })
}

fn unlike(seen: Option<&Rule>, expected: Option<&Rule>) -> String {
    let words = |rule: Option<&Rule>| match rule {
        Some(rule) => format!("{} {}: {}", rule.table, rule.chain, rule.text),
        None => "no further rule".to_owned(),
    };
    format!("it met {}; trace expects {}", words(seen), words(expected))
}

/// What differs at the end of the same rules.
fn end(way: &Way, passage: &Passage) -> Option<String> {
    let got_through = match passage.seen {
        Seen::Through => true,
        Seen::Dropped => false,
        // What became of it was not seen.
        Seen::NoMore => return None,
    };
    if got_through != way.got_through() {
        let seen = if got_through {
            "it got through"
        } else {
            "it was dropped"
        };
        return Some(format!("{seen}; trace expects: {}", describe::end(&way.end)));
    }
    if !got_through {
        return None;
    }
    let after = ends(&passage.after);
    if after.1 != Some(way.state.dst) {
        let seen = after.1.map_or_else(|| "nowhere".to_owned(), |to| to.to_string());
        return Some(format!("it went to {seen}; trace expects {}", way.state.dst));
    }
    let source = passage.after.source;
    let is_right = match way.source {
        Source::Kept => after.0 == ends(&passage.before).0,
        Source::Rewritten(Some(to)) => source == to,
        Source::Rewritten(None) => true,
    };
    (!is_right).then(|| {
        format!(
            "its source is {source}; trace expects: {}",
            describe::source_change(&way.source)
        )
    })
}

fn ends(view: &PacketView) -> (Option<SocketAddr>, Option<SocketAddr>) {
    let side = |ip, port: Option<u16>| port.map(|port| SocketAddr::new(ip, port));
    (
        side(view.source, view.source_port),
        side(view.destination, view.destination_port),
    )
}

/// The rules of a way, each once: a rule of nftables may do several things.
fn expected(host: &Host, answer: &Answer, way: &Way) -> Expected {
    let family: Family = answer.packet.family();
    let mut rules: Vec<Meeting> = Vec::new();
    let mut last: Option<&Place> = None;
    for step in answer.steps(way) {
        let (place, perhaps) = match step {
            Step::Rules(Event::Met { place, .. }) => (place, false),
            Step::Rules(Event::MayHaveMet { place, .. }) => (place, true),
            // What a rule finds does not part what it does.
            Step::Rules(Event::Found { .. }) => continue,
            _ => {
                last = None;
                continue;
            }
        };
        if last == Some(place) {
            continue;
        }
        last = Some(place);
        let rule = Rule {
            table: place.table.clone(),
            chain: place.chain.clone(),
            text: describe::rule_text(host, family, place),
        };
        rules.push(Meeting { rule, perhaps });
    }
    Expected {
        rules,
        stands_for_others: answer.chance_of_steps(way) < way.state.chance * (1.0 - 1e-9),
    }
}
