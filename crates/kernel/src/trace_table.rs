//! A table of our own whose rules ask the kernel to trace some packets.

use crate::nft;
use crate::socket::{Socket, SocketError};
use model::Family;
use netlink::nfnl::Family as NetlinkFamily;
use netlink::nft::{
    Change, CmpOp, Expr, Hook, LimitType, MetaKey, NewBase, PayloadBase, Place, Policy, Register, TABLE_OWNER,
};
use netlink::packet::PacketView;
use std::net::IpAddr;

/// Which packets are traced. What is `None` is any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// Source address.
    pub source: Option<IpAddr>,
    /// Source port; needs a protocol.
    pub source_port: Option<u16>,
    /// Destination address, before NAT.
    pub destination: Option<IpAddr>,
    /// Protocol number: 6 is TCP, 17 UDP, 132 SCTP.
    pub protocol: Option<u8>,
    /// Destination port, before NAT; needs a protocol.
    pub port: Option<u16>,
    /// Index of the interface it comes in through; nothing that this host sends then.
    pub in_interface: Option<u32>,
}

impl Traced {
    /// Whether a packet is one of these, which came in through the interface with this index.
    pub(crate) fn fits(&self, view: &PacketView, iif: Option<u32>) -> bool {
        let is_source = self.source.is_none_or(|ip| ip == view.source);
        let is_destination = self.destination.is_none_or(|ip| ip == view.destination);
        let is_protocol = self.protocol.is_none_or(|protocol| protocol == view.protocol);
        is_source
            && is_destination
            && is_protocol
            && (self.source_port.is_none() || self.source_port == view.source_port)
            && (self.port.is_none() || self.port == view.destination_port)
            && (self.in_interface.is_none() || self.in_interface == iif)
    }
}

/// How many packets of those that match are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Every one.
    All,
    /// So many a second, for each rule and hook: every traced packet costs the host some thirty messages.
    PerSecond(u64),
}

/// Sets `nftrace` on packets, before any rule of iptables sees them, for as long as it lives.
///
/// The table is owned by this process's socket: nobody else may change it, and the kernel removes it when the
/// process ends, however it ends.
pub struct TraceTable {
    socket: Socket,
    family: NetlinkFamily,
    name: String,
}

/// What the names of tables begin with that `kube-proxy trace --live` makes: they decide nothing, and are none of a host's
/// rules.
pub const TRACE_TABLES: &str = "kube-proxy-trace-";

/// Before conntrack (-200) and before every chain of iptables; raw is at -300.
const FIRST: i32 = -350;
/// Behind source NAT (100), which the events of its own hook do not show yet.
const LAST: i32 = 250;

/// Our chains: where packets begin to be traced, and where they are seen as they leave.
const CHAINS: [(&str, Hook, i32); 4] = [
    ("prerouting", Hook::Prerouting, FIRST),
    ("output", Hook::Output, FIRST),
    ("input", Hook::Input, LAST),
    ("postrouting", Hook::Postrouting, LAST),
];

/// The chains where packets begin to be traced.
pub(crate) const ENTRIES: [&str; 2] = ["prerouting", "output"];

impl TraceTable {
    /// Begins to trace packets that match any of `traced`, on their way in and out of this host. `name` is the
    /// table's, and must be nobody else's.
    ///
    /// # Errors
    /// When the kernel refuses the table.
    pub fn new(family: Family, name: &str, traced: &[Traced]) -> Result<TraceTable, SocketError> {
        Self::with_share(family, name, traced, Share::All)
    }

    /// The same for so many of the packets.
    ///
    /// # Errors
    /// When the kernel refuses the table.
    pub fn with_share(
        family: Family,
        name: &str,
        traced: &[Traced],
        share: Share,
    ) -> Result<TraceTable, SocketError> {
        let family = nft::family(family);
        let mut socket = Socket::netfilter()?;
        let mut batch = socket.batch(None);
        batch.push(&Change::NewTable {
            family,
            name,
            flags: TABLE_OWNER,
        })?;
        for (chain, hook, priority) in CHAINS {
            let base = NewBase {
                hook,
                priority,
                kind: "filter",
                policy: Policy::Accept,
            };
            batch.push(&Change::NewChain {
                family,
                table: name,
                name: chain,
                base: Some(base),
            })?;
            // The late chains have no rule: a packet that is traced is told of at their end.
            for one in traced.iter().filter(|_| ENTRIES.contains(&chain)) {
                let bytes = Bytes::of(one);
                let expressions = bytes.expressions(share);
                batch.push(&Change::NewRule {
                    family,
                    table: name,
                    chain,
                    place: Place::Last,
                    expressions: &expressions,
                    userdata: &[],
                })?;
            }
        }
        socket.commit(batch)?;
        Ok(TraceTable {
            socket,
            family,
            name: name.to_owned(),
        })
    }
}

