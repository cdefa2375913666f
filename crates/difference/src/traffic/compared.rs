//! Two behaviours, and the sentences that tell how the second is otherwise.

use super::fates::{Behaviour, Fate, FrontendBehaviour, PortBehaviour, Sender};
use super::{Change, Changes, Detail};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Endpoints that a sentence names at most.
const NAMED: usize = 6;

/// What becomes otherwise from one to the other.
pub fn changes(before: &Behaviour, after: &Behaviour) -> Changes {
    let mut changes = Vec::new();
    let of_all = of_node(&before.node, &after.node);
    if !of_all.is_empty() {
        changes.push(Change {
            owner: "all Services".to_owned(),
            sentences: of_all,
            details: Vec::new(),
        });
    }
    let none = PortBehaviour::default();
    let names: BTreeSet<&String> = before.ports.keys().chain(after.ports.keys()).collect();
    for name in names {
        let (old, new) = (before.ports.get(name), after.ports.get(name));
        let mut sentences = Vec::new();
        let details = details(old.unwrap_or(&none), new.unwrap_or(&none));
        if old.is_none() {
            sentences.push("is new".to_owned());
        }
        if let (Some(old), None) = (old, new) {
            sentences.push(gone(old));
        } else {
            sentences.extend(of_port(old.unwrap_or(&none), new.unwrap_or(&none), &details));
        }
        if !sentences.is_empty() {
            changes.push(Change {
                owner: name.clone(),
                sentences,
                details,
            });
        }
    }
    Changes {
        family: after.family,
        changes,
        remarks: Vec::new(),
    }
}

fn of_node(before: &BTreeMap<&'static str, String>, after: &BTreeMap<&'static str, String>) -> Vec<String> {
    let known = after
        .iter()
        .filter_map(|(name, new)| Some((name, before.get(name)?, new)));
    known
        .filter(|(_, old, new)| old != new)
        .map(|(name, old, new)| format!("{name}: now {new}; was {old}"))
        .collect()
}

fn gone(port: &PortBehaviour) -> String {
    let titles: Vec<&str> = port.frontends.keys().map(String::as_str).collect();
    format!("is gone: {} no longer served", titles.join(", "))
}

/// The frontends and senders for which something else becomes of a packet.
fn details(before: &PortBehaviour, after: &PortBehaviour) -> Vec<Detail> {
    let mut details = Vec::new();
    for title in titles(before, after) {
        for sender in Sender::ALL {
            let fate = |of: &PortBehaviour| {
                of.frontends
                    .get(title)
                    .and_then(|of| of.fates.get(&sender).cloned())
            };
            let (old, new) = (fate(before), fate(after));
            let is_told =
                |of: &PortBehaviour, fate: &Option<Fate>| fate.is_some() || !of.frontends.contains_key(title);
            if old != new && is_told(before, &old) && is_told(after, &new) {
                details.push(Detail {
                    frontend: title.clone(),
                    sender,
                    before: old,
                    after: new,
                });
            }
        }
    }
    details
}

fn titles<'a>(before: &'a PortBehaviour, after: &'a PortBehaviour) -> BTreeSet<&'a String> {
    before.frontends.keys().chain(after.frontends.keys()).collect()
}

fn of_port(before: &PortBehaviour, after: &PortBehaviour, details: &[Detail]) -> Vec<String> {
    // What is said of several frontends and senders alike is said once.
    let mut said: BTreeMap<String, BTreeMap<&str, BTreeSet<Sender>>> = BTreeMap::new();
    for detail in details {
        let words = of_fate(detail.before.as_ref(), detail.after.as_ref());
        let frontends = said.entry(words).or_default();
        frontends
            .entry(&detail.frontend)
            .or_default()
            .insert(detail.sender);
    }
    let all = said
        .into_iter()
        .map(|(words, whom)| format!("{}: {words}", frontends(&whom)));
    let mut all: Vec<String> = all.collect();
    for title in titles(before, after) {
        match (before.frontends.get(title), after.frontends.get(title)) {
            (Some(old), Some(new)) => {
                let ranges = of_ranges(old.admitted.as_ref(), new.admitted.as_ref());
                all.extend(ranges.map(|words| format!("{title}: {words}")));
            }
            (
                None,
                Some(FrontendBehaviour {
                    admitted: Some(ranges),
                    ..
                }),
            ) => {
                all.push(format!("{title}: only from {}", nets(ranges)));
            }
            _ => {}
        }
    }
    if serves(before) && serves(after) {
        all.extend(of_affinity(before.affinity, after.affinity));
    } else if let Some(seconds) = after.affinity.filter(|_| serves(after)) {
        all.push(format!("a client stays with its endpoint for {seconds} s"));
    }
    all.extend(of_health_check(before.health_check, after.health_check));
    all
}

/// Whether any client gets to an endpoint.
fn serves(port: &PortBehaviour) -> bool {
    let mut fates = port
        .frontends
        .values()
        .flat_map(|frontend| frontend.fates.values());
    fates.any(|fate| matches!(fate, Fate::Endpoints { .. }))
}

