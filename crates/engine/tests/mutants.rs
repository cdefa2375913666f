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

/// What the property says of the fault, with the first seed that shows it; `None` when none does. A panic counts.
fn symptom(fault: Fault, property: &str) -> Option<(u64, String)> {
    let property = ALL
        .iter()
        .find(|known| known.name == property)
        .expect("a property of this name");
    (0..SEEDS).find_map(|seed| {
        let verdict = std::panic::catch_unwind(|| (property.check)(seed, Seeded::with(fault)));
        match verdict {
            Ok(Ok(_)) => None,
            Ok(Err(text)) => Some((seed, text)),
            Err(_) => Some((seed, "panic".to_owned())),
        }
    })
}

#[test]
fn every_seeded_fault_is_found() {
    let mut missed = Vec::new();
    for (fault, property) in FOUND_BY {
        match symptom(fault, property) {
            Some((seed, text)) => {
                let first = text.lines().next().unwrap_or_default();
                println!("{fault:?}: {property}, seed {seed}: {first:.160}");
            }
            None => missed.push((fault, property)),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn every_fault_has_a_property() {
    let named: Vec<Fault> = FOUND_BY.iter().map(|(fault, _)| *fault).collect();
    assert_eq!(named, Fault::ALL);
}
