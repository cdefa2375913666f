//! What becomes otherwise of traffic between two states: of a cluster, as the objects ask for it, or of a host, as its rules
//! do it.
//!
//! Both are told in one form, [`Behaviour`]: what becomes of packets to each frontend from each kind of source. Of objects
//! [`of_desired`] reads it off; of rules [`of_host`] asks the tracer. [`changes`] puts the difference into sentences.

mod compared;
mod fates;
mod traced;

pub use compared::changes;
pub use fates::{Behaviour, Fate, FrontendBehaviour, PortBehaviour, Refusing, Sender, of_desired};
pub use traced::{NotServedHere, of_host};
pub(crate) use traced::{Where, pods};

use model::Family;

/// What becomes otherwise in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The family.
    pub family: Family,
    /// By owner: the node's part first, then service ports by name.
    pub changes: Vec<Change>,
    /// What a person should know and is no change.
    pub remarks: Vec<String>,
}

/// What becomes otherwise for one service port, or for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `namespace/name:port`, or `all Services`.
    pub owner: String,
    /// Sentences.
    pub sentences: Vec<String>,
    /// What becomes otherwise, one frontend and sender each.
    pub details: Vec<Detail>,
}

/// What becomes otherwise of the packets of one kind of sender to one frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The frontend: `cluster IP 10.96.0.10:53/UDP`.
    pub frontend: String,
    /// Who sends.
    pub sender: Sender,
    /// What became of them; `None` where there was no such frontend.
    pub before: Option<Fate>,
    /// What becomes of them; `None` where there is no such frontend any more.
    pub after: Option<Fate>,
}
