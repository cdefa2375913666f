//! One rule.

use super::pieces::{Pieces, TargetPiece, Verb, sort};
use super::value::{self, Network};
use super::words::words;
use crate::ast::{
    AddrType, ChainName, Is, Match, PortRange, Ports, Proto, Recent, RecentAction, Rule, Target,
};
use crate::family::{full_mask, reject_with};
use ipnet::IpNet;
use model::{Family, Protocol};
use std::sync::Arc;

/// A rule out of its words, as they stand after `-A CHAIN`; `None` only when a quote stays open.
///
/// The family decides what is left unsaid: `-j REJECT`, and the mask of `-m recent`.
pub fn rule(text: &str, family: Family) -> Option<Rule> {
    let again = || words(text).unwrap_or_default();
    words(text).map(|words| from_words(words, family, again))
}

/// A rule out of its words. Words that make no sense together are asked for `again`, and kept as they are in a rule
/// that does nothing.
pub(super) fn from_words(words: Vec<String>, family: Family, again: impl FnOnce() -> Vec<String>) -> Rule {
    sort(words)
        .and_then(|pieces| from_pieces(pieces, family))
        .unwrap_or_else(|| Rule {
            matches: vec![other("", again())],
            ..Rule::new(Target::None)
        })
}

fn from_pieces(pieces: Pieces, family: Family) -> Option<Rule> {
    let mut loose = Vec::new();
    let src = address("-s", pieces.src, family, &mut loose);
    let dst = address("-d", pieces.dst, family, &mut loose);
    loose.extend(pieces.loose);
    let unclear = (!loose.is_empty()).then(|| other("", loose));
    let matches = pieces.matches.into_iter();
    let matches = matches.map(|(module, words)| one_match(&module, words, family));
    let target = match pieces.target {
        Some(piece) => target(piece, family)?,
        None => Target::None,
    };
    Some(Rule {
        src,
        dst,
        in_interface: pieces.in_interface.and_then(interface),
        out_interface: pieces.out_interface.and_then(interface),
        protocol: pieces.protocol.and_then(protocol),
        matches: unclear.into_iter().chain(matches).collect(),
        target,
    })
}

/// A network of `-s` or `-d`; what we have no type for goes to the loose words.
fn address(
    option: &str,
    is: Option<Is<String>>,
    family: Family,
    loose: &mut Vec<String>,
) -> Option<Is<IpNet>> {
    let is = is?;
    match (value::network(is.value(), family), &is) {
        (Network::Net(net), Is::Equal(_)) => (net.prefix_len() > 0).then_some(Is::Equal(net)),
        (Network::Net(net), Is::Not(_)) => Some(Is::Not(net)),
        (Network::Unclear, _) => {
            loose.extend(matches!(is, Is::Not(_)).then(|| "!".to_owned()));
            loose.extend([option.to_owned(), is.value().clone()]);
            None
        }
    }
}

fn interface(is: Is<String>) -> Option<Is<Arc<str>>> {
    match is {
        // Any interface: not printed.
        Is::Equal(name) if name == "+" => None,
        Is::Equal(name) => Some(Is::Equal(name.into())),
        Is::Not(name) => Some(Is::Not(name.into())),
    }
}

/// The word that iptables-save prints for a protocol of ours, whichever way it was asked for.
pub(super) fn protocol_word(word: &str) -> &str {
    let means = |p: &Protocol| {
        word.eq_ignore_ascii_case(p.as_lower()) || value::decimal(word) == Some(p.number().into())
    };
    match Protocol::ALL.into_iter().find(means) {
        Some(ours) => ours.as_lower(),
        None => word,
    }
}

fn protocol(is: Is<String>) -> Option<Is<Proto>> {
    let named = |word: &str| Proto::from_word(protocol_word(word));
    match is {
        Is::Equal(word) if word == "all" || word == "0" => None,
        Is::Equal(word) => Some(Is::Equal(named(&word))),
        Is::Not(word) => Some(Is::Not(named(&word))),
    }
}

fn other(module: &str, words: Vec<String>) -> Match {
    Match::Other {
        module: module.into(),
        words: words.into_iter().map(Arc::from).collect(),
    }
}

