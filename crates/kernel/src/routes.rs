//! Routes and the rules of policy routing, by rtnetlink.

use crate::addresses::{ip, question};
use crate::links::{Link, links};
use crate::socket::{Socket, SocketError};
use ipnet::IpNet;
use netlink::DecodeError;
use netlink::attr::Attrs;
use netlink::message::{HEADER_LENGTH, Message};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Message types, attributes and numbers of `linux/rtnetlink.h` and `linux/fib_rules.h`.
mod uapi {
    pub(super) const NEW_ROUTE: u16 = 24;
    pub(super) const GET_ROUTE: u16 = 26;
    pub(super) const NEW_RULE: u16 = 32;
    pub(super) const GET_RULE: u16 = 34;
    /// `struct rtmsg` and `struct fib_rule_hdr`: both 12 bytes, family first.
    pub(super) const FIXED: usize = 12;
    pub(super) const LENGTH_AT: usize = 1;
    pub(super) const TABLE_AT: usize = 4;
    pub(super) const PROTOCOL_AT: usize = 5;
    pub(super) const TYPE_AT: usize = 7;
    pub(super) const FLAGS_AT: usize = 8;
    pub(super) const AF_INET: u8 = 2;
    pub(super) const AF_INET6: u8 = 10;
    pub(super) const TO: u16 = 1;
    pub(super) const OUT: u16 = 4;
    pub(super) const GATEWAY: u16 = 5;
    pub(super) const PREFERRED: u16 = 7;
    pub(super) const MULTIPATH: u16 = 9;
    pub(super) const TABLE: u16 = 15;
    pub(super) const VIA: u16 = 18;
    /// `struct rtnexthop`: length, flags, hops, number of the interface.
    pub(super) const NEXT_HOP: usize = 8;
    pub(super) const UNICAST: u8 = 1;
    /// Blackhole, unreachable, prohibit, throw.
    pub(super) const NOWHERE: std::ops::RangeInclusive<u8> = 6..=9;
    /// An entry of a cache.
    pub(super) const CLONED: u32 = 0x200;
    pub(super) const MAIN: u32 = 254;
    pub(super) const LOCAL: u32 = 255;
    pub(super) const RULE_PRIORITY: u16 = 6;
    pub(super) const RULE_MARK: u16 = 10;
    pub(super) const RULE_MASK: u16 = 16;
    pub(super) const RULE_INVERT: u32 = 2;
}

/// A route of any table but `local`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub to: IpNet,
    /// The next hop; the first of several.
    pub via: Option<IpAddr>,
    /// The interface; `None` for one that leads nowhere.
    pub interface: Option<String>,
    /// The source that it prefers.
    pub source: Option<IpAddr>,
    /// The table, unless it is the main one.
    pub table: Option<u32>,
    /// Who made it: `RTPROT_`.
    pub protocol: u8,
    /// Whether it refuses or drops.
    pub is_nowhere: bool,
}

/// `RTPROT_` with a name in `ip route`.
const PROTOCOLS: [(u8, &str); 8] = [
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (9, "ra"),
    (12, "bird"),
    (16, "dhcp"),
    (186, "bgp"),
];

/// As `ip route` prints it, but that the default route of IPv6 is `::/0`.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nowhere {
            f.write_str("blackhole ")?;
        }
        match (self.to.prefix_len(), self.to.addr()) {
            (0, IpAddr::V4(_)) => f.write_str("default")?,
            _ => write!(f, "{}", self.to)?,
        }
        if let Some(via) = self.via {
            write!(f, " via {via}")?;
        }
        if let Some(interface) = &self.interface {
            write!(f, " dev {interface}")?;
        }
        if let Some(table) = self.table {
            write!(f, " table {table}")?;
        }
        match PROTOCOLS.iter().find(|(number, _)| *number == self.protocol) {
            Some((_, name)) => write!(f, " proto {name}")?,
            None => write!(f, " proto {}", self.protocol)?,
        }
        match self.source {
            Some(source) => write!(f, " src {source}"),
            None => Ok(()),
        }
    }
}

