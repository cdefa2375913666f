//! The few fields of packet headers that a trace is read for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// TCP, UDP and SCTP keep their ports in the same place.
const WITH_PORTS: [u8; 4] = [6, 17, 132, 136];

/// A packet by its addresses, protocol and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketView {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol number; for IPv6 the first next-header field, which may be an extension's.
    pub protocol: u8,
    /// Source port of TCP, UDP and SCTP.
    pub source_port: Option<u16>,
    /// Destination port of TCP, UDP and SCTP.
    pub destination_port: Option<u16>,
    /// Hops left.
    pub ttl: u8,
    /// Length of the packet as its header says (IPv6: without the header).
    pub length: u16,
}

impl PacketView {
    /// Reads the beginnings of a network and a transport header; nothing if the network header is too short or of
    /// an unknown version.
    pub fn read(network: &[u8], transport: &[u8]) -> Option<Self> {
        let mut view = match network.first()? >> 4 {
            4 => Self::read_ipv4(network.first_chunk()?),
            6 => Self::read_ipv6(network.first_chunk()?),
            _ => return None,
        };
        if WITH_PORTS.contains(&view.protocol)
            && let Some([s0, s1, d0, d1]) = transport.first_chunk()
        {
            view.source_port = Some(u16::from_be_bytes([*s0, *s1]));
            view.destination_port = Some(u16::from_be_bytes([*d0, *d1]));
        }
        Some(view)
    }

    fn read_ipv4(header: &[u8; 20]) -> Self {
        let [
            _,
            _,
            l0,
            l1,
            _,
            _,
            _,
            _,
            ttl,
            protocol,
            _,
            _,
            s0,
            s1,
            s2,
            s3,
            d0,
            d1,
            d2,
            d3,
        ] = *header;
        Self {
            source: IpAddr::V4(Ipv4Addr::new(s0, s1, s2, s3)),
            destination: IpAddr::V4(Ipv4Addr::new(d0, d1, d2, d3)),
            protocol,
            source_port: None,
            destination_port: None,
            ttl,
            length: u16::from_be_bytes([l0, l1]),
        }
    }

    fn read_ipv6(header: &[u8; 40]) -> Self {
        let address = |from: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[from..from + 16]);
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        Self {
            source: address(8),
            destination: address(24),
            protocol: header[6],
            source_port: None,
            destination_port: None,
            ttl: header[7],
            length: u16::from_be_bytes([header[4], header[5]]),
        }
    }
}
