//! IPVS, which is spoken to by generic netlink: the list of virtual servers, and the end of one.
//!
//! Numbers are those of `linux/genetlink.h` and `linux/ip_vs.h`.

use crate::attr::{Attr, Attrs, Fields};
use crate::error::{DecodeError, DecodeErrorKind, EncodeError};
use crate::message::{HEADER_LENGTH, Message, flags};
use crate::write::MessageWriter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of `struct genlmsghdr`: command, version, two unused.
const GENERIC: usize = 4;
/// `GENL_ID_CTRL`: the family that knows the numbers of the others.
const CONTROLLER: u16 = 0x10;
/// `CTRL_CMD_GETFAMILY`.
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const VERSION: u8 = 1;
const DELETE_SERVICE: u8 = 3;
const GET_SERVICE: u8 = 4;
/// `IPVS_CMD_ATTR_SERVICE`.
const SERVICE: u16 = 1;

mod at {
    pub(super) const FAMILY: u16 = 1;
    pub(super) const PROTOCOL: u16 = 2;
    pub(super) const ADDRESS: u16 = 3;
    pub(super) const PORT: u16 = 4;
    pub(super) const COUNT: usize = 12;
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// A virtual server: an address and port that IPVS spreads over real servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VirtualServer {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// IP protocol number.
    pub protocol: u16,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The number of the family IPVS in this kernel: one answer ([`read_family`]), or `ENOENT` without IPVS.
    Family,
    /// Dump of all virtual servers of this network namespace.
    Dump {
        /// The answer to [`Request::Family`].
        family: u16,
    },
    /// Deletes a virtual server: an acknowledgement, or `ESRCH` if there is none.
    Delete {
        /// The answer to [`Request::Family`].
        family: u16,
        /// Which.
        server: VirtualServer,
    },
}

impl Request {
    /// Writes the request at the end of `buffer`.
    ///
    /// # Errors
    /// Never for these requests; the signature is that of all requests.
    pub fn encode(&self, sequence: u32, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (kind, more, command) = match *self {
            Request::Family => (CONTROLLER, 0, GET_FAMILY),
            Request::Dump { family } => (family, flags::DUMP, GET_SERVICE),
            Request::Delete { family, .. } => (family, flags::ACK, DELETE_SERVICE),
        };
        let mut writer = MessageWriter::begin(buffer, kind, flags::REQUEST | more, sequence);
        writer.fixed(&[command, VERSION, 0, 0]);
        match self {
            Request::Family => writer.text(FAMILY_NAME, "IPVS"),
            Request::Dump { .. } => {}
            Request::Delete { server, .. } => writer.nest(SERVICE, |inside| name(inside, server)),
        }
        writer.finish()
    }
}

/// What tells a virtual server from others.
fn name(writer: &mut MessageWriter<'_>, server: &VirtualServer) {
    // Whatever the family, the kernel takes the room of an IPv6 address.
    let mut address = [0; 16];
    let family = match server.address {
        IpAddr::V4(v4) => {
            address[..4].copy_from_slice(&v4.octets());
            AF_INET
        }
        IpAddr::V6(v6) => {
            address = v6.octets();
            AF_INET6
        }
    };
    writer.bytes(at::FAMILY, &family.to_ne_bytes());
    writer.bytes(at::PROTOCOL, &server.protocol.to_ne_bytes());
    writer.bytes(at::ADDRESS, &address);
    writer.u16(at::PORT, server.port);
}

fn attrs<'a>(message: &Message<'a>, what: &'static str) -> Result<Attrs<'a>, DecodeError> {
    let Some(attributes) = message.payload.get(GENERIC..) else {
        let kind = DecodeErrorKind::Truncated {
            needed: GENERIC,
            available: message.payload.len(),
        };
        return Err(DecodeError::new(what, HEADER_LENGTH, kind));
    };
    Ok(Attrs::new(attributes, what, HEADER_LENGTH + GENERIC))
}

