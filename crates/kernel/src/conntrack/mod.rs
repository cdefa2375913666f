//! The connection table: what NAT made of a packet, which flows to forget, and how full it is.
//!
//! * [`connections`] looks entries up; [`sweep`] goes through all of them and deletes the stale ones; [`stats`] counts.
//! * Nothing here decides: `conntrack::decide` does.

mod delete;
mod proof;
mod sieve;
mod stats;
mod sweep;

pub use delete::Fate;
pub use proof::translated;
pub use sieve::{Held, Sieve};
pub use stats::{Counters, Fill, StatsError, counters, fill};
pub use sweep::{Reach, SweepError, SweepOptions, SweepReport, sweep};

use crate::nft;
use crate::socket::{Socket, SocketError};
use model::Family;
use netlink::Errno;
use netlink::conntrack::{Direction, Entry, Filter, Message, Request, Tuple};

/// Dumps the connections whose original direction satisfies `wanted`. `narrow` lets the kernel leave out most of
/// the others; kernels before 5.8 do not.
///
/// A dump of a busy table is not one state of it: entries that come and go meanwhile may be missing.
///
/// # Errors
/// When the kernel would not say.
pub fn connections(
    family: Family,
    narrow: Filter,
    wanted: impl Fn(&Tuple) -> bool,
) -> Result<Vec<Entry>, SocketError> {
    let mut socket = Socket::netfilter()?;
    let question = Request::Dump {
        family: nft::family(family),
        filter: narrow,
    };
    socket.dump(
        |sequence, bytes| question.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::Entry(entry) if wanted(&entry.original) => Ok(Some(entry)),
            _ => Ok(None),
        },
    )
}

/// The connection of which this is one direction, as the packet comes in; `None` when conntrack has none.
///
/// # Errors
/// When the kernel would not say.
pub(crate) fn connection(socket: &mut Socket, tuple: Tuple) -> Result<Option<Entry>, SocketError> {
    let question = Request::Get {
        direction: Direction::Original,
        tuple,
        zone: None,
    };
    let answer = socket.ask(
        |sequence, bytes| question.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::Entry(entry) => Ok(Some(entry)),
            _ => Ok(None),
        },
    );
    match answer {
        Ok(entry) => Ok(entry.flatten()),
        Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