/// All routes of both families that are not of table `local`.
///
/// # Errors
/// When the kernel would not say.
pub fn routes() -> Result<Vec<Route>, SocketError> {
    let names: BTreeMap<u32, String> = links()?
        .into_iter()
        .map(|Link { index, name, .. }| (index, name))
        .collect();
    let mut socket = Socket::route()?;
    socket.dump(
        |sequence, bytes| question(uapi::GET_ROUTE, uapi::FIXED, sequence, bytes),
        |message| Ok(read_route(message, &names)?),
    )
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.get(..4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn read_route(message: Message<'_>, names: &BTreeMap<u32, String>) -> Result<Option<Route>, DecodeError> {
    let Some((fixed, attributes)) = message.payload.split_at_checked(uapi::FIXED) else {
        return Ok(None);
    };
    let nowhere: IpAddr = match fixed[0] {
        uapi::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        uapi::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Ok(None),
    };
    let kind = fixed[uapi::TYPE_AT];
    let is_nowhere = uapi::NOWHERE.contains(&kind);
    let is_cached = number(&fixed[uapi::FLAGS_AT..]).is_some_and(|flags| flags & uapi::CLONED != 0);
    if message.header.kind != uapi::NEW_ROUTE || is_cached || !(is_nowhere || kind == uapi::UNICAST) {
        return Ok(None);
    }
    let mut to = nowhere;
    let (mut via, mut out, mut source) = (None, None, None);
    let mut table = u32::from(fixed[uapi::TABLE_AT]);
    for attr in Attrs::new(attributes, "route", HEADER_LENGTH + uapi::FIXED) {
        let attr = attr?;
        match attr.kind {
            uapi::TO => to = ip(attr.value).unwrap_or(to),
            uapi::OUT => out = number(attr.value),
            uapi::GATEWAY => via = ip(attr.value),
            // The address follows its family, two bytes.
            uapi::VIA => via = attr.value.get(2..).and_then(ip),
            uapi::PREFERRED => source = ip(attr.value),
            uapi::TABLE => table = number(attr.value).unwrap_or(table),
            uapi::MULTIPATH => (via, out) = first_hop(attr.value)?,
            _ => {}
        }
    }
    let Ok(to) = IpNet::new(to, fixed[uapi::LENGTH_AT]) else {
        return Ok(None);
    };
    let interface = out.and_then(|out| names.get(&out).cloned());
    if table == uapi::LOCAL || (interface.is_none() && !is_nowhere) {
        return Ok(None);
    }
    Ok(Some(Route {
        to,
        via,
        interface,
        source,
        table: Some(table).filter(|table| *table != uapi::MAIN),
        protocol: fixed[uapi::PROTOCOL_AT],
        is_nowhere,
    }))
}

/// The next hop and the number of the interface of the first of several.
fn first_hop(hops: &[u8]) -> Result<(Option<IpAddr>, Option<u32>), DecodeError> {
    let Some(head) = hops.get(..uapi::NEXT_HOP) else {
        return Ok((None, None));
    };
    let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
    let attributes = hops.get(uapi::NEXT_HOP..length).unwrap_or_default();
    let mut via = None;
    for attr in Attrs::new(attributes, "next hop", 0) {
        let attr = attr?;
        match attr.kind {
            uapi::GATEWAY => via = ip(attr.value),
            uapi::VIA => via = attr.value.get(2..).and_then(ip),
            _ => {}
        }
    }
    Ok((via, number(&head[4..])))
}

/// A rule of policy routing that asks for a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkRule {
    /// Its place in the order; lower ones are asked first.
    pub priority: u32,
    /// The mark.
    pub mark: u32,
    /// The bits of it that count.
    pub mask: u32,
    /// The table that is asked then.
    pub table: u32,
    /// Whether it is for packets that have not got the mark.
    pub is_inverted: bool,
}

/// As `ip rule` prints it.
impl fmt::Display for MarkRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.is_inverted { "not " } else { "" };
        write!(f, "{}: {not}from all fwmark {:#x}", self.priority, self.mark)?;
        if self.mask != u32::MAX {
            write!(f, "/{:#x}", self.mask)?;
        }
        match self.table {
            uapi::MAIN => f.write_str(" lookup main"),
            table => write!(f, " lookup {table}"),
        }
    }
}

/// The rules of policy routing of both families that ask for a mark. Each once.
///
/// # Errors
/// When the kernel would not say; one without policy routing has none.
pub fn mark_rules() -> Result<Vec<MarkRule>, SocketError> {
    let mut socket = Socket::route()?;
    let mut found = socket.dump(
        |sequence, bytes| question(uapi::GET_RULE, uapi::FIXED, sequence, bytes),
        |message| Ok(read_rule(message)?),
    )?;
    found.sort_by_key(|rule: &MarkRule| (rule.priority, rule.mark, rule.mask, rule.table));
    found.dedup();
    Ok(found)
}

fn read_rule(message: Message<'_>) -> Result<Option<MarkRule>, DecodeError> {
    let Some((fixed, attributes)) = message.payload.split_at_checked(uapi::FIXED) else {
        return Ok(None);
    };
    if message.header.kind != uapi::NEW_RULE {
        return Ok(None);
    }
    let (mut wanted, mut mask, mut priority) = (None, u32::MAX, 0);
    let mut table = u32::from(fixed[uapi::TABLE_AT]);
    for attr in Attrs::new(attributes, "rule", HEADER_LENGTH + uapi::FIXED) {
        let attr = attr?;
        match attr.kind {
            uapi::RULE_PRIORITY => priority = number(attr.value).unwrap_or(0),
            uapi::RULE_MARK => wanted = number(attr.value),
            uapi::RULE_MASK => mask = number(attr.value).unwrap_or(mask),
            uapi::TABLE => table = number(attr.value).unwrap_or(table),
            _ => {}
        }
    }
    let is_inverted = number(&fixed[uapi::FLAGS_AT..]).is_some_and(|flags| flags & uapi::RULE_INVERT != 0);
    let asks = wanted.filter(|wanted| (*wanted, mask) != (0, 0));
    Ok(asks.map(|mark| MarkRule {
        priority,
        mark,
        mask,
        table,
        is_inverted,
    }))
}
