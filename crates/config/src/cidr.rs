//! CIDRs as Kubernetes reads them.

use ipnet::IpNet;
use std::net::IpAddr;

/// Reads a CIDR and clears its host bits. Leading zeros in IPv4 octets are decimal, as Kubernetes reads old objects.
pub(crate) fn parse_cidr(text: &str) -> Option<IpNet> {
    let (addr, prefix) = text.split_once('/')?;
    if prefix.is_empty() || !prefix.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let net = IpNet::new(parse_ip(addr)?, prefix.parse().ok()?).ok()?;
    Some(net.trunc())
}

/// Reads an address. Leading zeros in IPv4 octets are decimal.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() {
            0
        } else {
            digits.parse().ok()?
        };
    }
    parts.next().is_none().then(|| IpAddr::from(octets))
}
