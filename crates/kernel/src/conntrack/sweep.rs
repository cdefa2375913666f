//! Going through the connection table and deleting what is stale.

use super::delete::Deleter;
use super::sieve::{Held, Sieve};
use crate::nft;
use crate::socket::{Socket, SocketError};
use conntrack::{Flow, Stale, Verdict};
use model::{Family, Protocol};
use netlink::Errno;
use netlink::conntrack::{Filter, Request};
use netlink::dump::{DumpError, Progress};
use std::collections::BTreeMap;

/// Which protocols a sweep reads. What it does not read, it does not ask about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// UDP alone: kernels since 5.8 leave out the rest themselves.
    #[default]
    Udp,
    /// UDP and TCP, for `conntrack::TcpOption::CutGone`.
    UdpAndTcp,
}

/// How to sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepOptions {
    /// Which protocols.
    pub reach: Reach,
    /// How many stale entries are held at most before they are deleted; at least one.
    pub batch: usize,
}

/// UDP, and 1,000 entries (about 100 KiB).
impl Default for SweepOptions {
    fn default() -> Self {
        SweepOptions {
            reach: Reach::Udp,
            batch: 1000,
        }
    }
}

/// What a sweep found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Entries that were asked about. Entries that move within the table meanwhile may be counted twice.
    pub seen: usize,
    /// Entries deleted, by reason.
    pub deleted: BTreeMap<Stale, usize>,
    /// Stale entries that had gone by themselves, or that had become another flow's, before they could be deleted.
    pub gone_already: usize,
    /// Deletions that were sent and whose answers were lost; the next sweep sees whether they worked.
    pub unanswered: usize,
    /// Whether the kernel said that the table changed its shape under the dump: entries may have been missed, and what
    /// is pending must stay so (`conntrack::Pace::failed`).
    pub interrupted: bool,
}

impl SweepReport {
    /// Entries deleted, whatever the reason.
    pub fn deleted(&self) -> usize {
        self.deleted.values().sum()
    }

    /// Whether every entry there was at the beginning has been looked at, and every stale one is known to be gone.
    pub fn is_complete(&self) -> bool {
        !self.interrupted && self.unanswered == 0
    }
}

/// A sweep that broke off. What it had deleted until then is deleted.
#[derive(Debug, thiserror::Error)]
#[error("{attempted} failed after {} deletions", report.deleted())]
pub struct SweepError {
    /// What was attempted.
    pub attempted: &'static str,
    /// What had been done until then.
    pub report: Box<SweepReport>,
    /// Why.
    #[source]
    pub source: SocketError,
}

/// Goes through the family's connection table once, asks `verdict` about each flow, and deletes what it says.
///
/// Memory does not grow with the table: one receive buffer, and at most `options.batch` stale entries. Deletions go out
/// between two buffers of the dump. The kernel holds no lock of its own between those, and what is deleted makes the
/// dump repeat a bucket at most, never skip one. Nothing here waits for a lock that writing rules takes.
///
/// An entry is deleted by its tuple, zone and id, so that a younger flow with the same tuple is safe, unless it happens
/// to lie in the same memory, of which the kernel makes the id. Then its next packet opens it anew.
///
/// # Errors
/// When the kernel would not say, or not delete.
pub fn sweep(
    family: Family,
    options: &SweepOptions,
    verdict: &mut dyn FnMut(&Flow) -> Verdict,
) -> Result<SweepReport, SweepError> {
    let mut report = SweepReport::default();
    match passes(family, options, verdict, &mut report) {
        Ok(()) => Ok(report),
        Err((attempted, source)) => Err(SweepError {
            attempted,
            report: Box::new(report),
            source,
        }),
    }
}

type Failure = (&'static str, SocketError);

const OPENING: &str = "opening a netlink socket";
const READING: &str = "reading the connection table";
const DELETING: &str = "deleting stale connections";

fn passes(
    family: Family,
    options: &SweepOptions,
    verdict: &mut dyn FnMut(&Flow) -> Verdict,
    report: &mut SweepReport,
) -> Result<(), Failure> {
    let mut deleter = Deleter::new().map_err(|error| (OPENING, error))?;
    let protocols: &[Protocol] = match options.reach {
        Reach::Udp => &[Protocol::Udp],
        Reach::UdpAndTcp => &[Protocol::Udp, Protocol::Tcp],
    };
    for protocol in protocols {
        let mut sieve = Sieve::new(*protocol, options.batch, verdict, report);
        pass(family, &mut sieve, &mut deleter)?;
    }
    Ok(())
}

/// What breaks a dump off.
enum Broken {
    Reading(SocketError),
    Deleting(SocketError),
}

impl From<SocketError> for Broken {
    fn from(error: SocketError) -> Self {
        Broken::Reading(error)
    }
}

impl From<DumpError> for Broken {
    fn from(error: DumpError) -> Self {
        Broken::Reading(error.into())
    }
}

/// One protocol.
fn pass(family: Family, sieve: &mut Sieve<'_>, deleter: &mut Deleter) -> Result<(), Failure> {
    let narrow = Filter {
        protocol: Some(sieve.protocol().number()),
        ..Filter::default()
    };
    let ended = match dump(family, narrow, sieve, deleter) {
        // A kernel that knows the filter and cannot do it here. One that does not know it ignores it.
        Err(Broken::Reading(error)) if is_unfilterable(&error) => {
            dump(family, Filter::default(), sieve, deleter)
        }
        ended => ended,
    };
    match ended {
        Ok(Progress::Interrupted) => sieve.interrupt(),
        // Some kernels say so this way.
        Err(Broken::Reading(error)) if error.errno() == Some(Errno::EINTR) => sieve.interrupt(),
        Ok(_) => {}
        Err(Broken::Reading(error)) => return Err((READING, error)),
        Err(Broken::Deleting(error)) => return Err((DELETING, error)),
    }
    empty(sieve, deleter).map_err(|error| (DELETING, error))
}

fn dump(
    family: Family,
    filter: Filter,
    sieve: &mut Sieve<'_>,
    deleter: &mut Deleter,
) -> Result<Progress, Broken> {
    let mut socket = Socket::netfilter()?;
    let question = Request::Dump {
        family: nft::family(family),
        filter,
    };
    socket.dump_once(
        |sequence, bytes| question.encode(sequence, bytes),
        |message| match sieve.look_at(message).map_err(SocketError::from)? {
            Held::Room => Ok(()),
            Held::Full => empty(sieve, deleter).map_err(Broken::Deleting),
        },
    )
}

/// Deletes what the sieve holds.
fn empty(sieve: &mut Sieve<'_>, deleter: &mut Deleter) -> Result<(), SocketError> {
    let stale = sieve.take();
    let entries = stale.iter().map(|(entry, _)| entry);
    let ended = deleter.delete(entries, |index, fate| sieve.settle(stale[index].1, fate));
    sieve.give_back(stale);
    ended
}

fn is_unfilterable(error: &SocketError) -> bool {
    matches!(error.errno(), Some(Errno::EOPNOTSUPP | Errno::EINVAL))
}
