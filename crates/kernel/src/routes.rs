//! Routes and the rules of policy routing, by rtnetlink.

use crate::addresses::{ip, question};
use crate::links::{Link, links};
use crate::socket::{Socket, SocketError};
use ipnet::IpNet;
use netlink::DecodeError;
use netlink::attr::{Attrs, until_nul};
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
    /// Blackhole, unreachable, prohibit; of rules as well.
    pub(super) const NOWHERE: std::ops::RangeInclusive<u8> = 6..=8;
    pub(super) const THROW: u8 = 9;
    /// An entry of a cache.
    pub(super) const CLONED: u32 = 0x200;
    pub(super) const MAIN: u32 = 254;
    pub(super) const LOCAL: u32 = 255;
    pub(super) const DEFAULT: u32 = 253;
    /// Of rules `struct fib_rule_hdr` has other fields.
    pub(super) const RULE_TO_LENGTH_AT: usize = 1;
    pub(super) const RULE_FROM_LENGTH_AT: usize = 2;
    pub(super) const RULE_TOS_AT: usize = 3;
    pub(super) const RULE_LOOKS_UP: u8 = 1;
    pub(super) const RULE_TO: u16 = 1;
    pub(super) const RULE_FROM: u16 = 2;
    pub(super) const RULE_COMES_IN: u16 = 3;
    pub(super) const RULE_SUPPRESSES: u16 = 14;
    pub(super) const RULE_GOES_OUT: u16 = 17;
    /// Flow, tunnel, group of interfaces that is suppressed, l3mdev, users, protocol, ports, and what came later. The
    /// numbers between are of padding and of who made the rule.
    pub(super) const RULE_MORE: [std::ops::RangeInclusive<u16>; 4] = [11..=12, 19..=20, 22..=24, 25..=40];
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
    /// What it does.
    pub does: Does,
}

