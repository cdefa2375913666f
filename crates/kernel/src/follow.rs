//! One request followed through the kernel: the rules of iptables that its first packet met, and what NAT made of it.

use crate::nft;
use crate::socket::{Socket, SocketError};
use crate::{TraceTable, TraceWatch, Traced, conntrack};
use iptables::ast::{ChainName, TableName};
use model::{Family, Protocol};
use netlink::conntrack::{self as flows, Filter, Layer4, Tuple};
use netlink::nft::{TraceEvent, TraceStep, Verdict};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

/// Why a packet's way cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The kernel would not say.
    #[error("could not follow a packet by nf_tables")]
    Kernel(#[from] SocketError),
    /// A rule that the packet met is not in its chain any more.
    #[error("a rule of {table}:{chain} was replaced while the packet was on its way")]
    RuleGone {
        /// The table.
        table: TableName,
        /// The chain.
        chain: ChainName,
    },
}

/// Where a packet met a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetRule {
    /// The table.
    pub table: TableName,
    /// The chain.
    pub chain: ChainName,
    /// The rule's number in its chain, from 1, as `iptables -L --line-numbers` counts.
    pub rule: u32,
}

/// A rule of `nf_tables` that a packet met, and what it decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// The chain.
    pub chain: String,
    /// The rule's handle, as `nft --handle list` prints it.
    pub handle: u64,
    /// The verdict.
    pub verdict: String,
}

/// Listens to the way of packets in this network namespace, for as long as it lives.
pub struct Follower {
    family: Family,
    /// The name of our own table, whose rules are where each packet's trace begins.
    own: String,
    watch: TraceWatch,
    _table: TraceTable,
}

impl Follower {
    /// Begins to listen. `name` is that of a table of our own in `nf_tables`, and must be nobody else's. Let `traced`
    /// say exactly one connection, or packets of several are mixed up.
    ///
    /// # Errors
    /// When the kernel refuses the table, or may not be listened to.
    pub fn start(family: Family, name: &str, traced: Traced) -> Result<Follower, SocketError> {
        Ok(Follower {
            family,
            own: name.to_owned(),
            watch: TraceWatch::new()?,
            _table: TraceTable::new(family, name, &[traced])?,
        })
    }

    /// The rules of one table of `nf_tables` that the first packet since the last call met, in order; see
    /// [`Follower::first_packet`].
    ///
    /// # Errors
    /// When the kernel would not say.
    pub fn first_packet_in(&mut self, table: &str, quiet: Duration) -> Result<Vec<Turn>, FollowError> {
        let mut packets = 0_u32;
        let mut turns = Vec::new();
        let (family, own) = (nft::family(self.family), &self.own);
        self.watch.until_quiet(quiet, &mut |event| {
            let Some(TraceStep::Rule { handle, verdict }) = event.step() else {
                return;
            };
            if event.table == *own {
                packets += 1;
            } else if packets == 1 && event.family == family && event.table == table {
                turns.push(Turn {
                    chain: event.chain.to_owned(),
                    handle,
                    verdict: words(verdict),
                });
            }
        })?;
        Ok(turns)
    }

    /// The rules that the first packet since the last call met, in order. Waits until nothing was told for `quiet`.
    ///
    /// A trace's number is the kernel's guess at a packet, and changes on the way through a bridge. What does not
    /// change is that each packet comes into our own table once.
    ///
    /// # Errors
    /// When the kernel would not say, or rules were replaced meanwhile.
    pub fn first_packet(&mut self, quiet: Duration) -> Result<Vec<MetRule>, FollowError> {
        let mut packets = 0_u32;
        let mut met = Vec::new();
        let (family, own) = (self.family, &self.own);
        self.watch.until_quiet(quiet, &mut |event| {
            let Some(TraceStep::Rule { handle, .. }) = event.step() else {
                return;
            };
            if event.table == *own {
                packets += 1;
            } else if packets == 1
                && let Some((table, chain)) = of_iptables(family, event)
            {
                met.push((table, chain, handle));
            }
        })?;
        numbered(family, met)
    }
}

