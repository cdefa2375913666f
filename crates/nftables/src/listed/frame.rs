//! What we write, as it would be listed.

use super::{
    Base, BinaryOp, Chain, Contents, Element, Expr, Nat, NatKind, NumberMode, Op, Policy, Rule, Set,
    Statement, Table, TableFamily, Type, Update, UpdateOp, Value, Verdict,
};
use crate::ast::{self, Action, Data, Elements, Flags, Frame, InterfaceName, Match, Part};
use crate::names::TABLE;
use ipnet::IpNet;
use model::{Family, balance};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One family's table, with these elements. Which clients the kernel remembers is not ours to know.
pub fn of_frame(frame: &Frame, elements: &Elements) -> Table {
    let family = frame.family;
    let mut table = Table::new(TableFamily::of(family), TABLE);
    let mut by_set: BTreeMap<&ast::Name, Vec<Element>> = BTreeMap::new();
    for (key, element) in elements {
        by_set.entry(&key.set).or_default().push(of_element(key, element));
    }
    table.sets = frame
        .sets
        .iter()
        .map(|set| of_set(family, set, by_set.remove(&set.name).unwrap_or_default()))
        .collect();
    table.chains = frame.chains.iter().map(|chain| of_chain(family, chain)).collect();
    table
}

fn text(name: &ast::Name) -> Arc<str> {
    name.as_str().into()
}

fn type_of(part: Part, family: Family) -> Arc<str> {
    let word = match (part, family) {
        (Part::Source | Part::Destination, Family::V4) => "ipv4_addr",
        (Part::Source | Part::Destination, Family::V6) => "ipv6_addr",
        (Part::Protocol, _) => "inet_proto",
        (Part::Port, _) => "inet_service",
    };
    word.into()
}

pub(super) fn of_set(family: Family, set: &ast::Set, elements: Vec<Element>) -> Set {
    let (flags, words, elements): (&[&str], _, _) = match set.flags {
        Flags::Plain => (&[], Vec::new(), Contents::Listed(elements)),
        Flags::Interval => (&["interval"], Vec::new(), Contents::Listed(elements)),
        Flags::Clients { size } => {
            let size = vec![format!("size {size}").into()];
            (&["dynamic", "timeout"], size, Contents::NotListed)
        }
    };
    let endpoint = || [Part::Destination, Part::Port].map(|part| type_of(part, family));
    Set {
        name: text(&set.name),
        key: Type::Named(set.key.iter().map(|part| type_of(*part, family)).collect()),
        data: match set.data {
            Data::None => None,
            Data::Endpoint => Some(Type::Named(endpoint().into())),
        },
        flags: flags.iter().map(|flag| Arc::from(*flag)).collect(),
        words,
        comment: (!set.comment.is_empty()).then(|| set.comment.into()),
        elements,
    }
}

fn of_element(key: &ast::ElementKey, element: &ast::Element) -> Element {
    let parts = key.key.iter().map(|value| {
        Expr::Value(match value {
            ast::Value::Address(ip) => Value::Address(*ip),
            ast::Value::Network(net) => network(net),
            ast::Value::Protocol(protocol) => Value::Word(protocol.as_lower().into()),
            ast::Value::Port(port) => Value::Number(u64::from(*port)),
        })
    });
    let endpoint = element.endpoint.map(|to| {
        let ip = Expr::Value(Value::Address(to.ip()));
        Expr::Concat(vec![ip, Expr::Value(Value::Number(u64::from(to.port())))])
    });
    Element {
        comment: element.comment.clone(),
        data: endpoint,
        ..Element::of(Expr::concat(parts.collect()))
    }
}

/// A network of one address is an address.
fn network(net: &IpNet) -> Value {
    if net.prefix_len() == net.max_prefix_len() {
        Value::Address(net.addr())
    } else {
        Value::Network(*net)
    }
}

pub(super) fn of_chain(family: Family, chain: &ast::Chain) -> Chain {
    Chain {
        name: text(&chain.name),
        base: chain.base.map(of_base),
        comment: None,
        rules: chain.rules.iter().map(|rule| of_rule(family, rule)).collect(),
    }
}

fn of_base(base: ast::Base) -> Base {
    Base {
        kind: base.kind.as_str().into(),
        hook: base.hook.as_str().into(),
        devices: Vec::new(),
        priority: base.priority,
        policy: Policy::Accept,
    }
}

fn of_rule(family: Family, rule: &ast::Rule) -> Rule {
    let matches = rule.matches.iter().map(|one| matched(family, one));
    let actions = rule.actions.iter().map(|action| acted(family, action));
    Rule {
        statements: matches.chain(actions).collect(),
        comment: rule.comment.map(Arc::from),
    }
}

fn key(family: Family, parts: &[Part]) -> Expr {
    let ip = TableFamily::of(family).as_str();
    let field = |part: &Part| match part {
        Part::Source => Expr::field(&format!("{ip} saddr")),
        Part::Destination => Expr::field(&format!("{ip} daddr")),
        Part::Protocol => Expr::field("meta l4proto"),
        Part::Port => Expr::field("th dport"),
    };
    Expr::concat(parts.iter().map(field).collect())
}

