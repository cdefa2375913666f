//! What the tests of the engine share.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

pub mod check;
pub mod cluster;
pub mod lost;
pub mod making;
pub mod meant;
pub mod own_table;
pub mod own_table_properties;
pub mod plain;
pub mod properties;
pub mod rewriting;
pub mod rig;
pub mod rng;
pub mod strangers;
