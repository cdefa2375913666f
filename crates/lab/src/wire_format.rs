//! Packets as bytes: as much of IP, TCP and UDP as the sink and the ICMP ear need.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// TCP's protocol number.
const TCP: u8 = 6;
const SCTP: u8 = 132;
/// UDP's protocol number.
const UDP: u8 = 17;

/// TCP flag bits (RFC 9293).
pub const FIN: u8 = 0x01;
/// Opens a connection.
pub const SYN: u8 = 0x02;
/// Ends it at once.
pub const RST: u8 = 0x04;
/// Data for the reader.
pub const PSH: u8 = 0x08;
/// The acknowledgement number counts.
pub const ACK: u8 = 0x10;

/// A TCP, UDP or SCTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
    /// The rest.
    pub transport: Transport<'a>,
}

/// What differs by protocol. A packet quoted in an ICMP message may be cut after its ports: then numbers are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport<'a> {
    /// TCP.
    Tcp(Segment<'a>),
    /// UDP with its payload.
    Udp(&'a [u8]),
    /// SCTP: its ports are all that is read, and none is written.
    Sctp,
}

/// A TCP segment without its ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// [`SYN`], [`ACK`] and so on.
    pub flags: u8,
    /// Data.
    pub payload: &'a [u8],
}

/// The length of an IPv4 header, in bytes.
pub fn ipv4_header_length(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    (first >> 4 == 4).then_some(usize::from(first & 0x0f) * 4)
}

/// Reads an IPv4 or IPv6 packet with TCP, UDP or SCTP directly inside; later fragments and the rest are `None`.
pub fn parse(packet: &[u8]) -> Option<Packet<'_>> {
    match packet.first()? >> 4 {
        4 => parse_ipv4(packet),
        6 => parse_ipv6(packet),
        _ => None,
    }
}

fn parse_ipv4(packet: &[u8]) -> Option<Packet<'_>> {
    let header = ipv4_header_length(packet)?;
    let fragment_offset = u16_at(packet, 6)? & 0x1fff;
    if fragment_offset != 0 {
        return None;
    }
    let address = |at| Some(IpAddr::V4(Ipv4Addr::from(array_at::<4>(packet, at)?)));
    // Frames may be padded behind the packet; a quoted packet may be shorter than it says.
    let end = usize::from(u16_at(packet, 2)?).min(packet.len());
    parse_transport(
        *packet.get(9)?,
        address(12)?,
        address(16)?,
        packet.get(header..end)?,
    )
}

fn parse_ipv6(packet: &[u8]) -> Option<Packet<'_>> {
    let address = |at| Some(IpAddr::V6(Ipv6Addr::from(array_at::<16>(packet, at)?)));
    let end = (usize::from(u16_at(packet, 4)?) + 40).min(packet.len());
    parse_transport(*packet.get(6)?, address(8)?, address(24)?, packet.get(40..end)?)
}

fn parse_transport(protocol: u8, src: IpAddr, dst: IpAddr, data: &[u8]) -> Option<Packet<'_>> {
    let transport = match protocol {
        TCP => Transport::Tcp(parse_segment(data).unwrap_or_default()),
        UDP => Transport::Udp(data.get(8..).unwrap_or_default()),
        SCTP => Transport::Sctp,
        _ => return None,
    };
    let src = SocketAddr::new(src, u16_at(data, 0)?);
    let dst = SocketAddr::new(dst, u16_at(data, 2)?);
    Some(Packet { src, dst, transport })
}

fn parse_segment(data: &[u8]) -> Option<Segment<'_>> {
    let header = usize::from(data.get(12)? >> 4) * 4;
    Some(Segment {
        seq: u32::from_be_bytes(array_at(data, 4)?),
        ack: u32::from_be_bytes(array_at(data, 8)?),
        flags: *data.get(13)?,
        payload: data.get(header..)?,
    })
}

