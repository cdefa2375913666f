//! What a fork hangs on when rules and facts do not decide it.

use super::site::Hook;
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
    /// A target of which it is not known whether it lets the packet go on.
    TargetGoesOn {
        /// The target.
        name: Arc<str>,
        /// Its words.
        words: Vec<Arc<str>>,
    },
}

/// How long an answer stays true for the same packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
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
    /// How long its answer stays true for the same packet.
    pub(super) fn lasts(&self) -> Lasts {
        match self {
            Condition::InInterface(_)
            | Condition::Local(_)
            | Condition::OutInterface { .. }
            | Condition::AddressType { .. } => Lasts::Whole,
            Condition::SeenRecently { .. } | Condition::SourceIn(_) | Condition::SourcePort(_) => {
                Lasts::UntilRewritten
            }
            Condition::Match { module, .. } if FICKLE.contains(&&**module) => Lasts::Once,
            Condition::Match { .. } => Lasts::UntilRewritten,
            // Marks change on the way.
            Condition::Mark { .. } | Condition::ConnectionMark { .. } | Condition::TargetGoesOn { .. } => {
                Lasts::Once
            }
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
pub(super) fn implied(asked: &Condition, assumed: &Condition, holds: bool) -> Option<bool> {
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
pub(super) fn pattern_covers(outer: &str, inner: &str) -> bool {
    match outer.strip_suffix('+') {
        Some(prefix) => inner.strip_suffix('+').unwrap_or(inner).starts_with(prefix),
        None => outer == inner,
    }
}