/// The match, typed if all of its words are understood.
fn one_match(module: &str, words: Vec<String>, family: Family) -> Match {
    let borrowed: Vec<&str> = words.iter().map(String::as_str).collect();
    let typed = match module {
        "comment" => comment(&borrowed),
        "tcp" => ports(Protocol::Tcp, &borrowed),
        "udp" => ports(Protocol::Udp, &borrowed),
        "sctp" => ports(Protocol::Sctp, &borrowed),
        "conntrack" => ct_state(&borrowed),
        "addrtype" => address_type(&borrowed),
        "mark" => mark(&borrowed),
        "statistic" => probability(&borrowed),
        "recent" => recent(&borrowed, family),
        "nfacct" => nfacct(&borrowed),
        _ => None,
    };
    typed.unwrap_or_else(|| other(module, words))
}

fn comment(words: &[&str]) -> Option<Match> {
    match words {
        ["--comment", text] => Some(Match::Comment((*text).into())),
        _ => None,
    }
}

fn nfacct(words: &[&str]) -> Option<Match> {
    match words {
        ["--nfacct-name", name] => Some(Match::Nfacct((*name).into())),
        _ => None,
    }
}

/// Takes `[!] --option value` off the front.
fn option<'a>(words: &mut &[&'a str]) -> Option<(&'a str, Is<&'a str>)> {
    let (name, is, rest) = match *words {
        ["!", name, value, rest @ ..] => (name, Is::Not(*value), rest),
        [name, value, rest @ ..] => (name, Is::Equal(*value), rest),
        _ => return None,
    };
    *words = rest;
    Some((name, is))
}

/// The same with its value read.
fn read<T>(is: Is<&str>, value: impl FnOnce(&str) -> Option<T>) -> Option<Is<T>> {
    match is {
        Is::Equal(text) => value(text).map(Is::Equal),
        Is::Not(text) => value(text).map(Is::Not),
    }
}

/// Fills a place once.
fn put<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

fn ports(module: Protocol, mut words: &[&str]) -> Option<Match> {
    let (mut src, mut dst): (Option<Is<PortRange>>, Option<Is<PortRange>>) = (None, None);
    while !words.is_empty() {
        let (name, is) = option(&mut words)?;
        let range = read(is, value::ports)?;
        match name {
            "--sport" | "--source-port" => put(&mut src, range)?,
            "--dport" | "--destination-port" => put(&mut dst, range)?,
            _ => return None,
        }
    }
    Some(Match::Ports { module, src, dst })
}

fn ct_state(mut words: &[&str]) -> Option<Match> {
    match option(&mut words)? {
        ("--ctstate", is) if words.is_empty() => read(is, value::states).map(Match::CtState),
        _ => None,
    }
}

fn address_type(mut words: &[&str]) -> Option<Match> {
    let one_type = |word: &str| match word {
        "LOCAL" => Some(AddrType::Local),
        list if list.contains(',') => None,
        word => Some(AddrType::Other(word.into())),
    };
    let (mut src, mut dst) = (None, None);
    while !words.is_empty() {
        let (name, is) = option(&mut words)?;
        let is = read(is, one_type)?;
        match name {
            "--src-type" => put(&mut src, is)?,
            "--dst-type" => put(&mut dst, is)?,
            _ => return None,
        }
    }
    Some(Match::AddrType { src, dst })
}

fn mark(mut words: &[&str]) -> Option<Match> {
    match option(&mut words)? {
        ("--mark", is) if words.is_empty() => read(is, value::masked).map(|is| Match::Mark { is }),
        _ => None,
    }
}

fn probability(words: &[&str]) -> Option<Match> {
    match words {
        ["--mode", "random", "--probability", chance] => value::probability(chance).map(Match::Probability),
        _ => None,
    }
}

