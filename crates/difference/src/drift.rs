//! A host's rules against what the objects ask for.
//!
//! Nothing is compared here that the daemon would not compare: [`engine::rehearsal`] says which steps would repair what was
//! found, and the steps are told as differences, each under the service port or the part that it belongs to (ADR 58).

mod own_table;
mod owners;
mod recovered;
mod remarks;
mod rules;

pub use own_table::{Layout, own_table};
pub use recovered::{Recovered, recovered, spared};
pub use remarks::remarks;
pub use rules::{capabilities, rules};

use model::Family;
use std::cmp::Ordering;

/// How one family's rules differ from what is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The family.
    pub family: Family,
    /// What the daemon would repair: the node's part first, then by service port, then what is nobody's.
    pub differences: Vec<Difference>,
    /// What a person should know and is no difference.
    pub remarks: Vec<String>,
}

/// One object of the kernel that is not as it should be, as far as one owner is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Whose it is.
    pub owner: Owner,
    /// The table: `nat`, `ip kube-proxy`.
    pub table: String,
    /// What kind of object.
    pub kind: Kind,
    /// Its name; a table's own is empty.
    pub name: String,
    /// How it differs.
    pub what: What,
    /// What it is for, in words: `endpoint 10.244.1.5:8080`. May be empty.
    pub about: String,
    /// Its rules or elements that are missing or should not be there.
    pub lines: Vec<Line>,
}

/// Whose an object, a rule or an element is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The part that serves all Services.
    Node,
    /// A service port, as `namespace/name:port`.
    Port(String),
    /// Nobody whom we know.
    Nobody,
}

/// Kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A whole table.
    Table,
    /// A chain.
    Chain,
    /// A set or a map.
    Set,
}

impl Kind {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::Chain => "chain",
            Kind::Set => "set",
        }
    }
}

/// How an object differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// It should be there and is not.
    Missing,
    /// It is there and should not be.
    Extra,
    /// It is there, and what is in it differs.
    Changed,
}

impl What {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            What::Missing => "missing",
            What::Extra => "extra",
            What::Changed => "changed",
        }
    }
}

/// One rule or element of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How it differs.
    pub sign: Sign,
    /// Its number in the chain, from 1: of the host's chain for what is there, of the wanted one for what is missing.
    pub number: Option<usize>,
    /// Its words as the tools print them, without the comment.
    pub text: String,
    /// Its comment.
    pub comment: Option<String>,
}

/// How a rule or an element differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// It should be there and is not.
    Missing,
    /// It is there and should not be.
    Extra,
    /// It is there, in the wrong place among its own.
    Moved,
}

impl Sign {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Sign::Missing => "missing",
            Sign::Extra => "extra",
            Sign::Moved => "moved",
        }
    }
}

impl Drift {
    /// Whether all is as wanted.
    pub fn is_none(&self) -> bool {
        self.differences.is_empty()
    }

    fn new(family: Family, mut differences: Vec<Difference>, mut remarks: Vec<String>) -> Drift {
        differences.sort_by(Difference::place);
        remarks.sort();
        remarks.dedup();
        Drift {
            family,
            differences,
            remarks,
        }
    }
}

impl Difference {
    fn place(&self, other: &Difference) -> Ordering {
        let of = |one: &Difference| (one.owner.clone(), one.kind, one.table.clone(), one.name.clone());
        of(self).cmp(&of(other))
    }
}