/// Writes a packet with its checksums; `None` if the families differ or it is too long.
pub fn write(packet: &Packet<'_>) -> Option<Vec<u8>> {
    let mut data = match packet.transport {
        Transport::Tcp(segment) => write_segment(packet, &segment),
        Transport::Udp(payload) => write_datagram(packet, payload)?,
        Transport::Sctp => return None,
    };
    let (protocol, checksum_at) = match packet.transport {
        Transport::Tcp(_) => (TCP, 16),
        Transport::Udp(_) => (UDP, 6),
        Transport::Sctp => return None,
    };
    let length = u16::try_from(data.len()).ok()?;
    let mut pseudo = Vec::with_capacity(40 + data.len());
    let header = match (packet.src.ip(), packet.dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            pseudo.extend([src.octets(), dst.octets()].as_flattened());
            ipv4_header(protocol, src, dst, length)?
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            pseudo.extend([src.octets(), dst.octets()].as_flattened());
            ipv6_header(protocol, src, dst, length)
        }
        _ => return None,
    };
    // The IPv6 pseudo header has the same words in another order and width, which does not change the sum.
    pseudo.extend([0, protocol]);
    pseudo.extend(length.to_be_bytes());
    pseudo.extend(&data);
    let sum = checksum(&pseudo).to_be_bytes();
    data.get_mut(checksum_at..checksum_at + 2)?.copy_from_slice(&sum);
    Some([header, data].concat())
}

fn write_segment(packet: &Packet<'_>, segment: &Segment<'_>) -> Vec<u8> {
    let mut data = ports(packet);
    data.extend(segment.seq.to_be_bytes());
    data.extend(segment.ack.to_be_bytes());
    data.extend([5 << 4, segment.flags, 0xff, 0xff, 0, 0, 0, 0]);
    data.extend(segment.payload);
    data
}

fn write_datagram(packet: &Packet<'_>, payload: &[u8]) -> Option<Vec<u8>> {
    let mut data = ports(packet);
    data.extend(u16::try_from(payload.len() + 8).ok()?.to_be_bytes());
    data.extend([0, 0]);
    data.extend(payload);
    Some(data)
}

fn ports(packet: &Packet<'_>) -> Vec<u8> {
    [packet.src.port().to_be_bytes(), packet.dst.port().to_be_bytes()].concat()
}

fn ipv4_header(protocol: u8, src: Ipv4Addr, dst: Ipv4Addr, length: u16) -> Option<Vec<u8>> {
    let mut header = vec![0x45, 0];
    header.extend(length.checked_add(20)?.to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    header.extend([src.octets(), dst.octets()].as_flattened());
    let sum = checksum(&header).to_be_bytes();
    header.get_mut(10..12)?.copy_from_slice(&sum);
    Some(header)
}

fn ipv6_header(protocol: u8, src: Ipv6Addr, dst: Ipv6Addr, length: u16) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(length.to_be_bytes());
    header.extend([protocol, 64]);
    header.extend([src.octets(), dst.octets()].as_flattened());
    header
}

/// The internet checksum (RFC 1071).
fn checksum(data: &[u8]) -> u16 {
    let words = data.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(u16::from_be_bytes([high, 0])),
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("invariant: folded to 16 bits")
}

fn array_at<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at + N)?.try_into().ok()
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    array_at(data, at).map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_1071s_example() {
        assert_eq!(
            checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            !0xddf2
        );
    }

    #[test]
    fn what_is_written_is_read_back_in_both_families() {
        for (src, dst) in [("10.0.0.1:5", "10.0.0.2:80"), ("[fd00::1]:5", "[fd00::2]:80")] {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            let segment = Segment {
                seq: 1,
                ack: 2,
                flags: SYN | ACK,
                payload: b"abc",
            };
            for transport in [Transport::Tcp(segment), Transport::Udp(b"abc")] {
                let packet = Packet { src, dst, transport };
                let bytes = write(&packet).unwrap();
                assert_eq!(parse(&bytes), Some(packet));
            }
        }
    }

    #[test]
    fn cut_packets_never_panic() {
        let packet = Packet {
            src: "10.0.0.1:5".parse().unwrap(),
            dst: "10.0.0.2:80".parse().unwrap(),
            transport: Transport::Tcp(Segment {
                seq: 1,
                ack: 2,
                flags: SYN,
                payload: b"abc",
            }),
        };
        let bytes = write(&packet).unwrap();
        for end in 0..bytes.len() {
            let parsed = parse(&bytes[..end]);
            assert_eq!(
                parsed.is_some(),
                end >= 24,
                "ports are readable from byte 24 on, cut at {end}"
            );
        }
    }
}
