//! Lists of rules, and what the kernel does with them.

use super::{Indexed, walk};
use crate::listed::Ruleset;
use crate::parse;
use model::{Origin, Packet, Protocol};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use traced::{
    Detail, Did, Event, History, Hook, Interface, Limits, LocalAddresses, Sender, Site, State, Track, Verdict,
};

mod rules;
mod shapes;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

struct Walked {
    ways: Vec<(State, Verdict)>,
    history: History,
}

/// A packet of a new connection from a pod to a service.
fn state() -> State {
    let origin = Origin::Interface("cali1".into());
    let packet = Packet::new(ip("10.0.0.2"), at("10.96.0.10:80"), Protocol::Tcp, origin);
    let mut state = State::new(&packet);
    state.connection.track = Track::New;
    state
}

/// Follows a packet through the chain `b` of a table whose other lines are given.
fn walked(lines: &str, state: State) -> Walked {
    walked_with(History::new(Detail::Met), lines, state)
}

/// The same with this much work allowed.
fn walked_within(work: u64, lines: &str, state: State) -> Walked {
    walked_with(History::new(Detail::Met).allowing(work), lines, state)
}

fn walked_with(mut history: History, lines: &str, state: State) -> Walked {
    let text = format!("table ip t {{\n{lines}\n}}\n");
    let ruleset: Ruleset = parse::ruleset(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let table = &ruleset.tables[0];
    let local = LocalAddresses::Known(BTreeSet::from([ip("192.168.0.2")]));
    let site = Site {
        hook: Hook::Prerouting,
        table: table.title().into(),
        in_interface: Interface::Named("cali1".into()),
        out_interface: Interface::Absent,
        sender: Sender::Elsewhere,
        local: &local,
        networks: &[],
        masquerade_as: None,
        redirect_to: None,
        sets: &traced::NO_SETS,
    };
    let indexed = Indexed::of(table);
    let base = table.chain("b").expect("a chain b");
    let ways = walk((&indexed, base), state, &site, Limits::default(), &mut history);
    Walked { ways, history }
}

/// The same with a chain of these rules alone.
fn rules(rules: &str) -> Walked {
    walked(
        &format!("chain b {{\n type nat hook prerouting priority 0; policy accept;\n{rules}\n}}"),
        state(),
    )
}

impl Walked {
    /// Each way's chance, conditions and verdict; of a translation the destination.
    fn told(&self) -> Vec<String> {
        let way = |(state, verdict): &(State, Verdict)| {
            let mut words = vec![format!("{:.4}", state.chance)];
            let mut end = match verdict {
                Verdict::Accept => "accept".to_owned(),
                Verdict::Drop => "drop".to_owned(),
                Verdict::Reject(with) => format!("reject {with}"),
                Verdict::Undecided(why) => format!("undecided: {why}"),
            };
            for event in self.history.between(None, state.last) {
                match event {
                    Event::Assumed {
                        condition,
                        holds: true,
                    } => words.push(format!("if {condition}")),
                    Event::Assumed {
                        condition,
                        holds: false,
                    } => words.push(format!("unless {condition}")),
                    Event::Met {
                        did: Did::Dnat { to, .. },
                        ..
                    } => end = format!("to {to}"),
                    _ => {}
                }
            }
            words.push(end);
            words.join(" ")
        };
        self.ways.iter().map(way).collect()
    }

    fn sum(&self) -> f64 {
        self.ways.iter().map(|(state, _)| state.chance).sum()
    }
}
