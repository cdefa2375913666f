//! Sockets of the host (`NETLINK_SOCK_DIAG`, `linux/inet_diag.h`): which TCP ports are listened on, which UDP ports are
//! bound.

use crate::attr::Attrs;
use crate::error::{DecodeError, EncodeError};
use crate::message::{HEADER_LENGTH, Message, flags};
use crate::write::MessageWriter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

mod uapi {
    pub(super) const BY_FAMILY: u16 = 20;
    pub(super) const INET: u8 = 2;
    pub(super) const INET6: u8 = 10;
    pub(super) const TCP: u8 = 6;
    pub(super) const UDP: u8 = 17;
    /// `TCP_CLOSE`: of UDP, bound and not connected.
    pub(super) const CLOSE: u32 = 7;
    pub(super) const LISTEN: u32 = 10;
    /// `struct inet_diag_req_v2`: family, protocol, extensions, padding, states, and an id of 48 bytes.
    pub(super) const ID_BYTES: usize = 48;
    /// `struct inet_diag_msg`.
    pub(super) const ANSWER_BYTES: usize = 72;
    pub(super) const PORT_AT: usize = 4;
    pub(super) const ADDRESS_AT: usize = 8;
    pub(super) const INODE_AT: usize = 68;
    pub(super) const ONLY_V6: u16 = 11;
}

/// Which sockets are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP sockets that listen.
    Tcp,
    /// UDP sockets that are bound and not connected.
    Udp,
}

/// The address family of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketFamily {
    /// `AF_INET`.
    Inet,
    /// `AF_INET6`; their sockets may serve IPv4 as well.
    Inet6,
}

/// A dump of all sockets of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Which.
    pub transport: Transport,
    /// Of which family.
    pub family: SocketFamily,
}

impl Request {
    /// Writes the request at the end of `buffer`.
    ///
    /// # Errors
    /// None; as with every other request.
    pub fn encode(&self, sequence: u32, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (protocol, state) = match self.transport {
            Transport::Tcp => (uapi::TCP, uapi::LISTEN),
            Transport::Udp => (uapi::UDP, uapi::CLOSE),
        };
        let family = match self.family {
            SocketFamily::Inet => uapi::INET,
            SocketFamily::Inet6 => uapi::INET6,
        };
        let mut writer =
            MessageWriter::begin(buffer, uapi::BY_FAMILY, flags::REQUEST | flags::DUMP, sequence);
        writer.fixed(&[family, protocol, 0, 0]);
        writer.fixed(&(1_u32 << state).to_ne_bytes());
        writer.fixed(&[0; uapi::ID_BYTES]);
        writer.finish()
    }
}

/// One socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// The address it is bound to; unspecified is all of them.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// Whether it is an IPv6 socket that does not serve IPv4.
    pub is_v6_only: bool,
    /// Its inode, by which processes' files name it.
    pub inode: u32,
}

impl Socket {
    /// Reads an answer; `None` for messages of other kinds.
    ///
    /// # Errors
    /// When its attributes are malformed.
    pub fn read(message: Message<'_>) -> Result<Option<Socket>, DecodeError> {
        let payload = message.payload;
        if message.header.kind != uapi::BY_FAMILY || payload.len() < uapi::ANSWER_BYTES {
            return Ok(None);
        }
        let (fixed, attributes) = payload.split_at(uapi::ANSWER_BYTES);
        let address = match fixed[0] {
            uapi::INET => Ipv4Addr::from(bytes::<4>(fixed, uapi::ADDRESS_AT)).into(),
            uapi::INET6 => Ipv6Addr::from(bytes::<16>(fixed, uapi::ADDRESS_AT)).into(),
            _ => return Ok(None),
        };
        let mut is_v6_only = false;
        for attr in Attrs::new(attributes, "socket", HEADER_LENGTH + uapi::ANSWER_BYTES) {
            let attr = attr?;
            if attr.kind == uapi::ONLY_V6 {
                is_v6_only = attr.value.first().is_some_and(|only| *only != 0);
            }
        }
        Ok(Some(Socket {
            address,
            port: u16::from_be_bytes(bytes(fixed, uapi::PORT_AT)),
            is_v6_only,
            inode: u32::from_ne_bytes(bytes(fixed, uapi::INODE_AT)),
        }))
    }
}

/// Some bytes of the fixed part.
fn bytes<const N: usize>(fixed: &[u8], at: usize) -> [u8; N] {
    fixed[at..at + N]
        .try_into()
        .expect("invariant: the fixed part is long enough for each of its fields")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Messages;

    #[test]
    fn a_request_is_laid_out_as_the_kernel_reads_it() {
        let mut buffer = Vec::new();
        let request = Request {
            transport: Transport::Udp,
            family: SocketFamily::Inet6,
        };
        request
            .encode(9, &mut buffer)
            .expect("nothing in it can be wrong");
        assert_eq!(buffer.len(), 16 + 56);
        assert_eq!(buffer[4..6], 20_u16.to_ne_bytes());
        assert_eq!(buffer[16..20], [10, 17, 0, 0]);
        assert_eq!(buffer[20..24], 0x80_u32.to_ne_bytes());
    }

    #[test]
    fn a_truncated_answer_is_none_of_ours() {
        let mut buffer = Vec::new();
        let mut writer = MessageWriter::begin(&mut buffer, 20, 0, 1);
        writer.fixed(&[0; 68]);
        writer.finish().expect("it fits");
        let message = Messages::new(&buffer).next().expect("one").expect("whole");
        assert_eq!(Socket::read(message), Ok(None));
    }
}
