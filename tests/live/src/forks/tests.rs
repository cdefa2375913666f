//! Answers made by hand, right and wrong ones.

use super::{Forks, forks};
use serde_json::{Value, json};
use std::slice::from_ref;

fn rule(chain: &str, number: u64, text: &str) -> Value {
    json!({"step": "rule", "table": "nat", "chain": chain, "number": number, "text": text})
}

fn claim(holds: bool, others: u64) -> Value {
    let condition = "10.0.0.1 was seen in list KUBE-SEP-A within 600 s";
    json!({"step": "condition", "condition": condition, "holds": holds, "others": others})
}

fn way(chance: f64, steps: &[Value]) -> Value {
    json!({"probability": chance, "steps": steps})
}

fn answer(ways: &[Value]) -> Result<Forks, String> {
    forks(&json!({"ways": ways}))
}

fn random(probability: &str) -> String {
    format!("-m statistic --mode random --probability {probability} -j KUBE-SEP-A")
}

const LAST: &str = "-j KUBE-SEP-C";

/// Three endpoints, of which the middle one takes this share of what the first leaves, and these chances are told.
fn three(middle: &str, chances: [f64; 3]) -> Result<Forks, String> {
    let texts = [random("0.25000000000"), random(middle), LAST.to_owned()];
    let ways = (1..).zip(texts).zip(chances);
    let ways: Vec<Value> = ways
        .map(|((number, text), chance)| {
            way(chance, &[rule("PREROUTING", 1, "-j S"), rule("S", number, &text)])
        })
        .collect();
    answer(&ways)
}

#[test]
fn shares_of_a_chain_are_those_that_its_rules_say() {
    let one = Forks {
        random: 1,
        remembered: 0,
    };
    assert_eq!(three("0.50000000000", [0.25, 0.375, 0.375]), Ok(one));
    // The order of ways is free; so is one that has no choice at all.
    assert_eq!(answer(&[way(1.0, &[rule("S", 3, LAST)])]), Ok(Forks::default()));
}

#[test]
fn other_shares_and_sums_are_faults() {
    for wrong in [
        three("0.50000000000", [0.25, 0.25, 0.5]),
        three("0.50000000000", [0.25, 0.375, 0.375_001]),
        three("0.25000000000", [0.25, 0.375, 0.375]),
        answer(&[way(0.5, &[rule("S", 3, LAST)])]),
        answer(&[
            way(0.25, &[rule("S", 1, &random("0.25000000000"))]),
            way(0.5, &[rule("S", 2, LAST)]),
        ]),
    ] {
        assert!(wrong.is_err(), "{wrong:?}");
    }
}

#[test]
fn ways_that_part_without_a_choice_and_choices_that_part_nothing_are_faults() {
    let chosen = rule("S", 1, &random("0.50000000000"));
    let two = |one: Value, other: Value| answer(&[way(0.5, &[one]), way(0.5, &[other])]);
    for wrong in [
        two(rule("S", 1, "-j A"), rule("S", 2, "-j B")),
        two(chosen.clone(), rule("T", 2, LAST)),
        two(chosen.clone(), chosen.clone()),
        answer(&[way(1.0, from_ref(&chosen))]),
        answer(&[way(0.5, from_ref(&chosen)), way(0.5, &[])]),
        answer(&[
            way(0.5, &[chosen]),
            way(0.5, &[rule("S", 2, &random("0.50000000000"))]),
        ]),
        answer(&[
            way(
                1.0,
                &[json!({"step": "condition", "condition": "it leaves through eth0", "holds": true})],
            ),
            way(
                1.0,
                &[json!({"step": "condition", "condition": "it leaves through eth0", "holds": false})],
            ),
        ]),
        answer(&[way(
            1.0,
            &[json!({"step": "perhaps", "conditions": [{"condition": "its mark is 1", "holds": true}]})],
        )]),
    ] {
        assert!(wrong.is_err(), "{wrong:?}");
    }
}

#[test]
fn what_a_list_remembers_is_both_and_has_no_chance() {
    let known = |chance| way(chance, &[claim(true, 0), rule("S", 1, "-m recent -j A")]);
    let next = |chance| {
        way(
            chance,
            &[claim(false, 0), claim(true, 0), rule("S", 2, "-m recent -j B")],
        )
    };
    let unknown = |chance, number, text: &str| way(chance, &[claim(false, 1), rule("S", number, text)]);
    let half = random("0.50000000000");
    let right = [
        known(1.0),
        next(1.0),
        unknown(0.5, 3, &half),
        unknown(0.5, 4, LAST),
    ];
    let expected = Forks {
        random: 1,
        remembered: 2,
    };
    assert_eq!(answer(&right), Ok(expected));
    for wrong in [
        vec![
            known(0.5),
            next(0.5),
            unknown(0.25, 3, &half),
            unknown(0.25, 4, LAST),
        ],
        vec![
            known(0.5),
            next(1.0),
            unknown(0.5, 3, &half),
            unknown(0.5, 4, LAST),
        ],
        vec![known(1.0)],
        vec![known(1.0), unknown(0.5, 3, &half), unknown(0.5, 4, LAST)],
    ] {
        assert!(answer(&wrong).is_err(), "{wrong:?}");
    }
}

/// A die of four sides, and the slots that come up, with their chances.
fn die(slots: &[(u32, f64)]) -> Result<Forks, String> {
    let ways: Vec<Value> = slots
        .iter()
        .map(|(slot, chance)| {
            let thrown = rule(
                "service/try/4",
                1,
                "numgen random mod 4 vmap { 0 : jump service/to/0 }",
            );
            way(
                *chance,
                &[thrown, rule(&format!("service/to/{slot}/sticky/600s"), 1, "dnat")],
            )
        })
        .collect();
    answer(&ways)
}

#[test]
fn a_die_is_thrown_sixteen_times_and_then_the_lowest_slot_is_taken() {
    let rest = 0.5_f64.powi(16);
    let each = (1.0 - rest) / 2.0;
    assert!(die(&[(1, each + rest), (3, each)]).is_ok());
    assert!(die(&[(0, 0.25), (1, 0.25), (2, 0.25), (3, 0.25)]).is_ok());
    for wrong in [
        die(&[(1, each), (3, each + rest)]),
        die(&[(1, 0.5), (3, 0.5)]),
        die(&[(0, 0.25), (1, 0.25), (2, 0.5)]),
        die(&[(0, 0.5), (1, 0.25), (2, 0.25)]),
        die(&[(3, each + rest), (4, each)]),
    ] {
        assert!(wrong.is_err(), "{wrong:?}");
    }
}
