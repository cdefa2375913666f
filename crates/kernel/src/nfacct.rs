//! The accounting objects that rules may count into.

use crate::NFACCT_COUNTERS;
use crate::socket::{Socket, SocketError};
use netlink::Errno;
use netlink::nfacct::{Object, Request};

/// Whether rules may name the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accounting {
    /// Both counters exist now.
    Present,
    /// They do not; the reason is for the log.
    Absent(String),
}

/// Packets and bytes of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Finds out whether the kernel has accounting objects, and makes kube-proxy's if they are missing.
///
/// The kernel has them if it answers to a name that nobody uses with success or `ENOENT`, as upstream asks it.
pub fn ensure_counters() -> Accounting {
    match try_ensure() {
        Ok(()) => Accounting::Present,
        Err(error) => Accounting::Absent(error.words()),
    }
}

fn try_ensure() -> Result<(), SocketError> {
    let mut socket = Socket::netfilter()?;
    look_up(&mut socket, "IMayExist")?;
    for name in NFACCT_COUNTERS {
        if look_up(&mut socket, name)?.is_none() {
            make(&mut socket, name)?;
        }
    }
    Ok(())
}

/// Reads one counter; `None` if there is none of this name.
///
/// # Errors
/// When the kernel has no accounting objects or would not say.
pub fn read_counter(name: &str) -> Result<Option<Counted>, SocketError> {
    look_up(&mut Socket::netfilter()?, name)
}

fn look_up(socket: &mut Socket, name: &str) -> Result<Option<Counted>, SocketError> {
    let answer = socket.ask(
        |sequence, bytes| Request::Get { name }.encode(sequence, bytes),
        |message| {
            let object = Object::read(message)?;
            Ok(Counted {
                packets: object.packets,
                bytes: object.bytes,
            })
        },
    );
    match answer {
        Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(None),
        answer => answer,
    }
}

/// Another process may have made it since: just as well.
fn make(socket: &mut Socket, name: &str) -> Result<(), SocketError> {
    let answer = socket.ask(
        |sequence, bytes| Request::New { name }.encode(sequence, bytes),
        |_| Ok(()),
    );
    match answer {
        Err(error) if error.errno() != Some(Errno::EEXIST) => Err(error),
        _ => Ok(()),
    }
}
