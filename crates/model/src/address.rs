//! Addresses and networks as Kubernetes reads them.
//!
//! Old objects hold spellings that today's API refuses: leading zeros in IPv4 octets (decimal, never octal), long
//! zeros in IPv6 groups, a dotted tail. All are read, and printed in the canonical form ever after.
//! An IPv4-mapped IPv6 address *is* the IPv4 address.

use crate::Family;
use ipnet::{IpNet, Ipv4Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads an address. `None` when the text is none; blanks around it are not allowed.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        parse_v6(text).map(|ip| IpAddr::V6(ip).to_canonical())
    } else {
        parse_v4(text).map(IpAddr::V4)
    }
}

/// Reads a network in CIDR notation and clears its host bits.
pub fn parse_net(text: &str) -> Option<IpNet> {
    let (addr, prefix) = text.split_once('/')?;
    let prefix = decimal(prefix, 128)?;
    let prefix = u8::try_from(prefix).ok()?;
    match parse_ip(addr)? {
        // A mapped network: its prefix counts the 96 bits in front.
        IpAddr::V4(ip) if addr.contains(':') => {
            let net = Ipv4Net::new(ip, prefix.checked_sub(96)?).ok()?;
            Some(IpNet::V4(net.trunc()))
        }
        ip => Some(IpNet::new(ip, prefix).ok()?.trunc()),
    }
}

/// Why the API server takes an address neither for an endpoint nor for an external IP; `None` where it does
/// (upstream `ValidateEndpointIP`). Files never went past it. Other multicast, and broadcast, it takes.
///
/// Deviation: upstream's proxy leaves this to the API server (ADR 11).
pub fn why_no_destination(ip: IpAddr) -> Option<&'static str> {
    let (is_link_local, is_of_the_link) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        // Flags and scope are in the second byte; scope 2 is the link.
        IpAddr::V6(ip) => (
            ip.is_unicast_link_local(),
            ip.is_multicast() && ip.octets()[1] & 0x0f == 2,
        ),
    };
    why_of_no_host(ip).or(if is_link_local {
        Some("is a link-local address")
    } else if is_of_the_link {
        Some("is a link-local multicast address")
    } else {
        None
    })
}

/// Why an address is no cluster IP; `None` where it may be one.
///
/// The API server takes what is in the range that it was given, and a range of link-local addresses works.
///
/// Deviation: upstream's proxy leaves this to the API server (ADR 11).
pub fn why_no_cluster_ip(ip: IpAddr) -> Option<&'static str> {
    why_of_no_host(ip).or(if ip.is_multicast() {
        Some("is a multicast address")
    } else if ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Some("is the broadcast address")
    } else {
        None
    })
}

/// Why an address cannot be that of a load balancer; `None` where it can. The API server asks for an address and no more.
///
/// Deviation: upstream's proxy takes loopback addresses, and with them what this host says to itself (ADR 11).
pub fn why_no_load_balancer(ip: IpAddr) -> Option<&'static str> {
    why_of_no_host(ip)
}

/// Why cluster IPs cannot come from a network; `None` where they can. In nftables mode packets to the rest of it are dropped.
///
/// Deviation: upstream's proxy leaves this to the API server, which takes any network (ADR 11).
pub fn why_no_service_cidr(net: &IpNet) -> Option<&'static str> {
    let loopback: IpNet = match net {
        IpNet::V4(_) => Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8).into(),
        IpNet::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST).into(),
    };
    (net.contains(&loopback) || loopback.contains(net)).then_some("holds loopback addresses")
}

/// Why an address is of no host that others could reach.
fn why_of_no_host(ip: IpAddr) -> Option<&'static str> {
    if ip.is_unspecified() {
        Some("is the unspecified address")
    } else if ip.is_loopback() {
        Some("is a loopback address")
    } else {
        None
    }
}