/// A verdict as `nft monitor trace` would print it.
pub(crate) fn words(verdict: Verdict<'_>) -> String {
    match verdict {
        Verdict::Accept => "accept".to_owned(),
        Verdict::Drop => "drop".to_owned(),
        Verdict::Continue | Verdict::Break => "continue".to_owned(),
        Verdict::Jump(chain) => format!("jump {chain}"),
        Verdict::Goto(chain) => format!("goto {chain}"),
        Verdict::Return => "return".to_owned(),
        Verdict::Other(code) => format!("verdict {code}"),
    }
}

/// Table and chain, of a rule that iptables can have made.
fn of_iptables(family: Family, event: &TraceEvent<'_>) -> Option<(TableName, ChainName)> {
    let table = TableName::from_word(event.table)?;
    let chain = ChainName::new(event.chain).ok()?;
    (event.family == nft::family(family)).then_some((table, chain))
}

/// The rules by their numbers instead of their handles.
fn numbered(family: Family, met: Vec<(TableName, ChainName, u64)>) -> Result<Vec<MetRule>, FollowError> {
    let mut socket = Socket::netfilter()?;
    let mut handles: BTreeMap<(TableName, ChainName), Vec<u64>> = BTreeMap::new();
    for (table, chain, _) in &met {
        if let Entry::Vacant(missing) = handles.entry((*table, chain.clone())) {
            let listed = nft::rules(&mut socket, family, *table, chain)?;
            missing.insert(listed.into_iter().map(|rule| rule.handle).collect());
        }
    }
    let number = |(table, chain, handle): (TableName, ChainName, u64)| {
        let key = (table, chain);
        let index = handles
            .get(&key)
            .and_then(|all| all.iter().position(|one| *one == handle));
        let (table, chain) = key;
        match index.and_then(|index| u32::try_from(index + 1).ok()) {
            Some(rule) => Ok(MetRule { table, chain, rule }),
            None => Err(FollowError::RuleGone { table, chain }),
        }
    };
    met.into_iter().map(number).collect()
}

/// A connection before and after NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The client, as its first packet came in.
    pub source_before: SocketAddr,
    /// Whom the client asked.
    pub destination_before: SocketAddr,
    /// The client, as the endpoint sees it.
    pub source_after: SocketAddr,
    /// The endpoint.
    pub destination_after: SocketAddr,
}

impl Translation {
    /// Answers come from the endpoint and go to the client that it saw.
    fn read(entry: &flows::Entry) -> Option<Translation> {
        let (source_before, destination_before) = ends(&entry.original)?;
        let (destination_after, source_after) = ends(&entry.reply)?;
        Some(Translation {
            source_before,
            destination_before,
            source_after,
            destination_after,
        })
    }
}

fn ends(tuple: &Tuple) -> Option<(SocketAddr, SocketAddr)> {
    let Layer4::Ports { source, destination } = tuple.layer4 else {
        return None;
    };
    Some((
        SocketAddr::new(tuple.source, source),
        SocketAddr::new(tuple.destination, destination),
    ))
}

/// What this host's NAT made of a connection from `source` to `destination` (both before NAT); `None` when conntrack
/// does not know it.
///
/// # Errors
/// When the kernel would not say.
pub fn translation(
    protocol: Protocol,
    source: SocketAddr,
    destination: SocketAddr,
) -> Result<Option<Translation>, SocketError> {
    let number = match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    };
    let narrow = Filter {
        protocol: Some(number),
        ..Filter::default()
    };
    let wanted = |tuple: &Tuple| tuple.protocol == number && ends(tuple) == Some((source, destination));
    let found = conntrack::connections(Family::of(destination.ip()), narrow, wanted)?;
    Ok(found.first().and_then(Translation::read))
}
