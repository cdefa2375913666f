//! A file for `nft -f`, and the words for single things.

mod steps;

pub use steps::step;

use crate::ast::Name;
use crate::ast::{
    Action, Chain, Data, Element, ElementKey, Elements, Flags, Frame, InterfaceName, Match, Part, Rule, Set,
    Value,
};
use crate::names::TABLE;
use ipnet::IpNet;
use model::{Family, balance};
use std::fmt::{self, Display, Write};

/// The whole of one family's table. `nft` takes it as one transaction, over whatever table of that name is there.
pub fn file(frame: &Frame, elements: &Elements) -> String {
    let mut text = String::new();
    let family = Word(frame.family);
    let mut line = |words: fmt::Arguments<'_>| {
        writeln!(text, "{words}").expect("invariant: a string takes all text");
    };
    line(format_args!("add table {family} {TABLE}"));
    line(format_args!("delete table {family} {TABLE}"));
    line(format_args!("add table {family} {TABLE}"));
    let parts = steps::parts_of(frame).chain(elements.iter().map(|(key, element)| {
        format!(
            "add element {family} {TABLE} {} {{ {} }}",
            key.set,
            OfElement(key, element)
        )
    }));
    for part in parts {
        line(format_args!("{part}"));
    }
    text
}

struct Word(Family);

impl Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        })
    }
}

struct AddSet<'a>(Family, &'a Set);

impl Display for AddSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AddSet(family, set) = self;
        let what = match set.data {
            Data::None => "set",
            Data::Endpoint => "map",
        };
        let types: Vec<&str> = set.key.iter().map(|part| type_of(*part, *family)).collect();
        write!(
            f,
            "add {what} {} {TABLE} {} {{ type {}",
            Word(*family),
            set.name,
            types.join(" . ")
        )?;
        if set.data == Data::Endpoint {
            write!(f, " : {} . inet_service", type_of(Part::Destination, *family))?;
        }
        f.write_str(" ;")?;
        match set.flags {
            Flags::Plain => {}
            Flags::Interval => f.write_str(" flags interval ;")?,
            Flags::Clients { size } => write!(f, " size {size} ; flags dynamic,timeout ;")?,
        }
        if !set.comment.is_empty() {
            write!(f, " comment \"{}\" ;", set.comment)?;
        }
        f.write_str(" }")
    }
}

fn type_of(part: Part, family: Family) -> &'static str {
    match (part, family) {
        (Part::Source | Part::Destination, Family::V4) => "ipv4_addr",
        (Part::Source | Part::Destination, Family::V6) => "ipv6_addr",
        (Part::Protocol, _) => "inet_proto",
        (Part::Port, _) => "inet_service",
    }
}

struct AddChain<'a>(Family, &'a Chain);

impl Display for AddChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AddChain(family, chain) = self;
        write!(f, "add chain {} {TABLE} {}", Word(*family), chain.name)?;
        let Some(base) = chain.base else {
            return Ok(());
        };
        let (kind, hook) = (base.kind.as_str(), base.hook.as_str());
        write!(f, " {{ type {kind} hook {hook} priority {} ; }}", base.priority)
    }
}

struct OfRule<'a>(Family, &'a Rule);

impl Display for OfRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OfRule(family, rule) = self;
        let mut words: Vec<String> = rule.matches.iter().map(|part| matched(*family, part)).collect();
        words.extend(rule.actions.iter().map(|action| acted(*family, action)));
        words.extend(rule.comment.map(|comment| format!("comment \"{comment}\"")));
        f.write_str(&words.join(" "))
    }
}

fn key(family: Family, parts: &[Part]) -> String {
    let ip = Word(family);
    let parts: Vec<String> = parts
        .iter()
        .map(|part| match part {
            Part::Source => format!("{ip} saddr"),
            Part::Destination => format!("{ip} daddr"),
            Part::Protocol => "meta l4proto".to_owned(),
            Part::Port => "th dport".to_owned(),
        })
        .collect();
    parts.join(" . ")
}

fn interface(name: &InterfaceName) -> String {
    match name {
        InterfaceName::Is(name) => format!("\"{name}\""),
        InterfaceName::BeginsWith(start) => format!("\"{start}*\""),
    }
}

