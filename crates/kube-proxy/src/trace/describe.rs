//! The words for what an answer holds, shared by text and JSON.

use iptables::ast::{Match, Rule};
use iptables::render::RuleText;
use iptables::trace::{Did, Interface, Place};
use model::Family;
use nftables::listed;
use path::{Answer, Claim, End, Host, Listener, Routed, Source};
use std::net::IpAddr;
use traced::{Hook, Name};

/// The rule of iptables at a place.
pub(crate) fn rule<'a>(host: &'a Host, family: Family, place: &Place) -> Option<&'a Rule> {
    let (table, chain) = iptables::trace::of_iptables(place)?;
    let table = host.rules.get(family).tables.get(&table)?;
    table.chains.get(&chain)?.rules.get(index(place)?)
}

fn index(place: &Place) -> Option<usize> {
    usize::try_from(place.rule).ok()?.checked_sub(1)
}

/// The rule of nftables at a place.
fn native_rule<'a>(host: &'a Host, place: &Place) -> Option<&'a listed::Rule> {
    let mut tables = host.native.tables.iter();
    let table = tables.find(|table| place.table == table.title().as_str())?;
    table.chain(place.chain.as_str())?.rules.get(index(place)?)
}

/// The rule's words as `iptables-save` or `nft list` prints them.
pub(crate) fn rule_text(host: &Host, family: Family, place: &Place) -> String {
    let native = || native_rule(host, place).map(|rule| listed::RuleText(rule).to_string());
    let text = rule(host, family, place).map(|rule| RuleText { rule, family }.to_string());
    text.or_else(native).unwrap_or_default()
}

/// Longest rule printed for people, in characters. The kernel takes comments of up to 255 bytes.
const RULE_LENGTH: usize = 2000;

/// The rule's words without its comment, and the comment behind them: what people look for is what it does.
pub(crate) fn short_rule_text(host: &Host, family: Family, place: &Place) -> String {
    let (words, comment) = rule_parts(host, family, place);
    let words = match comment {
        Some(comment) => format!("{words} # {comment}").trim_start().to_owned(),
        None => words,
    };
    shortened(words)
}

/// Text of which a table shows no more than this: a dump may have a word of any length, and to wrap it takes long.
pub(super) fn shortened(words: String) -> String {
    match words.char_indices().nth(RULE_LENGTH) {
        Some((end, _)) => format!("{}...", &words[..end]),
        None => words,
    }
}

/// The rule's words without its comment, and its comment.
pub(super) fn rule_parts(host: &Host, family: Family, place: &Place) -> (String, Option<String>) {
    if let Some(found) = rule(host, family, place) {
        let mut bare = found.clone();
        bare.matches.retain(|one| !matches!(one, Match::Comment(_)));
        let comment = found.comment().map(ToString::to_string);
        (RuleText { rule: &bare, family }.to_string(), comment)
    } else if let Some(found) = native_rule(host, place) {
        let bare = listed::Rule {
            comment: None,
            ..found.clone()
        };
        let comment = found.comment.as_ref().map(ToString::to_string);
        (listed::RuleText(&bare).to_string(), comment)
    } else {
        (String::new(), None)
    }
}

/// Whether a chain has no rule: that it accepts is not worth a line.
pub(super) fn is_empty(host: &Host, family: Family, table: &Name, chain: &Name) -> bool {
    let first = Place {
        hook: Hook::Input,
        table: table.clone(),
        chain: chain.clone(),
        rule: 1,
    };
    rule_text(host, family, &first).is_empty()
}

/// What all ways of an answer together amount to.
pub(super) fn outcome(answer: &Answer) -> String {
    match answer.outcome() {
        Ok(outcome) => format!("Outcome: {outcome}"),
        Err(several) => {
            let outcomes = several.outcomes.iter().map(ToString::to_string);
            let words: Vec<String> = outcomes.chain(several.open.iter().cloned()).collect();
            format!("Outcome depends: {}", words.join("; or "))
        }
    }
}

/// What a rule did to the packet, where it did something to it.
pub(crate) fn change(did: &Did) -> Option<String> {
    match did {
        Did::Dnat { from, to } => Some(format!("to {from} → {to}")),
        Did::Snat { from, to } => Some(format!("from {} → {}", source(*from), source(*to))),
        Did::Marked { from, to } => Some(format!("mark {from:#x} → {to:#x}")),
        Did::Untracked => Some("not tracked".to_owned()),
        Did::Remembered(_) => Some("client remembered".to_owned()),
        Did::Forgot(_) => Some("client forgotten".to_owned()),
        _ => None,
    }
}

