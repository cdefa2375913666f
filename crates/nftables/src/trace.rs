//! Evaluates one base chain of one table for one packet, as the kernel does.
//!
//! [`walk`] follows a packet through rules, jumps and gotos to a verdict. What cannot be decided from the table and the
//! [`Site`](traced::Site) is never guessed: the walk forks, each branch recording the condition it stands on. Random
//! numbers are forks too, with exact chances. Branches that differ by chance alone and have come to the same place as the
//! same packet are one branch from there on: a die that is thrown again and again has as many ways as it has ends.

mod act;
mod ask;
mod datum;
mod goes;
mod indexed;
mod join;
mod lookup;
mod nat;
mod walk;

#[cfg(test)]
mod tests;

pub use indexed::Indexed;
pub use walk::walk;
