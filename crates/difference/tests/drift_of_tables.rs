//! Drift in nftables mode: whatever is done to the table is named where it belongs, and it is what the daemon repairs.

mod support;

use difference::drift::{Owner, Sign, What};
use engine::rehearsal::{Found, Write, rehearse};
use model::Family;
use nftables::listed::{self, Contents};
use support::{CAPABILITIES, world};

fn sets(table: &mut listed::Table) -> impl Iterator<Item = (String, &mut Vec<listed::Element>)> {
    table.sets.iter_mut().filter_map(|set| match &mut set.elements {
        Contents::Listed(all) => Some((set.name.to_string(), all)),
        Contents::NotListed => None,
    })
}

#[test]
fn each_element_that_is_lost_is_named_with_its_service_port() {
    for of in [world("policy"), world("loadbalancer"), world("nodeport-cidrs")] {
        let mut whole = of.table(Family::V4);
        let places: Vec<(String, usize)> = sets(&mut whole).map(|(name, all)| (name, all.len())).collect();
        let mut lost = 0;
        for (name, count) in places {
            for at in 0..count {
                let mut table = of.table(Family::V4);
                let element = sets(&mut table)
                    .find(|(set, _)| *set == name)
                    .map(|(_, all)| all.remove(at))
                    .expect("the set");
                let drift = of.table_drift(Family::V4, Some(&table));
                let [difference] = drift.differences.as_slice() else {
                    panic!("{} {name} {}: {drift:#?}", of.name, element.key);
                };
                assert_eq!(
                    (difference.name.as_str(), difference.what),
                    (name.as_str(), What::Changed)
                );
                let [line] = difference.lines.as_slice() else {
                    panic!("{difference:#?}");
                };
                assert_eq!(line.sign, Sign::Missing);
                assert!(
                    line.text.starts_with(&element.key.to_string()),
                    "{line:?} {}",
                    element.key
                );
                let named = element
                    .comment
                    .as_ref()
                    .map(|comment| Owner::Port(comment.to_string()));
                assert!(
                    named.is_none_or(|named| named == difference.owner),
                    "{difference:#?}"
                );
                assert_ne!(difference.owner, Owner::Nobody, "{name} {}", element.key);
                lost += 1;
            }
        }
        assert!(lost > 20, "{} had {lost} elements", of.name);
    }
}

#[test]
fn chains_of_the_table_that_are_emptied_or_added_to_are_named() {
    let of = world("policy");
    let whole = of.table(Family::V4);
    for chain in &whole.chains {
        let mut table = whole.clone();
        let same = |other: &&mut listed::Chain| other.name == chain.name;
        table
            .chains
            .iter_mut()
            .find(same)
            .expect("the chain")
            .rules
            .clear();
        let drift = of.table_drift(Family::V4, Some(&table));
        let lines: Vec<Sign> = drift
            .differences
            .iter()
            .flat_map(|one| one.lines.iter().map(|line| line.sign))
            .collect();
        assert_eq!(
            lines,
            vec![Sign::Missing; chain.rules.len()],
            "{}: {drift:#?}",
            chain.name
        );
        let mut table = whole.clone();
        let rules = &mut table.chains.iter_mut().find(same).expect("the chain").rules;
        rules.insert(0, nftables::parse::rule("ip saddr 203.0.113.7 accept"));
        let drift = of.table_drift(Family::V4, Some(&table));
        let [difference] = drift.differences.as_slice() else {
            panic!("{}: {drift:#?}", chain.name);
        };
        let line = &difference.lines[0];
        assert_eq!(
            (difference.name.as_str(), line.sign, line.number),
            (&*chain.name, Sign::Extra, Some(1))
        );
        assert_eq!(line.text, "ip saddr 203.0.113.7 accept");
    }
}

#[test]
fn clients_that_packets_left_in_the_table_are_no_drift() {
    let mut table = world("policy").table(Family::V4);
    let clients = table.sets.iter_mut().filter(|set| set.name.contains("-clients-"));
    let mut filled = 0;
    for set in clients {
        let element = "10.244.1.9 . 10.96.40.7 . tcp . 80";
        let list = format!(
            "table ip x {{\n\tset s {{\n\t\ttype ipv4_addr\n\t\telements = {{ {element} timeout 3h expires 2h }}\n\t}}\n}}\n"
        );
        let read = nftables::parse::ruleset(&list).expect("a list");
        set.elements = read.tables[0].sets[0].elements.clone();
        filled += 1;
    }
    assert!(filled > 0);
    let drift = world("policy").table_drift(Family::V4, Some(&table));
    assert!(drift.is_none(), "{drift:#?}");
}

#[test]
fn a_table_that_is_gone_is_one_difference() {
    let drift = world("policy").table_drift(Family::V4, None);
    let [difference] = drift.differences.as_slice() else {
        panic!("{drift:#?}");
    };
    assert_eq!(
        (difference.what, difference.about.as_str()),
        (What::Missing, "none of 10 Services is served")
    );
}

/// What is repaired is what was named: the steps bring the very table back.
#[test]
fn what_is_named_of_a_table_is_what_the_daemon_repairs() {
    let of = world("policy");
    let mut table = of.table(Family::V4);
    for (name, all) in sets(&mut table) {
        if name.starts_with("service-slot") {
            all.pop();
        }
    }
    let seen = of.seen(Family::V4, &table);
    let named: usize = of
        .table_drift(Family::V4, Some(&table))
        .differences
        .iter()
        .map(|one| one.lines.len())
        .sum();
    let host = engine::Host {
        families: model::PerFamily::from_fn(|family| (family == Family::V4).then_some(CAPABILITIES)),
        invalid: iptables::build::InvalidPackets::Passed,
    };
    let config = engine::EngineConfig {
        backend: engine::Backend::OwnTable,
        ..engine::EngineConfig::default()
    };
    let engine = engine::Engine::new(of.settings.clone(), of.facts.clone(), &host, &config);
    let steps = rehearse(engine, Family::V4, &of.snapshot, Found::OwnTable(Some(seen)));
    let written: usize = steps
        .iter()
        .map(|step| match &step.write {
            Write::OwnTable(step) => step.elements.len(),
            Write::Iptables(_) => 0,
        })
        .sum();
    assert!(named > 0 && named == written, "{named} named, {written} written");
}
