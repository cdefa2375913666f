//! `nf_tables`: what iptables-nft writes into, what `nft` lists, what traces.

mod expr;
mod expr_read;
mod expr_write;
mod names;
mod objects;
mod request;
mod set;
mod trace;
mod uapi;
mod verdict;

pub use expr::{Expr, Register, Value};
pub use names::{
    BitwiseOp, CmpOp, CtDirection, CtKey, DynsetOp, FibResult, LimitType, MetaKey, NatType, NumgenType,
    PayloadBase, RangeOp, RejectType,
};
pub use objects::{Base, Chain, Counters, Generation, Hook, Rule, TABLE_DORMANT, TABLE_OWNER, Table};
pub use request::{Change, NAME_LIMIT, NewBase, Place, Request};
pub use set::{
    ELEMENTS_LIMIT, Element, ElementData, Elements, Set, SetChange, SetData, SetRequest, data_type,
    element_at, set_flags,
};
pub use trace::{TraceConnection, TraceEvent, TraceKind, TraceStep};
pub use verdict::{Policy, Verdict};

use crate::error::DecodeError;
use crate::message;
use crate::nfnl::{Body, Family, Subsystem};
use uapi::msg;

/// A message of `nf_tables`: an answer or a notification. Dumps answer with the `New...` ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// A table there is, or that was made or changed.
    NewTable(Table<'a>),
    /// A table that was deleted.
    DeletedTable(Table<'a>),
    /// A chain there is, or that was made or changed.
    NewChain(Chain<'a>),
    /// A chain that was deleted.
    DeletedChain(Chain<'a>),
    /// A rule there is, or that was made.
    NewRule(Rule<'a>),
    /// A rule that was deleted.
    DeletedRule(Rule<'a>),
    /// A set there is, or that was made or changed.
    NewSet(Set<'a>),
    /// A set that was deleted.
    DeletedSet(Set<'a>),
    /// Elements there are, or that were put in.
    NewElements(Elements<'a>),
    /// Elements that were taken out, or whose time was over.
    DeletedElements(Elements<'a>),
    /// The generation; as a notification it ends those of one commit.
    Generation(Generation<'a>),
    /// A step of a traced packet.
    Trace(TraceEvent<'a>),
    /// Anything else (objects, flow tables).
    Other {
        /// Operation number (`NFT_MSG_*`).
        operation: u8,
        /// Family.
        family: Family,
        /// Attributes.
        raw: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Reads a message of the `nf_tables` subsystem.
    ///
    /// # Errors
    /// If the message is of another subsystem, or malformed. Strange expressions are not errors.
    pub fn read(message: message::Message<'a>) -> Result<Self, DecodeError> {
        let body = Body::read(message, Subsystem::Nftables)?;
        let family = body.family;
        Ok(match body.operation {
            msg::NEWTABLE => Self::NewTable(Table::read(family, body.attrs("table"))?),
            msg::DELTABLE => Self::DeletedTable(Table::read(family, body.attrs("table"))?),
            msg::NEWCHAIN => Self::NewChain(Chain::read(family, body.attrs("chain"))?),
            msg::DELCHAIN => Self::DeletedChain(Chain::read(family, body.attrs("chain"))?),
            msg::NEWRULE => Self::NewRule(Rule::read(family, body.attrs("rule"))?),
            msg::DELRULE => Self::DeletedRule(Rule::read(family, body.attrs("rule"))?),
            msg::NEWSET => Self::NewSet(Set::read(family, body.attrs("set"))?),
            msg::DELSET => Self::DeletedSet(Set::read(family, body.attrs("set"))?),
            msg::NEWSETELEM => Self::NewElements(Elements::read(family, body.attrs("elements"))?),
            msg::DELSETELEM => Self::DeletedElements(Elements::read(family, body.attrs("elements"))?),
            msg::NEWGEN => Self::Generation(Generation::read(body.attrs("generation"))?),
            msg::TRACE => Self::Trace(TraceEvent::read(family, body.attrs("trace"))?),
            operation => Self::Other {
                operation,
                family,
                raw: body.attributes,
            },
        })
    }
}

/// The lower half of the generation that a dump's messages were made in. Equal numbers over a dump, and no
/// interruption, mean that nothing was committed meanwhile.
///
/// # Errors
/// If the message is of another subsystem, or too short.
pub fn dump_generation(message: message::Message<'_>) -> Result<u16, DecodeError> {
    Ok(Body::read(message, Subsystem::Nftables)?.resource)
}
