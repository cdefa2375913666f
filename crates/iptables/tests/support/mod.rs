//! What several tests need.

#![allow(dead_code, reason = "each test takes what it needs")]

pub mod namespace;
pub mod nfacct;

use model::Family;
use std::path::PathBuf;

/// The golden dumps, each with its path and family.
pub fn golden_dumps() -> Vec<(PathBuf, Family, String)> {
    let root = scenario::root().join("golden");
    let dumps = scenario::golden_cases().into_iter().flat_map(|case| {
        let folder = root.join(&case.name);
        [
            (folder.join("iptables.txt"), Family::V4, case.saved.v4),
            (folder.join("ip6tables.txt"), Family::V6, case.saved.v6),
        ]
    });
    dumps.collect()
}
