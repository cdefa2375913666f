//! Notifications: who changed the rules, and which way a traced packet went.

use crate::socket::{Socket, SocketError};
use netlink::nfnl::groups;
use netlink::nft::{Generation, Message, TraceEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A commit by anyone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The generation that it made.
    pub generation: u32,
    /// The netlink port that committed: a program's own is known to it.
    pub port: u32,
    /// The committing process, as numbered in the *initial* pid namespace.
    pub process: Option<u32>,
    /// Its short name, such as `iptables-nft-re`.
    pub process_name: Option<String>,
}

/// `iptables (pid 4711)`. Pids are those of the initial namespace.
impl fmt::Display for Committed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.process_name.as_deref().unwrap_or("somebody");
        match self.process {
            Some(pid) => write!(f, "{name} (pid {pid})"),
            None => write!(f, "{name} (port {})", self.port),
        }
    }
}

impl Committed {
    pub(crate) fn new(port: u32, generation: &Generation<'_>) -> Committed {
        Committed {
            generation: generation.id,
            port,
            process: generation.process,
            process_name: generation.process_name.map(str::to_owned),
        }
    }
}

/// Tells of every commit to `nf_tables` in this network namespace. Legacy has no such thing.
///
/// It is a file descriptor that becomes readable; nobody has to wait in here.
pub struct GenerationWatch {
    socket: Socket,
}

impl GenerationWatch {
    /// Listens from now on.
    ///
    /// # Errors
    /// When there is no socket to be had, or none that may listen.
    pub fn new() -> Result<GenerationWatch, SocketError> {
        Ok(GenerationWatch {
            socket: Socket::monitor(&[groups::NFTABLES])?,
        })
    }

    /// The commits that have come since the last call, without waiting.
    ///
    /// # Errors
    /// [`SocketError::Lost`] when there were more than the socket could hold: some commits are not told then, and
    /// the next call goes on after them.
    pub fn take(&mut self) -> Result<Vec<Committed>, SocketError> {
        let mut commits = Vec::new();
        while let Some(messages) = self.socket.notifications()? {
            for message in messages {
                let message = message?;
                // Rules and chains of the commit come before its generation and are not looked into.
                if !is_generation(message.header.kind) {
                    continue;
                }
                if let Message::Generation(generation) = Message::read(message)? {
                    commits.push(Committed::new(message.header.port, &generation));
                }
            }
        }
        Ok(commits)
    }

    /// Waits for the next commits, at most so long; empty when none came.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn wait(&mut self, at_most: Duration) -> Result<Vec<Committed>, SocketError> {
        let until = Instant::now() + at_most;
        loop {
            let commits = self.take()?;
            if !commits.is_empty() || !readable(&self.socket, until)? {
                return Ok(commits);
            }
        }
    }
}

impl AsFd for GenerationWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `NFNL_SUBSYS_NFTABLES` and `NFT_MSG_NEWGEN`.
fn is_generation(kind: u16) -> bool {
    const NEW_GENERATION: u16 = 10 << 8 | 15;
    kind == NEW_GENERATION
}

/// Tells the steps of packets for which a rule has set `nftrace` ([`crate::TraceTable`]).
pub struct TraceWatch {
    socket: Socket,
}

impl TraceWatch {
    /// Listens from now on.
    ///
    /// # Errors
    /// When there is no socket to be had, or none that may listen.
    pub fn new() -> Result<TraceWatch, SocketError> {
        Ok(TraceWatch {
            socket: Socket::monitor(&[groups::NFTRACE])?,
        })
    }

    /// Hands over the steps that have come, without waiting.
    ///
    /// # Errors
    /// [`SocketError::Lost`] when there were more than the socket could hold.
    pub fn take(&mut self, each: &mut dyn FnMut(&TraceEvent<'_>)) -> Result<usize, SocketError> {
        let mut count = 0;
        while let Some(messages) = self.socket.notifications()? {
            for message in messages {
                if let Message::Trace(event) = Message::read(message?)? {
                    each(&event);
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// Hands over steps until none has come for so long.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn until_quiet(
        &mut self,
        quiet: Duration,
        each: &mut dyn FnMut(&TraceEvent<'_>),
    ) -> Result<(), SocketError> {
        loop {
            self.take(each)?;
            if !readable(&self.socket, Instant::now() + quiet)? {
                return Ok(());
            }
        }
    }
}

impl AsFd for TraceWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until a step has come; `false` when the time came first.
pub(crate) fn readable_by(watch: &TraceWatch, until: Instant) -> Result<bool, SocketError> {
    readable(&watch.socket, until)
}

/// Waits until there is something to read; `false` when the time came first.
pub(crate) fn readable(socket: &Socket, until: Instant) -> Result<bool, SocketError> {
    loop {
        let Some(left) = until.checked_duration_since(Instant::now()) else {
            return Ok(false);
        };
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(SocketError::Receive(error.into())),
        }
    }
}
