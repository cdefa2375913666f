//! What other modes of kube-proxy leave in the kernel beside iptables' rules, and its removal by name.
//!
//! Each of these removes one thing that is certainly kube-proxy's, and says whether it was there. Nothing is removed
//! because it looks alike: upstream empties all of IPVS, whoever's it is (ADR 41).

use crate::addresses::interface_addresses;
use crate::nft;
use crate::socket::{Socket, SocketError};
use iptables::ast::{ChainName, TableName};
use model::Family;
use netlink::attr::{Attr, Attrs, until_nul};
use netlink::ipvs::{self, VirtualServer};
use netlink::message::{HEADER_LENGTH, Message, flags};
use netlink::nft::Change;
use netlink::write::MessageWriter;
use netlink::{DecodeError, Errno, ipset};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Longest name of an ipset.
pub const SET_NAME_LIMIT: usize = ipset::NAME_LIMIT;

/// Whether a thing was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It was, and is gone.
    Removed,
    /// It was not.
    NotThere,
}

/// No such device.
const ENODEV: Errno = Errno(19);
/// No such process: the kernel's word for no such virtual server.
const ESRCH: Errno = Errno(3);

/// `NotThere` for these refusals.
fn unless_missing(outcome: Result<(), SocketError>, missing: &[Errno]) -> Result<Removal, SocketError> {
    match outcome {
        Ok(()) => Ok(Removal::Removed),
        Err(error) if error.errno().is_some_and(|errno| missing.contains(&errno)) => Ok(Removal::NotThere),
        Err(error) => Err(error),
    }
}

/// Removes a table of `nf_tables` with all that is in it, in one transaction.
///
/// # Errors
/// When the kernel would not. A kernel without `nf_tables` has no such table.
pub fn remove_table(of: Family, name: &str) -> Result<Removal, SocketError> {
    let mut socket = Socket::netfilter()?;
    let mut batch = socket.batch(None);
    batch.push(&Change::DeleteTable {
        family: nft::family(of),
        name,
    })?;
    // Without the subsystem, nfnetlink answers EOPNOTSUPP to a batch.
    unless_missing(socket.commit(batch), &[Errno::ENOENT, Errno::EOPNOTSUPP])
}

/// Whether iptables-nft's tables have this chain. No tool is needed to ask.
///
/// # Errors
/// When the kernel would not say.
pub fn has_chain(of: Family, table: TableName, chain: &ChainName) -> Result<bool, SocketError> {
    let mut socket = Socket::netfilter()?;
    Ok(nft::chain(&mut socket, of, table, chain)?.is_some())
}

/// Empties these chains of a table of `nf_tables`, in one transaction.
///
/// # Errors
/// When the kernel would not. `NotThere` when one of them is missing: none has been emptied then.
pub fn empty_chains(of: Family, table: &str, chains: &[&str]) -> Result<Removal, SocketError> {
    let mut socket = Socket::netfilter()?;
    let mut batch = socket.batch(None);
    for chain in chains {
        batch.push(&Change::FlushChain {
            family: nft::family(of),
            table,
            chain,
        })?;
    }
    unless_missing(socket.commit(batch), &[Errno::ENOENT, Errno::EOPNOTSUPP])
}

/// Destroys an ipset with its entries.
///
/// # Errors
/// When the kernel would not: while a rule names the set it is in use ([`ipset::IN_USE`]).
pub fn destroy_set(name: &str) -> Result<Removal, SocketError> {
    let mut socket = Socket::netfilter()?;
    let request = ipset::Destroy { name };
    let outcome = socket.ask(|sequence, bytes| request.encode(sequence, bytes), |_| Ok(()));
    // Without the subsystem, nfnetlink answers EINVAL.
    unless_missing(outcome.map(drop), &[Errno::ENOENT, Errno::EINVAL])
}

/// Message types and attributes of `linux/rtnetlink.h` and `if_link.h`.
mod uapi {
    pub(super) const DELETE_LINK: u16 = 17;
    pub(super) const GET_LINK: u16 = 18;
    /// `struct ifinfomsg`.
    pub(super) const LINK_BYTES: usize = 16;
    pub(super) const INDEX_AT: usize = 4;
    pub(super) const NAME: u16 = 3;
    pub(super) const INFO: u16 = 18;
    pub(super) const INFO_KIND: u16 = 1;
}

/// A network interface's number and its type, as `ip link add type` names it.
struct Link {
    index: [u8; 4],
    kind: Option<String>,
}

/// Why an interface stays.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It is not what kube-proxy makes.
    #[error(
        "the interface {name} is of type {found:?} and not {wanted:?}, so it is not kube-proxy's, and stays"
    )]
    OtherKind {
        /// Its name.
        name: String,
        /// Its type.
        found: String,
        /// What it would have to be.
        wanted: String,
    },
    /// The kernel would not.
    #[error(transparent)]
    Kernel(#[from] SocketError),
}

