//! The iptables backend: what upstream kube-proxy writes into the kernel, as values.
//!
//! * What it is: six rooms, read in this order: [`ast`] the types, [`names`] the chain names, [`build`] desired to
//!   rules, [`render`] to text, [`parse`] from text, [`diff`] want and have to a [`plan`], [`trace`] one chain and a packet.
//! * In and out: [`model::desired`] values in, restore text and plans out.
//! * What it deliberately does not know: processes, files, the kernel, other backends.
//! * Where to start reading: [`ast`], then [`build`].

pub mod ast;
pub mod build;
pub mod compare;
pub mod counted;
pub mod diff;
mod family;
pub mod live_trace;
pub mod names;
pub mod parse;
pub mod plan;
pub mod render;
pub mod trace;
