//! The table of nftables mode, written by netlink, is the one that `nft` makes of the rendered file.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use ipnet::IpNet;
use kernel::{GenerationWatch, NftTable};
use model::{Balancing, Desired, Family};
use nftables::ast::{Elements, Frame};
use nftables::build;
use nftables::diff::Operation;
use nftables::pool::Pool;
use nftables::step::{FrameStep, Held, Observation, Reading, Step};
use nftables::{diff, render};
use support::{in_namespace, tool};

fn whole(desired: &Desired) -> (Frame, Elements) {
    let (shapes, elements) = build::parts(desired);
    let cidrs: [IpNet; 2] = ["10.96.0.0/12", "fd00:10:96::/108"].map(|net| net.parse().expect("a network"));
    (build::frame(&desired.node, &shapes, &cidrs), elements)
}

/// The clusters, and some of them once more with all ports that can be balanced by the client's address.
fn clusters() -> Vec<(String, Desired)> {
    let mut all = Vec::new();
    for case in scenario::golden_cases() {
        for family in Family::ALL {
            let desired = case.desired.get(family);
            all.push((format!("{} {family}", case.name), desired.clone()));
            if ["dual-stack", "policy", "nodeport"].contains(&case.name.as_str()) {
                all.push((format!("{} {family} by hash", case.name), hashed(desired)));
            }
        }
    }
    all
}

fn hashed(desired: &Desired) -> Desired {
    let mut desired = desired.clone();
    let ports = desired
        .services
        .values_mut()
        .flat_map(|service| &mut service.ports);
    for port in ports.filter(|port| port.affinity.is_none()) {
        port.balancing = Balancing::ClientHash;
    }
    desired
}

/// Everything from scratch.
fn made(frame: &Frame, elements: &Elements) -> Step {
    let add =
        |(key, element): (&_, &nftables::ast::Element)| Operation::Add(Clone::clone(key), element.clone());
    Step {
        frame: vec![FrameStep::MakeAnew(frame.clone())],
        elements: elements.iter().map(add).collect(),
    }
}

fn changed(elements: Vec<Operation>) -> Step {
    Step {
        frame: Vec::new(),
        elements,
    }
}

fn listed() -> String {
    tool(&["nft", "list", "ruleset"], "")
}

#[test]
fn a_table_by_netlink_is_listed_as_the_one_of_the_rendered_file() {
    in_namespace(
        "a_table_by_netlink_is_listed_as_the_one_of_the_rendered_file",
        || {
            for (name, desired) in clusters() {
                let family = desired.node.family;
                let (frame, elements) = whole(&desired);
                tool(&["nft", "flush", "ruleset"], "");
                tool(&["nft", "-f", "-"], &render::file(&frame, &elements));
                let by_nft = listed();
                let mut table = NftTable::new(family).expect("a socket");
                table
                    .commit(&made(&frame, &elements))
                    .unwrap_or_else(|error| panic!("{name}: {error:?}"));
                let by_us = listed();
                assert_eq!(without_elements(&by_us), without_elements(&by_nft), "{name}");
                assert_eq!(sorted(&by_us), sorted(&by_nft), "{name}");
            }
        },
    );
}

#[test]
fn what_is_written_is_read_back() {
    in_namespace("what_is_written_is_read_back", || {
        for (name, desired) in clusters() {
            let (frame, elements) = whole(&desired);
            let mut table = NftTable::new(desired.node.family).expect("a socket");
            table.commit(&made(&frame, &elements)).expect("made");
            let Observation::Everything(Some(seen)) = table.observe(&Reading::Everything).expect("read")
            else {
                panic!("{name}: no table");
            };
            assert_eq!(Held::seen(&seen.frame), Held::of(&frame), "{name}");
            assert!(Held::seen(&seen.frame).change_to(&frame).steps.is_empty());
            for chain in &frame.chains {
                assert_eq!(seen.frame.chains[&chain.name].base, chain.base, "{}", chain.name);
            }
            let mut pool = Pool::default();
            for (key, element) in &elements {
                pool.put(key, Some(element));
            }
            assert_eq!(seen.elements, pool, "{name}");
            let keys: Vec<_> = elements.keys().cloned().collect();
            let Observation::Elements(read) = table.observe(&Reading::Elements(keys)).expect("read") else {
                panic!("{name}: no elements");
            };
            for (key, found) in read {
                let endpoint = found.map(|found| found.endpoint);
                assert_eq!(endpoint, Some(elements[&key].endpoint), "{name} {key:?}");
            }
        }
    });
}

