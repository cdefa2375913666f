//! What listens in this network namespace, and which process does.
//!
//! The kernel is asked for listening sockets alone: a host with a hundred thousand connections has no more of those than
//! any other, and `/proc/net/tcp` would list them all.

use crate::socket::{Socket, SocketError};
use model::Protocol;
use netlink::sock_diag::{self, Request, SocketFamily, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// A TCP socket that listens, or a UDP socket that is bound.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listening {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Where. An IPv6 socket that serves IPv4 on one address has that IPv4 address.
    pub address: SocketAddr,
    /// Which families an unspecified address stands for.
    pub reach: Reach,
    /// Names the socket.
    pub inode: u32,
}

/// Which families a socket serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Its address' own.
    Own,
    /// IPv4 beside IPv6.
    Both,
}

/// A process that has a socket open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its name, as the kernel has it.
    pub name: String,
    /// Its id, in this process' pid namespace.
    pub pid: u32,
}

/// `sshd (pid 812)`.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// All of them. Kinds of sockets that the kernel cannot be asked for are left out, except IPv4's TCP.
///
/// # Errors
/// When the kernel would not say.
pub fn listening_sockets() -> Result<Vec<Listening>, SocketError> {
    let mut socket = Socket::sockets()?;
    let mut found = list(&mut socket, Transport::Tcp, SocketFamily::Inet)?;
    for (transport, family) in [
        (Transport::Tcp, SocketFamily::Inet6),
        (Transport::Udp, SocketFamily::Inet),
        (Transport::Udp, SocketFamily::Inet6),
    ] {
        match list(&mut socket, transport, family) {
            Ok(more) => found.extend(more),
            Err(SocketError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    Ok(found)
}

fn list(
    socket: &mut Socket,
    transport: Transport,
    family: SocketFamily,
) -> Result<Vec<Listening>, SocketError> {
    let request = Request { transport, family };
    socket.dump(
        |sequence, bytes| request.encode(sequence, bytes),
        |message| Ok(sock_diag::Socket::read(message)?.map(|socket| listening(transport, &socket))),
    )
}

fn listening(transport: Transport, socket: &sock_diag::Socket) -> Listening {
    let serves_both = socket.address.is_ipv6() && socket.address.is_unspecified() && !socket.is_v6_only;
    let address: IpAddr = socket.address.to_canonical();
    Listening {
        protocol: match transport {
            Transport::Tcp => Protocol::Tcp,
            Transport::Udp => Protocol::Udp,
        },
        address: SocketAddr::new(address, socket.port),
        reach: if serves_both { Reach::Both } else { Reach::Own },
        inode: socket.inode,
    }
}

/// This process' own sockets.
pub fn own_sockets() -> BTreeSet<u32> {
    sockets_of(Path::new("/proc/self")).collect()
}

/// Who has these sockets open, as far as `/proc` shows it: a container without the host's pid namespace sees its own
/// processes alone. Of several processes that share one, the first by id.
pub fn owners(sockets: &BTreeSet<u32>) -> BTreeMap<u32, Owner> {
    let mut owners = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    for pid in pids {
        if owners.len() == sockets.len() {
            break;
        }
        let folder = Path::new("/proc").join(pid.to_string());
        for inode in sockets_of(&folder).filter(|inode| sockets.contains(inode)) {
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            let name = name.trim().to_owned();
            owners.entry(inode).or_insert(Owner { name, pid });
        }
    }
    owners
}

/// The sockets that a process has open; none of one that has ended or that we may not look at.
fn sockets_of(process: &Path) -> impl Iterator<Item = u32> {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files.filter_map(|file| {
        let target = fs::read_link(file.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        inode.parse().ok()
    })
}