/// Removes a network interface with its addresses, if it is of this type.
///
/// # Errors
/// When it is of another type, or the kernel would not.
pub fn remove_link(name: &str, kind: &str) -> Result<Removal, LinkError> {
    let mut socket = Socket::route()?;
    let Some(link) = find_link(&mut socket, name)? else {
        return Ok(Removal::NotThere);
    };
    if link.kind.as_deref() != Some(kind) {
        return Err(LinkError::OtherKind {
            name: name.to_owned(),
            found: link.kind.unwrap_or_default(),
            wanted: kind.to_owned(),
        });
    }
    let outcome = socket.ask(
        |sequence, bytes| {
            let mut fixed = [0; uapi::LINK_BYTES];
            fixed[uapi::INDEX_AT..uapi::INDEX_AT + 4].copy_from_slice(&link.index);
            let mut writer =
                MessageWriter::begin(bytes, uapi::DELETE_LINK, flags::REQUEST | flags::ACK, sequence);
            writer.fixed(&fixed);
            writer.finish()
        },
        |_| Ok(()),
    );
    Ok(unless_missing(outcome.map(drop), &[ENODEV])?)
}

fn find_link(socket: &mut Socket, name: &str) -> Result<Option<Link>, SocketError> {
    let answer = socket.ask(
        |sequence, bytes| {
            let mut writer = MessageWriter::begin(bytes, uapi::GET_LINK, flags::REQUEST, sequence);
            writer.fixed(&[0; uapi::LINK_BYTES]);
            writer.text(uapi::NAME, name);
            writer.finish()
        },
        |message| Ok(read_link(message)?),
    );
    match answer {
        Err(error) if error.errno() == Some(ENODEV) => Ok(None),
        answer => Ok(answer?.flatten()),
    }
}

fn read_link(message: Message<'_>) -> Result<Option<Link>, DecodeError> {
    let Some((fixed, attributes)) = message.payload.split_at_checked(uapi::LINK_BYTES) else {
        return Ok(None);
    };
    let mut index = [0; 4];
    index.copy_from_slice(&fixed[uapi::INDEX_AT..uapi::INDEX_AT + 4]);
    let mut kind = None;
    for attr in Attrs::new(attributes, "link", HEADER_LENGTH + uapi::LINK_BYTES) {
        let attr = attr?;
        if attr.kind == uapi::INFO {
            kind = read_kind(&attr)?;
        }
    }
    Ok(Some(Link { index, kind }))
}

fn read_kind(info: &Attr<'_>) -> Result<Option<String>, DecodeError> {
    for attr in info.nest("link information") {
        let attr = attr?;
        if attr.kind == uapi::INFO_KIND {
            return Ok(Some(String::from_utf8_lossy(until_nul(attr.value)).into_owned()));
        }
    }
    Ok(None)
}

/// The addresses of one interface; none when there is no such interface.
///
/// # Errors
/// When the kernel would not say.
pub fn addresses_of(interface: &str) -> Result<BTreeSet<IpAddr>, SocketError> {
    let all = interface_addresses()?;
    let of_it = all.iter().filter(|one| one.interface == interface);
    Ok(of_it.map(|one| one.address.addr()).collect())
}

/// Deletes the virtual servers of IPVS at these addresses, and no other; the deleted ones. None in a kernel without
/// IPVS.
///
/// # Errors
/// When the kernel would not.
pub fn remove_virtual_servers(at: &BTreeSet<IpAddr>) -> Result<Vec<VirtualServer>, SocketError> {
    let mut deleted = Vec::new();
    if at.is_empty() {
        return Ok(deleted);
    }
    let mut socket = Socket::generic()?;
    let answer = socket.ask(
        |sequence, bytes| ipvs::Request::Family.encode(sequence, bytes),
        |message| Ok(ipvs::read_family(message)?),
    );
    let family = match answer {
        Ok(Some(family)) => family,
        Ok(None) => return Ok(deleted),
        Err(error) if error.errno() == Some(Errno::ENOENT) => return Ok(deleted),
        Err(error) => return Err(error),
    };
    let dump = ipvs::Request::Dump { family };
    let servers = socket.dump(
        |sequence, bytes| dump.encode(sequence, bytes),
        |message| Ok(ipvs::read_server(message)?),
    )?;
    for server in servers.into_iter().filter(|server| at.contains(&server.address)) {
        let delete = ipvs::Request::Delete { family, server };
        let outcome = socket.ask(|sequence, bytes| delete.encode(sequence, bytes), |_| Ok(()));
        if unless_missing(outcome.map(drop), &[ESRCH])? == Removal::Removed {
            deleted.push(server);
        }
    }
    Ok(deleted)
}
