//! What `trace` says of a request before it is sent, and which of its ways the kernel took.

use super::report::Step;
use super::words;
use crate::trace::describe;
use iptables::ast::Ruleset;
use iptables::trace::Did;
use kernel::follow::MetRule;
use model::{Family, Origin, Packet, Protocol};
use path::{Answer, Detail, Event, Host, Name, Way};
use std::net::{IpAddr, SocketAddr};

/// A request that will be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asks, in the lab's words.
    pub place: &'static str,
    /// What happens, in a person's words.
    pub title: &'static str,
    /// The client's address and port.
    pub from: SocketAddr,
    /// Whom it asks.
    pub to: SocketAddr,
    /// The interface of the node that it comes in through; `None` when the node itself asks.
    pub in_interface: Option<&'static str>,
}

impl Request {
    /// Its first packet.
    pub fn packet(&self) -> Packet {
        let origin = match self.in_interface {
            Some(name) => Origin::Interface(name.into()),
            None => Origin::Host,
        };
        let mut packet = Packet::new(self.from.ip(), self.to, Protocol::Tcp, origin);
        packet.src_port = self.from.port();
        packet
    }
}

/// Every way that a request can take through a host.
pub struct Prediction {
    host: Host,
    answer: Answer,
}

/// What the kernel did, as far as a way can be chosen by it.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// The rules met.
    pub met: &'a [MetRule],
    /// The endpoint.
    pub endpoint: Option<SocketAddr>,
}

impl Prediction {
    /// Asks `trace`.
    pub fn new(host: Host, request: &Request) -> Prediction {
        let answer = path::trace(&host, &request.packet(), Detail::Met);
        Prediction { host, answer }
    }

    /// How many ways there are, and the chance of each.
    pub fn chances(&self) -> Vec<f64> {
        self.answer.ways.iter().map(|way| way.state.chance).collect()
    }

    /// The way to the endpoint that the kernel chose; without such a one, the way that has most in common with the
    /// kernel's.
    pub fn way(&self, taken: &Taken<'_>) -> Predicted<'_> {
        let likeness = |way: &&Way| {
            let chosen = taken.endpoint.is_some() && way.translated == taken.endpoint;
            (chosen, self.common_steps(way, taken.met))
        };
        let way = self.answer.ways.iter().max_by_key(likeness);
        Predicted {
            prediction: self,
            way: way.expect("invariant: a trace has a way"),
        }
    }

    fn common_steps(&self, way: &Way, met: &[MetRule]) -> usize {
        let steps = self.answer.met(way);
        let same = |((table, chain, rule), other): &((Name, Name, u32), &MetRule)| {
            *table == other.table.as_str() && *chain == other.chain.as_str() && *rule == other.rule
        };
        steps.into_iter().zip(met).take_while(same).count()
    }
}

/// One way of a prediction.
pub struct Predicted<'a> {
    prediction: &'a Prediction,
    way: &'a Way,
}

impl Predicted<'_> {
    /// The rules it meets.
    pub fn steps(&self) -> Vec<Step> {
        let met = self.events();
        met.filter_map(|(place, did)| {
            let (table, chain) = iptables::trace::of_iptables(place)?;
            let rule = describe::rule(&self.prediction.host, Family::V4, place);
            Some(Step {
                table,
                chain,
                rule: place.rule,
                text: describe::rule_text(&self.prediction.host, Family::V4, place),
                what: rule.map(|rule| words::what(rule, Some(did))).unwrap_or_default(),
            })
        })
        .collect()
    }

    /// The probability that the kernel takes it.
    pub fn chance(&self) -> f64 {
        self.way.state.chance
    }

    /// The source behind NAT; `None` when `trace` cannot tell the address.
    pub fn source(&self) -> Option<IpAddr> {
        self.way.state.src
    }

    /// The destination behind NAT.
    pub fn destination(&self) -> SocketAddr {
        self.way.state.dst
    }

    /// Whether it gets through the node.
    pub fn got_through(&self) -> bool {
        self.way.got_through()
    }

    /// Whether a rule rewrites the source.
    pub fn masqueraded(&self) -> bool {
        self.way.source != path::Source::Kept
    }

    /// How it ends, in words.
    pub fn end(&self) -> String {
        describe::end(&self.way.end)
    }

    /// The chain that marks the packet for masquerading, if one does.
    pub fn marked_in(&self) -> Option<String> {
        self.events().find_map(|(place, did)| match did {
            Did::Jumped(chain) if chain.as_str() == "KUBE-MARK-MASQ" => Some(place.chain.to_string()),
            _ => None,
        })
    }

    fn events(&self) -> impl Iterator<Item = (&iptables::trace::Place, &Did)> {
        let steps = self.prediction.answer.steps(self.way);
        steps.into_iter().filter_map(|step| match step {
            path::Step::Rules(Event::Met { place, did }) => Some((place, did)),
            _ => None,
        })
    }
}

/// The rules that the kernel says a packet met, with their words in `rules`.
pub fn observed_steps(rules: &Ruleset, met: &[MetRule]) -> Vec<Step> {
    let step = |met: &MetRule| {
        let chain = rules.chain(met.table, met.chain.as_str());
        let index = usize::try_from(met.rule)
            .ok()
            .and_then(|rule| rule.checked_sub(1));
        let rule = chain.zip(index).and_then(|(chain, index)| chain.rules.get(index));
        Step {
            table: met.table,
            chain: met.chain.clone(),
            rule: met.rule,
            text: rule.map_or_else(String::new, |rule| words::text(rule, Family::V4)),
            what: rule.map(|rule| words::what(rule, None)).unwrap_or_default(),
        }
    };
    met.iter().map(step).collect()
}
