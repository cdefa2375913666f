//! Lists of thousands of endpoints: the kernel bounds how deep chains lead into each other and how long a batch is.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use kernel::NftTable;
use kernel::fake::FakeTables;
use model::Family;
use nftables::ast::{Action, Chain, Element, ElementKey, Frame, Name, Rule, Value};
use nftables::build::{self, Choice, Shape, Shapes};
use nftables::diff::Operation;
use nftables::names::{Bound, Kind};
use nftables::step::{FrameStep, Held, Observation, Reading, Step};
use support::in_namespace;

fn frame(family: Family, shapes: &Shapes) -> Frame {
    let case = scenario::golden_cases().into_iter().next().unwrap();
    build::frame(&case.desired.get(family).node, shapes, &[])
}

/// A table without lists.
fn empty(family: Family) -> (NftTable, Held) {
    let mut table = NftTable::new(family).unwrap();
    let frame = frame(family, &Shapes::new());
    let step = Step {
        frame: vec![FrameStep::MakeAnew(frame.clone())],
        elements: Vec::new(),
    };
    table.commit(&step).unwrap();
    (table, Held::of(&frame))
}

fn of_frame(frame: Vec<FrameStep>) -> Step {
    Step {
        frame,
        elements: Vec::new(),
    }
}

fn held(table: &mut NftTable) -> Held {
    match table.observe(&Reading::Frame).unwrap() {
        Observation::Frame(Some(seen)) => Held::seen(&seen),
        other => panic!("{other:?}"),
    }
}

/// Lists of this length, of every kind and choice as long as that is a matter of seconds.
fn shapes(slots: usize) -> Shapes {
    let bound = Bound::of(slots).unwrap();
    let random = |kind| Shape {
        kind,
        choice: Choice::Random(bound),
    };
    let sticky = |kind| Shape {
        kind,
        choice: Choice::Sticky(bound, 10_800),
    };
    match slots {
        0..=512 => Kind::ALL
            .into_iter()
            .flat_map(|kind| [random(kind), sticky(kind)])
            .collect(),
        513..=1024 => Kind::ALL.into_iter().map(random).collect(),
        _ => Shapes::from([random(Kind::Service)]),
    }
}

#[test]
fn lists_of_every_size_are_taken() {
    in_namespace("lists_of_every_size_are_taken", || {
        for family in Family::ALL {
            let (mut table, mut now) = empty(family);
            let mut all = Shapes::new();
            for slots in (0..=12).map(|power| 1 << power) {
                all.extend(shapes(slots));
                let change = now.change_to(&frame(family, &all));
                let taken = table.commit(&of_frame(change.steps));
                assert!(taken.is_ok(), "{slots} of {family}: {taken:?}");
                now = change.then;
            }
            assert_eq!(held(&mut table), now);
        }
    });
}

/// Lists that clients stay at, for cluster IPs and node ports: the longest chains that there are.
fn sticky(slots: usize) -> Shapes {
    let bound = Bound::of(slots).unwrap();
    let of_kind = |kind| Shape {
        kind,
        choice: Choice::Sticky(bound, 10_800),
    };
    [Kind::Service, Kind::NodePort].map(of_kind).into()
}

fn address(number: usize) -> Vec<Value> {
    let [.., high, low] = number.to_be_bytes();
    vec![
        Value::Address([10, 96, high, low].into()),
        Value::Protocol(model::Protocol::Tcp),
        Value::Port(80),
    ]
}

fn endpoint(frontend: usize, slot: u32, port: u16) -> (ElementKey, Element) {
    let key = ElementKey {
        set: Kind::Service.slot(slot),
        key: address(frontend).into(),
    };
    let [.., high, low] = slot.to_be_bytes();
    let element = Element {
        endpoint: Some(([10, 244, high, low], port).into()),
        comment: None,
    };
    (key, element)
}

/// As little room as a user namespace has.
const LITTLE: usize = 416 << 10;

fn of_elements(elements: Vec<Operation>) -> Step {
    Step {
        frame: Vec::new(),
        elements,
    }
}

/// What is there of these elements.
fn read(table: &mut NftTable, keys: Vec<ElementKey>) -> Vec<Element> {
    match table.observe(&Reading::Elements(keys)).unwrap() {
        Observation::Elements(read) => read.into_iter().filter_map(|(_, element)| element).collect(),
        other => panic!("{other:?}"),
    }
}

