//! What a rule's target does to a packet that the rule matched.

use super::other::{number, value_and_mask};
use crate::ast::{ChainName, Ports, Target};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use traced::{Bits, Condition, Did, Nat, Site, State, Track, Verdict};

/// Where a packet goes on after a rule's target.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Flow {
    /// With the next rule.
    Next,
    /// With this chain, and then back here.
    Jump(ChainName),
    /// With this chain, and then back to where this chain was jumped from.
    Goto(ChainName),
    /// Back to where this chain was jumped from.
    Return,
    /// Nowhere: this is the table's verdict.
    Done(Verdict),
    /// That hangs on a program or a module that nobody knows here.
    Unless {
        /// Whether it lets the packet go on.
        condition: Condition,
        /// If so: the table's verdict, or the next rule.
        then: Option<Verdict>,
        /// If not.
        otherwise: Verdict,
    },
}

/// Targets that change nothing that a rule or a route looks at, and let the packet go on.
const INERT: [&str; 24] = [
    "LOG",
    "NFLOG",
    "ULOG",
    "TRACE",
    "AUDIT",
    "LED",
    "IDLETIMER",
    "RATEEST",
    "ACCOUNT",
    "CLASSIFY",
    "DSCP",
    "TOS",
    "TTL",
    "HL",
    "ECN",
    "TCPMSS",
    "TCPOPTSTRIP",
    "CHECKSUM",
    "SECMARK",
    "CONNSECMARK",
    "HMARK",
    "SET",
    "TEE",
    "CONNMARK",
];

/// Whether the target lets the packet go on as if the rule had not been there.
pub(super) fn is_inert(target: &Target) -> bool {
    match target {
        Target::None => true,
        // These two write marks that rules read.
        Target::Other { name, .. } => !matches!(&**name, "CONNMARK" | "HMARK") && INERT.contains(&&**name),
        _ => false,
    }
}

/// Does to the packet what the target does.
pub(super) fn act(target: &Target, state: &mut State, site: &Site<'_>) -> (Did, Flow) {
    match target {
        Target::None => (Did::Nothing, Flow::Next),
        Target::Jump(chain) => (Did::Jumped(chain.as_str().into()), Flow::Jump(chain.clone())),
        Target::Goto(chain) => (Did::WentTo(chain.as_str().into()), Flow::Goto(chain.clone())),
        Target::Return => (Did::Returned, Flow::Return),
        Target::Accept => (Did::Accepted, Flow::Done(Verdict::Accept)),
        Target::Drop => (Did::Dropped, Flow::Done(Verdict::Drop)),
        Target::Reject(with) => (
            Did::Rejected(with.clone()),
            Flow::Done(Verdict::Reject(with.clone())),
        ),
        Target::Dnat(to) => dnat(*to, state),
        Target::Masquerade(ports) => {
            let port = match ports {
                Ports::Kept => state.src_port,
                Ports::RandomFully => None,
            };
            snat(site.masquerade_as, port, state)
        }
        Target::Mark { value, mask } => mark(state, state.mark.set_xmark(*value, *mask)),
        Target::Other { name, words } => other(name, words, state, site),
    }
}

fn dnat(to: SocketAddr, state: &mut State) -> (Did, Flow) {
    let from = std::mem::replace(&mut state.dst, to);
    // Conntrack sets the DNAT bit only when the translation changes something.
    state.connection.dnat = if from == to { Nat::Kept } else { Nat::Changed };
    (Did::Dnat { from, to }, Flow::Done(Verdict::Accept))
}

fn snat(to: Option<IpAddr>, port: Option<u16>, state: &mut State) -> (Did, Flow) {
    let from = std::mem::replace(&mut state.src, to);
    let unchanged = to.is_some() && from == to && port.is_some() && state.src_port == port;
    state.src_port = port;
    state.connection.snat = if unchanged { Nat::Kept } else { Nat::Changed };
    (Did::Snat { from, to }, Flow::Done(Verdict::Accept))
}

fn mark(state: &mut State, to: Bits) -> (Did, Flow) {
    let from = std::mem::replace(&mut state.mark, to);
    let did = Did::Marked {
        from: from.value(),
        to: to.value(),
    };
    (did, Flow::Next)
}

