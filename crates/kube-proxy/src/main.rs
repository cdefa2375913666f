//! (crate header)

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the commands that use it come with the command line")
)]
mod trace;

fn main() {}