/// What a route or a rule does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Does {
    /// It leads somewhere: a route to its next hop, a rule to its table.
    Leads,
    /// It refuses or drops.
    Stops,
    /// It ends the search in its table, and the next rule is asked.
    Throws,
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
        f.write_str(match self.does {
            Does::Leads => "",
            Does::Stops => "blackhole ",
            Does::Throws => "throw ",
        })?;
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
    let does = match fixed[uapi::TYPE_AT] {
        uapi::UNICAST => Does::Leads,
        uapi::THROW => Does::Throws,
        kind if uapi::NOWHERE.contains(&kind) => Does::Stops,
        _ => return Ok(None),
    };
    let is_cached = number(&fixed[uapi::FLAGS_AT..]).is_some_and(|flags| flags & uapi::CLONED != 0);
    if message.header.kind != uapi::NEW_ROUTE || is_cached {
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
    if table == uapi::LOCAL || (interface.is_none() && does == Does::Leads) {
        return Ok(None);
    }
    Ok(Some(Route {
        to,
        via,
        interface,
        source,
        table: Some(table).filter(|table| *table != uapi::MAIN),
        protocol: fixed[uapi::PROTOCOL_AT],
        does,
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

/// A rule of policy routing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Its place in the order; lower ones are asked first.
    pub priority: u32,
    /// Whether it is for packets that are not as it says.
    pub is_inverted: bool,
    /// The senders, unless it is all.
    pub from: Option<IpNet>,
    /// The destinations, unless it is all.
    pub to: Option<IpNet>,
    /// The mark, and the bits of it that count.
    pub mark: Option<(u32, u32)>,
    /// The interface that packets come in by.
    pub comes_in: Option<String>,
    /// The interface that a socket is bound to.
    pub goes_out: Option<String>,
    /// Whether it asks for more than these.
    pub has_more: bool,
    /// What it does: ask its table, as a rule.
    pub does: Does,
    /// The table that is asked.
    pub table: u32,
    /// Routes of the table that are no longer than this do not count.
    pub suppresses: Option<u32>,
}

/// As `ip rule` prints it; that there are conditions of other kinds is told in a word.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.is_inverted { "not " } else { "" };
        write!(f, "{}: {not}from ", self.priority)?;
        match self.from {
            Some(net) => write!(f, "{net}")?,
            None => f.write_str("all")?,
        }
        if let Some(net) = self.to {
            write!(f, " to {net}")?;
        }
        match self.mark {
            Some((value, u32::MAX)) => write!(f, " fwmark {value:#x}")?,
            Some((value, mask)) => write!(f, " fwmark {value:#x}/{mask:#x}")?,
            None => {}
        }
        if let Some(name) = &self.comes_in {
            write!(f, " iif {name}")?;
        }
        if let Some(name) = &self.goes_out {
            write!(f, " oif {name}")?;
        }
        if self.has_more {
            f.write_str(" and-more")?;
        }
        match (self.does, self.table) {
            (Does::Stops | Does::Throws, _) => f.write_str(" unreachable")?,
            (Does::Leads, uapi::MAIN) => f.write_str(" lookup main")?,
            (Does::Leads, uapi::LOCAL) => f.write_str(" lookup local")?,
            (Does::Leads, uapi::DEFAULT) => f.write_str(" lookup default")?,
            (Does::Leads, table) => write!(f, " lookup {table}")?,
        }
        match self.suppresses {
            Some(length) => write!(f, " suppress_prefixlength {length}"),
            None => Ok(()),
        }
    }
}

/// The three that every namespace has: by priority and table.
const USUAL: [(u32, u32); 3] = [(0, uapi::LOCAL), (32766, uapi::MAIN), (32767, uapi::DEFAULT)];

impl Rule {
    fn is_usual(&self) -> bool {
        let is_plain = self.from.is_none() && self.to.is_none() && self.mark.is_none() && !self.has_more;
        is_plain && self.suppresses.is_none() && USUAL.contains(&(self.priority, self.table))
    }
}

/// The rules of policy routing of both families, each once, but for the three that every namespace has.
///
/// # Errors
/// When the kernel would not say; one without policy routing has none.
pub fn rules() -> Result<Vec<Rule>, SocketError> {
    let mut socket = Socket::route()?;
    let mut found = socket.dump(
        |sequence, bytes| question(uapi::GET_RULE, uapi::FIXED, sequence, bytes),
        |message| Ok(read_rule(message)?),
    )?;
    found.retain(|rule| !rule.is_usual());
    found.sort();
    found.dedup();
    Ok(found)
}

fn read_rule(message: Message<'_>) -> Result<Option<Rule>, DecodeError> {
    let Some((fixed, attributes)) = message.payload.split_at_checked(uapi::FIXED) else {
        return Ok(None);
    };
    let does = match fixed[uapi::TYPE_AT] {
        uapi::RULE_LOOKS_UP => Does::Leads,
        kind if uapi::NOWHERE.contains(&kind) => Does::Stops,
        _ => return Ok(None),
    };
    let is_ip = [uapi::AF_INET, uapi::AF_INET6].contains(&fixed[0]);
    if message.header.kind != uapi::NEW_RULE || !is_ip {
        return Ok(None);
    }
    let flags = number(&fixed[uapi::FLAGS_AT..]).unwrap_or(0);
    let (mut wanted, mut mask) = (None, u32::MAX);
    let mut rule = Rule {
        priority: 0,
        is_inverted: flags & uapi::RULE_INVERT != 0,
        from: None,
        to: None,
        mark: None,
        comes_in: None,
        goes_out: None,
        has_more: fixed[uapi::RULE_TOS_AT] != 0,
        does,
        table: u32::from(fixed[uapi::TABLE_AT]),
        suppresses: None,
    };
    let net = |value: &[u8], length_at: usize| ip(value).and_then(|ip| IpNet::new(ip, fixed[length_at]).ok());
    for attr in Attrs::new(attributes, "rule", HEADER_LENGTH + uapi::FIXED) {
        let attr = attr?;
        match attr.kind {
            uapi::RULE_PRIORITY => rule.priority = number(attr.value).unwrap_or(0),
            uapi::RULE_FROM => rule.from = net(attr.value, uapi::RULE_FROM_LENGTH_AT),
            uapi::RULE_TO => rule.to = net(attr.value, uapi::RULE_TO_LENGTH_AT),
            uapi::RULE_MARK => wanted = number(attr.value),
            uapi::RULE_MASK => mask = number(attr.value).unwrap_or(mask),
            uapi::RULE_COMES_IN => rule.comes_in = Some(text(attr.value)),
            uapi::RULE_GOES_OUT => rule.goes_out = Some(text(attr.value)),
            // All bits set: nothing is suppressed.
            uapi::RULE_SUPPRESSES => {
                rule.suppresses = number(attr.value).filter(|length| *length != u32::MAX);
            }
            uapi::TABLE => rule.table = number(attr.value).unwrap_or(rule.table),
            kind => rule.has_more |= uapi::RULE_MORE.iter().any(|kinds| kinds.contains(&kind)),
        }
    }
    rule.mark = wanted
        .filter(|wanted| (*wanted, mask) != (0, 0))
        .map(|mark| (mark, mask));
    Ok(Some(rule))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(until_nul(bytes)).into_owned()
}
