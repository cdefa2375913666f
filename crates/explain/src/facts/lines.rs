//! Lines as `ip route` and `ip rule` print them.

use ipnet::IpNet;
use path::Route;
use std::net::IpAddr;

/// A route, with what the packet's way through the rules does not ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFacts {
    /// The route. Its interface is empty for one that leads nowhere.
    pub route: Route,
    /// `src`, when it is said.
    pub source: Option<IpAddr>,
    /// What it does.
    pub kind: RouteKind,
    /// The table, when it is said and not the main one.
    pub table: Option<String>,
    /// Who made it (`proto`), when it is said.
    pub made_by: Option<String>,
}

impl RouteFacts {
    /// Whether it is of the table that packets without a rule of their own ask.
    pub fn is_main(&self) -> bool {
        self.table.is_none() && self.kind != RouteKind::Own
    }
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// It leads somewhere.
    Unicast,
    /// It refuses or drops: network plugins keep such a route for their own block of addresses.
    Nowhere,
    /// It ends the search in its table, and the next rule of policy routing is asked (`throw`).
    Throw,
    /// What it leads to is the host's own (`local`), or everybody's on a link (`broadcast`, ...).
    Own,
}

/// The words that stand before a route's destination.
const KINDS: [(&str, RouteKind); 9] = [
    ("unicast", RouteKind::Unicast),
    ("blackhole", RouteKind::Nowhere),
    ("unreachable", RouteKind::Nowhere),
    ("prohibit", RouteKind::Nowhere),
    ("throw", RouteKind::Throw),
    ("local", RouteKind::Own),
    ("broadcast", RouteKind::Own),
    ("multicast", RouteKind::Own),
    ("anycast", RouteKind::Own),
];

/// A line of `ip route`. Words that decide nothing here (`metric`, `scope`, ...) are passed over.
pub(super) fn route(line: &str) -> Option<RouteFacts> {
    let mut words = line.split_whitespace().peekable();
    let said = words
        .peek()
        .and_then(|word| KINDS.into_iter().find(|(of, _)| of == word));
    let kind = said.map_or(RouteKind::Unicast, |(_, kind)| kind);
    if said.is_some() {
        words.next();
    }
    let net = words.next()?;
    let (mut via, mut interface, mut source) = (None, None, None);
    let (mut table, mut made_by) = (None, None);
    while let Some(name) = words.next() {
        match name {
            // `via inet6 fe80::1` names the family of the next hop first.
            "via" => {
                let hop = words.next()?;
                let hop = if hop.starts_with("inet") {
                    words.next()?
                } else {
                    hop
                };
                via = Some(hop.parse::<IpAddr>().ok()?);
            }
            "dev" => interface = Some(words.next()?.into()),
            "src" => source = Some(words.next()?.parse::<IpAddr>().ok()?),
            "table" => table = words.next().map(str::to_owned).filter(|name| name != "main"),
            "proto" => made_by = words.next().map(str::to_owned),
            // The interface of one of several next hops (`nexthop`) stands for the route.
            "onlink" | "linkdown" | "dead" | "pervasive" | "nexthop" => {}
            _ => drop(words.next()),
        }
    }
    let of_six = [via, source].into_iter().flatten().any(|ip| ip.is_ipv6());
    let to = match net {
        "default" if of_six => "::/0",
        "default" => "0.0.0.0/0",
        net => net,
    };
    let to = to.parse::<IpNet>().ok();
    let to = to.or_else(|| net.parse::<IpAddr>().ok().map(IpNet::from))?;
    let interface = match kind {
        RouteKind::Unicast => interface?,
        _ => interface.unwrap_or_else(|| "".into()),
    };
    Some(RouteFacts {
        route: Route { to, via, interface },
        source,
        kind,
        table,
        made_by,
    })
}

/// A rule of policy routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    /// The line.
    pub text: String,
    /// `fwmark VALUE/MASK`, when it asks for a mark.
    pub mark: Option<(u32, u32)>,
    /// `from NETWORK`, when it asks for a source.
    pub from: Option<IpNet>,
    /// Its place: lower ones are asked before.
    pub priority: Option<u32>,
    /// The table that it asks (`lookup`).
    pub table: Option<String>,
    /// Whether it is for packets that carry no mark, whoever sends them and wherever they go.
    pub is_for_all: bool,
    /// Routes of the table that are no longer than this do not count (`suppress_prefixlength`).
    pub suppresses: Option<u8>,
}

