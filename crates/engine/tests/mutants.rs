//! Each seeded fault makes the property fail that is there for it. A fault that goes unseen is a hole in a property.

mod support;

use engine::fault::{Fault, Seeded};
use support::own_table_properties;
use support::properties::{self, Property};

/// How many seeds a property is asked with before it is taken to be blind to a fault.
const SEEDS: u64 = 60;

const FOUND_BY: [(Fault, &str); 31] = [
    (Fault::StaleChainsKept, "incremental_equals_from_scratch"),
    (Fault::OneFamilyForgotten, "incremental_equals_from_scratch"),
    (Fault::LocalListForgotten, "incremental_equals_from_scratch"),
    (Fault::RememberedBeforeCommitted, "failures_are_overcome"),
    (Fault::ChangeDuringCommitLost, "incremental_equals_from_scratch"),
    (Fault::DispatchNotDeleted, "incremental_equals_from_scratch"),
    (
        Fault::ThresholdRewritesAll,
        "a_change_writes_only_its_own_service",
    ),
    (Fault::FailedStepForgotten, "failures_are_overcome"),
    (Fault::FailedStepTrusted, "failures_are_overcome"),
    (Fault::NothingAdopted, "a_restart_adopts_what_is_there"),
    (Fault::TailForgotten, "incremental_equals_from_scratch"),
    (Fault::DeletedBeforeReplaced, "incremental_equals_from_scratch"),
    (Fault::ClaimHeirForgotten, "incremental_equals_from_scratch"),
    (
        Fault::NeverLooks,
        "a_flushed_table_is_repaired_within_the_sync_period",
    ),
    (Fault::NeverSweeps, "a_restart_adopts_what_is_there"),
    (Fault::RefusedBlocksAll, "a_refused_service_holds_up_no_other"),
    (
        Fault::DispatchAlwaysRewritten,
        "a_change_writes_only_its_own_service",
    ),
    (Fault::NftFailedStepForgotten, "nft_failures_are_overcome"),
    (Fault::NftFailedStepTrusted, "nft_failures_are_overcome"),
    (Fault::NftNoAnswerTrusted, "nft_lost_answers_are_overcome"),
    (
        Fault::NftNothingAdopted,
        "nft_a_restart_with_the_same_state_writes_nothing",
    ),
    (
        Fault::NftNeverSweeps,
        "nft_a_restart_in_the_middle_of_changes_ends_as_from_scratch",
    ),
    (Fault::NftRetiredAtOnce, "nft_incremental_equals_from_scratch"),
    (
        Fault::NftRetirementForgotten,
        "nft_incremental_equals_from_scratch",
    ),
    (Fault::NftCrossedTogether, "nft_incremental_equals_from_scratch"),
    (Fault::NftShapesForgotten, "nft_incremental_equals_from_scratch"),
    (Fault::NftNodeForgotten, "nft_incremental_equals_from_scratch"),
    (
        Fault::NftToldForgotten,
        "nft_what_strangers_do_is_put_right_within_a_second",
    ),
    (
        Fault::NftFrameForgotten,
        "nft_what_strangers_do_is_put_right_within_a_second",
    ),
    (
        Fault::NftTakenOverEmpty,
        "nft_anothers_table_serves_until_ours_does",
    ),
    (
        Fault::NftPutBackForgotten,
        "nft_what_strangers_do_is_put_right_within_a_second",
    ),
];

/// What a property said of a fault.
#[derive(Debug)]
enum Verdict {
    /// It failed, as it should: with this seed, saying this.
    Noticed(u64, String),
    /// It held for all seeds, and so it is blind.
    NotNoticed,
    /// With this seed it fails without the fault as well, saying this: that shows nothing.
    FailsAnyway(u64, String),
}

/// Asks a property with one seed after the other.
fn verdict(fault: Fault, property: &str) -> Verdict {
    let property = properties::ALL
        .iter()
        .chain(&own_table_properties::ALL)
        .find(|known| known.name == property)
        .expect("a property of this name");
    for seed in 0..SEEDS {
        let Some(text) = fails(property, seed, Seeded::with(fault)) else {
            continue;
        };
        return match fails(property, seed, Seeded::default()) {
            None => Verdict::Noticed(seed, text),
            Some(text) => Verdict::FailsAnyway(seed, text),
        };
    }
    Verdict::NotNoticed
}

/// How a property fails, if it does. A panic counts.
fn fails(property: &Property, seed: u64, seeded: Seeded) -> Option<String> {
    let checked = std::panic::catch_unwind(|| (property.check)(seed, seeded));
    match checked {
        Ok(Ok(_)) => None,
        Ok(Err(text)) => Some(text),
        Err(_) => Some("panic".to_owned()),
    }
}

/// Prints a line for each fault as soon as it is judged; gives those that nobody noticed.
fn unnoticed(faults: &[(Fault, &'static str)]) -> Vec<Fault> {
    let mut unnoticed = Vec::new();
    let width = faults
        .iter()
        .map(|(fault, _)| format!("{fault:?}").len())
        .max()
        .unwrap_or(0);
    for (at, (fault, property)) in faults.iter().enumerate() {
        let number = format!("[{:>2}/{}]", at + 1, faults.len());
        let name = format!("{fault:?}");
        match verdict(*fault, property) {
            Verdict::Noticed(seed, text) => {
                let first = text.lines().next().unwrap_or_default();
                println!("{number} noticed      {name:width$}  by {property}, seed {seed}: {first:.100}");
            }
            Verdict::NotNoticed => {
                println!("{number} NOT NOTICED  {name:width$}  by {property}, {SEEDS} seeds");
                unnoticed.push(*fault);
            }
            Verdict::FailsAnyway(seed, text) => {
                let first = text.lines().next().unwrap_or_default();
                println!(
                    "{number} NOT NOTICED  {name:width$}  by {property}, which fails at seed {seed} in any case: {first:.100}"
                );
                unnoticed.push(*fault);
            }
        }
    }
    println!(
        "{} of {} seeded faults noticed",
        faults.len() - unnoticed.len(),
        faults.len()
    );
    unnoticed
}

#[test]
fn every_seeded_fault_is_found() {
    let missed = unnoticed(&FOUND_BY);
    assert!(missed.is_empty(), "faults that no property noticed: {missed:?}");
}

/// Seeded into the search itself: a property that looks elsewhere does not see the fault, and that shows.
#[test]
fn a_fault_that_its_property_cannot_see_is_named() {
    let blind = [(Fault::NeverLooks, "a_change_writes_only_its_own_service")];
    assert_eq!(unnoticed(&blind), [Fault::NeverLooks]);
}

#[test]
fn every_fault_has_a_property() {
    let named: Vec<Fault> = FOUND_BY.iter().map(|(fault, _)| *fault).collect();
    assert_eq!(named, Fault::ALL);
}