fn recent(mut words: &[&str], family: Family) -> Option<Match> {
    let (mut name, mut seconds, mut flags) = (None, None, Vec::new());
    while let [word, rest @ ..] = words {
        words = rest;
        match (*word, rest) {
            ("--set" | "--rcheck" | "--reap", _) if !flags.contains(word) => flags.push(*word),
            ("--rsource", _) => {}
            ("--name", [value, rest @ ..]) => {
                put(&mut name, *value)?;
                words = rest;
            }
            ("--seconds", [value, rest @ ..]) => {
                put(&mut seconds, value::decimal(value)?)?;
                words = rest;
            }
            ("--mask", [mask, rest @ ..]) if *mask == full_mask(family) => words = rest,
            _ => return None,
        }
    }
    flags.sort_unstable();
    let action = match (&*flags, seconds) {
        (["--set"], None) => RecentAction::Set,
        (["--rcheck", "--reap"], Some(seconds)) => RecentAction::RcheckReap { seconds },
        _ => return None,
    };
    let name = name.unwrap_or("DEFAULT").into();
    Some(Match::Recent(Recent { name, action }))
}

/// Targets that are extensions and not chains, so that `-j LOG` isn't taken for a jump.
const EXTENSIONS: [&str; 43] = [
    "AUDIT",
    "CHECKSUM",
    "CLASSIFY",
    "CLUSTERIP",
    "CONNMARK",
    "CONNSECMARK",
    "CT",
    "DNAT",
    "DNPT",
    "DSCP",
    "ECN",
    "HL",
    "HMARK",
    "IDLETIMER",
    "LED",
    "LOG",
    "MARK",
    "MASQUERADE",
    "MIRROR",
    "NETMAP",
    "NFLOG",
    "NFQUEUE",
    "NOTRACK",
    "QUEUE",
    "RATEEST",
    "REDIRECT",
    "REJECT",
    "SAME",
    "SECMARK",
    "SET",
    "SNAT",
    "SNPT",
    "SYNPROXY",
    "TARPIT",
    "TCPMSS",
    "TCPOPTSTRIP",
    "TEE",
    "TOS",
    "TPROXY",
    "TRACE",
    "TTL",
    "ULOG",
    "XOR",
];

/// The target; `None` when it is neither an extension nor a possible chain.
fn target(piece: TargetPiece, family: Family) -> Option<Target> {
    let words: Vec<&str> = piece.words.iter().map(String::as_str).collect();
    if piece.verb == Verb::Goto {
        return ChainName::new(&piece.name)
            .ok()
            .filter(|_| words.is_empty())
            .map(Target::Goto);
    }
    if let Some(typed) = typed_target(&piece.name, &words, family) {
        return Some(typed);
    }
    let name = ChainName::new(&piece.name).ok()?;
    if words.is_empty() && !EXTENSIONS.contains(&name.as_str()) {
        return Some(Target::Jump(name));
    }
    Some(Target::Other {
        name: piece.name.into(),
        words: piece.words.into_iter().map(Arc::from).collect(),
    })
}

fn typed_target(name: &str, words: &[&str], family: Family) -> Option<Target> {
    match (name, words) {
        ("ACCEPT", []) => Some(Target::Accept),
        ("DROP", []) => Some(Target::Drop),
        ("RETURN", []) => Some(Target::Return),
        ("REJECT", []) => Some(Target::Reject(reject_with(family).into())),
        ("REJECT", ["--reject-with", with]) => Some(Target::Reject((*with).into())),
        ("DNAT", ["--to-destination", to]) => to.parse().ok().map(Target::Dnat),
        ("MASQUERADE", []) => Some(Target::Masquerade(Ports::Kept)),
        ("MASQUERADE", ["--random-fully"]) => Some(Target::Masquerade(Ports::RandomFully)),
        ("MARK", [option, bits]) => mark_target(option, bits),
        _ => None,
    }
}

/// All forms of MARK in the one that iptables-save prints (`mark_tg_parse` of `extensions/libxt_MARK.c`).
fn mark_target(option: &str, bits: &str) -> Option<Target> {
    let (given, given_mask) = value::masked(bits)?;
    let (value, mask) = match option {
        "--set-xmark" => (given, given_mask),
        "--set-mark" => (given, given | given_mask),
        "--or-mark" => (given, given),
        "--xor-mark" => (given, 0),
        "--and-mark" => (0, !given),
        _ => return None,
    };
    Some(Target::Mark { value, mask })
}
