//! The loop of nftables mode over random sequences of changes, on tables in memory.

mod support;

use engine::fault::Seeded;
use support::own_table_properties::ALL;

const SEEDS: u64 = 200;

fn holds(name: &str) {
    let property = ALL.iter().find(|property| property.name == name);
    let property = property.expect("a property of this name");
    let failures: Vec<String> = (0..SEEDS)
        .filter_map(|seed| {
            let checked = (property.check)(seed, Seeded::default());
            checked.err().map(|error| format!("seed {seed}: {error}"))
        })
        .take(3)
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

macro_rules! properties {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            holds(stringify!($name));
        })*

        #[test]
        fn every_property_is_asked() {
            let asked = [$(stringify!($name)),*];
            assert_eq!(ALL.map(|property| property.name), asked);
        }
    };
}

properties! {
    nft_incremental_equals_from_scratch
    nft_a_restart_with_the_same_state_writes_nothing
    nft_a_restart_in_the_middle_of_changes_ends_as_from_scratch
    nft_failures_are_overcome
    nft_lost_answers_are_overcome
    nft_silent_damage_is_found_by_the_full_sync
    nft_what_strangers_do_is_put_right_within_a_second
    nft_anothers_table_serves_until_ours_does
}