/// The family of a network.
pub fn family_of_net(net: &IpNet) -> Family {
    Family::of(net.addr())
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        *octet = u8::try_from(decimal(parts.next()?, 255)?).ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn parse_v6(text: &str) -> Option<Ipv6Addr> {
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    let groups: Option<Vec<String>> = text.split(':').map(tidy_group).collect();
    groups?.join(":").parse().ok()
}

/// One part of an IPv6 address between colons, without needless zeros.
fn tidy_group(group: &str) -> Option<String> {
    if group.contains('.') {
        parse_v4(group).map(|ip| ip.to_string())
    } else if group.len() > 4 {
        let digits = group.trim_start_matches('0');
        Some(if digits.is_empty() { "0" } else { digits }.to_owned())
    } else {
        Some(group.to_owned())
    }
}

/// A decimal number without sign, any number of leading zeros, up to `max`.
fn decimal(text: &str, max: u32) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = text.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok().filter(|n| *n <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Option<String> {
        parse_ip(text).map(|ip| ip.to_string())
    }

    fn net(text: &str) -> Option<String> {
        parse_net(text).map(|net| net.to_string())
    }

    /// The spellings of upstream's `TestBadIPs`, and of objects seen in old clusters.
    #[test]
    fn leading_zeros_are_decimal() {
        assert_eq!(ip("172.30.0.041").as_deref(), Some("172.30.0.41"));
        assert_eq!(ip("203.0.113.000").as_deref(), Some("203.0.113.0"));
        assert_eq!(ip("10.244.002.191").as_deref(), Some("10.244.2.191"));
        assert_eq!(net("203.0.113.000/025").as_deref(), Some("203.0.113.0/25"));
    }

    #[test]
    fn other_spellings_of_ipv6_are_the_same_address() {
        assert_eq!(
            ip("2001:db8:70::10.0.0.34").as_deref(),
            Some("2001:db8:70::a00:22")
        );
        assert_eq!(
            ip("2001:db8:70::10.0.0.034").as_deref(),
            Some("2001:db8:70::a00:22")
        );
        assert_eq!(ip("2001:DB8:96:0:0:0:0:190").as_deref(), Some("2001:db8:96::190"));
        assert_eq!(
            ip("2001:db8:0000000:0:0:0:0:00001").as_deref(),
            Some("2001:db8::1")
        );
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address() {
        assert_eq!(ip("::ffff:10.0.0.1").as_deref(), Some("10.0.0.1"));
        assert_eq!(ip("::ffff:0a00:0001").as_deref(), Some("10.0.0.1"));
        assert_eq!(net("::ffff:10.0.0.0/120").as_deref(), Some("10.0.0.0/24"));
        assert_eq!(net("::ffff:10.0.0.0/64"), None);
    }

    #[test]
    fn special_addresses_are_told_by_their_ranges() {
        let reasons = |text: &str| {
            let ip = parse_ip(text).unwrap();
            (why_no_destination(ip), why_no_cluster_ip(ip))
        };
        let unspecified = Some("is the unspecified address");
        let loopback = Some("is a loopback address");
        let link_local = Some("is a link-local address");
        let of_the_link = Some("is a link-local multicast address");
        let multicast = Some("is a multicast address");
        for (text, destination, cluster_ip) in [
            ("0.0.0.0", unspecified, unspecified),
            ("::", unspecified, unspecified),
            ("0.0.0.1", None, None),
            ("127.0.0.0", loopback, loopback),
            ("127.255.255.255", loopback, loopback),
            ("::ffff:127.0.0.1", loopback, loopback),
            ("128.0.0.0", None, None),
            ("::1", loopback, loopback),
            ("::2", None, None),
            ("169.253.255.255", None, None),
            ("169.254.0.0", link_local, None),
            ("169.254.169.254", link_local, None),
            ("169.255.0.0", None, None),
            ("fe80::1", link_local, None),
            ("febf::1", link_local, None),
            ("fec0::1", None, None),
            ("224.0.0.1", of_the_link, multicast),
            ("224.0.0.255", of_the_link, multicast),
            ("224.0.1.0", None, multicast),
            ("239.1.2.3", None, multicast),
            ("240.0.0.1", None, None),
            ("ff02::1", of_the_link, multicast),
            ("ff12::1", of_the_link, multicast),
            ("ff05::1", None, multicast),
            ("255.255.255.255", None, Some("is the broadcast address")),
            ("10.0.0.1", None, None),
            ("fd00::1", None, None),
        ] {
            assert_eq!(reasons(text), (destination, cluster_ip), "{text}");
        }
    }

    #[test]
    fn host_bits_are_cleared() {
        assert_eq!(net("10.1.2.3/8").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(net("fd00::1/64").as_deref(), Some("fd00::/64"));
    }

    #[test]
    fn junk_is_no_address() {
        for junk in [
            "",
            " ",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "1.2.3.-4",
            "1.2.3.+4",
            "0x7f.0.0.1",
            " 1.2.3.4",
            "1.2.3.4 ",
            "1.2.3.4\n",
            "fe80::1%eth0",
            "::12345",
            "1:2:3",
            ":::",
            "1..2.3",
            "host",
            "١.2.3.4",
        ] {
            assert_eq!(parse_ip(junk), None, "{junk:?}");
        }
        for junk in [
            "",
            "/",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "fd00::/129",
            "10.0.0.0/-1",
            "10.0.0.0/8/8",
        ] {
            assert_eq!(parse_net(junk), None, "{junk:?}");
        }
    }
}
