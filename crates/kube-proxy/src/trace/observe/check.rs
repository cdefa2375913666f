//! Whether the way that a real packet took is one that `trace` gives.
//!
//! Rules are compared by table, chain and words: a rule that was put in or taken out elsewhere shifts numbers, and
//! changes nothing for this packet.

use super::rulebook::{Witness, Witnessed};
use crate::trace::describe;
use iptables::ast::TableName;
use kernel::PacketView;
use kernel::passage::{Passage, Seen};
use model::{Family, Origin, Packet, Protocol};
use path::{Answer, Detail, Host, Source, Step, Way};
use std::net::SocketAddr;
use traced::{Event, Name, Place};

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

/// A rule that is met, by what it is known by.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    table: Name,
    chain: Name,
    text: String,
}

/// A way that `trace` gives.
struct Expected {
    rules: Vec<Meeting>,
    /// It stands for others that end alike: see [`thrown_again`].
    stands_for_others: bool,
}

/// Most rules of one throw of a die.
const THROW: usize = 8;

/// A rule on a way that `trace` gives.
struct Meeting {
    rule: Rule,
    /// It may or may not be met, and nothing hangs on it.
    perhaps: bool,
}

/// Compares a packet's way with what `trace` says over these rules.
pub(super) fn check(host: &Host, passage: &Passage, interface: Option<&str>, met: &[Witnessed]) -> Check {
    let packet = match packet(passage, interface) {
        Ok(packet) => packet,
        Err(why) => return Check::NotCompared(why),
    };
    // NAT is asked once for a connection: what it said is not to be seen in a later packet, nor in the first one sent again.
    let asked = met.iter().any(|one| one.translates);
    if passage.is_first == Some(false)
        || !asked && passage.seen != Seen::Dropped && translates(host, packet.family())
    {
        return Check::NotCompared("it is not the first packet of its connection");
    }
    let mut seen = Vec::new();
    for one in met {
        match &one.what {
            Witness::Rule { text, .. } => seen.push(Rule {
                table: one.table.clone(),
                chain: one.chain.clone(),
                text: text.clone(),
            }),
            Witness::Gone { .. } => return Check::NotCompared("a rule that it met is not there any more"),
            Witness::Policy { .. } => {}
        }
    }
    let answer = path::trace(host, &packet, Detail::Met);
    let ways: Vec<Expected> = answer
        .ways
        .iter()
        .map(|way| expected(host, &answer, way))
        .collect();
    let mut nearest: Option<(usize, String)> = None;
    for (way, expected) in answer.ways.iter().zip(&ways) {
        let difference =
            difference(expected, &ways, &seen).or_else(|| end(way, passage).map(|why| (seen.len(), why)));
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

/// Whether there are chains that translate.
fn translates(host: &Host, family: Family) -> bool {
    let nat = host.rules.get(family).tables.get(&TableName::Nat);
    let has_rules = nat.is_some_and(|table| table.chains.values().any(|chain| !chain.rules.is_empty()));
    let native = host.native.tables.iter().flat_map(|table| &table.chains);
    let mut bases = native.filter_map(|chain| chain.base.as_ref());
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
fn difference(way: &Expected, all: &[Expected], seen: &[Rule]) -> Option<(usize, String)> {
    let (mut at, mut next) = (0, 0);
    while let Some(one) = way.rules.get(next) {
        if seen.get(at) == Some(&one.rule) {
            at += 1;
            next += 1;
        } else if one.perhaps {
            next += 1;
        } else if let Some((again, behind)) = thrown_again(way, all, (&seen[at..], next)) {
            at += again;
            next = behind;
        } else {
            return Some((at, unlike(seen.get(at), Some(&one.rule))));
        }
    }
    (at < seen.len()).then(|| (at, unlike(seen.get(at), None)))
}

/// A die that is thrown until it shows an endpoint is one way for `trace`, and the kernel tells every throw. How many rules
/// of `seen` are left behind when the packet is back at a rule that it met before, and what comes behind that rule.
fn thrown_again(way: &Expected, all: &[Expected], (seen, next): (&[Rule], usize)) -> Option<(usize, usize)> {
    if !way.stands_for_others {
        return None;
    }
    let is_known = |rule: &Rule| {
        all.iter()
            .any(|way| way.rules.iter().any(|one| one.rule == *rule))
    };
    let mut throw = seen
        .iter()
        .take(THROW)
        .take_while(|rule| is_known(rule))
        .enumerate();
    throw.find_map(|(index, rule)| {
        let before = way.rules[..next].iter().rposition(|one| one.rule == *rule)?;
        Some((index + 1, before + 1))
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
