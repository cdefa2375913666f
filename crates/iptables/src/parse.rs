//! From text: what `iptables-save` prints (with or without counters), and the input of `iptables-restore`.
//!
//! Parsing is total. What a rule says beyond our types is kept word by word in the rule ([`crate::ast::Match::Other`],
//! [`crate::ast::Target::Other`]); a line that is no rule and no chain is kept as [`Opaque`]. Comment lines, counters
//! and the order of chains are let go.

mod pieces;
mod rule;
mod save;
mod value;
mod words;

pub use rule::rule;
pub use save::{CountedLine, Opaque, Piece, Save, SaveParser, counted_line, left_out, save};
