//! The host's addresses, by rtnetlink.

use crate::socket::{Socket, SocketError};
use ipnet::IpNet;
use netlink::attr::{Attr, Attrs};
use netlink::message::{Message, flags};
use netlink::write::MessageWriter;
use netlink::{DecodeError, EncodeError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

/// Message types and attributes of `linux/rtnetlink.h`, `if_link.h` and `if_addr.h`.
mod uapi {
    pub(super) const NEW_LINK: u16 = 16;
    pub(super) const GET_LINK: u16 = 18;
    pub(super) const NEW_ADDRESS: u16 = 20;
    pub(super) const GET_ADDRESS: u16 = 22;
    /// `struct ifinfomsg`: family, padding, type, index, flags, change.
    pub(super) const LINK_BYTES: usize = 16;
    pub(super) const LINK_INDEX_AT: usize = 4;
    pub(super) const LINK_NAME: u16 = 3;
    /// `struct ifaddrmsg`: family, prefix length, flags, scope, index.
    pub(super) const ADDRESS_BYTES: usize = 8;
    pub(super) const ADDRESS_INDEX_AT: usize = 4;
    /// The address; of a point-to-point link, the other end's.
    pub(super) const ADDRESS: u16 = 1;
    /// IPv4: this end's.
    pub(super) const LOCAL: u16 = 2;
    /// `RTNLGRP_IPV4_IFADDR` and `RTNLGRP_IPV6_IFADDR`: addresses that come and go.
    pub(super) const ADDRESS_GROUPS: [u32; 2] = [5, 9];
}

/// One address of the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceAddress {
    /// The interface's name.
    pub interface: String,
    /// The address with the length of its network's prefix; host bits are kept.
    pub address: IpNet,
}

/// All addresses of both families in this network namespace, sorted.
///
/// # Errors
/// When the kernel would not say.
pub fn interface_addresses() -> Result<Vec<InterfaceAddress>, SocketError> {
    let mut socket = Socket::route()?;
    let names = names(&mut socket)?;
    let addresses = socket.dump(
        |sequence, bytes| question(uapi::GET_ADDRESS, uapi::ADDRESS_BYTES, sequence, bytes),
        read_address,
    )?;
    let mut found: Vec<InterfaceAddress> = addresses
        .into_iter()
        .filter_map(|(index, address)| {
            // An interface that came since has no name here; the next reading will have it.
            let interface = names.get(&index)?.clone();
            Some(InterfaceAddress { interface, address })
        })
        .collect();
    found.sort();
    Ok(found)
}

/// The names of all interfaces of this network namespace, by index.
///
/// # Errors
/// When the kernel would not say.
pub fn interface_names() -> Result<BTreeMap<u32, String>, SocketError> {
    names(&mut Socket::route()?)
}

fn names(socket: &mut Socket) -> Result<BTreeMap<u32, String>, SocketError> {
    let links = socket.dump(
        |sequence, bytes| question(uapi::GET_LINK, uapi::LINK_BYTES, sequence, bytes),
        read_link,
    )?;
    Ok(links.into_iter().collect())
}

/// Tells when addresses of this network namespace come or go. What they are then is a matter of
/// [`interface_addresses`].
pub struct AddressWatch(Socket);

impl AddressWatch {
    /// Listens from now on.
    ///
    /// # Errors
    /// When there is no socket to be had.
    pub fn new() -> Result<AddressWatch, SocketError> {
        Socket::route_monitor(&uapi::ADDRESS_GROUPS).map(AddressWatch)
    }

    /// Waits until something happened, at most so long; says whether it did. Lost notifications are news as well.
    ///
    /// # Errors
    /// When the socket broke.
    pub fn wait(&mut self, at_most: Duration) -> Result<bool, SocketError> {
        let failed = |error: rustix::io::Errno| SocketError::Receive(error.into());
        let most = Timespec::try_from(at_most).map_err(|_| failed(rustix::io::Errno::INVAL))?;
        let mut fds = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => self.take(),
            Err(error) => Err(failed(error)),
        }
    }

    /// Takes what has come, without waiting.
    fn take(&mut self) -> Result<bool, SocketError> {
        let mut news = false;
        loop {
            match self.0.notifications() {
                Ok(None) => return Ok(news),
                Ok(Some(_)) | Err(SocketError::Lost) => news = true,
                Err(error) => return Err(error),
            }
        }
    }
}

/// A dump of everything: the fixed part is all zeros.
pub(crate) fn question(
    kind: u16,
    fixed: usize,
    sequence: u32,
    bytes: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let mut writer = MessageWriter::begin(bytes, kind, flags::REQUEST | flags::DUMP, sequence);
    writer.fixed(&vec![0; fixed]);
    writer.finish()
}

/// The index in the fixed part.
pub(crate) fn index(payload: &[u8], at: usize) -> Option<u32> {
    payload.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn read_link(message: Message<'_>) -> Result<Option<(u32, String)>, SocketError> {
    if message.header.kind != uapi::NEW_LINK {
        return Ok(None);
    }
    let Some(index) = index(message.payload, uapi::LINK_INDEX_AT) else {
        return Ok(None);
    };
    let name = find(&message, uapi::LINK_BYTES, "link", uapi::LINK_NAME)?;
    Ok(name.map(|attr| {
        let text = attr.value.split(|byte| *byte == 0).next().unwrap_or_default();
        (index, String::from_utf8_lossy(text).into_owned())
    }))
}

fn read_address(message: Message<'_>) -> Result<Option<(u32, IpNet)>, SocketError> {
    if message.header.kind != uapi::NEW_ADDRESS {
        return Ok(None);
    }
    let Some(index) = index(message.payload, uapi::ADDRESS_INDEX_AT) else {
        return Ok(None);
    };
    let length = message.payload.get(1).copied().unwrap_or_default();
    let local = find(&message, uapi::ADDRESS_BYTES, "address", uapi::LOCAL)?;
    let address = match local {
        Some(local) => Some(local),
        None => find(&message, uapi::ADDRESS_BYTES, "address", uapi::ADDRESS)?,
    };
    Ok(address
        .and_then(|attr| ip(attr.value))
        .and_then(|ip| IpNet::new(ip, length).ok())
        .map(|net| (index, net)))
}

pub(crate) fn ip(octets: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(octets) {
        return Some(octets.into());
    }
    <[u8; 16]>::try_from(octets).ok().map(IpAddr::from)
}

/// The first attribute of a kind, behind the fixed part.
fn find<'a>(
    message: &Message<'a>,
    fixed: usize,
    what: &'static str,
    kind: u16,
) -> Result<Option<Attr<'a>>, DecodeError> {
    let attributes = message.payload.get(fixed..).unwrap_or_default();
    for attr in Attrs::new(attributes, what, netlink::message::HEADER_LENGTH + fixed) {
        let attr = attr?;
        if attr.kind == kind {
            return Ok(Some(attr));
        }
    }
    Ok(None)
}
