//! What somebody else's commits touched, and who it was.
//!
//! What this process or its tools write is passed over without being looked into.

use crate::ours;
use crate::socket::{Socket, SocketError};
use crate::watch::{Committed, readable};
use netlink::nfnl::groups;
use netlink::nft::Message;
use std::time::{Duration, Instant};

/// What a commit touched of what is watched, gathered from its notifications.
pub trait Touches: Default {
    /// What is told of it in the end.
    type Told;

    /// One more notification of the commit.
    fn note(&mut self, message: &Message<'_>);

    /// The commit is over; `None` when it touched nothing of what is watched.
    fn end(self) -> Option<Self::Told>;
}

/// A commit by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignCommit<T> {
    /// Who.
    pub by: Committed,
    /// Where.
    pub touched: T,
}

/// Tells of others' commits to `nf_tables` in this network namespace.
pub struct CommitWatch<T> {
    socket: Socket,
    /// Of the commit whose notifications have begun.
    open: T,
}

impl<T: Touches> CommitWatch<T> {
    /// Listens from now on.
    ///
    /// # Errors
    /// When there is no socket to be had, or none that may listen.
    pub fn new() -> Result<CommitWatch<T>, SocketError> {
        Ok(CommitWatch {
            socket: Socket::monitor(&[groups::NFTABLES])?,
            open: T::default(),
        })
    }

    /// Waits for the next commits of others, at most so long; empty when none came. Commits that touch nothing of what
    /// is watched are not among them.
    ///
    /// # Errors
    /// [`SocketError::Lost`] when there were more notifications than the socket could hold.
    pub fn wait(&mut self, at_most: Duration) -> Result<Vec<ForeignCommit<T::Told>>, SocketError> {
        let until = Instant::now() + at_most;
        loop {
            let commits = self.take()?;
            if !commits.is_empty() || !readable(&self.socket, until)? {
                return Ok(commits);
            }
        }
    }

    fn take(&mut self) -> Result<Vec<ForeignCommit<T::Told>>, SocketError> {
        let CommitWatch { socket, open } = self;
        let mut commits = Vec::new();
        loop {
            let messages = match socket.notifications() {
                Ok(Some(messages)) => messages,
                Ok(None) => return Ok(commits),
                Err(error) => {
                    // The end of the open commit may be what was lost.
                    *open = T::default();
                    return Err(error);
                }
            };
            for message in messages {
                let message = message?;
                let port = message.header.port;
                if ours::is_ours(port) {
                    continue;
                }
                let message = Message::read(message)?;
                if let Message::Generation(generation) = &message {
                    let touched = std::mem::take(open).end();
                    commits.extend(touched.map(|touched| ForeignCommit {
                        by: Committed::new(port, generation),
                        touched,
                    }));
                } else {
                    open.note(&message);
                }
            }
        }
    }
}