/// A word for what a rule did.
pub(crate) fn verb(did: &Did) -> &'static str {
    match did {
        Did::Nothing => "nothing",
        Did::Jumped(_) => "jump",
        Did::WentTo(_) => "goto",
        Did::Returned => "return",
        Did::Accepted => "accept",
        Did::Dropped => "drop",
        Did::Rejected(_) => "reject",
        Did::Dnat { .. } => "dnat",
        Did::Snat { .. } => "snat",
        Did::Marked { .. } => "mark",
        Did::Untracked => "untrack",
        Did::Remembered(_) => "remember",
        Did::Forgot(_) => "forget",
        Did::HandedOver(_) => "hand over",
    }
}

/// A source address that may be unknown.
pub(crate) fn source(ip: Option<IpAddr>) -> String {
    ip.map_or_else(|| "an address of this host".to_owned(), |ip| ip.to_string())
}

/// An interface that may be unknown.
pub(crate) fn interface(interface: &Interface) -> &str {
    match interface {
        Interface::Absent => "no interface",
        Interface::Named(name) => name,
        Interface::Unknown => "an interface that is not known",
    }
}

/// A routing decision.
pub(crate) fn routed(to: &Routed) -> String {
    match to {
        Routed::Here => "for this host".to_owned(),
        Routed::Out(Interface::Unknown) => "for another host".to_owned(),
        Routed::Out(out) => format!("out through {}", interface(out)),
        Routed::Nowhere => "no route".to_owned(),
    }
}

/// What became of the packet.
pub(crate) fn end(end: &End) -> String {
    match end {
        End::Local(Listener::Unknown) => "reaches this host's sockets".to_owned(),
        End::Local(Listener::Present) => "reaches a socket of this host".to_owned(),
        End::Local(Listener::Absent) => "reaches this host, where no socket listens: refused".to_owned(),
        End::Left {
            interface: out,
            next_hop,
        } => match (out, next_hop) {
            (Interface::Named(name), Some(next)) => format!("leaves through {name} by {next}"),
            (Interface::Named(name), None) => format!("leaves through {name}"),
            _ => "leaves this host".to_owned(),
        },
        End::Rejected(with) => format!("REJECT ({with})"),
        End::Dropped => "DROP".to_owned(),
        End::NoRoute => "no route: goes nowhere".to_owned(),
        End::Undecided(why) => format!("cannot be decided: {why}"),
    }
}

/// A machine's word for what became of the packet.
pub(crate) fn end_kind(end: &End) -> &'static str {
    match end {
        End::Local(Listener::Absent) => "local-no-listener",
        End::Local(_) => "local",
        End::Left { .. } => "left",
        End::Rejected(_) => "rejected",
        End::Dropped => "dropped",
        End::NoRoute => "no-route",
        End::Undecided(_) => "undecided",
    }
}

/// What became of the packet's source.
pub(crate) fn source_change(source_of: &Source) -> String {
    match source_of {
        Source::Kept => "source kept".to_owned(),
        Source::Rewritten(to) => format!("source becomes {}", source(*to)),
    }
}

/// A probability: as a fraction when it is one of a whole number, and in decimals.
pub(crate) fn chance(probability: f64) -> String {
    let one_of = (1.0 / probability).round();
    // Rules round each choice to 2^-31, so an endless product of them is off by less than this.
    let is_one_of = (probability * one_of - 1.0).abs() < 1e-5;
    match is_one_of {
        true if one_of < 1.5 => "1".to_owned(),
        true => format!("1/{one_of:.0} ({probability:.6})"),
        false => format!("{probability:.6}"),
    }
}

/// What a way stands on.
pub(super) fn claim(claim: &Claim<'_>) -> String {
    let Claim {
        condition,
        holds,
        others,
    } = claim;
    match (holds, others) {
        (true, _) => condition.to_string(),
        (false, 0) => format!("not: {condition}"),
        (false, 1) => format!("not: {condition}, nor in the next list"),
        (false, more) => format!("not: {condition}, nor in the next {more} lists"),
    }
}
