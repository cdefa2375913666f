//! What a rule asks of a packet is so, is not, or nobody can say.

use crate::Condition;
use std::ops::Not;

/// Whether one thing that a rule asks is true of a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Truth {
    /// It is, or is not.
    Known(bool),
    /// It hangs on this, and is true when the condition is (`true`) or is not (`false`).
    Hangs(Condition, bool),
    /// It is with this probability.
    Random(f64),
}

impl Not for Truth {
    type Output = Truth;

    fn not(self) -> Truth {
        match self {
            Truth::Known(known) => Truth::Known(!known),
            Truth::Hangs(condition, when) => Truth::Hangs(condition, !when),
            Truth::Random(probability) => Truth::Random(1.0 - probability),
        }
    }
}
