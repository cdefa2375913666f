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

    /// Reads a packet from its network header on.
    pub fn of(packet: &[u8]) -> Option<Self> {
        let (network, transport) = packet.split_at_checked(network_length(packet)?)?;
        Self::read(network, transport)
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

/// How long the network header of a packet is.
fn network_length(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    match first >> 4 {
        4 => Some(usize::from(first & 0x0f) * 4),
        6 => Some(40),
        _ => None,
    }
}

/// What a packet is known by while it passes a host: NAT, forwarding and marks leave these bytes as they are.
///
/// Two packets may have the same, such as a datagram and its repetition over IPv6, which has no identification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    protocol: u8,
    identification: [u8; 2],
    /// Of TCP sequence numbers and flags; of UDP length and the first bytes; of others likewise.
    inside: [u8; FINGERPRINT],
}

const FINGERPRINT: usize = 16;

impl Fingerprint {
    /// Reads a packet from its network header on.
    pub fn of(packet: &[u8]) -> Option<Self> {
        let (network, transport) = packet.split_at_checked(network_length(packet)?)?;
        let (protocol, identification) = match (network.first()? >> 4, network.len()) {
            (4, 20..) => (network[9], [network[4], network[5]]),
            (6, _) => (network[6], [0; 2]),
            _ => return None,
        };
        // Around ports and checksums, which NAT rewrites. Of TCP's header the options may be rewritten, too.
        let pieces = match protocol {
            6 => [4..8, 8..14],
            17 => [4..6, 8..22],
            132 => [4..8, 12..24],
            _ => [0..2, 6..20],
        };
        let mut inside = [0; FINGERPRINT];
        let bytes = pieces.iter().flat_map(|piece| {
            let end = piece.end.min(transport.len());
            transport.get(piece.start.min(end)..end).unwrap_or_default()
        });
        for (slot, byte) in inside.iter_mut().zip(bytes) {
            *slot = *byte;
        }
        Some(Self {
            protocol,
            identification,
            inside,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(source: [u8; 6], destination: [u8; 6], id: u8, said: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, id, 0x40, 0, 64, 17, 0, 0];
        packet.extend(&source[..4]);
        packet.extend(&destination[..4]);
        packet.extend(&source[4..]);
        packet.extend(&destination[4..]);
        packet.extend([0, 8, 0xaa, 0xbb]);
        packet.extend(said);
        packet
    }

    #[test]
    fn a_packet_is_known_by_what_nat_and_forwarding_leave_alone() {
        let before = udp([10, 0, 0, 1, 4, 0], [10, 96, 0, 10, 0, 53], 7, b"who");
        let mut after = udp([10, 0, 0, 9, 9, 9], [10, 244, 0, 2, 20, 53], 7, b"who");
        // Hops and the checksum.
        after[8] = 63;
        after[26] = 0xcc;
        assert_eq!(Fingerprint::of(&before), Fingerprint::of(&after));
        for other in [
            udp([10, 0, 0, 1, 4, 0], [10, 96, 0, 10, 0, 53], 8, b"who"),
            udp([10, 0, 0, 1, 4, 0], [10, 96, 0, 10, 0, 53], 7, b"why"),
        ] {
            assert_ne!(Fingerprint::of(&before), Fingerprint::of(&other));
        }
        let view = PacketView::of(&before).unwrap();
        assert_eq!((view.source_port, view.destination_port), (Some(1024), Some(53)));
    }

    #[test]
    fn a_packet_that_is_cut_short_is_none_or_a_shorter_one_and_never_a_panic() {
        let whole = udp([10, 0, 0, 1, 4, 0], [10, 96, 0, 10, 0, 53], 7, b"who");
        for length in 0..whole.len() {
            let cut = &whole[..length];
            assert_eq!(PacketView::of(cut).is_some(), length >= 20);
            assert_eq!(Fingerprint::of(cut).is_some(), length >= 20);
        }
        // A header that says it is longer than the packet, or shorter than a header can be.
        assert_eq!(Fingerprint::of(&[0x4f; 30]), None);
        assert_eq!(Fingerprint::of(&[0x41; 30]), None);
        assert_eq!(Fingerprint::of(&[0x40; 30]), None);
        assert_eq!(PacketView::of(&[0x41; 30]), None);
    }
}
