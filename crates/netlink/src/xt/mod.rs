//! The structures of xtables matches and targets, which iptables-nft stores inside `nf_tables` rules as they are.
//!
//! What iptables-nft 1.8.9 stores natively instead, as seen in dumps (kernel 6.18): addresses, interfaces and
//! protocols; `tcp` and `udp` with ports or flags; the `mark` match; `limit`; `-f`; jumps and plain verdicts; `TRACE`.
//! As structures it stores all other matches and targets, `comment` and the `MARK` target among them, and `tcp`
//! and `udp` *without* any option (`-m tcp -j DNAT`), which match every packet of the protocol.
//!
//! The order of a rule's expressions: `-i`, `-o`, `-p` (`meta l4proto`), `-s`, `-d`, `-f`, then matches in the order
//! they were given, then a counter, then the verdict or target. (iptables-save writes `-s -d -i -o -p -f`.) A prefix
//! of whole bytes is a payload load of so many bytes (`/8` loads one) and has no bitwise; an interface ending in `+`
//! is compared without a closing NUL. Only register 1 is used, and 9 for `TRACE`. A rule without `-j` ends with its
//! counter.
//!
//! Numbers inside the structures are in the machine's order, addresses and the ports of NAT in network order.

mod conntrack;
mod matches;
mod ports;
mod read;
mod recent;
mod target;

pub use conntrack::{Conntrack, ConntrackAddress, ConntrackField, ConntrackPorts, ConntrackState};
pub use matches::{AddrType, IfaceLimit, Mark, Set, Statistic, TypeMask};
pub use ports::{Icmp, Multiport, MultiportSide, PortRange, Sctp, Tcp, TcpFlags, Udp};
pub use recent::{Recent, RecentCheck, RecentSide};
pub use target::{Icmp6Reject, IcmpReject, MarkTarget, NatRange, RejectWith, Target};

use crate::nfnl::Family;

/// A match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match<'a> {
    /// A note; matches everything.
    Comment(&'a str),
    /// TCP ports, flags and options.
    Tcp(Tcp),
    /// UDP ports.
    Udp(Udp),
    /// SCTP ports and chunks.
    Sctp(Sctp),
    /// ICMP or `ICMPv6` types.
    Icmp(Icmp),
    /// Chance, or every nth packet.
    Statistic(Statistic),
    /// State, status and tuples of the connection. `-m state` is one of these too.
    Conntrack(Conntrack),
    /// Type of address, as the routing table has it.
    AddrType(AddrType),
    /// Firewall mark. iptables-nft stores it natively; this is for others.
    Mark(Mark),
    /// List of recently seen addresses.
    Recent(Recent<'a>),
    /// Counts into an accounting object of this name; matches everything.
    Nfacct(&'a str),
    /// Membership in an ipset.
    Set(Set),
    /// Several ports.
    Multiport(Multiport),
    /// Anything else, and what is not exactly as expected.
    Other {
        /// Name.
        name: &'a str,
        /// Revision.
        revision: u32,
        /// Structure.
        info: &'a [u8],
    },
}

impl<'a> Match<'a> {
    /// Reads the structure of a match, as an expression carries it. `family` is that of the rule's table and tells
    /// how long addresses are.
    pub fn read(family: Family, name: &'a str, revision: u32, info: &'a [u8]) -> Self {
        Self::known(family, name, revision, info).unwrap_or(Self::Other { name, revision, info })
    }

    fn known(family: Family, name: &str, revision: u32, info: &'a [u8]) -> Option<Self> {
        match (name, revision) {
            ("comment", 0) => read::text(info).map(Self::Comment),
            ("nfacct", 0 | 1) => read::text(info.get(..32)?).map(Self::Nfacct),
            ("tcp", 0) => Tcp::read(info).map(Self::Tcp),
            ("udp", 0) => Udp::read(info).map(Self::Udp),
            ("sctp", 0) => Sctp::read(info).map(Self::Sctp),
            ("icmp" | "icmp6", 0) => Icmp::read(info).map(Self::Icmp),
            ("multiport", 0 | 1) => Multiport::read(revision, info).map(Self::Multiport),
            ("statistic", 0) => Statistic::read(info).map(Self::Statistic),
            ("addrtype", 1) => AddrType::read(info).map(Self::AddrType),
            ("mark", 1) => Mark::read(info).map(Self::Mark),
            ("set", 1..=4) => Set::read(info).map(Self::Set),
            ("recent", 0 | 1) => Recent::read(family, revision, info).map(Self::Recent),
            ("conntrack", 1..=3) => Conntrack::read(family, revision, info).map(Self::Conntrack),
            _ => None,
        }
    }
}
