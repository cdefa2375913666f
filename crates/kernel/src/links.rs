//! Network interfaces, by rtnetlink.

use crate::addresses::{index, question};
use crate::socket::{Socket, SocketError};
use netlink::DecodeError;
use netlink::attr::{Attr, Attrs};
use netlink::message::{HEADER_LENGTH, Message};

/// Message types and attributes of `linux/rtnetlink.h` and `if_link.h`.
mod uapi {
    pub(super) const NEW_LINK: u16 = 16;
    pub(super) const GET_LINK: u16 = 18;
    /// `struct ifinfomsg`
    pub(super) const LINK_BYTES: usize = 16;
    pub(super) const INDEX_AT: usize = 4;
    pub(super) const NAME: u16 = 3;
    pub(super) const MASTER: u16 = 10;
    pub(super) const INFO: u16 = 18;
    pub(super) const INFO_KIND: u16 = 1;
    pub(super) const INFO_SLAVE_DATA: u16 = 5;
    /// `IFLA_BRPORT_MODE`: whether frames may leave through the port that they came in by.
    pub(super) const PORT_MODE: u16 = 4;
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its type, as `ip link add type` names it; `None` for hardware.
    pub kind: Option<String>,
    /// The number of the bridge, bond or the like that it is a port of.
    pub master: Option<u32>,
    /// Of a port of a bridge: whether hairpin mode is on.
    pub hairpin: Option<bool>,
}

/// All interfaces of this network namespace, by number.
///
/// # Errors
/// When the kernel would not say.
pub fn links() -> Result<Vec<Link>, SocketError> {
    let mut socket = Socket::route()?;
    let mut found = socket.dump(
        |sequence, bytes| question(uapi::GET_LINK, uapi::LINK_BYTES, sequence, bytes),
        |message| Ok(read(message)?),
    )?;
    found.sort();
    Ok(found)
}

fn read(message: Message<'_>) -> Result<Option<Link>, DecodeError> {
    if message.header.kind != uapi::NEW_LINK {
        return Ok(None);
    }
    let (Some(index), Some(attributes)) = (
        index(message.payload, uapi::INDEX_AT),
        message.payload.get(uapi::LINK_BYTES..),
    ) else {
        return Ok(None);
    };
    let mut link = Link {
        index,
        ..Link::default()
    };
    for attr in Attrs::new(attributes, "link", HEADER_LENGTH + uapi::LINK_BYTES) {
        let attr = attr?;
        match attr.kind {
            uapi::NAME => link.name = text(&attr),
            uapi::MASTER => link.master = attr.value.try_into().ok().map(u32::from_ne_bytes),
            uapi::INFO => read_info(&attr, &mut link)?,
            _ => {}
        }
    }
    Ok(Some(link))
}

fn read_info(info: &Attr<'_>, link: &mut Link) -> Result<(), DecodeError> {
    for attr in info.nest("link information") {
        let attr = attr?;
        match attr.kind {
            uapi::INFO_KIND => link.kind = Some(text(&attr)),
            uapi::INFO_SLAVE_DATA => {
                for port in attr.nest("port information") {
                    let port = port?;
                    if port.kind == uapi::PORT_MODE {
                        link.hairpin = port.value.first().map(|mode| *mode != 0);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn text(attr: &Attr<'_>) -> String {
    let text = attr.value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
