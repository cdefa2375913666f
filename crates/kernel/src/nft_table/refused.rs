//! What of a batch the kernel did not want.

use crate::socket::SocketError;
use model::Family;
use netlink::EncodeError;
use netlink::KernelError;
use netlink::nfnl::BatchBytes;
use netlink::nft::{self, Message};
use nftables::ast::{ElementKey, Name};
use nftables::{names, wire};
use std::fmt;

/// A step was not carried out, or nobody knows.
#[derive(Debug, thiserror::Error)]
#[error("{}", Words(self.refused.as_ref()))]
pub struct NftCommitError {
    /// What the kernel named of it.
    pub refused: Option<Refused>,
    /// What went wrong.
    #[source]
    pub error: SocketError,
}

impl From<EncodeError> for NftCommitError {
    fn from(error: EncodeError) -> Self {
        NftCommitError {
            refused: None,
            error: error.into(),
        }
    }
}

/// A part of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// An element.
    Element(ElementKey),
    /// Elements of a set, one of which it is: not every kernel says which.
    ElementsOf(Name),
    /// A table, chain or set.
    Object(String),
}

struct Words<'a>(Option<&'a Refused>);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("the step was not carried out"),
            Some(Refused::Element(key)) => write!(f, "{key} was refused"),
            Some(Refused::ElementsOf(set)) => write!(f, "an element of {set} was refused"),
            Some(Refused::Object(what)) => write!(f, "{what} was refused"),
        }
    }
}

/// What a refusal names of a batch.
pub(super) fn of(family: Family, batch: &BatchBytes, error: &SocketError) -> Option<Refused> {
    let SocketError::Refused(refusal) = error else {
        return None;
    };
    let message = batch.message(refusal.sequence)?;
    if let Some(element) = element(family, message, refusal) {
        return Some(Refused::Element(element));
    }
    Some(match Message::read(message).ok()? {
        Message::NewElements(elements) | Message::DeletedElements(elements) => {
            Refused::ElementsOf(Name::new(elements.set))
        }
        Message::NewTable(table) | Message::DeletedTable(table) => {
            Refused::Object(format!("table {}", table.name))
        }
        Message::NewSet(set) | Message::DeletedSet(set) => Refused::Object(format!("set {}", set.name)),
        Message::NewChain(chain) | Message::DeletedChain(chain) => {
            Refused::Object(format!("chain {}", chain.name))
        }
        _ => return None,
    })
}

fn element(
    family: Family,
    message: netlink::message::Message<'_>,
    refusal: &KernelError,
) -> Option<ElementKey> {
    let (set, element) = nft::element_at(message, refusal.offset?).ok()??;
    let form = names::form_of(set)?;
    let key = wire::read_key(form.key, family, element.key, element.key_end)?;
    Some(ElementKey {
        set: Name::new(set),
        key: key.into(),
    })
}
