//! The engine on a kernel in memory: 1,000 random sequences of changes, and what has to hold for each.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use engine::fault::Seeded;
use std::sync::OnceLock;
use support::cluster::Coverage;
use support::properties::ALL;

/// How many sequences all properties together run.
const SEQUENCES: u64 = 1000;

/// How often each of these has to have been generated.
const WANTED: usize = 20;

/// What has to be generated often enough for the properties to mean something.
const COVERED: [&str; 25] = [
    "balancing flipped",
    "internal Local",
    "internal Cluster",
    "external Local",
    "external Cluster",
    "endpoint ready",
    "endpoint unready",
    "endpoint serving while terminating",
    "endpoint terminating",
    "endpoint goes unready",
    "endpoint removed",
    "duplicate claim",
    "threshold crossed",
    "family flip",
    "internal policy flipped",
    "external policy flipped",
    "affinity flipped",
    "port changed",
    "addresses changed",
    "service deleted",
    "service recreated",
    "slice deleted",
    "zone changed",
    "interfaces changed",
    "listed again",
];

/// What each property said, found out once, whichever test asks first.
static VERDICTS: [OnceLock<Result<Coverage, String>>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];

fn verdict(at: usize) -> &'static Result<Coverage, String> {
    VERDICTS[at].get_or_init(|| run(at))
}

fn run(at: usize) -> Result<Coverage, String> {
    let property = &ALL[at];
    let each = SEQUENCES / u64::try_from(ALL.len()).unwrap();
    let only: Option<u64> = std::env::var("SEED")
        .ok()
        .map(|seed| seed.parse().expect("SEED is a number"));
    let mut coverage = Coverage::new();
    for n in 0..each {
        let seed = n * 100 + u64::try_from(at).unwrap();
        if only.is_some_and(|only| only != seed) {
            continue;
        }
        let covered = (property.check)(seed, Seeded::default())
            .map_err(|text| format!("{} with SEED={seed}: {text}", property.name))?;
        for (what, count) in covered {
            *coverage.entry(what).or_default() += count;
        }
    }
    Ok(coverage)
}

macro_rules! properties {
    ($($at:literal $name:ident)*) => {
        $(#[test]
        fn $name() {
            assert_eq!(ALL[$at].name, stringify!($name));
            if let Err(text) = verdict($at) {
                panic!("{text}");
            }
        })*
    };
}

properties! {
    0 incremental_equals_from_scratch
    1 a_settled_state_needs_nothing
    2 a_restart_adopts_what_is_there
    3 failures_are_overcome
    4 a_broken_family_harms_itself_only
    5 a_strangers_rules_survive
    6 a_flushed_table_is_repaired_within_the_sync_period
    7 the_way_to_a_state_does_not_matter
    8 a_change_writes_only_its_own_service
    9 a_refused_service_holds_up_no_other
}

#[test]
fn the_sequences_cover_what_matters() {
    if std::env::var("SEED").is_ok() {
        return;
    }
    let mut total = Coverage::new();
    for coverage in (0..ALL.len()).filter_map(|at| verdict(at).as_ref().ok()) {
        for (what, count) in coverage {
            *total.entry(what).or_default() += count;
        }
    }
    println!("in {SEQUENCES} sequences: {total:#?}");
    let rare: Vec<&str> = COVERED
        .into_iter()
        .filter(|what| total.get(what).is_none_or(|count| *count < WANTED))
        .collect();
    assert!(rare.is_empty(), "generated fewer than {WANTED} times: {rare:?}");
}
