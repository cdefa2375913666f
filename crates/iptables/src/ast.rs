//! Tables, chains and rules as types.
//!
//! A [`Rule`] holds what `iptables-save` prints, so two rules are equal exactly when the kernel holds the same rule.
//! What we have no type for is kept word by word ([`Match::Other`], [`Target::Other`]).

use ipnet::IpNet;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

pub use traced::Policy;

/// A table of iptables, in the order in which `iptables-save` of a host usually prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableName {
    /// `raw`
    Raw,
    /// `mangle`
    Mangle,
    /// `filter`
    Filter,
    /// `nat`
    Nat,
    /// `security`
    Security,
}

impl TableName {
    /// All of them.
    pub const ALL: [TableName; 5] = [
        TableName::Raw,
        TableName::Mangle,
        TableName::Filter,
        TableName::Nat,
        TableName::Security,
    ];

    /// The table's word.
    pub fn as_str(self) -> &'static str {
        match self {
            TableName::Raw => "raw",
            TableName::Mangle => "mangle",
            TableName::Filter => "filter",
            TableName::Nat => "nat",
            TableName::Security => "security",
        }
    }

    /// The built-in chains, in the order of the hooks, which is the order in which `iptables-save` prints them.
    pub fn built_in(self) -> &'static [&'static str] {
        match self {
            TableName::Raw => &["PREROUTING", "OUTPUT"],
            TableName::Mangle => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
            TableName::Filter | TableName::Security => &["INPUT", "FORWARD", "OUTPUT"],
            TableName::Nat => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
        }
    }

    /// The table of this name, if there is one.
    pub fn from_word(word: &str) -> Option<TableName> {
        TableName::ALL.into_iter().find(|t| t.as_str() == word)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A chain's name: 1 to 28 bytes (`XT_EXTENSION_MAXNAMELEN` - 1 of `linux/netfilter/x_tables.h`), no space, no quote.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainName(Arc<str>);

impl ChainName {
    /// The longest name iptables takes, in bytes.
    pub const MAX: usize = 28;

    /// A checked name.
    ///
    /// # Errors
    /// Says why iptables would refuse the name.
    pub fn new(name: &str) -> Result<ChainName, BadChainName> {
        if name.is_empty() || name.len() > Self::MAX {
            return Err(BadChainName::Length(name.len()));
        }
        if name
            .chars()
            .any(|c| c.is_whitespace() || c.is_control() || c == '"')
            || name.starts_with(['-', '!'])
        {
            return Err(BadChainName::Character(name.to_owned()));
        }
        Ok(ChainName(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// So that maps by chain can be asked with a plain text.
impl Borrow<str> for ChainName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ChainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a chain name cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadChainName {
    /// Empty, or longer than [`ChainName::MAX`] bytes; holds the length.
    Length(usize),
    /// A character that iptables would not take there; holds the name.
    Character(String),
}

impl fmt::Display for BadChainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadChainName::Length(n) => write!(f, "a chain name has 1 to {} bytes, not {n}", ChainName::MAX),
            BadChainName::Character(name) => {
                write!(f, "chain name {name:?} has a character iptables refuses")
            }
        }
    }
}

impl std::error::Error for BadChainName {}

/// A value that a rule asks for, or asks to be absent (`!`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Is<T> {
    /// The packet has it.
    Equal(T),
    /// `!`: the packet has anything else.
    Not(T),
}

impl<T> Is<T> {
    /// The value, whichever way it is asked for.
    pub fn value(&self) -> &T {
        match self {
            Is::Equal(v) | Is::Not(v) => v,
        }
    }

    /// Whether a packet for which `has` is the plain answer satisfies this.
    pub fn holds(&self, has: impl FnOnce(&T) -> bool) -> bool {
        match self {
            Is::Equal(v) => has(v),
            Is::Not(v) => !has(v),
        }
    }
}

/// One rule of a chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// `-s`
    pub src: Option<Is<IpNet>>,
    /// `-d`
    pub dst: Option<Is<IpNet>>,
    /// `-i`; a trailing `+` stands for any ending.
    pub in_interface: Option<Is<Arc<str>>>,
    /// `-o`; a trailing `+` stands for any ending.
    pub out_interface: Option<Is<Arc<str>>>,
    /// `-p`
    pub protocol: Option<Is<Proto>>,
    /// `-m ...`, in order.
    pub matches: Vec<Match>,
    /// `-j ...`, or nothing.
    pub target: Target,
}

impl Rule {
    /// A rule that matches everything and does this.
    pub fn new(target: Target) -> Rule {
        Rule {
            src: None,
            dst: None,
            in_interface: None,
            out_interface: None,
            protocol: None,
            matches: Vec::new(),
            target,
        }
    }

    /// The text of the rule's comment match, if it has one.
    pub fn comment(&self) -> Option<&str> {
        self.matches.iter().find_map(|m| match m {
            Match::Comment(text) => Some(&**text),
            _ => None,
        })
    }
}

/// The protocol of `-p`, as printed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proto {
    /// `tcp`
    Tcp,
    /// `udp`
    Udp,
    /// `sctp`
    Sctp,
    /// Any other, as printed (`icmp`, `ipv6-icmp`, `47`, ...).
    Other(Arc<str>),
}

impl Proto {
    /// The protocol as printed.
    pub fn as_str(&self) -> &str {
        match self {
            Proto::Tcp => "tcp",
            Proto::Udp => "udp",
            Proto::Sctp => "sctp",
            Proto::Other(word) => word,
        }
    }

    /// The protocol of this word.
    pub fn from_word(word: &str) -> Proto {
        match word {
            "tcp" => Proto::Tcp,
            "udp" => Proto::Udp,
            "sctp" => Proto::Sctp,
            other => Proto::Other(other.into()),
        }
    }
}

