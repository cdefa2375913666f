//! Hearing why a connection failed.
//!
//! A socket's error does not tell a TCP reset from an ICMP port-unreachable message: both are `ECONNREFUSED`.
//! `IP_RECVERR` would tell, but there is no safe call for it, so an [`Ear`] listens on raw ICMP sockets, which get
//! their copy before the socket gets its error, and keeps what was said about which connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto};

use crate::topology::Proto;
use crate::wire_format::{self, Transport};

/// What an ICMP destination-unreachable message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Port unreachable.
    Port,
    /// Administratively prohibited, whichever way.
    Prohibited,
    /// No route, no such host, and so on.
    Elsewhere,
}

/// The connection a message is about, as its sender sees it.
pub type Subject = (Proto, u16, SocketAddr);

/// Listens for ICMP messages in the namespace it was made in.
pub struct Ear {
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
    heard: BTreeMap<Subject, Unreachable>,
}

impl Ear {
    /// Without the right to raw sockets it hears nothing, and every refusal of TCP looks like a reset.
    pub fn open() -> Self {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let raw =
            |family, protocol| rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol)).ok();
        Self {
            v4: raw(AddressFamily::INET, ipproto::ICMP),
            v6: raw(AddressFamily::INET6, ipproto::ICMPV6),
            heard: BTreeMap::new(),
        }
    }

    /// Its sockets, to wait for.
    pub fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        self.v4.iter().chain(&self.v6)
    }

    /// What has been said about a connection, once.
    pub fn heard_about(&mut self, subject: Subject) -> Option<Unreachable> {
        self.heard.remove(&subject)
    }

    /// Takes in what has been said.
    pub fn listen(&mut self) {
        let mut buffer = [0_u8; 2048];
        for (socket, parse) in [
            (&self.v4, parse_v4 as fn(&[u8]) -> Option<(Subject, Unreachable)>),
            (&self.v6, parse_v6 as fn(&[u8]) -> Option<(Subject, Unreachable)>),
        ] {
            let Some(socket) = socket else { continue };
            while let Ok((length, _)) = rustix::net::recv(socket, &mut buffer, RecvFlags::empty()) {
                if let Some((subject, said)) = buffer.get(..length).and_then(parse) {
                    self.heard.insert(subject, said);
                }
            }
        }
        // Messages about connections that nobody asks about again.
        if self.heard.len() > 4096 {
            self.heard.clear();
        }
    }
}

/// A raw IPv4 socket delivers the IP header too (RFC 792: type 3, code, 6 bytes, the packet it is about).
fn parse_v4(packet: &[u8]) -> Option<(Subject, Unreachable)> {
    let message = packet.get(wire_format::ipv4_header_length(packet)?..)?;
    if *message.first()? != 3 {
        return None;
    }
    let said = match *message.get(1)? {
        3 => Unreachable::Port,
        9 | 10 | 13 => Unreachable::Prohibited,
        _ => Unreachable::Elsewhere,
    };
    Some((subject(wire_format::parse(message.get(8..)?)?), said))
}

/// A raw `ICMPv6` socket delivers the message alone (RFC 4443: type 1, code, 6 bytes, the packet it is about).
fn parse_v6(message: &[u8]) -> Option<(Subject, Unreachable)> {
    if *message.first()? != 1 {
        return None;
    }
    let said = match *message.get(1)? {
        4 => Unreachable::Port,
        1 | 5 => Unreachable::Prohibited,
        _ => Unreachable::Elsewhere,
    };
    Some((subject(wire_format::parse(message.get(8..)?)?), said))
}

fn subject(packet: wire_format::Packet<'_>) -> Subject {
    let proto = match packet.transport {
        Transport::Tcp(_) => Proto::Tcp,
        Transport::Udp(_) => Proto::Udp,
        Transport::Sctp => Proto::Sctp,
    };
    (proto, packet.src.port(), packet.dst)
}

/// The destination without scope and flow, as it stands in packets.
pub fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}
