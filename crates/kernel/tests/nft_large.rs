//! Lists of thousands of endpoints: the kernel bounds how deep chains lead into each other and how long a batch is.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use kernel::NftTable;
use model::Family;
use nftables::ast::{Element, ElementKey, Frame, Value};
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

/// What was made before the refusal is there, and is neither in the way nor twice there afterwards.
#[test]
fn a_large_frame_is_made_after_a_refusal_in_the_middle() {
    in_namespace("a_large_frame_is_made_after_a_refusal_in_the_middle", || {
        let (mut table, now) = empty(Family::V4);
        let change = now.change_to(&frame(Family::V4, &shapes(2048)));
        let key = ElementKey {
            set: Kind::Service.slot(0),
            key: vec![
                Value::Address([10, 96, 0, 1].into()),
                Value::Protocol(model::Protocol::Tcp),
                Value::Port(80),
            ],
        };
        let refused = Step {
            frame: change.steps.clone(),
            elements: vec![Operation::Delete(key, Element::default())],
        };
        table.commit(&refused).unwrap_err();
        let made_before = held(&mut table);
        assert!(made_before.chains.contains_key(&Kind::Service.to(2047)));
        assert!(
            !made_before
                .chains
                .contains_key(&Kind::Service.pick(Bound::of(2048).unwrap()))
        );
        table.commit(&of_frame(change.steps)).unwrap();
        assert_eq!(held(&mut table), change.then);
    });
}
