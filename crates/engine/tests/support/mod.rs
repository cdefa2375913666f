//! What the tests of the engine share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod check;
pub mod cluster;
pub mod properties;
pub mod rig;
pub mod rng;