fn matched(family: Family, part: &Match) -> String {
    let ip = Word(family);
    match part {
        Match::In(parts, set) => format!("{} @{set}", key(family, parts)),
        Match::NotIn(parts, set) => format!("{} != @{set}", key(family, parts)),
        Match::SourceIn(net) => format!("{ip} saddr {}", network(net)),
        Match::SourceNotIn(net) => format!("{ip} saddr != {}", network(net)),
        Match::DestinationNotIn(net) => format!("{ip} daddr != {}", network(net)),
        Match::DestinationIn(net) => format!("{ip} daddr {}", network(net)),
        Match::Interface(name) => format!("iifname {}", interface(name)),
        Match::NotInterface(name) => format!("iifname != {}", interface(name)),
        Match::SourceIsLocal => "fib saddr type local".to_owned(),
        Match::DestinationIsLocal => "fib daddr type local".to_owned(),
        Match::StateNew => "ct state new".to_owned(),
        Match::StatusDnat => "ct status dnat".to_owned(),
        Match::Marked(mark) => format!("meta mark and {:#010x} != 0x00000000", mark.value()),
    }
}

/// A network of one address is an address.
fn network(net: &IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() {
        net.addr().to_string()
    } else {
        net.to_string()
    }
}

fn acted(family: Family, action: &Action) -> String {
    match action {
        Action::Jump(chain) => format!("jump {chain}"),
        Action::Goto(chain) => format!("goto {chain}"),
        Action::JumpRandom(chains) => format!("numgen random mod {}", sides(chains)),
        Action::JumpHashed(chains) => {
            format!("jhash {} saddr mod {}", Word(family), seeded(chains))
        }
        Action::SetMark(mark) => format!("meta mark set meta mark or {:#010x}", mark.value()),
        Action::FlipMark(mark) => format!("meta mark set meta mark xor {:#010x}", mark.value()),
        Action::DnatTo(parts, map) => format!("dnat {} to {} map @{map}", Word(family), key(family, parts)),
        Action::Masquerade => "masquerade fully-random".to_owned(),
        Action::Reject => "reject".to_owned(),
        Action::Drop => "drop".to_owned(),
        Action::Remember {
            key: parts,
            set,
            timeout,
        } => format!("update @{set} {{ {} timeout {timeout}s }}", key(family, parts)),
        Action::Forget { key: parts, set } => format!("delete @{set} {{ {} }}", key(family, parts)),
    }
}

/// The number of sides, and the chain that each leads to.
fn sides(chains: &[Name]) -> String {
    format!("{} {}", chains.len(), vmap(chains))
}

fn seeded(chains: &[Name]) -> String {
    format!("{} seed {:#x} {}", chains.len(), balance::SEED, vmap(chains))
}

fn vmap(chains: &[Name]) -> String {
    let sides: Vec<String> = (0..)
        .zip(chains)
        .map(|(side, chain): (u32, _)| format!("{side} : jump {chain}"))
        .collect();
    format!("vmap {{ {} }}", sides.join(", "))
}

/// An element as it stands between the braces of its set, without its comment.
pub fn element(key: &ElementKey, element: &Element) -> String {
    let bare = Element {
        comment: None,
        ..element.clone()
    };
    OfElement(key, &bare).to_string()
}

struct OfElement<'a>(&'a ElementKey, &'a Element);

impl Display for OfElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OfElement(key, element) = self;
        let parts: Vec<String> = key.key.iter().map(value).collect();
        f.write_str(&parts.join(" . "))?;
        if let Some(comment) = &element.comment {
            write!(f, " comment \"{comment}\"")?;
        }
        if let Some(endpoint) = element.endpoint {
            write!(f, " : {} . {}", endpoint.ip(), endpoint.port())?;
        }
        Ok(())
    }
}

/// `10.96.0.1 . tcp . 443 of service-slot-0`
impl Display for ElementKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.key.iter().map(value).collect();
        write!(f, "{} of {}", parts.join(" . "), self.set)
    }
}

fn value(value: &Value) -> String {
    match value {
        Value::Address(ip) => ip.to_string(),
        Value::Network(net) => network(net),
        Value::Protocol(protocol) => protocol.as_lower().to_owned(),
        Value::Port(port) => port.to_string(),
    }
}
