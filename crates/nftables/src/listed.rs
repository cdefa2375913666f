//! Tables as the kernel lists them: ours, upstream's, anybody's.
//!
//! [`ast`](crate::ast) says what we write and nothing else, so that what we cannot mean cannot be said. These types hold
//! whatever `nft list ruleset` prints: expressions stay expressions, numbers and names stay as they were printed, and what
//! is not known here stays word by word. [`of_frame`] gives what we write in these types.

mod expr;
mod frame;
mod print;
mod seen;

pub use expr::{BinaryOp, Expr, NumberMode, Value};
pub use frame::of_frame;
pub use print::RuleText;
pub(crate) use print::priority_named;
pub use seen::{NotWhole, seen};

use model::Family;
use std::collections::BTreeSet;
use std::sync::Arc;
pub use traced::{Hook, Policy};

/// All tables of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// The tables, in the order in which they are listed.
    pub tables: Vec<Table>,
}

impl Ruleset {
    /// The table of this family and name.
    pub fn table(&self, family: TableFamily, name: &str) -> Option<&Table> {
        let mut tables = self.tables.iter();
        tables.find(|table| table.family == family && &*table.name == name)
    }

    /// The same, made empty if it is not there.
    pub(crate) fn table_made(&mut self, family: TableFamily, name: &str) -> &mut Table {
        let mut tables = self.tables.iter();
        let known = tables.position(|table| table.family == family && &*table.name == name);
        let at = known.unwrap_or_else(|| {
            self.tables.push(Table::new(family, name));
            self.tables.len() - 1
        });
        &mut self.tables[at]
    }

    /// Takes the elements out of sets that packets or time change: those of another moment are not known.
    pub fn forget_what_moves(&mut self) {
        for table in &mut self.tables {
            let updated: BTreeSet<Arc<str>> = table.updated().into_iter().map(Arc::from).collect();
            let moving = |set: &&mut Set| set.moves() || updated.contains(&set.name);
            let sets = table.sets.iter_mut().filter(moving);
            sets.for_each(|set| set.elements = Contents::NotListed);
        }
    }
}

/// The packets that a table's base chains see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableFamily {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Both.
    Inet,
    /// ARP.
    Arp,
    /// Frames that a bridge forwards.
    Bridge,
    /// Frames of one device, before and behind all others.
    Netdev,
}

impl TableFamily {
    /// All of them.
    pub const ALL: [TableFamily; 6] = [
        TableFamily::Ip,
        TableFamily::Ip6,
        TableFamily::Inet,
        TableFamily::Arp,
        TableFamily::Bridge,
        TableFamily::Netdev,
    ];

    /// The family of tables that see this family's packets and no others.
    pub fn of(family: Family) -> TableFamily {
        match family {
            Family::V4 => TableFamily::Ip,
            Family::V6 => TableFamily::Ip6,
        }
    }

    /// The family's word.
    pub fn as_str(self) -> &'static str {
        match self {
            TableFamily::Ip => "ip",
            TableFamily::Ip6 => "ip6",
            TableFamily::Inet => "inet",
            TableFamily::Arp => "arp",
            TableFamily::Bridge => "bridge",
            TableFamily::Netdev => "netdev",
        }
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its family.
    pub family: TableFamily,
    /// Its name.
    pub name: Arc<str>,
    /// `dormant`, `owner` and the like.
    pub flags: Vec<Arc<str>>,
    /// For people.
    pub comment: Option<Arc<str>>,
    /// Counters, quotas, helpers, flow tables: nothing of them decides where a packet goes.
    pub objects: Vec<Object>,
    /// Sets and maps.
    pub sets: Vec<Set>,
    /// Chains.
    pub chains: Vec<Chain>,
}

impl Table {
    /// An empty one.
    pub fn new(family: TableFamily, name: impl Into<Arc<str>>) -> Table {
        Table {
            family,
            name: name.into(),
            flags: Vec::new(),
            comment: None,
            objects: Vec::new(),
            sets: Vec::new(),
            chains: Vec::new(),
        }
    }

