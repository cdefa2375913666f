//! Rows of truth tables by real packets.
//!
//! A situation becomes one or more [`rounds::Round`]s (rows that one lab can hold), each a [`site::Site`] with its
//! places and servers; [`judge`] sends the packets and says what differs from the table.

pub mod judge;
pub mod rounds;
pub mod site;

use scenario::{TruthTable, truth_tables};

/// Names, with commas between them, of the only tables to try: where packets are slow, all of them take an hour.
const ONLY: &str = "KPRS_TRUTH_TABLES";

/// The tables to try, with their places in the list of all.
///
/// # Panics
/// When one is asked for that does not exist.
pub fn tables() -> Vec<(usize, TruthTable)> {
    let all = truth_tables();
    let only = std::env::var(ONLY).unwrap_or_default();
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    for name in &only {
        assert!(
            all.iter().any(|table| table.name == *name),
            "{ONLY}: no table {name}"
        );
    }
    let is_asked = |table: &TruthTable| only.is_empty() || only.contains(&table.name.as_str());
    all.into_iter()
        .enumerate()
        .filter(|(_, table)| is_asked(table))
        .collect()
}
