//! The walk through chains.

use super::*;

#[test]
fn policy_decides_what_no_rule_decided() {
    let rules = table(vec![("PREROUTING", Some(Policy::Drop), vec![])]);
    assert_eq!(go(&rules).verdicts(), [Verdict::Drop]);
}

#[test]
fn table_without_the_chain_accepts() {
    assert_eq!(go(&Table::default()).verdicts(), [Verdict::Accept]);
}

#[test]
fn jump_comes_back_behind_the_rule_and_goto_does_not() {
    let rules = table(vec![
        (
            "PREROUTING",
            Some(Policy::Drop),
            vec![Rule::new(jump("A")), Rule::new(Target::Accept)],
        ),
        (
            "A",
            None,
            vec![Rule::new(Target::Goto(name("B"))), Rule::new(Target::Drop)],
        ),
        ("B", None, vec![Rule::new(Target::None)]),
    ]);
    let walked = go(&rules);
    assert_eq!(walked.verdicts(), [Verdict::Accept]);
    let met = [("PREROUTING", 1), ("A", 1), ("B", 1), ("PREROUTING", 2)];
    assert_eq!(walked.met(0), met.map(|(chain, rule)| (chain.to_owned(), rule)));
}

#[test]
fn goto_from_a_built_in_chain_ends_with_its_policy() {
    let rules = table(vec![
        (
            "PREROUTING",
            Some(Policy::Drop),
            vec![Rule::new(Target::Goto(name("A"))), Rule::new(Target::Accept)],
        ),
        ("A", None, vec![Rule::new(Target::Return)]),
    ]);
    assert_eq!(go(&rules).verdicts(), [Verdict::Drop]);
}

#[test]
fn return_in_a_built_in_chain_means_its_policy() {
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![Rule::new(Target::Return), Rule::new(Target::Drop)],
    )]);
    assert_eq!(go(&rules).verdicts(), [Verdict::Accept]);
}

#[test]
fn chain_that_leads_to_itself_is_not_followed_for_ever() {
    for target in [jump("A"), Target::Goto(name("A"))] {
        let rules = table(vec![
            ("PREROUTING", Some(Policy::Accept), vec![Rule::new(jump("A"))]),
            ("A", None, vec![Rule::new(target)]),
        ]);
        assert!(
            matches!(&go(&rules).verdicts()[..], [Verdict::Undecided(why)] if why.contains("leads to itself"))
        );
    }
}

#[test]
fn chain_may_be_visited_twice() {
    let rules = table(vec![
        (
            "PREROUTING",
            Some(Policy::Drop),
            vec![
                Rule::new(jump("A")),
                Rule::new(jump("A")),
                Rule::new(Target::Accept),
            ],
        ),
        ("A", None, vec![Rule::new(Target::None)]),
    ]);
    assert_eq!(go(&rules).verdicts(), [Verdict::Accept]);
}

#[test]
fn chain_that_is_missing_is_said_to_be_missing() {
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![Rule::new(jump("GONE"))],
    )]);
    assert!(matches!(&go(&rules).verdicts()[..], [Verdict::Undecided(why)] if why.contains("GONE")));
}
