//! What a fork hangs on when rules and facts do not decide it.

use crate::site::Hook;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A question that the rules ask and that nothing we know answers. It prints as a claim that may be true or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// The packet came in through an interface of this pattern.
    InInterface(Arc<str>),
    /// The packet will leave through an interface of this pattern.
    OutInterface {
        /// The pattern.
        pattern: Arc<str>,
        /// The hook at which it was asked: routing may change the answer between hooks.
        hook: Hook,
    },
    /// The address is one of this host's.
    Local(IpAddr),
    /// The source address, which was translated to one that is not known, lies in this network.
    SourceIn(IpNet),
    /// The source port, which was translated to one that is not known, is one of these, as printed.
    SourcePort(Arc<str>),
    /// The client was seen in a `-m recent` list within so many seconds.
    SeenRecently {
        /// The list.
        list: Arc<str>,
        /// The client; `None` after a translation to an unknown address.
        client: Option<IpAddr>,
        /// How long ago at most.
        seconds: u32,
    },
    /// The packet's mark has this value under this mask, as far as its bits are not known.
    Mark {
        /// Value.
        value: u32,
        /// Mask.
        mask: u32,
    },
    /// The connection's mark has this value under this mask.
    ConnectionMark {
        /// Value.
        value: u32,
        /// Mask.
        mask: u32,
    },
    /// The address has this type in the host's routing table, as iptables names it.
    AddressType {
        /// The address.
        ip: IpAddr,
        /// The type.
        kind: Arc<str>,
    },
    /// A match that looks at something the trace knows nothing of.
    Match {
        /// Module.
        module: Arc<str>,
        /// Its words, as `iptables-save` prints them.
        words: Vec<Arc<str>>,
    },
    /// An expression of nftables holds, as printed.
    Holds {
        /// The expression.
        text: Arc<str>,
        /// How long the answer stays true.
        lasts: Lasts,
    },
    /// Something that nftables computes has this value: a hash, a counter.
    Is {
        /// What is computed, as printed.
        what: Arc<str>,
        /// The value, or values.
        value: Arc<str>,
    },
    /// A set of nftables has this element, which packets put in and time takes out.
    Element {
        /// The set, with its table.
        set: Arc<str>,
        /// The element's key.
        key: Arc<str>,
    },
    /// What nftables does here, as printed, lets the packet go on.
    LetsGoOn(Arc<str>),
    /// Of base chains with one priority this is the order, which no list tells.
    Order {
        /// The hook.
        hook: Hook,
        /// The chains, each with its table, the one that is asked first at the beginning.
        chains: Vec<Arc<str>>,
    },
    /// A target of which it is not known whether it lets the packet go on.
    TargetGoesOn {
        /// The target.
        name: Arc<str>,
        /// Its words.
        words: Vec<Arc<str>>,
    },
}

/// How long an answer stays true for the same packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lasts {
    /// On the packet's whole way through the host.
    Whole,
    /// As long as its addresses stay.
    UntilRewritten,
    /// The next time it is asked it may be answered otherwise.
    Once,
}

/// Matches whose answer depends on more than the packet: a counter, a rate, a clock.
const FICKLE: [&str; 8] = [
    "limit",
    "hashlimit",
    "statistic",
    "quota",
    "recent",
    "rateest",
    "connlimit",
    "connbytes",
];

impl Condition {
    /// Whether it asks if packets made a client known: a service with affinity asks so for each endpoint in a row.
    pub fn is_of_a_client(&self) -> bool {
        matches!(self, Condition::SeenRecently { .. } | Condition::Element { .. })
    }