impl From<model::Protocol> for Proto {
    fn from(protocol: model::Protocol) -> Proto {
        match protocol {
            model::Protocol::Tcp => Proto::Tcp,
            model::Protocol::Udp => Proto::Udp,
            model::Protocol::Sctp => Proto::Sctp,
        }
    }
}

/// A range of ports, both ends included; one port is a range of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

/// A match extension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Match {
    /// `-m comment --comment TEXT`
    Comment(Arc<str>),
    /// `-m tcp`, `-m udp`, `-m sctp` with ports only (anything else of these is [`Match::Other`]).
    Ports {
        /// The module, which is the protocol.
        module: model::Protocol,
        /// `--sport`
        src: Option<Is<PortRange>>,
        /// `--dport`
        dst: Option<Is<PortRange>>,
    },
    /// `-m conntrack --ctstate`: sorted as printed by iptables.
    CtState(Is<Vec<CtState>>),
    /// `-m addrtype --src-type/--dst-type`, one type each, no interface limits.
    AddrType {
        /// `--src-type`
        src: Option<Is<AddrType>>,
        /// `--dst-type`
        dst: Option<Is<AddrType>>,
    },
    /// `-m mark --mark VALUE/MASK`
    Mark {
        /// Value and mask.
        is: Is<(u32, u32)>,
    },
    /// `-m statistic --mode random --probability P`: in units of 2^-31, as the kernel keeps it.
    Probability(u32),
    /// `-m recent`
    Recent(Recent),
    /// `-m nfacct --nfacct-name NAME`
    Nfacct(Arc<str>),
    /// Anything else: the module's name and its words, unquoted, as `iptables-save` printed them.
    ///
    /// A module without a name holds words that stand before any `-m` and have no field of their own (`-f`,
    /// `-d 10.0.0.0/255.0.255.0`).
    Other {
        /// Module.
        module: Arc<str>,
        /// Words after `-m MODULE`, a `!` standing where it stood.
        words: Vec<Arc<str>>,
    },
}

/// `-m recent` as kube-proxy uses it: full mask, source address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Recent {
    /// `--name`
    pub name: Arc<str>,
    /// What is done with the list.
    pub action: RecentAction,
}

/// What a `-m recent` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecentAction {
    /// `--set`
    Set,
    /// `--rcheck --seconds N --reap`
    RcheckReap {
        /// Seconds since the client was last seen.
        seconds: u32,
    },
}

/// Conntrack states, in the order in which iptables prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CtState {
    /// `INVALID`
    Invalid,
    /// `NEW`
    New,
    /// `RELATED`
    Related,
    /// `ESTABLISHED`
    Established,
    /// `UNTRACKED`
    Untracked,
    /// `SNAT`
    Snat,
    /// `DNAT`
    Dnat,
}

impl CtState {
    /// All of them, in order.
    pub const ALL: [CtState; 7] = [
        CtState::Invalid,
        CtState::New,
        CtState::Related,
        CtState::Established,
        CtState::Untracked,
        CtState::Snat,
        CtState::Dnat,
    ];

    /// The state of this word.
    pub fn from_word(word: &str) -> Option<CtState> {
        CtState::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// The state's word.
    pub fn as_str(self) -> &'static str {
        match self {
            CtState::Invalid => "INVALID",
            CtState::New => "NEW",
            CtState::Related => "RELATED",
            CtState::Established => "ESTABLISHED",
            CtState::Untracked => "UNTRACKED",
            CtState::Snat => "SNAT",
            CtState::Dnat => "DNAT",
        }
    }
}

/// Address types (`-m addrtype`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddrType {
    /// `LOCAL`: an address of this host.
    Local,
    /// Any other, as printed.
    Other(Arc<str>),
}

impl AddrType {
    /// The type as printed.
    pub fn as_str(&self) -> &str {
        match self {
            AddrType::Local => "LOCAL",
            AddrType::Other(word) => word,
        }
    }
}

/// What a rule does with a packet it matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// No `-j`: only the matches' side effects and the counter.
    None,
    /// `-j CHAIN`
    Jump(ChainName),
    /// `-g CHAIN`
    Goto(ChainName),
    /// `-j ACCEPT`
    Accept,
    /// `-j DROP`
    Drop,
    /// `-j RETURN`
    Return,
    /// `-j REJECT --reject-with WORD`
    Reject(Arc<str>),
    /// `-j DNAT --to-destination IP:PORT`
    Dnat(SocketAddr),
    /// `-j MASQUERADE [--random-fully]`
    Masquerade(Ports),
    /// `-j MARK --set-xmark VALUE/MASK`: mark = (mark & !MASK) ^ VALUE.
    Mark {
        /// Value.
        value: u32,
        /// Mask.
        mask: u32,
    },
    /// Anything else: the target's name and its words, unquoted, as `iptables-save` printed them.
    Other {
        /// Target.
        name: Arc<str>,
        /// Words after `-j NAME`.
        words: Vec<Arc<str>>,
    },
}

/// How MASQUERADE chooses source ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ports {
    /// As the kernel likes.
    Kept,
    /// `--random-fully`
    RandomFully,
}

/// A chain: built-in when it has a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The policy of a built-in chain; `None` (`-`) for a user's chain.
    pub policy: Option<Policy>,
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

/// One table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The chains by name. The order of chains means nothing.
    pub chains: BTreeMap<ChainName, Chain>,
}

/// Some tables of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// The tables by name.
    pub tables: BTreeMap<TableName, Table>,
}

impl Ruleset {
    /// A chain, if it is there.
    pub fn chain(&self, table: TableName, chain: &str) -> Option<&Chain> {
        self.tables.get(&table)?.chains.get(chain)
    }
}
