//! Upstream's clusters in nftables mode: the oracle and the tracer agree, over our table and over one of upstream's.

mod support;

use model::Family;
use nftables::parse;
use path::{Answer, Detail, Event, Step, Way, trace};
use scenario::GoldenCase;
use support::native::{self, LAYOUTS, Layout};

fn cases() -> Vec<(GoldenCase, Family)> {
    let both = |case: GoldenCase| Family::ALL.map(|family| (case.clone(), family));
    scenario::golden_cases().into_iter().flat_map(both).collect()
}

/// One in so many interesting packets is asked about: all of them take minutes of processor time, and each
/// kind of frontend and client is there many times.
const STRIDE: usize = 7;

/// Asks about interesting packets of every cluster over one layout.
fn ask_all(layout: Layout, mut tell: impl FnMut(&GoldenCase, Family, &Answer)) -> usize {
    let mut asked = 0;
    for (case, family) in cases() {
        let desired = case.desired.get(family);
        let cidrs = native::service_cidrs(&case.snapshot);
        let (table, _) = native::table(layout, desired, &cidrs, case.settings.masquerade_all);
        let host = native::host(&case.facts, table);
        for packet in support::probes(desired, &case.facts).into_iter().step_by(STRIDE) {
            tell(&case, family, &trace(&host, &packet, Detail::Met));
            asked += 1;
        }
    }
    asked
}

#[test]
fn the_oracle_and_the_tracer_agree_about_both_layouts_of_nftables_mode() {
    let mut wrong = Vec::new();
    for layout in LAYOUTS {
        let asked = ask_all(layout, |case, family, answer| {
            let desired = case.desired.get(family);
            let cidrs = native::service_cidrs(&case.snapshot);
            let expected = native::expected(desired, &case.facts, &cidrs, &answer.packet);
            let told = || {
                let told = support::told(answer);
                format!(
                    "{layout:?} {} {family}: {:?}\n{told}",
                    case.name,
                    answer.outcome()
                )
            };
            if let Some(expected) = expected.filter(|expected| answer.outcome().as_ref() != Ok(expected)) {
                wrong.push(format!("expected {expected}, {}", told()));
            }
            wrong.extend(unfair(answer).map(|what| format!("{what}: {}", told())));
            wrong.extend(contradicted(answer).map(|what| format!("{what}: {}", told())));
        });
        assert!(asked > 1_500, "only {asked} packets were asked about");
    }
    let some = wrong[..wrong.len().min(20)].join("\n\n");
    assert!(wrong.is_empty(), "{} packets:\n{some}", wrong.len());
}

/// A step that says of a rule that it is met, behind one that says that it may be.
fn contradicted(answer: &Answer) -> Option<String> {
    let place_of = |step: &Step<'_>| match step {
        Step::Rules(Event::MayHaveMet { place, .. }) => Some((place.clone(), "may be met")),
        Step::Rules(Event::Met { place, .. }) => Some((place.clone(), "is met")),
        _ => None,
    };
    let ways = answer.ways.iter().map(|way| answer.steps(way));
    let mut pairs = ways.flat_map(|steps| {
        let places: Vec<_> = steps.iter().map(place_of).collect();
        places.windows(2).map(<[_]>::to_vec).collect::<Vec<_>>()
    });
    let found = pairs.find(|pair| match &pair[..] {
        [Some((one, "may be met")), Some((other, "is met"))] => one == other,
        _ => false,
    });
    found.map(|pair| format!("{pair:?}"))
}

/// What is wrong with the chances of a client that no endpoint knows: the others have no choice.
fn unfair(answer: &Answer) -> Option<String> {
    let knows_nobody = |way: &&Way| answer.claims(way).iter().all(|claim| !claim.holds);
    let free = answer.ways.iter().filter(knows_nobody);
    let chances: Vec<f64> = free.map(|way| way.state.chance).collect();
    let sum: f64 = chances.iter().sum();
    if (sum - 1.0).abs() > 1e-9 {
        return Some(format!("chances sum to {sum}"));
    }
    let ways = f64::from(u32::try_from(chances.len()).expect("few ways"));
    // The sixteen throws of ours leave less than 2^-16 of all packets to slot 0.
    let off = chances.iter().map(|chance| (chance - 1.0 / ways).abs());
    (off.fold(0.0, f64::max) > 2.0_f64.powi(-16)).then(|| "choices are not fair".to_owned())
}

#[test]
fn every_table_is_printed_and_read_back_as_itself() {
    for layout in LAYOUTS {
        for (case, family) in cases() {
            let desired = case.desired.get(family);
            let cidrs = native::service_cidrs(&case.snapshot);
            let (table, file) = native::table(layout, desired, &cidrs, case.settings.masquerade_all);
            let printed = table.to_string();
            let read = parse::ruleset(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
            assert_eq!(read.to_string(), printed);
            let of_file = parse::ruleset(&file).unwrap_or_else(|error| panic!("{error}\n{file}"));
            // A file has some numbers in other forms than a list; what the kernel makes of it is for the live test.
            let of_file = of_file.to_string();
            assert_eq!(of_file.lines().count(), printed.lines().count());
        }
    }
}
