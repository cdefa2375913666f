//! What a packet carries along while rules are walked.

use crate::history::NodeId;
use model::{ConnState, Packet, Protocol};
use std::net::{IpAddr, SocketAddr};

/// 32 bits of a mark, of which some may be unknown.
///
/// Invariant: bits that are not known are zero in the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bits {
    value: u32,
    known: u32,
}

impl Bits {
    /// A mark of which every bit is known.
    pub fn known(value: u32) -> Bits {
        Bits {
            value,
            known: u32::MAX,
        }
    }

    /// A mark of which nothing is known.
    pub fn unknown() -> Bits {
        Bits { value: 0, known: 0 }
    }

    /// The bits that are known, and zeros.
    pub fn value(self) -> u32 {
        self.value
    }

    /// Whether every bit is known.
    pub fn is_known(self) -> bool {
        self.known == u32::MAX
    }

    /// Whether `mark & mask == value`; `None` when that hangs on unknown bits.
    pub fn equals(self, value: u32, mask: u32) -> Option<bool> {
        let decided = mask & self.known;
        if self.value & decided != value & decided || value & !mask != 0 {
            return Some(false);
        }
        (decided == mask).then_some(true)
    }

    /// `(mark & !mask) ^ value`, which is what `--set-xmark VALUE/MASK` does.
    #[must_use]
    pub fn set_xmark(self, value: u32, mask: u32) -> Bits {
        let known = self.known | mask;
        Bits {
            value: ((self.value & !mask) ^ value) & known,
            known,
        }
    }

    /// The bits of `mask` taken from `other` by exclusive or, as `CONNMARK --save-mark` and `--restore-mark` do:
    /// `(mark & !own_mask) ^ (other & other_mask)`.
    #[must_use]
    pub fn mixed_with(self, own_mask: u32, other: Bits, other_mask: u32) -> Bits {
        let known = (self.known | own_mask) & (other.known | !other_mask);
        Bits {
            value: ((self.value & !own_mask) ^ (other.value & other_mask)) & known,
            known,
        }
    }
}

/// What conntrack thinks of the packet where it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// It has not come to conntrack yet: the raw table is before it. `--ctstate` calls that INVALID.
    Unseen,
    /// First packet of a connection.
    New,
    /// Packet of a known connection.
    Established,
    /// Conntrack could make nothing of it.
    Invalid,
    /// The raw table asked that it not be tracked.
    Untracked,
}

impl From<ConnState> for Track {
    fn from(state: ConnState) -> Track {
        match state {
            ConnState::New => Track::New,
            ConnState::Established => Track::Established,
            ConnState::Invalid => Track::Invalid,
        }
    }
}

/// Whether one side of a connection was translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nat {
    /// The nat table was not asked yet.
    Undecided,
    /// It was asked and changed nothing; it is not asked again for this connection.
    Kept,
    /// It changed the address or the port.
    Changed,
}

/// The connection that the packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection {
    /// What conntrack thinks of the packet.
    pub track: Track,
    /// Destination translation (PREROUTING or OUTPUT), at most once per connection.
    pub dnat: Nat,
    /// Source translation (POSTROUTING or INPUT), at most once per connection.
    pub snat: Nat,
    /// The connection's mark.
    pub mark: Bits,
    /// The source the connection was opened with.
    pub original_src: SocketAddr,
    /// The destination the connection was opened with.
    pub original_dst: SocketAddr,
}

/// The packet at one point of its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Source address; `None` after a source translation to an address of this host that nobody told us.
    pub src: Option<IpAddr>,
    /// Source port; `None` after a translation that chooses a port.
    pub src_port: Option<u16>,
    /// Destination.
    pub dst: SocketAddr,
    /// Transport protocol.
    pub protocol: Protocol,
    /// The packet's mark.
    pub mark: Bits,
    /// The packet's connection.
    pub connection: Connection,
    /// The product of the chances of the random choices taken so far.
    pub chance: f64,
    /// The last event of this packet's history.
    pub last: Option<NodeId>,
}

/// What rules see of a [`State`]: all of it but its chance and its history.
pub type Seen = (
    (Option<IpAddr>, Option<u16>),
    SocketAddr,
    Protocol,
    Bits,
    Connection,
);

impl State {
    /// What rules see of it.
    pub fn seen(&self) -> Seen {
        let source = (self.src, self.src_port);
        (source, self.dst, self.protocol, self.mark, self.connection)
    }

    /// A packet at the beginning of its way, before conntrack has seen it.
    pub fn new(packet: &Packet) -> State {
        // A connection that is known already may have left any mark; a new one has none.
        let mark = match packet.state {
            ConnState::Established => Bits::unknown(),
            ConnState::New | ConnState::Invalid => Bits::known(0),
        };
        State {
            src: Some(packet.src),
            src_port: Some(packet.src_port),
            dst: packet.dst,
            protocol: packet.protocol,
            mark: Bits::known(packet.mark),
            connection: Connection {
                track: Track::Unseen,
                dnat: Nat::Undecided,
                snat: Nat::Undecided,
                mark,
                original_src: SocketAddr::new(packet.src, packet.src_port),
                original_dst: packet.dst,
            },
            chance: 1.0,
            last: None,
        }
    }
}
