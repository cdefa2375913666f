//! Tables, chains, rules, sets and their elements.

use ipnet::IpNet;
use model::{Family, Protocol};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The longest name of a table, chain or set, in bytes (`NFT_NAME_MAXLEN` - 1 in the kernel's `nf_tables.h`).
pub const NAME_LIMIT: usize = 255;
/// The longest comment, in bytes: `nft` refuses longer ones (`NFTNL_UDATA_COMMENT_MAXLEN`).
pub const COMMENT_LIMIT: usize = 128;

/// The name of a chain, set or map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(Arc<str>);

impl Ord for Name {
    /// By text. Names of slots are made once and shared, which tells most equal ones without a look at it.
    fn cmp(&self, other: &Name) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Name {
    /// # Panics
    /// With a name that is too long: all names are made here, of bounded parts.
    pub fn new(name: impl Into<Arc<str>>) -> Name {
        let name = name.into();
        assert!(name.len() <= NAME_LIMIT, "invariant: names are short: {name}");
        Name(name)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What one family's table has whatever services there are: chains with their rules, and sets to be filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The table's family: `ip` or `ip6`.
    pub family: Family,
    /// Sets and maps, in the order in which they are made.
    pub sets: Vec<Set>,
    /// Chains, in the order in which they are made: a rule jumps only to chains above its own.
    pub chains: Vec<Chain>,
}

/// A set, or a map when its elements have data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: Name,
    /// The parts of a key.
    pub key: &'static [Part],
    /// What elements hold besides the key.
    pub data: Data,
    /// Who adds elements, and what they look like.
    pub flags: Flags,
    /// For people.
    pub comment: &'static str,
}

/// A part of a key, or of a concatenation that is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The transport protocol.
    Protocol,
    /// The destination port.
    Port,
}

/// What elements hold besides the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Nothing: a set.
    None,
    /// An address and a port: a map for `dnat`.
    Endpoint,
}

/// What a set is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Elements come from us, one value each.
    Plain,
    /// Elements come from us, ranges of addresses.
    Interval,
    /// Elements come from packets and go when their time is over.
    Clients {
        /// Elements that fit in. A full set never stops a packet: it is only not remembered.
        size: u32,
    },
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: Name,
    /// Where packets enter it by themselves; `None` for a chain that is jumped to.
    pub base: Option<Base>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// Where packets enter a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// `filter` or `nat`.
    pub kind: BaseKind,
    /// The hook.
    pub hook: Hook,
    /// The order among the base chains of the hook, lowest first.
    pub priority: i32,
}

/// The kind of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseKind {
    /// Every packet.
    Filter,
    /// The first packet of a connection.
    Nat,
}

impl BaseKind {
    /// `nft`'s word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            BaseKind::Filter => "filter",
            BaseKind::Nat => "nat",
        }
    }
}

/// A hook of the network stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Packets that come in.
    Prerouting,
    /// Packets for this host.
    Input,
    /// Packets for others.
    Forward,
    /// Packets of this host.
    Output,
    /// Packets that go out.
    Postrouting,
}

impl Hook {
    /// `nft`'s word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Hook::Prerouting => "prerouting",
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
            Hook::Postrouting => "postrouting",
        }
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What must hold for the rest to be done.
    pub matches: Vec<Match>,
    /// What is done, in order.
    pub actions: Vec<Action>,
    /// For people.
    pub comment: Option<&'static str>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// A concatenation is in a set or is a map's key.
    In(&'static [Part], Name),
    /// A concatenation is not in a set.
    NotIn(&'static [Part], Name),
    /// The source address lies in a network.
    SourceIn(IpNet),
    /// The source address does not lie in a network.
    SourceNotIn(IpNet),
    /// The destination does not lie in a network.
    DestinationNotIn(IpNet),
    /// The destination lies in a network.
    DestinationIn(IpNet),
    /// It came in through an interface, or one whose name begins so.
    Interface(InterfaceName),
    /// It came in otherwise.
    NotInterface(InterfaceName),
    /// `fib saddr type local`: the source is an address of this host.
    SourceIsLocal,
    /// `fib daddr type local`: the destination is an address of this host.
    DestinationIsLocal,
    /// The packet opens a connection.
    StateNew,
    /// The connection's destination was translated.
    StatusDnat,
    /// The packet has this bit in its mark.
    Marked(model::Mark),
}

/// The name of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceName {
    /// This one.
    Is(Arc<str>),
    /// Any that begins so.
    BeginsWith(Arc<str>),
}

/// Something that a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Goes to a chain and comes back.
    Jump(Name),
    /// Goes to a chain for good.
    Goto(Name),
    /// Throws a die with as many sides as there are names, at least two, and jumps to that chain.
    JumpRandom(Vec<Name>),
    /// Hashes the source address into as many buckets as there are names, at least two, and jumps to that chain
    /// ([`model::balance::bucket`]).
    JumpHashed(Vec<Name>),
    /// Sets the mark's bit.
    SetMark(model::Mark),
    /// Flips the mark's bit.
    FlipMark(model::Mark),
    /// Translates the destination to what a map says of a key. Without an element the rule does not match.
    DnatTo(&'static [Part], Name),
    /// `masquerade fully-random`.
    Masquerade,
    /// ICMP port unreachable.
    Reject,
    /// Silence.
    Drop,
    /// Puts the packet's key into a set, or its time anew.
    Remember {
        /// The key.
        key: &'static [Part],
        /// The set.
        set: Name,
        /// How long, in seconds.
        timeout: u32,
    },
    /// Takes the packet's key out of a set.
    Forget {
        /// The key.
        key: &'static [Part],
        /// The set.
        set: Name,
    },
}

/// A value of one part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// An address.
    Address(IpAddr),
    /// All addresses of a network; in interval sets only.
    Network(IpNet),
    /// A protocol.
    Protocol(Protocol),
    /// A port.
    Port(u16),
}

/// Which element of which set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ElementKey {
    /// The set or map.
    pub set: Name,
    /// One value for each part of its key.
    pub key: Arc<[Value]>,
}

impl Ord for ElementKey {
    /// By set, then by key. All elements of a frontend share their key.
    fn cmp(&self, other: &ElementKey) -> Ordering {
        self.set.cmp(&other.set).then_with(|| {
            if Arc::ptr_eq(&self.key, &other.key) {
                Ordering::Equal
            } else {
                self.key.cmp(&other.key)
            }
        })
    }
}

impl PartialOrd for ElementKey {
    fn partial_cmp(&self, other: &ElementKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What an element holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// For maps, where packets go.
    pub endpoint: Option<SocketAddr>,
    /// For people: which service port this is. No difference when it is another.
    pub comment: Option<Arc<str>>,
}

/// Elements by their place.
pub type Elements = BTreeMap<ElementKey, Element>;
