//! Keys and data of elements as the kernel keeps them: each part padded to whole words, addresses and ports in network
//! order (`nft_set_elem_parse_key` takes the bytes that a rule's registers hold).

use crate::ast::{Part, Value};
use ipnet::IpNet;
use model::{Family, Protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of a register word.
pub const WORD: usize = 4;

/// Bytes of an address of a family.
pub const fn address_length(family: Family) -> usize {
    match family {
        Family::V4 => 4,
        Family::V6 => 16,
    }
}

/// Bytes of a part of a key, without padding.
pub const fn length_of(part: Part, family: Family) -> usize {
    match part {
        Part::Source | Part::Destination => address_length(family),
        Part::Protocol => 1,
        Part::Port => 2,
    }
}

/// Bytes of a whole key.
pub fn key_length(parts: &[Part], family: Family) -> usize {
    let padded = parts
        .iter()
        .map(|part| length_of(*part, family).next_multiple_of(WORD));
    padded.sum()
}

/// Bytes of what a map's element holds.
pub const fn endpoint_length(family: Family) -> usize {
    address_length(family) + WORD
}

/// Which end of a key of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The lower one; for single values the key itself.
    Lower,
    /// The upper one.
    Upper,
}

/// A key's bytes.
pub fn key(values: &[Value], end: End) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(WORD * 4);
    for value in values {
        match value {
            Value::Address(ip) => bytes.extend(octets(*ip)),
            Value::Network(net) if end == End::Lower => bytes.extend(octets(net.network())),
            Value::Network(net) => bytes.extend(octets(net.broadcast())),
            Value::Protocol(protocol) => bytes.push(protocol.number()),
            Value::Port(port) => bytes.extend(port.to_be_bytes()),
        }
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
    }
    bytes
}

/// What a map's element holds.
pub fn endpoint(endpoint: SocketAddr) -> Vec<u8> {
    let mut bytes = octets(endpoint.ip());
    bytes.extend(endpoint.port().to_be_bytes());
    bytes.extend([0; 2]);
    bytes
}

/// An address's bytes.
pub fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// What a key says; `None` for bytes that are no key of this kind. `end` is the upper end in sets of ranges.
pub fn read_key(parts: &[Part], family: Family, key: &[u8], end: Option<&[u8]>) -> Option<Vec<Value>> {
    let mut at = 0;
    let mut values = Vec::with_capacity(parts.len());
    for part in parts {
        let length = length_of(*part, family);
        let value = key.get(at..at + length)?;
        let upper = match end {
            Some(end) => end.get(at..at + length)?,
            None => value,
        };
        values.push(read_part(*part, value, upper, end.is_some())?);
        at += length.next_multiple_of(WORD);
    }
    (at == key.len()).then_some(values)
}

fn read_part(part: Part, value: &[u8], upper: &[u8], ranges: bool) -> Option<Value> {
    Some(match part {
        Part::Source if ranges => Value::Network(network(address(value)?, address(upper)?)?),
        _ if value != upper => return None,
        Part::Source | Part::Destination => Value::Address(address(value)?),
        Part::Protocol => {
            let number = *value.first()?;
            let known = Protocol::ALL
                .into_iter()
                .find(|protocol| protocol.number() == number);
            Value::Protocol(known?)
        }
        Part::Port => Value::Port(u16::from_be_bytes(value.try_into().ok()?)),
    })
}

/// What a map's element holds; `None` for bytes that are no endpoint.
pub fn read_endpoint(bytes: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = bytes.split_at_checked(bytes.len().checked_sub(WORD)?)?;
    let port = u16::from_be_bytes(port[..2].try_into().ok()?);
    Some(SocketAddr::new(address(ip)?, port))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(octets).into())
}

/// The network from one address to another, if there is one.
fn network(lowest: IpAddr, highest: IpAddr) -> Option<IpNet> {
    let full = if lowest.is_ipv4() { 32 } else { 128 };
    let nets = (0..=full).filter_map(|prefix| IpNet::new(lowest, prefix).ok());
    let mut fitting = nets.filter(|net| (net.network(), net.broadcast()) == (lowest, highest));
    fitting.next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{CONNECTION_KEY, NODEPORT_KEY, SERVICE_KEY};

    #[test]
    fn keys_are_read_back_as_they_were_written() {
        for (family, ip, net) in [
            (Family::V4, "10.96.0.1", "192.168.0.0/23"),
            (Family::V6, "fd00::1", "fd00:1::/33"),
        ] {
            let ip: IpAddr = ip.parse().expect("an address");
            let net: IpNet = net.parse().expect("a network");
            let address = Value::Address(ip);
            let rest = [Value::Protocol(Protocol::Udp), Value::Port(53)];
            let keys: [(&[Part], Vec<Value>); 4] = [
                (&[Part::Destination], vec![address]),
                (NODEPORT_KEY, rest.to_vec()),
                (SERVICE_KEY, [&[address], &rest[..]].concat()),
                (CONNECTION_KEY, [&[address, address], &rest[..]].concat()),
            ];
            for (parts, values) in keys {
                let bytes = key(&values, End::Lower);
                assert_eq!(bytes.len(), key_length(parts, family));
                assert_eq!(read_key(parts, family, &bytes, None), Some(values));
            }
            let ranges = [&[Value::Network(net), address], &rest[..]].concat();
            let (lower, upper) = (key(&ranges, End::Lower), key(&ranges, End::Upper));
            assert_eq!(
                read_key(CONNECTION_KEY, family, &lower, Some(&upper)),
                Some(ranges)
            );
            let to = SocketAddr::new(ip, 8080);
            assert_eq!(read_endpoint(&endpoint(to)), Some(to));
            assert_eq!(endpoint(to).len(), endpoint_length(family));
        }
    }

    #[test]
    fn other_bytes_are_nothing() {
        for length in 0..40 {
            let bytes = vec![0xff; length];
            for parts in [SERVICE_KEY, NODEPORT_KEY, CONNECTION_KEY] {
                assert_eq!(read_key(parts, Family::V4, &bytes, None), None);
            }
        }
        assert_eq!(read_endpoint(&[1, 2]), None);
    }
}
