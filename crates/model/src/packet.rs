//! A packet, as far as service rules can look at it.

use crate::{Family, Protocol};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where a packet starts its way through this host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A process on this host sends it: OUTPUT, then POSTROUTING.
    Host,
    /// It comes in through this interface: PREROUTING, then INPUT or FORWARD. Empty when nobody said which.
    Interface(Arc<str>),
}

/// The first packet of a connection, or one of its later packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnState {
    /// Opens a connection.
    #[default]
    New,
    /// Belongs to a known connection.
    Established,
    /// Conntrack could make nothing of it.
    Invalid,
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    /// Source address.
    pub src: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Destination address and port.
    pub dst: SocketAddr,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Where it starts.
    pub origin: Origin,
    /// Conntrack's opinion of it.
    pub state: ConnState,
    /// The mark it carries at the start.
    pub mark: u32,
}

impl Packet {
    /// A new connection's first packet, from a port that no rule is about, without a mark.
    pub fn new(src: IpAddr, dst: SocketAddr, protocol: Protocol, origin: Origin) -> Self {
        Packet {
            src,
            src_port: 40_000,
            dst,
            protocol,
            origin,
            state: ConnState::New,
            mark: 0,
        }
    }

    /// The packet's family, which is its destination's.
    pub fn family(&self) -> Family {
        Family::of(self.dst.ip())
    }
}

/// `tcp 10.0.0.2:40000 -> 10.1.0.10:53 in eth0`.
impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let src = SocketAddr::new(self.src, self.src_port);
        write!(f, "{} {src} -> {}", self.protocol.as_lower(), self.dst)?;
        match &self.origin {
            Origin::Host => write!(f, " from this host"),
            Origin::Interface(name) if name.is_empty() => Ok(()),
            Origin::Interface(name) => write!(f, " in {name}"),
        }
    }
}
