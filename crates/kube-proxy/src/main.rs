//! (crate header)

mod trace;

fn main() {}
