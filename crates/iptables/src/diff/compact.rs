//! Small forms of what is remembered per chain and per rule: a large cluster has 110,000 chains and 320,000 rules.

use crate::ast::{ChainName, Match, Rule, TableName, Target};
use crate::names::{OwnChain, StaticChain};
use crate::parse;
use crate::render::RuleText;
use data_encoding::BASE32;
use model::{Family, ServiceName};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The kinds of a service port's chains, callers before callees.
const CALLERS_FIRST: [OwnChain; 5] = [
    OwnChain::Fw,
    OwnChain::Ext,
    OwnChain::Svc,
    OwnChain::Svl,
    OwnChain::Sep,
];

/// The name of a chain of a service port in 11 bytes: its kind and the 80 bits of its hash.
///
/// Ordered callers first, so that chains deleted in this order lose their callers before themselves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId {
    /// Index into [`CALLERS_FIRST`].
    rank: u8,
    hash: [u8; 10],
}

impl ChainId {
    /// The short form of a name that this proxy could have made; `None` for any other name.
    pub fn of(name: &ChainName) -> Option<ChainId> {
        let kind = OwnChain::of(name.as_str())?;
        let word = &name.as_str().as_bytes()[kind.prefix().len()..];
        if word.len() != 16 {
            return None;
        }
        let mut hash = [0; 10];
        BASE32.decode_mut(word, &mut hash).ok()?;
        let rank = (0..).zip(CALLERS_FIRST).find(|(_, k)| *k == kind)?.0;
        Some(ChainId { rank, hash })
    }

    /// The kind of chain.
    pub fn kind(self) -> OwnChain {
        CALLERS_FIRST[usize::from(self.rank)]
    }

    /// The whole name.
    pub fn name(self) -> ChainName {
        let name = format!("{}{}", self.kind().prefix(), BASE32.encode(&self.hash));
        ChainName::new(&name).expect("invariant: prefix and hash make a chain name")
    }
}

impl fmt::Debug for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.name(), f)
    }
}

/// Stands for a service chain's rules. Equal for rules that differ in comments only.
///
/// Comments of these chains say nothing that the chain's name and its other words do not, and in large clusters
/// they are left out: a chain is not rewritten for them. Deviation: upstream rewrites all (ADR 6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    /// How many they are, little end first; 65,535 stands for more as well.
    rules: [u8; 2],
    hash: [u8; 6],
}

impl Digest {
    /// The digest of these rules, in this order. Only meant to be compared within one process.
    pub fn of(rules: &[Rule]) -> Digest {
        // SipHash with fixed keys: a service's owner who finds a collision harms that service alone.
        let mut hasher = DefaultHasher::new();
        rules.len().hash(&mut hasher);
        for rule in rules {
            hash_without_comment(rule, &mut hasher);
        }
        let [_, _, hash @ ..] = hasher.finish().to_le_bytes();
        Digest {
            rules: u16::try_from(rules.len()).unwrap_or(u16::MAX).to_le_bytes(),
            hash,
        }
    }

    /// How many rules it stands for.
    pub fn rules(self) -> usize {
        usize::from(u16::from_le_bytes(self.rules))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn hash_without_comment(rule: &Rule, hasher: &mut DefaultHasher) {
    let Rule {
        src,
        dst,
        in_interface,
        out_interface,
        protocol,
        matches,
        target,
    } = rule;
    (src, dst, in_interface, out_interface, protocol, target).hash(hasher);
    for part in matches.iter().filter(|part| !matches!(part, Match::Comment(_))) {
        part.hash(hasher);
    }
}

/// The chains that send packets to services. They are ours whole; their rules belong to one service each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// nat `KUBE-SERVICES`
    NatServices,
    /// nat `KUBE-NODEPORTS`
    NatNodePorts,
    /// filter `KUBE-SERVICES`
    FilterServices,
    /// filter `KUBE-EXTERNAL-SERVICES`
    FilterExternal,
    /// filter `KUBE-NODEPORTS`
    FilterNodePorts,
    /// filter `KUBE-PROXY-FIREWALL`
    FilterFirewall,
}

impl Place {
    /// All of them; those of nat first, which is the order in which rules are deleted: as long as packets to an
    /// address are translated, the filter rules about that address meet none, and where they stop a packet that
    /// was not let in they have to stay the longer.
    pub const ALL: [Place; 6] = [
        Place::NatServices,
        Place::NatNodePorts,
        Place::FilterServices,
        Place::FilterExternal,
        Place::FilterNodePorts,
        Place::FilterFirewall,
    ];

    /// The table.
    pub fn table(self) -> TableName {
        match self {
            Place::NatServices | Place::NatNodePorts => TableName::Nat,
            Place::FilterServices
            | Place::FilterExternal
            | Place::FilterNodePorts
            | Place::FilterFirewall => TableName::Filter,
        }
    }

    fn static_chain(self) -> StaticChain {
        match self {
            Place::NatServices | Place::FilterServices => StaticChain::Services,
            Place::NatNodePorts | Place::FilterNodePorts => StaticChain::NodePorts,
            Place::FilterExternal => StaticChain::ExternalServices,
            Place::FilterFirewall => StaticChain::ProxyFirewall,
        }
    }

    /// The chain's name.
    pub fn chain(self) -> ChainName {
        self.static_chain().name()
    }

    /// The place that this chain of this table is.
    pub fn of(table: TableName, chain: &ChainName) -> Option<Place> {
        Place::ALL
            .into_iter()
            .find(|place| place.table() == table && place.static_chain().as_str() == chain.as_str())
    }
}

/// A rule of a dispatch chain, as text: it is kept to be compared, and to be deleted by its own words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DispatchRule {
    /// Where it stands.
    pub place: Place,
    family: Family,
    text: Box<str>,
}

impl DispatchRule {
    /// The short form of a rule.
    pub fn new(family: Family, place: Place, rule: &Rule) -> DispatchRule {
        DispatchRule {
            place,
            family,
            text: RuleText { rule, family }.to_string().into_boxed_str(),
        }
    }

    /// Where it stands and the service port it belongs to, the first word of its comment. Only rules that have both in
    /// common have an order; upstream writes ports in any order.
    pub fn group(&self) -> (Place, &str) {
        let comment = self.text.split_once("--comment ").map_or("", |(_, rest)| rest);
        let comment = comment.trim_start_matches('"');
        let port = comment.split([' ', '"']).next().unwrap_or_default();
        (self.place, port)
    }

    /// The rule itself.
    pub fn rule(&self) -> Rule {
        parse::rule(&self.text, self.family).expect("invariant: what was rendered can be parsed")
    }
}

/// The service that a dispatch rule belongs to, by its comment, which begins with `namespace/name` or
/// `namespace/name:port`.
pub fn owner(rule: &Rule) -> Option<ServiceName> {
    let word = rule.comment()?.split(' ').next()?;
    let (namespace, rest) = word.split_once('/')?;
    let name = rest.split(':').next()?;
    let well_formed = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
    well_formed.then(|| ServiceName::new(namespace, name))
}

/// Whether this is a rule that sends packets on to `KUBE-NODEPORTS`, of which nat `KUBE-SERVICES` has its last ones.
pub fn is_tail(rule: &Rule) -> bool {
    matches!(&rule.target, Target::Jump(chain) if chain.as_str() == StaticChain::NodePorts.as_str())
}