fn is(left: Expr, op: Op, right: Expr) -> Statement {
    Statement::Match { left, op, right }
}

fn word(word: &str) -> Expr {
    Expr::Value(Value::Word(word.into()))
}

fn matched(family: Family, part: &Match) -> Statement {
    let named = |set: &ast::Name| Expr::Named(text(set));
    let source = || key(family, &[Part::Source]);
    let destination = || key(family, &[Part::Destination]);
    let net = |net: &IpNet| Expr::Value(network(net));
    match part {
        Match::In(parts, set) => is(key(family, parts), Op::Is, named(set)),
        Match::NotIn(parts, set) => is(key(family, parts), Op::Not, named(set)),
        Match::SourceIn(within) => is(source(), Op::Is, net(within)),
        Match::SourceNotIn(within) => is(source(), Op::Not, net(within)),
        Match::DestinationIn(within) => is(destination(), Op::Is, net(within)),
        Match::DestinationNotIn(within) => is(destination(), Op::Not, net(within)),
        Match::Interface(name) => is(Expr::field("iifname"), Op::Is, interface(name)),
        Match::NotInterface(name) => is(Expr::field("iifname"), Op::Not, interface(name)),
        Match::SourceIsLocal => is(Expr::field("fib saddr type"), Op::Is, word("local")),
        Match::DestinationIsLocal => is(Expr::field("fib daddr type"), Op::Is, word("local")),
        Match::StateNew => is(Expr::field("ct state"), Op::Is, word("new")),
        Match::StatusDnat => is(Expr::field("ct status"), Op::Is, word("dnat")),
        Match::Marked(mark) => {
            let left = marked(BinaryOp::And, *mark);
            is(left, Op::Not, Expr::Value(Value::Mark(0)))
        }
    }
}

fn interface(name: &InterfaceName) -> Expr {
    let text = match name {
        InterfaceName::Is(name) => name.clone(),
        InterfaceName::BeginsWith(start) => format!("{start}*").into(),
    };
    Expr::Value(Value::Quoted(text))
}

fn marked(op: BinaryOp, mark: model::Mark) -> Expr {
    let value = Expr::Value(Value::Mark(mark.value()));
    Expr::Binary(op, Box::new((Expr::field("meta mark"), value)))
}

fn acted(family: Family, action: &Action) -> Statement {
    let mark = |value| Statement::Assign {
        to: Expr::field("meta mark"),
        value,
    };
    match action {
        Action::Jump(chain) => Statement::Verdict(Verdict::Jump(text(chain))),
        Action::Goto(chain) => Statement::Verdict(Verdict::Goto(text(chain))),
        Action::JumpRandom(chains) => {
            let number = Expr::Number {
                mode: NumberMode::Random,
                modulus: sides(chains),
                offset: 0,
            };
            one_of(chains, number)
        }
        Action::JumpHashed(chains) => {
            let hash = Expr::Hash {
                of: Some(Box::new(key(family, &[Part::Source]))),
                modulus: sides(chains),
                seed: Some(balance::SEED),
                offset: 0,
            };
            one_of(chains, hash)
        }
        Action::SetMark(bit) => mark(marked(BinaryOp::Or, *bit)),
        Action::FlipMark(bit) => mark(marked(BinaryOp::Xor, *bit)),
        Action::DnatTo(parts, map) => Statement::Nat(Nat {
            kind: NatKind::Dnat,
            family: vec![TableFamily::of(family).as_str().into()],
            to: Some(Expr::Map(Box::new((key(family, parts), Expr::Named(text(map)))))),
            port: None,
            flags: Vec::new(),
        }),
        Action::Masquerade => Statement::Nat(Nat {
            kind: NatKind::Masquerade,
            family: Vec::new(),
            to: None,
            port: None,
            flags: vec!["fully-random".into()],
        }),
        Action::Reject => Statement::Reject("".into()),
        Action::Drop => Statement::Verdict(Verdict::Drop),
        Action::Remember {
            key: parts,
            set,
            timeout,
        } => {
            let mut element = Element::of(key(family, parts));
            element.words = vec![format!("timeout {}", crate::parse::duration(u64::from(*timeout))).into()];
            update(UpdateOp::Update, set, element)
        }
        Action::Forget { key: parts, set } => update(UpdateOp::Delete, set, Element::of(key(family, parts))),
    }
}

fn update(op: UpdateOp, set: &ast::Name, element: Element) -> Statement {
    Statement::Update(Update {
        op,
        set: text(set),
        element,
    })
}

fn sides(chains: &[ast::Name]) -> u32 {
    u32::try_from(chains.len()).unwrap_or(u32::MAX)
}

fn one_of(chains: &[ast::Name], number: Expr) -> Statement {
    let sides = (0..).zip(chains).map(|(side, chain)| Element {
        data: Some(Expr::Verdict(Verdict::Jump(text(chain)))),
        ..Element::of(Expr::Value(Value::Number(side)))
    });
    Statement::VerdictMap {
        key: number,
        map: Expr::Set(sides.collect()),
    }
}
