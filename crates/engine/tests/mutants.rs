//! Each seeded fault makes the property fail that is there for it. A fault that goes unseen is a hole in a property.

mod support;

use engine::fault::{Fault, Seeded};
use support::properties::ALL;

/// How many seeds a property is asked with before it is taken to be blind to a fault.
const SEEDS: u64 = 60;

const FOUND_BY: [(Fault, &str); 17] = [
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
];

/// What a property said of a fault.
#[derive(Debug)]
enum Verdict {
    /// It failed, as it should: with this seed, saying this.
    Noticed(u64, String),
    /// It held for all seeds, and so it is blind.
    NotNoticed,
}

/// Asks a property with one seed after the other. A panic counts as failing.
fn verdict(fault: Fault, property: &str) -> Verdict {
    let property = ALL
        .iter()
        .find(|known| known.name == property)
        .expect("a property of this name");
    let failing = (0..SEEDS).find_map(|seed| {
        let checked = std::panic::catch_unwind(|| (property.check)(seed, Seeded::with(fault)));
        match checked {
            Ok(Ok(_)) => None,
            Ok(Err(text)) => Some((seed, text)),
            Err(_) => Some((seed, "panic".to_owned())),
        }
    });
    failing.map_or(Verdict::NotNoticed, |(seed, text)| Verdict::Noticed(seed, text))
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
