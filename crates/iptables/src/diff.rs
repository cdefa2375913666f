//! Want and have to steps: adopts what is there, writes the difference, and nothing else.
//!
//! * [`compact`]: small forms of chains and rules. What is remembered of the kernel is made of them.
//! * [`observe`]: readings of the kernel, taken in chain by chain.
//! * [`have`]: what the kernel is believed to hold. It changes only by a reading, or when the kernel said yes to a step.
//! * [`harm`]: what a reading shows to be other than it was left, named and taken in.
//! * [`service`], [`node`], [`sweep`]: the difference of one service, of the node's part, and of what nobody wants,
//!   each added to a [`batch::Batch`], which is a [`crate::plan::Step`] and what is to be remembered once it is done.
//!
//! Order within a step, so that no packet ever finds a moment without rules (the property `incremental_equals_from_scratch` of the engine asks after every write):
//! 1. filter is written before nat, so that an address is refused before it stops being translated;
//! 2. nat is written in one transaction: chains first, then new dispatch rules at the head of their chains, where
//!    they win over the rules they replace;
//! 3. rules nobody wants are deleted from the dispatch chains, those of nat first;
//! 4. chains that nothing leads to any more are deleted.

pub mod batch;
pub mod compact;
pub mod count;
pub mod harm;
pub mod have;
pub mod node;
pub mod observe;
pub mod service;
pub mod sweep;

#[cfg(test)]
mod tests;
