//! To text: rules as `iptables-save` 1.8.9 prints them, whole tables, and the input of `iptables-restore`.
//!
//! Everything is written into a [`fmt::Write`] piece by piece, or comes as a value with [`fmt::Display`], so that a
//! large table is never held as text.

mod part;
mod plan;
mod rule;
mod save;
mod step;

pub use part::{NodeRulesText, ServiceRulesText};
pub use plan::PlanText;
pub use rule::RuleText;
pub(crate) use rule::takes_text;
pub use save::{RestoreText, SaveText};
pub use step::{RetireText, StepText, Tool};

use std::fmt;

/// What writing gives: the writer's own failure, if any.
type Written = fmt::Result;