#[test]
fn asking_what_a_kernel_lacks_changes_nothing_and_tells_nobody() {
    in_namespace(
        "asking_what_a_kernel_lacks_changes_nothing_and_tells_nobody",
        || {
            let mut watch = GenerationWatch::new().expect("a socket");
            for family in Family::ALL {
                let mut table = NftTable::new(family).expect("a socket");
                let lacks: Vec<String> = table
                    .lacks()
                    .expect("asked")
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                assert!(lacks.is_empty(), "{lacks:?}");
                assert_eq!(listed(), "");
                // Beside a table that is there already, too, on the same socket.
                let case = &scenario::golden_cases()[0];
                let (frame, elements) = whole(case.desired.get(family));
                table.commit(&made(&frame, &elements)).expect("made");
                let before = listed();
                assert_eq!(watch.take().expect("heard").len(), 1, "our own commit is heard");
                assert!(table.lacks().expect("asked").is_empty());
                assert_eq!(listed(), before);
                assert!(watch.take().expect("heard").is_empty(), "somebody was told");
                tool(&["nft", "flush", "ruleset"], "");
                watch.take().expect("heard");
            }
        },
    );
}

/// Every golden cluster's elements become every other's.
#[test]
fn changes_end_in_the_elements_made_at_once() {
    in_namespace("changes_end_in_the_elements_made_at_once", || {
        let cases = scenario::golden_cases();
        for family in Family::ALL {
            let tables: Vec<(Frame, Elements)> =
                cases.iter().map(|case| whole(case.desired.get(family))).collect();
            // One frame that has every set that any of them needs.
            let (frame, _) = tables
                .iter()
                .max_by_key(|(frame, _)| frame.sets.len())
                .expect("there are cases");
            let fits = |elements: &&Elements| {
                elements
                    .keys()
                    .all(|key| frame.sets.iter().any(|set| set.name == key.set))
            };
            let states: Vec<&Elements> = tables.iter().map(|(_, elements)| elements).filter(fits).collect();
            assert!(states.len() > 5, "{} states", states.len());
            for (from, to) in states.iter().zip(states.iter().cycle().skip(1)) {
                let mut table = NftTable::new(family).expect("a socket");
                table.commit(&made(frame, from)).expect("made");
                let change = diff::change(from, to);
                table.commit(&changed(change.now)).expect("changed");
                table.commit(&changed(change.later)).expect("tidied");
                table.commit(&changed(change.last)).expect("tidied");
                let bit_by_bit = listed();
                table.commit(&made(frame, to)).expect("made at once");
                assert_eq!(sorted(&bit_by_bit), sorted(&listed()));
            }
        }
    });
}

/// Chains and sets alone, in their order.
fn without_elements(listing: &str) -> Vec<&str> {
    let mut inside = false;
    listing
        .lines()
        .filter(|line| {
            let begins = line.trim_start().starts_with("elements = {");
            let skip = inside || begins;
            inside = skip && !line.trim_end().ends_with('}');
            !skip
        })
        .collect()
}

/// Elements in any order: the kernel hashes them.
fn sorted(listing: &str) -> Vec<String> {
    let mut parts: Vec<String> = listing
        .split([',', '\n'])
        .map(|part| {
            part.trim()
                .trim_start_matches("elements = { ")
                .trim_end_matches(" }")
                .to_owned()
        })
        .filter(|part| !part.is_empty())
        .collect();
    parts.sort();
    parts
}
