//! Rules of `nf_tables`, as values.
//!
//! * What it is: what traffic should do ([`model::desired`]) as tables, sets, maps and rules of our own layout (ADR 50).
//! * In and out: [`build`] makes the frame of one family and the elements of one service; [`diff`] says what to write and
//!   what to take away later; [`render`] prints a file for `nft -f`.
//!   [`parse`] reads what `nft` lists, of whatever program; [`trace`] follows a packet through one base chain of it.
//! * What it deliberately does not know: netlink, the kernel, objects of the API, time.
//! * Where to start reading: the layout in [`names`], then [`build`].

pub mod ast;
pub mod build;
pub mod diff;
pub mod held;
mod leaving;
pub mod listed;
pub mod names;
pub mod parse;
pub mod parts;
pub mod pool;
pub mod render;
pub mod slots;
pub mod step;
pub mod trace;
pub mod wire;
