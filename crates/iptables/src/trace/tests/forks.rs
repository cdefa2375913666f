//! What forks, with which chance or condition, and what does not.

use super::*;

/// A service chain as kube-proxy writes it: each rule's chance is one in the endpoints that are left.
fn service(endpoints: u32, affinity: bool) -> Table {
    let mut chains = vec![(
        "PREROUTING".to_owned(),
        Some(Policy::Accept),
        vec![Rule::new(jump("SVC"))],
    )];
    let mut svc = Vec::new();
    if affinity {
        for i in 0..endpoints {
            let recent = Recent {
                name: format!("SEP{i}").into(),
                action: RecentAction::RcheckReap { seconds: 10 },
            };
            svc.push(matching(Match::Recent(recent), jump(&format!("SEP{i}"))));
        }
    }
    for i in 0..endpoints {
        let left = endpoints - i;
        let units = ((f64::from(1_u32 << 31)) / f64::from(left)).round();
        let target = jump(&format!("SEP{i}"));
        // The test's own arithmetic stays below 2^31.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 < units <= 2^31"
        )]
        let rule = match left {
            1 => Rule::new(target),
            _ => matching(Match::Probability(units as u32), target),
        };
        svc.push(rule);
        let to = SocketAddr::new(ip("10.1.0.1"), u16::try_from(i).unwrap() + 1);
        chains.push((format!("SEP{i}"), None, vec![Rule::new(Target::Dnat(to))]));
    }
    chains.push(("SVC".to_owned(), None, svc));
    table(
        chains
            .iter()
            .map(|(n, p, r)| (n.as_str(), *p, r.clone()))
            .collect(),
    )
}

#[test]
fn every_endpoint_has_an_equal_chance_and_chances_sum_to_one() {
    for endpoints in [1, 2, 3, 7, 100, 1000] {
        let walked = go(&service(endpoints, false));
        assert_eq!(walked.ways.len(), endpoints as usize);
        for (i, (state, verdict)) in walked.ways.iter().enumerate() {
            assert_eq!(*verdict, Verdict::Accept);
            assert_eq!(
                usize::from(state.dst.port()),
                i + 1,
                "ways come in the order of the rules"
            );
            assert!(
                (state.chance - 1.0 / f64::from(endpoints)).abs() < 1e-6,
                "{}",
                state.chance
            );
        }
        let sum: f64 = walked.ways.iter().map(|(state, _)| state.chance).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
}

#[test]
fn affinity_is_a_fork_for_each_endpoint_and_a_choice_for_unknown_clients() {
    let walked = go(&service(3, true));
    assert_eq!(walked.ways.len(), 6);
    assert_eq!(
        walked.assumed(1),
        [
            ("10.0.0.2 was seen in list SEP0 within 10 s".to_owned(), false),
            ("10.0.0.2 was seen in list SEP1 within 10 s".to_owned(), true)
        ]
    );
    let remembered = walked.ways[..3]
        .iter()
        .all(|(state, _)| state.chance.to_bits() == 1.0_f64.to_bits());
    assert!(remembered, "a remembered client has no choice");
    let sum: f64 = walked.ways[3..].iter().map(|(state, _)| state.chance).sum();
    assert!((sum - 1.0).abs() < 1e-9);
}

#[test]
fn affinity_of_a_thousand_endpoints_stays_linear() {
    let walked = go(&service(1000, true));
    assert_eq!(walked.ways.len(), 2000);
}

#[test]
fn undecidable_matches_are_forks_and_decided_the_same_way_later() {
    let set = || other("set", "--match-set blocked src");
    let not_set = || other("set", "! --match-set blocked src");
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![
            matching(set(), other_target("CONNMARK", "--set-xmark 0x1/0x1")),
            matching(not_set(), Target::Accept),
            matching(set(), Target::Drop),
        ],
    )]);
    let walked = go(&rules);
    assert_eq!(walked.verdicts(), [Verdict::Drop, Verdict::Accept]);
    let claim = "-m set --match-set blocked src matches".to_owned();
    assert_eq!(walked.assumed(0), [(claim.clone(), true)]);
    assert_eq!(walked.assumed(1), [(claim, false)]);
}

