//! Steps as `nft` would be told to do them.

use super::{AddChain, AddSet, OfElement, OfRule, Word};
use crate::ast::{Chain, Element, ElementKey, Frame};
use crate::diff::Operation;
use crate::names::TABLE;
use crate::step::{FrameStep, Step};
use model::Family;

/// A step's lines, in order: one file for `nft -f`, which carries it out in one transaction.
pub fn step(family: Family, step: &Step) -> Vec<String> {
    let frame = step.frame.iter().flat_map(|part| of_frame(family, part));
    let elements = step.elements.iter().flat_map(|one| of_element(family, one));
    frame.chain(elements).collect()
}

/// The sets, chains and rules of a frame, each after what it needs.
pub(super) fn parts_of(frame: &Frame) -> impl Iterator<Item = String> {
    let family = frame.family;
    let sets = frame.sets.iter().map(move |set| AddSet(family, set).to_string());
    let chains = frame
        .chains
        .iter()
        .map(move |chain| AddChain(family, chain).to_string());
    sets.chain(chains).chain(rules(family, &frame.chains))
}

fn rules(family: Family, chains: &[Chain]) -> impl Iterator<Item = String> {
    chains.iter().flat_map(move |chain| {
        let of_chain = chain.rules.iter();
        of_chain.map(move |rule| {
            let (ip, rule) = (Word(family), OfRule(family, rule));
            format!("add rule {ip} {TABLE} {} {rule}", chain.name)
        })
    })
}

fn of_frame(family: Family, part: &FrameStep) -> Vec<String> {
    let ip = Word(family);
    match part {
        FrameStep::Make(frame) => {
            let make = format!("create table {ip} {TABLE}");
            std::iter::once(make).chain(parts_of(frame)).collect()
        }
        FrameStep::MakeAnew(frame) => {
            let anew = ["add", "delete", "add"].map(|what| format!("{what} table {ip} {TABLE}"));
            anew.into_iter().chain(parts_of(frame)).collect()
        }
        FrameStep::Extend(frame) => parts_of(frame).collect(),
        FrameStep::Append(chain) => rules(family, std::slice::from_ref(chain)).collect(),
        FrameStep::Rewrite(chains) => {
            let empty = chains.iter().flat_map(|chain| {
                let flush = format!("flush chain {ip} {TABLE} {}", chain.name);
                [AddChain(family, chain).to_string(), flush]
            });
            empty.chain(rules(family, chains)).collect()
        }
        FrameStep::DeleteChains(names) => {
            let flush = names
                .iter()
                .map(|name| format!("flush chain {ip} {TABLE} {name}"));
            let delete = names
                .iter()
                .map(|name| format!("delete chain {ip} {TABLE} {name}"));
            flush.chain(delete).collect()
        }
        FrameStep::DeleteSets(names) => {
            let delete = names.iter().map(|name| format!("delete set {ip} {TABLE} {name}"));
            delete.collect()
        }
    }
}

fn of_element(family: Family, operation: &Operation) -> Vec<String> {
    let line = |what: &str, key: &ElementKey, element: &Element| {
        let element = OfElement(key, element);
        format!(
            "{what} element {} {TABLE} {} {{ {element} }}",
            Word(family),
            key.set
        )
    };
    match operation {
        Operation::Add(key, element) => vec![line("add", key, element)],
        Operation::Replace(key, old, new) => vec![line("delete", key, old), line("add", key, new)],
        Operation::Delete(key, old) => vec![line("delete", key, old)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{Name, Value};
    use model::Protocol;

    #[test]
    fn a_step_is_told_in_the_order_in_which_it_is_done() {
        let key = ElementKey {
            set: Name::new("service-slot-0"),
            key: [
                Value::Address("10.96.0.10".parse().expect("an address")),
                Value::Protocol(Protocol::Tcp),
                Value::Port(53),
            ]
            .into(),
        };
        let to = |text: &str| Element {
            endpoint: Some(text.parse().expect("an endpoint")),
            comment: None,
        };
        let whole = Step {
            frame: vec![FrameStep::DeleteChains(vec![Name::new("a/b")])],
            elements: vec![Operation::Replace(key, to("10.0.0.1:53"), to("10.0.0.2:53"))],
        };
        let want = [
            "flush chain ip kube-proxy a/b",
            "delete chain ip kube-proxy a/b",
            "delete element ip kube-proxy service-slot-0 { 10.96.0.10 . tcp . 53 : 10.0.0.1 . 53 }",
            "add element ip kube-proxy service-slot-0 { 10.96.0.10 . tcp . 53 : 10.0.0.2 . 53 }",
        ];
        assert_eq!(step(Family::V4, &whole), want);
    }
}