    /// The sets that rules change.
    pub(crate) fn updated(&self) -> BTreeSet<&str> {
        let rules = self.chains.iter().flat_map(|chain| &chain.rules);
        let statements = rules.flat_map(|rule| &rule.statements);
        let updated = statements.filter_map(|statement| match statement {
            Statement::Update(update) => Some(&*update.set),
            _ => None,
        });
        updated.collect()
    }

    /// Family and name, as in `ip kube-proxy`.
    pub fn title(&self) -> String {
        format!("{} {}", self.family.as_str(), self.name)
    }

    /// The chain of this name.
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|chain| &*chain.name == name)
    }

    /// The set or map of this name.
    pub fn set(&self, name: &str) -> Option<&Set> {
        self.sets.iter().find(|set| &*set.name == name)
    }
}

/// An object of a table that is neither set nor chain, word by word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Kind and name: `counter drops`, `ct helper sip`.
    pub head: Arc<str>,
    /// What stands between its braces, one line each.
    pub body: Vec<Arc<str>>,
}

/// A set, or a map when its elements have data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: Arc<str>,
    /// What its keys are.
    pub key: Type,
    /// What its elements hold; `None` for a set.
    pub data: Option<Type>,
    /// `interval`, `dynamic`, `timeout`, `constant`.
    pub flags: Vec<Arc<str>>,
    /// Everything else that it says of itself, as printed: `size 65535`, `timeout 3h`, `counter`.
    pub words: Vec<Arc<str>>,
    /// For people.
    pub comment: Option<Arc<str>>,
    /// Its elements.
    pub elements: Contents,
}

impl Set {
    /// Whether rules add elements, so that another moment has others.
    pub fn is_dynamic(&self) -> bool {
        self.flags.iter().any(|flag| &**flag == "dynamic")
    }

    /// Whether packets or time change it by what it says of itself. Lists leave `dynamic` out in some forms: see
    /// [`Ruleset::forget_what_moves`].
    pub(crate) fn moves(&self) -> bool {
        self.is_dynamic() || self.flags.iter().any(|flag| &**flag == "timeout")
    }
}

/// What keys or data of a set are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `type A . B`
    Named(Vec<Arc<str>>),
    /// `typeof EXPRESSION`, as printed.
    Like(Arc<str>),
}

/// The elements of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// As they were listed.
    Listed(Vec<Element>),
    /// They were left out of the list, or come from packets.
    NotListed,
}

/// An element of a set or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its key: a value, a range, a network, or a concatenation of these; `*` for whatever is in no other.
    pub key: Expr,
    /// What it says of itself, as printed: `timeout 3h expires 2h59m`.
    pub words: Vec<Arc<str>>,
    /// For people.
    pub comment: Option<Arc<str>>,
    /// What it holds.
    pub data: Option<Expr>,
}

impl Element {
    /// One that is a key alone.
    pub fn of(key: Expr) -> Element {
        Element {
            key,
            words: Vec::new(),
            comment: None,
            data: None,
        }
    }
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: Arc<str>,
    /// Where packets enter it by themselves; `None` for a chain that is jumped to.
    pub base: Option<Base>,
    /// For people.
    pub comment: Option<Arc<str>>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// Where packets enter a base chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// `filter`, `nat` or `route`.
    pub kind: Arc<str>,
    /// The hook's word: those of [`Hook`] in lower case, `ingress` and `egress`.
    pub hook: Arc<str>,
    /// The devices it is bound to.
    pub devices: Vec<Arc<str>>,
    /// The order among the base chains of the hook, lowest first.
    pub priority: i32,
    /// What becomes of packets that no rule decides about.
    pub policy: Policy,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Its statements, in order. The first that is not true of a packet ends the rule.
    pub statements: Vec<Statement>,
    /// For people.
    pub comment: Option<Arc<str>>,
}