/// A line of `ip rule`.
pub(super) fn policy_rule(line: &str) -> PolicyRule {
    let mut words = line.split_whitespace().peekable();
    let place = words.peek().and_then(|word| word.strip_suffix(':')?.parse().ok());
    if place.is_some() {
        words.next();
    }
    let mut rule = PolicyRule {
        text: line.trim().to_owned(),
        mark: None,
        from: None,
        priority: place,
        table: None,
        is_for_all: true,
        suppresses: None,
    };
    let mut is_inverted = false;
    while let Some(word) = words.next() {
        match word {
            "not" => is_inverted = true,
            "from" | "to" => {
                let value = words.next();
                rule.is_for_all &= value == Some("all");
                rule.from = rule.from.or_else(|| network(value?).filter(|_| word == "from"));
            }
            "fwmark" => {
                rule.mark = words.next().and_then(mark);
                rule.is_for_all &= rule.mark.is_some();
            }
            "lookup" | "table" => rule.table = words.next().map(str::to_owned),
            "suppress_prefixlength" => rule.suppresses = words.next().and_then(|word| word.parse().ok()),
            "proto" | "protocol" => drop(words.next()),
            // Something else that it asks for, or does.
            _ => rule.is_for_all = false,
        }
    }
    // `not from all fwmark 0xca6c` is for packets without that mark; without a mark, `not from all` is for none.
    let asks_for_a_mark = rule.mark.is_some_and(|(value, mask)| value & mask != 0);
    rule.is_for_all &= is_inverted == asks_for_a_mark;
    rule
}

/// A network, or an address alone.
fn network(word: &str) -> Option<IpNet> {
    word.parse()
        .or_else(|_| word.parse::<IpAddr>().map(IpNet::from))
        .ok()
}

/// `VALUE/MASK`, or `VALUE`.
fn mark(word: &str) -> Option<(u32, u32)> {
    let (value, mask) = word.split_once('/').unwrap_or((word, "0xffffffff"));
    Some((number(value)?, number(mask)?))
}

/// A mark: in decimals, or in hexadecimals behind `0x`.
pub(super) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_that_lead_nowhere_and_those_of_other_tables_are_told_apart() {
        let blackhole = route("blackhole 10.244.1.0/26 proto bird").expect("a route");
        assert_eq!(blackhole.kind, RouteKind::Nowhere);
        assert_eq!(blackhole.made_by.as_deref(), Some("bird"));
        let tunnel = route("default dev wg0 table 51820 scope link").expect("a route");
        assert_eq!(
            (tunnel.table.as_deref(), tunnel.is_main()),
            (Some("51820"), false)
        );
        let six = route("default via fe80::1 dev eth0 proto ra metric 1024 pref medium").expect("a route");
        assert_eq!(six.route.to.to_string(), "::/0");
        assert!(route("default via 192.0.2.1 dev eth0 table main").is_some_and(|of| of.is_main()));
        assert_eq!(route("10.0.0.0/8 via 192.0.2.1"), None);
    }

    #[test]
    fn what_ip_route_shows_of_all_tables_is_read() {
        let kind = |line: &str| route(line).map(|of| (of.kind, of.is_main()));
        let own = Some((RouteKind::Own, false));
        assert_eq!(kind("local default dev lo table 2004"), own);
        assert_eq!(
            kind("local 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1"),
            own
        );
        assert_eq!(
            kind("broadcast 192.0.2.255 dev eth0 table local proto kernel scope link"),
            own
        );
        assert_eq!(
            kind("multicast ff00::/8 dev eth0 table local proto kernel metric 256 pref medium"),
            own
        );
        assert_eq!(
            kind("anycast 2001:db8:: dev eth0 table local proto kernel metric 0 pref medium"),
            own
        );
        assert_eq!(
            kind("throw 10.42.0.0/24 table 52"),
            Some((RouteKind::Throw, false))
        );
        assert_eq!(
            kind("unreachable 10.0.0.0/8 metric 4278198272"),
            Some((RouteKind::Nowhere, true))
        );
    }

    #[test]
    fn it_is_known_which_rules_of_policy_routing_meet_every_packet() {
        let all = |line: &str| policy_rule(line).is_for_all;
        assert!(all("5270:\tfrom all lookup 52"));
        assert!(all("32764: from all lookup main suppress_prefixlength 0"));
        assert!(all("32765: not from all fwmark 0xca6c lookup 51820"));
        assert!(!all("5210: from all fwmark 0x80000/0xff0000 lookup main"));
        assert!(!all("1536: from 10.12.39.45 lookup 2"));
        assert!(!all("512: from all to 10.12.36.18 lookup main"));
        assert!(!all("1000: from all iif eth1 lookup 7"));
        assert!(!all("99: from all lookup [l3mdev-table] unreachable"));
        let rule = policy_rule("32764: from all lookup main suppress_prefixlength 0");
        let has = (rule.priority, rule.table.as_deref(), rule.suppresses);
        assert_eq!(has, (Some(32764), Some("main"), Some(0)));
    }

    #[test]
    fn a_rule_of_policy_routing_has_a_mark_and_its_mask() {
        let mark = |line: &str| policy_rule(line).mark;
        assert_eq!(
            mark("32765: not from all fwmark 0xca6c lookup 51820"),
            Some((0xca6c, u32::MAX))
        );
        assert_eq!(
            mark("100: from all fwmark 0x200/0xf00 lookup 2004"),
            Some((0x200, 0xf00))
        );
        assert_eq!(mark("9: from all fwmark lots lookup 7"), None);
        assert_eq!(mark("0: from all lookup local"), None);
    }
}
