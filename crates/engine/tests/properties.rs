//! The engine on a kernel in memory: 1,000 random sequences of changes, and what has to hold for each.

mod support;

use engine::fault::Seeded;
use support::cluster::Coverage;
use support::properties::ALL;

/// How many sequences all properties together run.
const SEQUENCES: u64 = 1000;

/// How often each of these has to have been generated.
const WANTED: usize = 20;

/// What has to be generated often enough for the properties to mean something.
const COVERED: [&str; 24] = [
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

fn run(at: usize) -> Coverage {
    let property = &ALL[at];
    let each = SEQUENCES / u64::try_from(ALL.len()).unwrap();
    let mut coverage = Coverage::new();
    let only: Option<u64> = std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"));
    for n in 0..each {
        let seed = n * 100 + u64::try_from(at).unwrap();
        if only.is_some_and(|only| only != seed) {
            continue;
        }
        match (property.check)(seed, Seeded::default()) {
            Ok(covered) => {
                for (what, count) in covered {
                    *coverage.entry(what).or_default() += count;
                }
            }
            Err(text) => panic!("{} with seed {seed}: {text}", property.name),
        }
    }
    coverage
}

macro_rules! properties {
    ($($at:literal $name:ident)*) => {
        $(#[test]
        fn $name() {
            assert_eq!(ALL[$at].name, stringify!($name));
            run($at);
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
