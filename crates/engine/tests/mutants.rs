//! Each seeded fault makes a property fail. A fault that none finds is a hole in the properties.

mod support;

use engine::fault::{Fault, Seeded};
use support::properties::ALL;

/// How many seeds a property is asked with before it is taken to be blind to a fault.
const SEEDS: u64 = 60;

/// The property that finds the fault, with the seed. A property that panics has found it as well.
fn found_by(fault: Fault) -> Option<(&'static str, u64)> {
    for seed in 0..SEEDS {
        for property in &ALL {
            let check = || (property.check)(seed, Seeded::with(fault));
            let verdict = std::panic::catch_unwind(check);
            if !matches!(verdict, Ok(Ok(_))) {
                return Some((property.name, seed));
            }
        }
    }
    None
}

#[test]
fn every_seeded_fault_is_found() {
    let mut missed = Vec::new();
    for fault in Fault::ALL {
        match found_by(fault) {
            Some((property, seed)) => println!("{fault:?}: {property} (seed {seed})"),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "no property finds {missed:?}");
}
