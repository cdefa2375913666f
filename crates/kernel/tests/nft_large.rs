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

/// What was made before the refusal is there, and is neither in the way nor twice there afterwards: of the same frame, and
/// of a smaller one that goes in one batch.
#[test]
fn frames_are_made_after_a_refusal_in_the_middle_of_a_large_one() {
    in_namespace(
        "frames_are_made_after_a_refusal_in_the_middle_of_a_large_one",
        || {
            for (room, slots) in [(8 << 20, 2048), (512 << 10, 2048), (512 << 10, 4)] {
                let (mut table, now) = empty(Family::V4);
                table.narrow(room).unwrap();
                let large = now.change_to(&frame(Family::V4, &shapes(2048)));
                let key = ElementKey {
                    set: Kind::Service.slot(0),
                    key: vec![
                        Value::Address([10, 96, 0, 1].into()),
                        Value::Protocol(model::Protocol::Tcp),
                        Value::Port(80),
                    ],
                };
                let refused = Step {
                    frame: large.steps,
                    elements: vec![Operation::Delete(key, Element::default())],
                };
                table.commit(&refused).unwrap_err();
                let left = held(&mut table);
                assert_eq!(left.chains.contains_key(&Kind::Service.to(2047)), room < 8 << 20);
                assert!(
                    !left
                        .chains
                        .contains_key(&Kind::Service.pick(Bound::of(2048).unwrap()))
                );
                let change = now.change_to(&frame(Family::V4, &shapes(slots)));
                table.commit(&of_frame(change.steps)).unwrap();
                let held = held(&mut table);
                for (name, rules) in &change.then.chains {
                    assert_eq!(held.chains.get(name), Some(rules), "{name} with room for {room}");
                }
            }
        },
    );
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
