//! Which chains somebody else's commits touched, and who it was.

use crate::nft;
use crate::ours;
use crate::socket::{Socket, SocketError};
use crate::watch::{Committed, readable};
use iptables::ast::{ChainName, TableName};
use model::Family;
use netlink::nfnl::groups;
use netlink::nft::Message;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// More chains than this in one commit are not told one by one.
const MOST_CHAINS: usize = 2000;

/// What happened in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touch {
    /// Rules were added, or the chain was made.
    Added,
    /// Rules or the chain were deleted.
    Deleted,
}

/// The chains that a commit touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// These, of the tables mangle, filter and nat.
    Chains(BTreeSet<(Family, TableName, ChainName, Touch)>),
    /// More than are worth telling.
    Many,
}

/// A commit by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignCommit {
    /// Who.
    pub by: Committed,
    /// Where.
    pub touched: Touched,
}

/// Tells of others' commits to iptables' tables in this network namespace, on `nf_tables`.
///
/// Rules that this process or its tools write are passed over without being looked into.
pub struct RuleWatch {
    socket: Socket,
    /// Of the commit whose notifications have begun.
    open: Touched,
}

impl RuleWatch {
    /// Listens from now on.
    ///
    /// # Errors
    /// When there is no socket to be had, or none that may listen.
    pub fn new() -> Result<RuleWatch, SocketError> {
        Ok(RuleWatch {
            socket: Socket::monitor(&[groups::NFTABLES])?,
            open: Touched::default(),
        })
    }

    /// Waits for the next commits of others, at most so long; empty when none came. Commits that touch no iptables
    /// table are not among them.
    ///
    /// # Errors
    /// [`SocketError::Lost`] when there were more notifications than the socket could hold.
    pub fn wait(&mut self, at_most: Duration) -> Result<Vec<ForeignCommit>, SocketError> {
        let until = Instant::now() + at_most;
        loop {
            let commits = self.take()?;
            if !commits.is_empty() || !readable(&self.socket, until)? {
                return Ok(commits);
            }
        }
    }

    fn take(&mut self) -> Result<Vec<ForeignCommit>, SocketError> {
        let RuleWatch { socket, open } = self;
        let mut commits = Vec::new();
        loop {
            let messages = match socket.notifications() {
                Ok(Some(messages)) => messages,
                Ok(None) => return Ok(commits),
                Err(error) => {
                    // The end of the open commit may be what was lost.
                    *open = Touched::default();
                    return Err(error);
                }
            };
            for message in messages {
                let message = message?;
                let port = message.header.port;
                if ours::is_ours(port) {
                    continue;
                }
                match Message::read(message)? {
                    Message::NewChain(chain) => open.add(chain.family, chain.table, chain.name, Touch::Added),
                    Message::DeletedChain(chain) => {
                        open.add(chain.family, chain.table, chain.name, Touch::Deleted);
                    }
                    Message::NewRule(rule) => open.add(rule.family, rule.table, rule.chain, Touch::Added),
                    Message::DeletedRule(rule) => {
                        open.add(rule.family, rule.table, rule.chain, Touch::Deleted);
                    }
                    Message::Generation(generation) => {
                        let touched = std::mem::take(open);
                        if !touched.is_empty() {
                            commits.push(ForeignCommit {
                                by: Committed::new(port, &generation),
                                touched,
                            });
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Default for Touched {
    fn default() -> Self {
        Touched::Chains(BTreeSet::new())
    }
}

impl Touched {
    fn is_empty(&self) -> bool {
        matches!(self, Touched::Chains(chains) if chains.is_empty())
    }

    fn add(&mut self, family: netlink::nfnl::Family, table: &str, chain: &str, touch: Touch) {
        let Touched::Chains(chains) = self else { return };
        let family = Family::ALL.into_iter().find(|ours| nft::family(*ours) == family);
        let table = crate::OBSERVED_TABLES
            .into_iter()
            .find(|known| known.as_str() == table);
        // A name that iptables would not take is none of its chains'.
        let (Some(family), Some(table), Some(chain)) = (family, table, ChainName::new(chain).ok()) else {
            return;
        };
        chains.insert((family, table, chain, touch));
        if chains.len() > MOST_CHAINS {
            *self = Touched::Many;
        }
    }
}