/// Chains that are longer than a batch are made, and thousands of endpoints come, change and go.
#[test]
fn steps_that_are_longer_than_a_batch_are_carried_out() {
    in_namespace("steps_that_are_longer_than_a_batch_are_carried_out", || {
        const SLOTS: u32 = 1024;
        let (mut table, now) = empty(Family::V4);
        table.narrow(LITTLE).unwrap();
        let change = now.change_to(&frame(Family::V4, &sticky(SLOTS as usize)));
        let served = ElementKey {
            set: Kind::Service.within_sticky(Bound::of(SLOTS as usize).unwrap(), 10_800),
            key: address(1).into(),
        };
        let of_one = |frontend, port| (0..SLOTS).map(move |slot| endpoint(frontend, slot, port));
        let endpoints = |port| (1..=5).flat_map(move |frontend| of_one(frontend, port));
        let keys = || {
            endpoints(80)
                .map(|(key, _)| key)
                .chain([served.clone()])
                .collect()
        };
        let and_served = |port| {
            let all = endpoints(port).map(|(_, element)| element);
            all.chain([Element::default()]).collect::<Vec<_>>()
        };
        let come = endpoints(80).map(|(key, to)| Operation::Add(key, to));
        let serve = Operation::Add(served.clone(), Element::default());
        let first = Step {
            frame: change.steps,
            elements: come.chain([serve]).collect(),
        };
        table.commit(&first).unwrap();
        assert_eq!(held(&mut table), change.then);
        assert_eq!(read(&mut table, keys()), and_served(80));

        let pairs = endpoints(80).zip(endpoints(81));
        let replaced = pairs.map(|((key, old), (_, new))| Operation::Replace(key, old, new));
        table.commit(&of_elements(replaced.collect())).unwrap();
        assert_eq!(read(&mut table, keys()), and_served(81));

        let gone = endpoints(81).map(|(key, old)| Operation::Delete(key, old));
        table.commit(&of_elements(gone.collect())).unwrap();
        assert_eq!(read(&mut table, keys()), [Element::default()]);
    });
}

/// What was made before the refusal is there, and is neither in the way nor twice there afterwards: of the same frame, and
/// of a smaller one that goes in one batch.
#[test]
fn frames_are_made_after_a_refusal_in_the_middle_of_a_large_one() {
    in_namespace(
        "frames_are_made_after_a_refusal_in_the_middle_of_a_large_one",
        || {
            for (room, of, then) in [
                (8 << 20, shapes(2048), shapes(2048)),
                (LITTLE, shapes(2048), shapes(2048)),
                (LITTLE, shapes(2048), shapes(4)),
                (LITTLE, sticky(512), sticky(512)),
                (LITTLE, sticky(512), sticky(256)),
            ] {
                let (mut table, now) = empty(Family::V4);
                table.narrow(room).unwrap();
                let large = now.change_to(&frame(Family::V4, &of));
                let set = Name::new(nftables::names::CLUSTER_IPS);
                let key = address(1)[..1].into();
                let missing = Operation::Delete(ElementKey { set, key }, Element::default());
                let refused = Step {
                    frame: large.steps,
                    elements: vec![missing],
                };
                table.commit(&refused).unwrap_err();
                let left = held(&mut table);
                assert_eq!(
                    left.chains.keys().any(nftables::names::is_below_lists),
                    room == LITTLE
                );
                assert_eq!(
                    left.chains.get(&Kind::Service.endpoints()),
                    now.chains.get(&Kind::Service.endpoints())
                );
                let change = now.change_to(&frame(Family::V4, &then));
                table.commit(&of_frame(change.steps)).unwrap();
                let held = held(&mut table);
                for (name, rules) in &change.then.chains {
                    assert_eq!(held.chains.get(name), Some(rules), "{name} with room for {room}");
                }
            }
        },
    );
}

/// A long chain that another of ours has made and uses is not taken apart: packets would meet half of it.
#[test]
fn a_long_chain_that_is_in_use_is_not_made_again_by_and_by() {
    in_namespace("a_long_chain_that_is_in_use_is_not_made_again_by_and_by", || {
        let (mut table, now) = empty(Family::V4);
        table.narrow(LITTLE).unwrap();
        let change = now.change_to(&frame(Family::V4, &sticky(512)));
        table.commit(&of_frame(change.steps.clone())).unwrap();
        table.commit(&of_frame(change.steps)).unwrap_err();
        assert_eq!(held(&mut table), change.then);
    });
}

/// A chain that jumps to the next one, and so on, below `services`, which is one below a base chain.
fn nested(depth: u32) -> Step {
    let jump = |to: Name| Rule {
        matches: Vec::new(),
        actions: vec![Action::Jump(to)],
        comment: None,
    };
    let chain = |name, rules| Chain {
        name,
        base: None,
        rules,
    };
    let to = |slot| Kind::Service.to(slot);
    let chains = (2..depth).map(|level| chain(to(level), vec![jump(to(level + 1))]));
    let chains = chains.chain([chain(to(depth), Vec::new())]);
    let services = Name::new("services");
    let rewritten = chain(services, vec![jump(to(2))]);
    of_frame(vec![
        FrameStep::Extend(Frame {
            family: Family::V4,
            sets: Vec::new(),
            chains: chains.collect(),
        }),
        FrameStep::Rewrite(vec![rewritten]),
    ])
}

#[test]
fn kernel_and_fake_agree_on_how_deep_chains_may_lead() {
    in_namespace("kernel_and_fake_agree_on_how_deep_chains_may_lead", || {
        let taken = |depth| {
            let (mut table, _) = empty(Family::V4);
            let mut fake = FakeTables::default();
            let made = of_frame(vec![FrameStep::Make(frame(Family::V4, &Shapes::new()))]);
            fake.commit(Family::V4, &made).unwrap();
            let step = nested(depth);
            (
                table.commit(&step).is_ok(),
                fake.commit(Family::V4, &step).is_ok(),
            )
        };
        assert_eq!(taken(15), (true, true));
        assert_eq!(taken(16), (false, false));
    });
}
