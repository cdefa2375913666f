//! What upstream wrote and what we build send every interesting packet the same way.

mod support;

use iptables::build::ruleset;
use iptables::parse;
use model::Family;
use path::{Detail, trace};
use scenario::GoldenCase;

fn cases() -> Vec<(GoldenCase, Family)> {
    let both = |case: GoldenCase| Family::ALL.map(|family| (case.clone(), family));
    scenario::golden_cases().into_iter().flat_map(both).collect()
}

#[test]
fn upstreams_rules_and_ours_give_every_packet_the_same_outcome() {
    let mut asked = 0;
    for (case, family) in cases() {
        let desired = case.desired.get(family);
        let saved = parse::save(case.saved.get(family), family);
        assert_eq!(saved.opaque, [], "{}", case.name);
        let theirs = support::host(&case.facts, family, saved.ruleset);
        let ours = support::host(&case.facts, family, ruleset(desired, &support::context()));
        for packet in support::probes(desired, &case.facts) {
            let theirs = trace(&theirs, &packet, Detail::Met);
            let ours = trace(&ours, &packet, Detail::Met);
            assert_eq!(
                theirs.outcome(),
                ours.outcome(),
                "{} {family}\nupstream: {}\nours: {}",
                case.name,
                support::told(&theirs),
                support::told(&ours)
            );
            asked += 1;
        }
    }
    assert!(asked > 5_000, "only {asked} packets were asked about");
}

#[test]
fn choices_are_fair_and_chances_sum_to_one() {
    for (case, family) in cases() {
        let desired = case.desired.get(family);
        let saved = parse::save(case.saved.get(family), family);
        let host = support::host(&case.facts, family, saved.ruleset);
        for packet in support::probes(desired, &case.facts) {
            let answer = trace(&host, &packet, Detail::Met);
            // A client that affinity remembers has no choice; the others choose among all endpoints of the list.
            let free: Vec<f64> = answer
                .ways
                .iter()
                .filter(|way| answer.claims(way).iter().all(|claim| !claim.holds))
                .map(|way| way.state.chance)
                .collect();
            let sum: f64 = free.iter().sum();
            assert!(
                (sum - 1.0).abs() < 1e-9,
                "{}: {sum}\n{}",
                case.name,
                support::told(&answer)
            );
            let ways = u32::try_from(free.len()).unwrap();
            for chance in &free {
                assert!(
                    (chance - 1.0 / f64::from(ways)).abs() < 1e-6,
                    "{}\n{}",
                    case.name,
                    support::told(&answer)
                );
            }
        }
    }
}

#[test]
fn upstreams_rules_do_what_the_meaning_of_services_asks() {
    let mut asked = 0;
    let mut wrong = Vec::new();
    for (case, family) in cases() {
        let desired = case.desired.get(family);
        let saved = parse::save(case.saved.get(family), family);
        let host = support::host(&case.facts, family, saved.ruleset);
        for packet in support::probes(desired, &case.facts) {
            let answer = trace(&host, &packet, Detail::Met);
            let expected = model::oracle::outcome(desired, &case.facts, &packet);
            if answer.outcome().as_ref() != Ok(&expected) {
                wrong.push(format!(
                    "{} {family}: expected {expected}, got {:?}\n{}",
                    case.name,
                    answer.outcome(),
                    support::told(&answer)
                ));
            }
            asked += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {asked} packets:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n\n")
    );
}
