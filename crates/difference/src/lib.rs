//! What differs, in words of Services.
//!
//! * What it is: [`drift`] holds a host's rules against what the objects ask for, by asking the engine what it would repair;
//!   [`traffic`] says what becomes otherwise of traffic between two clusters, two nodes or two hosts' rules; [`text`] compares rules line by line; [`screen`] prints all of it.
//! * In and out: what was found and what is wanted go in; differences and changes as values come out.
//! * What it deliberately does not know: files, the kernel, how the daemon is wired.
//! * Where to start reading: [`drift`], then `drift/rules.rs`.

pub mod drift;
pub mod lines;
pub mod screen;
pub mod text;
pub mod traffic;