fn other(name: &Arc<str>, words: &[Arc<str>], state: &mut State, site: &Site<'_>) -> (Did, Flow) {
    let decided = match &**name {
        "ACCEPT" => Some((Did::Accepted, Flow::Done(Verdict::Accept))),
        "DROP" => Some((Did::Dropped, Flow::Done(Verdict::Drop))),
        "RETURN" => Some((Did::Returned, Flow::Return)),
        "REJECT" => {
            let with: Arc<str> = value_of(words, "--reject-with")
                .unwrap_or("icmp-port-unreachable")
                .into();
            Some((Did::Rejected(with.clone()), Flow::Done(Verdict::Reject(with))))
        }
        "MARK" => mark_words(words, state.mark).map(|to| mark(state, to)),
        "CONNMARK" => connection_mark(words, state),
        "NOTRACK" => Some(untrack(state)),
        "CT" if words.iter().any(|word| &**word == "--notrack") => Some(untrack(state)),
        "CT" => Some((Did::Nothing, Flow::Next)),
        "DNAT" => value_of(words, "--to-destination")
            .and_then(|to| one_address(to, state.dst.port()))
            .map(|to| dnat(to, state)),
        "REDIRECT" => redirect(words, state, site),
        "SNAT" => source(words, state),
        "MASQUERADE" => Some(snat(site.masquerade_as, None, state)),
        _ if INERT.contains(&&**name) && &**name != "HMARK" => Some((Did::Nothing, Flow::Next)),
        _ => None,
    };
    decided.unwrap_or_else(|| hand_over(name, words))
}

/// What the target will do is not ours to say.
fn hand_over(name: &Arc<str>, words: &[Arc<str>]) -> (Did, Flow) {
    let mut text = name.to_string();
    for word in words {
        text.push(' ');
        text.push_str(word);
    }
    let text: Arc<str> = text.into();
    let did = Did::HandedOver(text.clone());
    match &**name {
        // What these choose among is written, what they choose is not.
        "DNAT" | "SNAT" | "REDIRECT" | "NETMAP" | "TPROXY" | "SYNPROXY" | "HMARK" => {
            (did, Flow::Done(Verdict::Undecided(text)))
        }
        _ => {
            let goes_on = Condition::TargetGoesOn {
                name: name.clone(),
                words: words.to_vec(),
            };
            // What comes back from a queue goes on after the table, not with the next rule.
            let then = matches!(&**name, "NFQUEUE" | "QUEUE").then_some(Verdict::Accept);
            let flow = Flow::Unless {
                condition: goes_on,
                then,
                otherwise: Verdict::Undecided(text),
            };
            (did, flow)
        }
    }
}

fn value_of<'a>(words: &'a [Arc<str>], option: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| &**word == option)?;
    words.get(at + 1).map(|word| &**word)
}

fn mark_words(words: &[Arc<str>], before: Bits) -> Option<Bits> {
    let (value, mask) = value_and_mask(words.get(1)?)?;
    Some(match &**words.first()? {
        "--set-xmark" => before.set_xmark(value, mask),
        "--set-mark" => before.set_xmark(value, mask | value),
        "--or-mark" => before.set_xmark(value, value),
        "--and-mark" => before.set_xmark(0, !value),
        "--xor-mark" => before.set_xmark(value, 0),
        _ => return None,
    })
}

fn connection_mark(words: &[Arc<str>], state: &mut State) -> Option<(Did, Flow)> {
    let masks = || {
        let mask = |name| value_of(words, name).map_or(Some(u32::MAX), number);
        if let Some(both) = value_of(words, "--mask") {
            return Some((number(both)?, number(both)?));
        }
        Some((mask("--nfmask")?, mask("--ctmask")?))
    };
    let connection = state.connection.mark;
    match &**words.first()? {
        "--restore-mark" => {
            let (own, theirs) = masks()?;
            Some(mark(state, state.mark.mixed_with(own, connection, theirs)))
        }
        "--save-mark" => {
            let (own, theirs) = masks()?;
            state.connection.mark = connection.mixed_with(theirs, state.mark, own);
            Some((Did::Nothing, Flow::Next))
        }
        _ => {
            state.connection.mark = mark_words(words, connection)?;
            Some((Did::Nothing, Flow::Next))
        }
    }
}

fn untrack(state: &mut State) -> (Did, Flow) {
    // Conntrack's own target does nothing to a packet that has a connection already.
    if state.connection.track == Track::Unseen {
        state.connection.track = Track::Untracked;
        (Did::Untracked, Flow::Next)
    } else {
        (Did::Nothing, Flow::Next)
    }
}

/// `ADDRESS[:PORT]`, not a range of either.
fn one_address(text: &str, port: u16) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| {
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        Some(SocketAddr::new(bare.parse().ok()?, port))
    })
}

fn redirect(words: &[Arc<str>], state: &mut State, site: &Site<'_>) -> Option<(Did, Flow)> {
    let port = match value_of(words, "--to-ports") {
        Some(port) => port.parse().ok()?,
        None => state.dst.port(),
    };
    Some(dnat(SocketAddr::new(site.redirect_to?, port), state))
}

fn source(words: &[Arc<str>], state: &mut State) -> Option<(Did, Flow)> {
    let text = value_of(words, "--to-source")?;
    let port = state.src_port.unwrap_or(0);
    let to = one_address(text, port)?;
    let random = words.iter().any(|word| word.starts_with("--random"));
    let port = if random {
        None
    } else {
        Some(to.port()).filter(|port| *port != 0)
    };
    Some(snat(Some(to.ip()), port, state))
}
