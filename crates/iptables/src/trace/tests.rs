//! Hand-written rules and what the kernel does with them.

mod chains;
mod forks;
mod matches;

use super::*;
use crate::ast::{
    Chain, ChainName, CtState, Is, Match, Policy, PortRange, Ports, Proto, Recent, RecentAction, Rule, Table,
    TableName, Target,
};
use model::{Origin, Packet, Protocol};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

fn name(text: &str) -> ChainName {
    ChainName::new(text).unwrap()
}

fn jump(to: &str) -> Target {
    Target::Jump(name(to))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn table(chains: Vec<(&str, Option<Policy>, Vec<Rule>)>) -> Table {
    let chains = chains
        .into_iter()
        .map(|(chain, policy, rules)| (name(chain), Chain { policy, rules }))
        .collect();
    Table { chains }
}

fn packet() -> Packet {
    Packet::new(
        ip("10.0.0.2"),
        at("10.96.0.10:80"),
        Protocol::Tcp,
        Origin::Interface("cali1".into()),
    )
}

fn new_connection(packet: &Packet) -> State {
    let mut state = State::new(packet);
    state.connection.track = Track::New;
    state
}

fn known() -> LocalAddresses {
    LocalAddresses::Known(BTreeSet::from([ip("192.168.0.2")]))
}

fn site(local: &LocalAddresses) -> Site<'_> {
    Site {
        hook: Hook::Prerouting,
        table: TableName::Nat.as_str().into(),
        in_interface: Interface::Named("cali1".into()),
        out_interface: Interface::Absent,
        sender: Sender::Elsewhere,
        local,
        networks: &[],
        masquerade_as: None,
        redirect_to: None,
        sets: &traced::NO_SETS,
    }
}

struct Walked {
    ways: Vec<(State, Verdict)>,
    history: History,
}

fn walked(table: &Table, state: State, site: &Site<'_>) -> Walked {
    let mut history = History::new(Detail::Met);
    let ways = walk(table, state, site, Limits::default(), &mut history);
    Walked { ways, history }
}

fn go(table: &Table) -> Walked {
    let local = known();
    walked(table, new_connection(&packet()), &site(&local))
}

impl Walked {
    fn verdicts(&self) -> Vec<Verdict> {
        self.ways.iter().map(|(_, verdict)| verdict.clone()).collect()
    }

    fn met(&self, way: usize) -> Vec<(String, u32)> {
        self.history
            .between(None, self.ways[way].0.last)
            .into_iter()
            .filter_map(|event| match event {
                Event::Met { place, .. } => Some((place.chain.to_string(), place.rule)),
                _ => None,
            })
            .collect()
    }

    fn assumed(&self, way: usize) -> Vec<(String, bool)> {
        self.history
            .between(None, self.ways[way].0.last)
            .into_iter()
            .filter_map(|event| match event {
                Event::Assumed { condition, holds } => Some((condition.to_string(), *holds)),
                _ => None,
            })
            .collect()
    }
}

fn matching(one: Match, target: Target) -> Rule {
    let mut rule = Rule::new(target);
    rule.matches.push(one);
    rule
}

fn other(module: &str, words: &str) -> Match {
    Match::Other {
        module: module.into(),
        words: words.split_whitespace().map(Arc::from).collect(),
    }
}

fn other_target(target: &str, words: &str) -> Target {
    Target::Other {
        name: target.into(),
        words: words.split_whitespace().map(Arc::from).collect(),
    }
}

/// Whether a one-rule chain drops the packet: `None` when it forks.
fn drops(one: Match) -> Option<bool> {
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![matching(one, Target::Drop)],
    )]);
    match go(&rules).verdicts()[..] {
        [Verdict::Drop] => Some(true),
        [Verdict::Accept] => Some(false),
        _ => None,
    }
}
