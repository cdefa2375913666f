//! Verdicts and base chain policies.

use super::uapi::verdict as at;
use crate::attr::{Attrs, Fields};
use crate::codes::codes;
use crate::error::DecodeError;
use crate::write::MessageWriter;

/// What a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict<'a> {
    /// The packet goes on to the next base chain of the hook.
    Accept,
    /// The packet is dropped.
    Drop,
    /// Go on with the next rule.
    Continue,
    /// Leave this rule and go on with the next.
    Break,
    /// Go to a chain and come back after it.
    Jump(&'a str),
    /// Go to a chain and not come back to this one.
    Goto(&'a str),
    /// Back to the calling chain; in a base chain, its policy.
    Return,
    /// Any other code, such as a queue.
    Other(i32),
}

const DROP: i32 = 0;
const ACCEPT: i32 = 1;
const CONTINUE: i32 = -1;
const BREAK: i32 = -2;
const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;

impl<'a> Verdict<'a> {
    /// The chain that is jumped to or gone to.
    pub const fn target(&self) -> Option<&'a str> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            _ => None,
        }
    }

    const fn code(self) -> i32 {
        match self {
            Self::Accept => ACCEPT,
            Self::Drop => DROP,
            Self::Continue => CONTINUE,
            Self::Break => BREAK,
            Self::Jump(_) => JUMP,
            Self::Goto(_) => GOTO,
            Self::Return => RETURN,
            Self::Other(code) => code,
        }
    }

    /// Reads the attributes of a verdict.
    pub(super) fn read(attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        let fields = Fields::<{ at::COUNT }>::read(attrs)?;
        let code = fields.need(at::CODE, fields.i32(at::CODE)?)?;
        let chain = || fields.need(at::CHAIN, fields.text(at::CHAIN)?);
        Ok(match code {
            ACCEPT => Self::Accept,
            DROP => Self::Drop,
            CONTINUE => Self::Continue,
            BREAK => Self::Break,
            JUMP => Self::Jump(chain()?),
            GOTO => Self::Goto(chain()?),
            RETURN => Self::Return,
            other => Self::Other(other),
        })
    }

    /// As `read`, but an error if there is more than is known.
    pub(super) fn read_exact(attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        let fields = Fields::<{ at::COUNT }>::exact(attrs.clone())?;
        let verdict = Self::read(attrs)?;
        if fields.has(at::CHAIN) && verdict.target().is_none() {
            return Err(fields.unknown(at::CHAIN, 0_u8));
        }
        Ok(verdict)
    }

    /// Writes the attributes of a verdict into the current nest.
    pub(super) fn write(self, writer: &mut MessageWriter<'_>) {
        writer.bytes(at::CODE, &self.code().to_be_bytes());
        if let Some(chain) = self.target() {
            writer.text(at::CHAIN, chain);
        }
    }
}

codes! {
    /// What a base chain does with a packet that no rule decided on.
    pub enum Policy: u32 {
        /// Drop it.
        Drop = 0,
        /// Accept it.
        Accept = 1,
    }
}