#[test]
fn limits_may_be_answered_otherwise_the_next_time() {
    let limit = || other("limit", "--limit 3/min");
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![matching(limit(), Target::Accept), matching(limit(), Target::Drop)],
    )]);
    assert_eq!(
        go(&rules).verdicts(),
        [Verdict::Accept, Verdict::Drop, Verdict::Accept]
    );
}

#[test]
fn forks_that_change_nothing_are_not_forks() {
    let log = matching(
        other("limit", "--limit 3/min"),
        other_target("LOG", "--log-prefix x"),
    );
    let rules = table(vec![("PREROUTING", Some(Policy::Accept), vec![log; 64])]);
    let walked = go(&rules);
    assert_eq!(walked.verdicts(), [Verdict::Accept]);
    assert_eq!(walked.met(0), []);
}

#[test]
fn ways_beyond_the_limit_say_that_they_were_not_followed() {
    let limit = matching(other("limit", "--limit 3/min"), jump("A"));
    let rules = table(vec![
        ("PREROUTING", Some(Policy::Accept), vec![limit; 64]),
        ("A", None, vec![]),
    ]);
    let local = known();
    let mut history = History::new(Detail::Met);
    let limits = Limits { branches: 100 };
    let ways = walk(
        &rules,
        new_connection(&packet()),
        &site(&local),
        limits,
        &mut history,
    );
    assert!(ways.len() <= 100);
    assert!(
        ways.iter()
            .any(|(_, verdict)| matches!(verdict, Verdict::Undecided(why) if why.contains("100 ways")))
    );
}

/// All ways end undecided and say why, or end at all.
#[track_caller]
fn given_up(rules: &Table) {
    let local = known();
    let mut history = History::new(Detail::Met).allowing(1 << 24);
    let start = new_connection(&packet());
    let ways = walk(rules, start, &site(&local), Limits::default(), &mut history);
    let honest = |verdict: &Verdict| matches!(verdict, Verdict::Undecided(why) if why.contains("too much"));
    assert!(ways.iter().any(|(_, verdict)| honest(verdict)));
    assert!(history.exhausted());
}

#[test]
fn chains_that_call_one_another_twice_are_not_followed_forever() {
    let names: Vec<String> = (0..60).map(|i| format!("C{i}")).collect();
    let mut chains = vec![("PREROUTING", Some(Policy::Accept), vec![Rule::new(jump("C0"))])];
    for pair in names.windows(2) {
        chains.push((&*pair[0], None, vec![Rule::new(jump(&pair[1])); 2]));
    }
    chains.push(("C59", None, vec![]));
    given_up(&table(chains));
}

#[test]
fn rules_that_nothing_decides_are_not_followed_forever() {
    let set = |i: usize| other("set", &format!("--match-set S{i} src"));
    let rules = (0..100_000).map(|i| matching(set(i), Target::Accept)).collect();
    given_up(&table(vec![("PREROUTING", Some(Policy::Accept), rules)]));
    let rule = Rule {
        matches: (0..60_000).map(set).collect(),
        ..Rule::new(Target::Accept)
    };
    given_up(&table(vec![("PREROUTING", Some(Policy::Accept), vec![rule])]));
}

#[test]
fn chains_may_not_lead_to_one_another_without_end() {
    let names: Vec<String> = (0..5000).map(|i| format!("C{i}")).collect();
    let mut chains = vec![("PREROUTING", Some(Policy::Accept), vec![Rule::new(jump("C0"))])];
    for pair in names.windows(2) {
        chains.push((&*pair[0], None, vec![Rule::new(Target::Goto(name(&pair[1])))]));
    }
    chains.push(("C4999", None, vec![]));
    let verdicts = go(&table(chains)).verdicts();
    assert!(
        matches!(&*verdicts, [Verdict::Undecided(why)] if why.contains("128 chains")),
        "{verdicts:?}"
    );
}
