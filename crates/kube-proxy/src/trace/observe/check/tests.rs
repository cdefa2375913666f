//! Ways that a packet may have taken, beside those that it may not.

use super::{Expected, Host, Meeting, Rule, difference};
use nftables::parse;

const TABLE: &str = "ip t";

/// A die of four sides, of which slots 2 and 3 are empty, and clients are remembered: its way is thrown again, and in the
/// end slots are asked one by one.
const STICKY: &str = "
table ip t {
    chain pick {
        jump try
        jump try
        jump to/0
        jump to/1
        jump to/2
        jump to/3
    }
    chain try {
        numgen random mod 4 vmap { 0 : jump to/0, 1 : jump to/1, 2 : jump to/2, 3 : jump to/3 }
    }
    chain to/0 {
        counter
        accept
    }
    chain to/1 {
        counter
        accept
    }
    chain to/2 {
        counter
        log
    }
    chain to/3 {
        counter
        log
    }
}
";
const DIE: &str = "numgen random mod 4 vmap { 0 : jump to/0, 1 : jump to/1, 2 : jump to/2, 3 : jump to/3 }";

fn rule(chain: &str, text: &str) -> Rule {
    Rule {
        table: TABLE.into(),
        chain: chain.into(),
        text: text.to_owned(),
    }
}

fn way(slot: &str) -> Expected {
    let rules = [
        ("pick", "jump try"),
        ("try", DIE),
        (slot, "counter"),
        (slot, "accept"),
    ];
    let sure = |(chain, text)| Meeting {
        rule: rule(chain, text),
        perhaps: false,
    };
    Expected {
        rules: rules.into_iter().map(sure).collect(),
        stands_for_others: true,
    }
}

/// Whether a way of the host is the one that was seen.
fn is_one(seen: &[(&str, &str)]) -> bool {
    let host = Host {
        native: parse::ruleset(STICKY).unwrap(),
        ..Host::default()
    };
    let ways = [way("to/0"), way("to/1")];
    let seen: Vec<Rule> = seen.iter().map(|(chain, text)| rule(chain, text)).collect();
    ways.iter()
        .any(|way| difference(way, (&host, &ways), &seen).is_none())
}

const THROW: [(&str, &str); 2] = [("pick", "jump try"), ("try", DIE)];
const NOBODY: [(&str, &str); 2] = [("to/2", "counter"), ("to/2", "log")];
const SOMEBODY: [(&str, &str); 2] = [("to/1", "counter"), ("to/1", "accept")];

#[test]
fn a_die_may_be_thrown_again_after_an_empty_slot() {
    assert!(is_one(&[THROW, SOMEBODY].concat()));
    assert!(is_one(&[THROW, NOBODY, THROW, SOMEBODY].concat()));
    assert!(is_one(&[THROW, NOBODY, THROW, NOBODY, THROW, SOMEBODY].concat()));
    // A slot without any rule that matches.
    assert!(is_one(&[THROW, THROW, SOMEBODY].concat()));
}

#[test]
fn slots_may_be_asked_one_by_one_after_the_last_throw() {
    let asked = [("pick", "jump to/1")];
    let after = [&THROW[..], &NOBODY, &asked, &SOMEBODY].concat();
    assert!(is_one(&after));
    let several = [&THROW[..], &[("pick", "jump to/3")], &NOBODY, &asked, &SOMEBODY].concat();
    assert!(is_one(&several));
}

#[test]
fn no_other_rule_may_be_met_at_a_throw() {
    let otherwise: [&[(&str, &str)]; 5] = [
        // A rule that the chain of the empty slot does not have.
        &[("to/2", "drop")],
        // Rules of a slot that has an endpoint, but not those behind them.
        &[("to/0", "counter")],
        // A chain that the die does not lead to.
        &[("elsewhere", "counter")],
        &[("pick", "jump elsewhere")],
        &[("pick", "drop")],
    ];
    for middle in otherwise {
        assert!(
            !is_one(&[&THROW[..], middle, &THROW, &SOMEBODY].concat()),
            "{middle:?}"
        );
    }
    assert!(!is_one(&[THROW, NOBODY].concat()), "it has no end");
    assert!(
        !is_one(&[&THROW[..], &SOMEBODY, &[("to/1", "accept")]].concat()),
        "it went on"
    );
}

#[test]
fn a_rule_that_nothing_hangs_on_is_no_place_to_be_thrown_back_to() {
    let mut one = way("to/1");
    let perhaps = Meeting {
        rule: rule("to/2", "log"),
        perhaps: true,
    };
    one.rules.insert(0, perhaps);
    one.rules.insert(
        1,
        Meeting {
            rule: rule("pick", "counter"),
            perhaps: false,
        },
    );
    let host = Host {
        native: parse::ruleset(STICKY).unwrap(),
        ..Host::default()
    };
    let seen = [&[("pick", "counter")][..], &THROW, &NOBODY, &THROW, &SOMEBODY].concat();
    let seen: Vec<Rule> = seen.iter().map(|(chain, text)| rule(chain, text)).collect();
    let ways = [one];
    assert_eq!(difference(&ways[0], (&host, &ways), &seen), None);
}

fn is_same(one: &str, other: &str) -> bool {
    rule("c", one) == rule("c", other)
}

#[test]
fn rules_are_the_same_in_the_words_of_a_file_and_of_a_list() {
    for (file, list) in [
        (
            "meta mark & 0x4000 != 0 drop",
            "meta mark & 0x00004000 != 0x00000000 drop",
        ),
        (
            "update @c { ip saddr timeout 10800s }",
            "update @c { ip saddr timeout 3h }",
        ),
        (
            "update @c { ip saddr timeout 93784s }",
            "update @c { ip saddr timeout 1d2h3m4s }",
        ),
        ("ip daddr 10.0.0.1 drop", "ip daddr 10.0.0.1  drop"),
    ] {
        assert!(is_same(file, list), "{file}");
    }
}

#[test]
fn rules_of_other_numbers_times_and_words_are_others() {
    for (one, other) in [
        ("meta mark & 0x4000 != 0 drop", "meta mark & 0x4000 != 1 drop"),
        (
            "update @c { ip saddr timeout 3h }",
            "update @c { ip saddr timeout 3s }",
        ),
        ("th dport 3 drop", "th dport 3s drop"),
        ("dnat to 10.0.0.1:53", "dnat to 10.0.0.1:54"),
        ("jump s", "jump h"),
        ("drop", "drop drop"),
    ] {
        assert!(!is_same(one, other), "{one}");
    }
    assert_ne!(rule("c", "drop"), rule("d", "drop"));
}