    /// How long its answer stays true for the same packet.
    pub fn lasts(&self) -> Lasts {
        match self {
            Condition::InInterface(_)
            | Condition::Local(_)
            | Condition::OutInterface { .. }
            | Condition::AddressType { .. }
            | Condition::Order { .. } => Lasts::Whole,
            Condition::Holds { lasts, .. } => *lasts,
            // A counter goes on with every packet.
            Condition::Is { what, .. } if what.starts_with("numgen") => Lasts::Once,
            Condition::Match { module, .. } if FICKLE.contains(&&**module) => Lasts::Once,
            Condition::SeenRecently { .. }
            | Condition::SourceIn(_)
            | Condition::SourcePort(_)
            | Condition::Match { .. }
            | Condition::Is { .. }
            | Condition::Element { .. } => Lasts::UntilRewritten,
            // Marks change on the way.
            Condition::Mark { .. }
            | Condition::ConnectionMark { .. }
            | Condition::TargetGoesOn { .. }
            | Condition::LetsGoOn(_) => Lasts::Once,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::InInterface(pattern) => write!(f, "it came in through {pattern}"),
            Condition::OutInterface { pattern, .. } => write!(f, "it leaves through {pattern}"),
            Condition::Local(ip) => write!(f, "{ip} is an address of this host"),
            Condition::SourceIn(net) => write!(f, "its translated source is in {net}"),
            Condition::SourcePort(ports) => write!(f, "its translated source port is {ports}"),
            Condition::SeenRecently {
                list,
                client,
                seconds,
            } => match client {
                Some(ip) => write!(f, "{ip} was seen in list {list} within {seconds} s"),
                None => write!(f, "the client was seen in list {list} within {seconds} s"),
            },
            Condition::Mark { value, mask } => write!(f, "its mark is {value:#x}/{mask:#x}"),
            Condition::ConnectionMark { value, mask } => {
                write!(f, "its connection's mark is {value:#x}/{mask:#x}")
            }
            Condition::AddressType { ip, kind } => write!(f, "{ip} is of type {kind}"),
            Condition::Holds { text, .. } => write!(f, "{text} holds"),
            Condition::Is { what, value } => write!(f, "{what} is {value}"),
            Condition::Element { set, key } => write!(f, "{set} has {key}"),
            Condition::LetsGoOn(text) => write!(f, "{text} lets it go on"),
            Condition::Order { hook, chains } => {
                write!(
                    f,
                    "at {hook}, which no list tells, the order is {}",
                    chains.join(", then ")
                )
            }
            Condition::Match { module, words } => {
                if module.is_empty() {
                    f.write_str("rule option")?;
                } else {
                    write!(f, "-m {module}")?;
                }
                spaced(f, words)?;
                f.write_str(" matches")
            }
            Condition::TargetGoesOn { name, words } => {
                write!(f, "-j {name}")?;
                spaced(f, words)?;
                f.write_str(" lets it go on")
            }
        }
    }
}

fn spaced(f: &mut fmt::Formatter<'_>, words: &[Arc<str>]) -> fmt::Result {
    words.iter().try_for_each(|word| write!(f, " {word}"))
}

/// What `assumed`, which is so or not so, says about `asked`.
pub fn implied(asked: &Condition, assumed: &Condition, holds: bool) -> Option<bool> {
    if asked == assumed {
        return Some(holds);
    }
    match (asked, assumed) {
        (Condition::InInterface(asked), Condition::InInterface(assumed)) => {
            implied_interface(asked, assumed, holds)
        }
        (
            Condition::OutInterface { pattern, hook },
            Condition::OutInterface {
                pattern: assumed,
                hook: at,
            },
        ) if hook == at => implied_interface(pattern, assumed, holds),
        // It is one value only.
        (Condition::Is { what, .. }, Condition::Is { what: of, .. }) if holds && what == of => Some(false),
        (Condition::SourceIn(asked), Condition::SourceIn(assumed)) if holds => {
            if asked.contains(assumed) {
                Some(true)
            } else {
                (!assumed.contains(asked)).then_some(false)
            }
        }
        _ => None,
    }
}

fn implied_interface(asked: &str, assumed: &str, holds: bool) -> Option<bool> {
    let asked_covers = pattern_covers(asked, assumed);
    let assumed_covers = pattern_covers(assumed, asked);
    match holds {
        true if asked_covers => Some(true),
        true => (!assumed_covers).then_some(false),
        false => assumed_covers.then_some(false),
    }
}

/// Whether every name of the pattern `inner` is one of `outer`.
pub fn pattern_covers(outer: &str, inner: &str) -> bool {
    match outer.strip_suffix('+') {
        Some(prefix) => inner.strip_suffix('+').unwrap_or(inner).starts_with(prefix),
        None => outer == inner,
    }
}