/// Reads the answer to [`Request::Family`].
///
/// # Errors
/// If the message is malformed.
pub fn read_family(message: Message<'_>) -> Result<u16, DecodeError> {
    let fields = Fields::<3>::read(attrs(&message, "generic netlink family")?)?;
    let number = fields.array(FAMILY_ID)?.map(u16::from_ne_bytes);
    fields.need(FAMILY_ID, number)
}

/// Reads one message of [`Request::Dump`]; `None` for a server that has a packet mark and no address.
///
/// # Errors
/// If the message is malformed.
pub fn read_server(message: Message<'_>) -> Result<Option<VirtualServer>, DecodeError> {
    let outer = Fields::<2>::read(attrs(&message, "IPVS message")?)?;
    let service: Attr<'_> = outer.need(SERVICE, outer.attr(SERVICE))?;
    let fields = Fields::<{ at::COUNT }>::read(service.nest("virtual server"))?;
    let native = |kind| Ok(fields.array(kind)?.map(u16::from_ne_bytes));
    let (Some(octets), Some(port), Some(protocol)) = (
        fields.array::<16>(at::ADDRESS)?,
        fields.u16(at::PORT)?,
        native(at::PROTOCOL)?,
    ) else {
        return Ok(None);
    };
    let family: Option<u16> = native(at::FAMILY)?;
    let [a, b, c, d, ..] = octets;
    let address = match fields.need(at::FAMILY, family)? {
        AF_INET => Ipv4Addr::new(a, b, c, d).into(),
        AF_INET6 => Ipv6Addr::from(octets).into(),
        other => return Err(fields.unknown(at::FAMILY, other)),
    };
    Ok(Some(VirtualServer {
        address,
        port,
        protocol,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Messages;

    /// Laid out by hand after `linux/ip_vs.h`: AF, protocol, address, port, in a nest.
    #[rustfmt::skip]
    const DELETE_V4: [u8; 68] = [
        68, 0, 0, 0, 0x1d, 0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0, // header: type 0x1d, REQUEST | ACK, sequence 7
        3, 1, 0, 0, // IPVS_CMD_DEL_SERVICE, version 1
        48, 0, 1, 0x80, // nest
        6, 0, 1, 0, 2, 0, 0, 0, // AF_INET
        6, 0, 2, 0, 6, 0, 0, 0, // TCP
        20, 0, 3, 0, 10, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // address
        6, 0, 4, 0, 1, 187, 0, 0, // port 443, big endian
    ];

    fn written(request: Request) -> Vec<u8> {
        let mut bytes = Vec::new();
        request.encode(7, &mut bytes).unwrap();
        bytes
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_virtual_server_is_named_as_the_kernel_wants_it() {
        let server = VirtualServer {
            address: IpAddr::from([10, 96, 0, 1]),
            port: 443,
            protocol: 6,
        };
        assert_eq!(written(Request::Delete { family: 0x1d, server }), DELETE_V4);
    }

    #[test]
    fn a_virtual_server_that_is_written_is_read_back() {
        for address in ["10.96.0.1", "fd00::1"] {
            let server = VirtualServer {
                address: address.parse().unwrap(),
                port: 53,
                protocol: 17,
            };
            let bytes = written(Request::Delete { family: 0x1d, server });
            let message = Messages::new(&bytes).next().unwrap().unwrap();
            assert_eq!(read_server(message).unwrap(), Some(server));
        }
    }

    #[test]
    fn a_server_of_a_packet_mark_has_no_address() {
        let mut bytes = Vec::new();
        let mut writer = MessageWriter::begin(&mut bytes, 0x1d, 0, 1);
        writer.fixed(&[1, 1, 0, 0]);
        writer.nest(SERVICE, |inside| {
            inside.bytes(at::FAMILY, &AF_INET.to_ne_bytes());
            inside.bytes(5, &7_u32.to_ne_bytes());
        });
        writer.finish().unwrap();
        let message = Messages::new(&bytes).next().unwrap().unwrap();
        assert_eq!(read_server(message).unwrap(), None);
    }
}