/// Frontends with their senders; senders are named only where not all are meant.
fn frontends(whom: &BTreeMap<&str, BTreeSet<Sender>>) -> String {
    let mut by_senders: BTreeMap<&BTreeSet<Sender>, Vec<&str>> = BTreeMap::new();
    for (title, senders) in whom {
        by_senders.entry(senders).or_default().push(title);
    }
    let parts = by_senders.into_iter().map(|(senders, titles)| {
        let titles = titles.join(", ");
        if senders.len() == Sender::ALL.len() {
            return titles;
        }
        let words: Vec<&str> = senders.iter().map(|sender| sender.words()).collect();
        format!("{titles} from {}", words.join(" and "))
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// How a fate is otherwise.
fn of_fate(before: Option<&Fate>, after: Option<&Fate>) -> String {
    match (before, after) {
        (None, None) => String::new(),
        (None, Some(new)) => fate(new),
        (Some(old), None) => format!("no longer served; was {}", before_words(old)),
        (
            Some(Fate::Endpoints {
                to: old,
                masqueraded: old_masqueraded,
            }),
            Some(Fate::Endpoints {
                to: new,
                masqueraded: new_masqueraded,
            }),
        ) => {
            let mut parts = Vec::new();
            let gained: BTreeSet<SocketAddr> = new.difference(old).copied().collect();
            let lost: BTreeSet<SocketAddr> = old.difference(new).copied().collect();
            if !gained.is_empty() {
                parts.push(format!("gains {}", endpoints(&gained)));
            }
            if !lost.is_empty() {
                parts.push(format!("loses {}", endpoints(&lost)));
            }
            match (old_masqueraded, new_masqueraded) {
                (false, true) => parts.push("now masqueraded: endpoints see the node's address".to_owned()),
                (true, false) => {
                    parts.push("no longer masqueraded: endpoints see the client's address".to_owned());
                }
                _ => {}
            }
            parts.join(", ")
        }
        (Some(old), Some(new)) => format!("now {}; was {}", fate(new), before_words(old)),
    }
}

/// Of what is over, the source matters no more.
fn before_words(of: &Fate) -> String {
    match of {
        Fate::Endpoints { to, .. } => format!("to {}", endpoints(to)),
        other => fate(other),
    }
}

fn fate(fate: &Fate) -> String {
    match fate {
        Fate::Endpoints { to, masqueraded } => {
            let source = if *masqueraded {
                "masqueraded"
            } else {
                "source kept"
            };
            format!("to {} ({source})", endpoints(to))
        }
        Fate::Refused => "refused at once".to_owned(),
        Fate::Dropped => "dropped: the client gets no answer".to_owned(),
        Fate::Untouched => "not translated: no rule sends it to an endpoint".to_owned(),
        Fate::Open(words) => format!("not always the same: {words}"),
    }
}

fn endpoints(all: &BTreeSet<SocketAddr>) -> String {
    let mut words: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    if all.len() > NAMED {
        words.push(format!("{} more", all.len() - NAMED));
    }
    words.join(", ")
}

fn nets(all: &BTreeSet<IpNet>) -> String {
    let words: Vec<String> = all.iter().map(ToString::to_string).collect();
    words.join(", ")
}

fn of_ranges(before: Option<&BTreeSet<IpNet>>, after: Option<&BTreeSet<IpNet>>) -> Option<String> {
    match (before, after) {
        (old, new) if old == new => None,
        (None, Some(new)) => Some(format!(
            "source ranges narrowed: only from {}; was from anywhere",
            nets(new)
        )),
        (Some(old), None) => Some(format!(
            "source ranges lifted: from anywhere; was only from {}",
            nets(old)
        )),
        (Some(old), Some(new)) => {
            let word = match (covers(new, old), covers(old, new)) {
                (true, true) => return None,
                (true, false) => "widened",
                (false, true) => "narrowed",
                (false, false) => "changed",
            };
            Some(format!(
                "source ranges {word}: now {}; was {}",
                nets(new),
                nets(old)
            ))
        }
        (None, None) => None,
    }
}

/// Whether all of `inner` lies in `outer`.
fn covers(outer: &BTreeSet<IpNet>, inner: &BTreeSet<IpNet>) -> bool {
    let merged = |all: &BTreeSet<IpNet>| IpNet::aggregate(&all.iter().copied().collect());
    let outer = merged(outer);
    merged(inner)
        .iter()
        .all(|net| outer.iter().any(|wide| wide.contains(net)))
}

fn of_affinity(before: Option<u32>, after: Option<u32>) -> Option<String> {
    match (before, after) {
        (old, new) if old == new => None,
        (None, Some(new)) => Some(format!(
            "session affinity: a client now stays with its endpoint for {new} s"
        )),
        (Some(_), None) => Some("session affinity: a client no longer stays with its endpoint".to_owned()),
        (Some(old), Some(new)) => Some(format!(
            "session affinity: a client stays for {new} s; was {old} s"
        )),
        (None, None) => None,
    }
}

fn of_health_check(before: Option<u16>, after: Option<u16>) -> Option<String> {
    match (before, after) {
        (old, new) if old == new => None,
        (None, Some(new)) => Some(format!("health-check node port {new} is now let in")),
        (Some(old), None) => Some(format!("health-check node port {old} is no longer let in")),
        (Some(old), Some(new)) => Some(format!("health-check node port {new} is now let in; was {old}")),
        (None, None) => None,
    }
}
