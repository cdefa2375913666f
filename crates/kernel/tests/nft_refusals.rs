//! What the kernel refuses of a step of nftables mode, and what it grants, as the loop gets to know it.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use kernel::{NftTable, Refused};
use model::Family;
use nftables::ast::{Element, ElementKey, Frame, Value};
use nftables::build::{self, Choice, Shape, Shapes};
use nftables::diff::Operation;
use nftables::names::{Bound, Kind};
use nftables::pool::Pool;
use nftables::step::{FrameStep, Observation, Reading, Step};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use support::{Ends, in_namespace, in_namespace_with};

/// Chains and sets for lists of one endpoint.
fn frame(family: Family) -> Frame {
    let case = scenario::golden_cases().into_iter().next().unwrap();
    let shape = Shape {
        kind: Kind::Service,
        choice: Choice::Random(Bound::of(1).unwrap()),
    };
    build::frame(&case.desired.get(family).node, &Shapes::from([shape]), &[])
}

fn address(family: Family, number: u32) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from(0x0a00_0000 + number).into(),
        Family::V6 => Ipv6Addr::from(0xfd00 << 112 | u128::from(number)).into(),
    }
}

fn element(family: Family, number: u32) -> (ElementKey, Element) {
    let key = vec![
        Value::Address(address(family, number)),
        Value::Protocol(model::Protocol::Tcp),
        Value::Port(80),
    ];
    let element = Element {
        endpoint: Some((address(family, number + 1_000_000), 8080).into()),
        comment: None,
    };
    let set = Kind::Service.slot(0);
    (ElementKey { set, key: key.into() }, element)
}

fn add(family: Family, number: u32) -> Operation {
    let (key, element) = element(family, number);
    Operation::Add(key, element)
}

fn of_elements(elements: Vec<Operation>) -> Step {
    Step {
        frame: Vec::new(),
        elements,
    }
}

fn made(family: Family) -> NftTable {
    let mut table = NftTable::new(family).unwrap();
    let step = Step {
        frame: vec![FrameStep::Make(frame(family))],
        elements: Vec::new(),
    };
    table.commit(&step).unwrap();
    table
}

fn elements(table: &mut NftTable) -> Pool {
    match table.observe(&Reading::Everything).unwrap() {
        Observation::Everything(Some(seen)) => seen.elements,
        other => panic!("{other:?}"),
    }
}

/// Thousands of elements in several messages, and one of them does not fit what is there.
#[test]
fn the_element_that_is_refused_is_named_and_nothing_has_changed() {
    in_namespace(
        "the_element_that_is_refused_is_named_and_nothing_has_changed",
        || {
            for family in Family::ALL {
                let mut table = made(family);
                table.commit(&of_elements(vec![add(family, 4321)])).unwrap();
                let before = elements(&mut table);
                let (key, other) = (element(family, 4321).0, element(family, 7).1);
                let among = |culprit: Operation| {
                    let mut all: Vec<Operation> =
                        (0..6000).filter(|n| *n != 4321).map(|n| add(family, n)).collect();
                    all.insert(5000, culprit);
                    of_elements(all)
                };
                let there = table
                    .commit(&among(Operation::Add(key.clone(), other.clone())))
                    .unwrap_err();
                assert_eq!(there.refused, Some(Refused::Element(key)), "{there:?}");
                let (gone, _) = element(family, 9999);
                let missing = table
                    .commit(&among(Operation::Delete(gone.clone(), other)))
                    .unwrap_err();
                assert_eq!(missing.refused, Some(Refused::Element(gone)), "{missing:?}");
                assert_eq!(elements(&mut table), before);
            }
        },
    );
}

#[test]
fn a_table_that_somebody_has_just_made_is_not_made_over() {
    in_namespace("a_table_that_somebody_has_just_made_is_not_made_over", || {
        let mut theirs = made(Family::V4);
        theirs.commit(&of_elements(vec![add(Family::V4, 1)])).unwrap();
        let mut table = NftTable::new(Family::V4).unwrap();
        let make = |how: fn(Frame) -> FrameStep| Step {
            frame: vec![how(frame(Family::V4))],
            elements: Vec::new(),
        };
        let refused = table.commit(&make(FrameStep::Make)).unwrap_err();
        assert_eq!(
            refused.refused,
            Some(Refused::Object("table kube-proxy".to_owned())),
            "{refused:?}"
        );
        assert_eq!(elements(&mut table).len(), 1);
        table.commit(&make(FrameStep::MakeAnew)).unwrap();
        assert_eq!(elements(&mut table).len(), 0);
    });
}

/// A user namespace may not force the size of its buffers, and a batch is sent whole, as long as the loop makes it.
#[test]
fn as_many_elements_as_there_is_room_for_are_taken_in_a_user_namespace() {
    in_namespace_with(
        "as_many_elements_as_there_is_room_for_are_taken_in_a_user_namespace",
        &["--user", "--map-root-user"],
        || {
            let mut table = made(Family::V6);
            let room = table.room();
            assert!(room >= 500, "room for {room}");
            let room = u32::try_from(room.min(10_000)).unwrap();
            let mut longest: Vec<Operation> = (0..room).map(|n| add(Family::V6, n)).collect();
            for operation in &mut longest {
                if let Operation::Add(_, element) = operation {
                    element.comment = Some("x".repeat(nftables::ast::COMMENT_LIMIT).into());
                }
            }
            table.commit(&of_elements(longest)).unwrap();
            assert_eq!(elements(&mut table).len(), usize::try_from(room).unwrap());
        },
    );
}

/// Each of their commits interrupts a dump, of whatever table.
#[test]
fn a_large_set_is_read_whole_among_commits_that_never_stop() {
    in_namespace("a_large_set_is_read_whole_among_commits_that_never_stop", || {
        const MANY: u32 = 20_000;
        let mut table = made(Family::V4);
        for first in (0..MANY).step_by(5000) {
            let some = (first..first + 5000).map(|n| add(Family::V4, n));
            table.commit(&of_elements(some.collect())).unwrap();
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut theirs = made(Family::V6);
                let (key, element) = element(Family::V6, 1);
                while !over.load(Ordering::Relaxed) {
                    theirs.commit(&of_elements(vec![add(Family::V6, 1)])).unwrap();
                    let gone = Operation::Delete(key.clone(), element.clone());
                    theirs.commit(&of_elements(vec![gone])).unwrap();
                }
            });
            let _ends = Ends(&over);
            let mut want = Pool::default();
            for number in 0..MANY {
                let (key, element) = element(Family::V4, number);
                want.put(&key, Some(&element));
            }
            let read = (0..3).map(|_| elements(&mut table) == want).collect::<Vec<_>>();
            assert_eq!(read, [true; 3]);
        });
    });
}