/// One statement of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Asks whether two expressions stand in a relation.
    Match {
        /// What is asked about.
        left: Expr,
        /// The relation.
        op: Op,
        /// With what.
        right: Expr,
    },
    /// Ends the rule.
    Verdict(Verdict),
    /// Ends the rule as an element says, if there is one.
    VerdictMap {
        /// The key.
        key: Expr,
        /// The map, named or written out.
        map: Expr,
    },
    /// Writes a mark or the like.
    Assign {
        /// What is written.
        to: Expr,
        /// The value.
        value: Expr,
    },
    /// Translates an address.
    Nat(Nat),
    /// Refuses the packet, with this answer as printed; empty for the usual one.
    Reject(Arc<str>),
    /// Changes a set.
    Update(Update),
    /// Takes the packet out of connection tracking.
    NoTrack,
    /// Counts, logs, copies: the packet goes on as if the statement had not been there. As printed.
    Inert(Arc<str>),
    /// True or not by something that is not known here: a rate, a quota, a module of xtables. As printed.
    Open(Arc<str>),
    /// Not understood, as printed: nobody knows whether it matches and what it does.
    Unknown(Arc<str>),
}

/// A relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// None is written: is, is in, or has one of these flags.
    Is,
    /// `==`
    Equal,
    /// `!=`
    Not,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `!`: has none of these flags.
    NoneOf,
}

impl Op {
    /// The words of all that have one.
    pub const WRITTEN: [(Op, &'static str); 7] = [
        (Op::Equal, "=="),
        (Op::Not, "!="),
        (Op::Less, "<"),
        (Op::AtMost, "<="),
        (Op::More, ">"),
        (Op::AtLeast, ">="),
        (Op::NoneOf, "!"),
    ];

    /// Its word; empty when none is written.
    pub fn as_str(self) -> &'static str {
        let written = Op::WRITTEN.iter().find(|(op, _)| *op == self);
        written.map_or("", |(_, word)| word)
    }
}

/// Where a packet goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// With the next base chain.
    Accept,
    /// Nowhere.
    Drop,
    /// With the next rule.
    Continue,
    /// Where this chain was jumped from.
    Return,
    /// With this chain, and then back here.
    Jump(Arc<str>),
    /// With this chain, and then back to where this chain was jumped from.
    Goto(Arc<str>),
    /// With a program, as printed.
    Queue(Arc<str>),
}

/// A translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat {
    /// Which.
    pub kind: NatKind,
    /// The words between kind and `to`: `ip`, `ip6`, `ip addr . port`.
    pub family: Vec<Arc<str>>,
    /// The address, or address and port.
    pub to: Option<Expr>,
    /// The port, when it is written for itself: `to :8080`.
    pub port: Option<Expr>,
    /// `random`, `fully-random`, `persistent`.
    pub flags: Vec<Arc<str>>,
}

/// The kinds of translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatKind {
    /// Destination.
    Dnat,
    /// Source.
    Snat,
    /// Source, to the address of the interface it leaves through.
    Masquerade,
    /// Destination, to this host.
    Redirect,
}

impl NatKind {
    /// All of them.
    pub const ALL: [NatKind; 4] = [
        NatKind::Dnat,
        NatKind::Snat,
        NatKind::Masquerade,
        NatKind::Redirect,
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            NatKind::Dnat => "dnat",
            NatKind::Snat => "snat",
            NatKind::Masquerade => "masquerade",
            NatKind::Redirect => "redirect",
        }
    }
}

/// A change of a set by a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// What is done.
    pub op: UpdateOp,
    /// The set.
    pub set: Arc<str>,
    /// The element, with its time and what it holds.
    pub element: Element,
}

/// What is done to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOp {
    /// The element is put in unless it is there.
    Add,
    /// The element is put in, or its time begins anew.
    Update,
    /// The element is taken out.
    Delete,
}

impl UpdateOp {
    /// All of them.
    pub const ALL: [UpdateOp; 3] = [UpdateOp::Add, UpdateOp::Update, UpdateOp::Delete];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            UpdateOp::Add => "add",
            UpdateOp::Update => "update",
            UpdateOp::Delete => "delete",
        }
    }
}