impl Drop for TraceTable {
    fn drop(&mut self) {
        let mut batch = self.socket.batch(None);
        if batch
            .push(&Change::DeleteTable {
                family: self.family,
                name: &self.name,
            })
            .is_ok()
        {
            // If it fails, closing the socket removes the table all the same.
            let _ = self.socket.commit(batch);
        }
    }
}

/// What a rule compares with, in the order of the wire.
struct Bytes {
    source: Option<Vec<u8>>,
    destination: Option<Vec<u8>>,
    protocol: Option<[u8; 1]>,
    source_port: Option<[u8; 2]>,
    port: Option<[u8; 2]>,
    in_interface: Option<[u8; 4]>,
}

/// Where the addresses are in a header.
const V4_SOURCE: u32 = 12;
const V4_DESTINATION: u32 = 16;
const V6_SOURCE: u32 = 8;
const V6_DESTINATION: u32 = 24;
/// Where TCP, UDP and SCTP have their ports.
const SOURCE_PORT: u32 = 0;
const PORT: u32 = 2;

impl Bytes {
    fn of(traced: &Traced) -> Bytes {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let port = |port: Option<u16>| port.filter(|_| traced.protocol.is_some()).map(u16::to_be_bytes);
        Bytes {
            source: traced.source.map(octets),
            destination: traced.destination.map(octets),
            protocol: traced.protocol.map(|number| [number]),
            source_port: port(traced.source_port),
            port: port(traced.port),
            in_interface: traced.in_interface.map(u32::to_ne_bytes),
        }
    }

    fn expressions(&self, share: Share) -> Vec<Expr<'_>> {
        let mut all = Vec::new();
        if let Some(index) = &self.in_interface {
            all.push(Expr::Meta {
                dreg: Register::R1,
                key: MetaKey::Iif,
            });
            all.push(equals(index));
        }
        let sides = [
            (&self.source, V4_SOURCE, V6_SOURCE),
            (&self.destination, V4_DESTINATION, V6_DESTINATION),
        ];
        for (octets, v4, v6) in sides {
            let Some(octets) = octets else { continue };
            let (offset, len) = if octets.len() == 4 { (v4, 4) } else { (v6, 16) };
            all.push(Expr::Payload {
                dreg: Register::R1,
                base: PayloadBase::Network,
                offset,
                len,
            });
            all.push(equals(octets));
        }
        if let Some(protocol) = &self.protocol {
            all.push(Expr::Meta {
                dreg: Register::R1,
                key: MetaKey::L4Proto,
            });
            all.push(equals(protocol));
        }
        for (port, offset) in [(&self.source_port, SOURCE_PORT), (&self.port, PORT)] {
            let Some(port) = port else { continue };
            all.push(Expr::Payload {
                dreg: Register::R1,
                base: PayloadBase::Transport,
                offset,
                len: 2,
            });
            all.push(equals(port));
        }
        if let Share::PerSecond(rate) = share {
            all.push(Expr::Limit {
                rate,
                unit: 1,
                burst: Some(u32::try_from(rate).unwrap_or(u32::MAX)),
                kind: LimitType::Packets,
                flags: None,
            });
        }
        all.push(Expr::Immediate {
            dreg: Register::R1,
            value: netlink::nft::Value::Data(&[1]),
        });
        all.push(Expr::MetaSet {
            sreg: Register::R1,
            key: MetaKey::NfTrace,
        });
        all
    }
}

fn equals(data: &[u8]) -> Expr<'_> {
    Expr::Cmp {
        sreg: Register::R1,
        op: CmpOp::Eq,
        data,
    }
}
