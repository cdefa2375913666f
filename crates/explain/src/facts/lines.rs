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
        self.table.is_none()
    }
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// It leads somewhere.
    Unicast,
    /// It refuses or drops: network plugins keep such a route for their own block of addresses.
    Nowhere,
}

/// The words of routes that lead nowhere.
const NOWHERE: [&str; 4] = ["blackhole", "unreachable", "prohibit", "throw"];

/// A line of `ip route`. Words that decide nothing here (`metric`, `scope`, ...) are passed over.
pub(super) fn route(line: &str) -> Option<RouteFacts> {
    let mut words = line.split_whitespace().peekable();
    let is_nowhere = words.peek().is_some_and(|word| NOWHERE.contains(word));
    if is_nowhere || words.peek() == Some(&"unicast") {
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
    let kind = if is_nowhere {
        RouteKind::Nowhere
    } else {
        RouteKind::Unicast
    };
    let interface = match kind {
        RouteKind::Unicast => interface?,
        RouteKind::Nowhere => interface.unwrap_or_else(|| "".into()),
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
}

/// A line of `ip rule`.
pub(super) fn policy_rule(line: &str) -> PolicyRule {
    let mut words = line.split_whitespace();
    let mark = words
        .find(|word| *word == "fwmark")
        .and_then(|_| words.next())
        .and_then(|word| {
            let (value, mask) = word.split_once('/').unwrap_or((word, "0xffffffff"));
            Some((number(value)?, number(mask)?))
        });
    PolicyRule {
        text: line.trim().to_owned(),
        mark,
    }
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
