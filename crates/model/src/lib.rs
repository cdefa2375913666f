//! (crate header)
