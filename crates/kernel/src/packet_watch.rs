//! Real packets of this network namespace, followed through all rules of `nf_tables` while they pass.

use crate::losses::{Heard, Losses};
use crate::passage::{Passage, Passages};
use crate::socket::{Socket, SocketError};
use crate::trace_table::{Share, TraceTable, Traced};
use crate::watch::{TraceWatch, readable_by};
use model::Family;
use netlink::nfnl::Family as NetlinkFamily;
use netlink::nft::{Message, Request};
use nftables::listed::TableFamily;
use std::time::Instant;

/// Follows packets for as long as it lives. Its tables are owned by its sockets: when the process ends, however it ends,
/// the kernel removes them.
pub struct PacketWatch {
    watch: TraceWatch,
    passages: Passages,
    losses: Losses,
    _tables: Vec<TraceTable>,
}

impl PacketWatch {
    /// Begins to follow packets of these families that match any of `traced`. `name` is that of our own table, and must
    /// be nobody else's.
    ///
    /// # Errors
    /// When the kernel refuses the table, or may not be listened to.
    pub fn start(
        families: &[Family],
        name: &str,
        traced: &[Traced],
        share: Share,
    ) -> Result<PacketWatch, SocketError> {
        let watch = TraceWatch::new()?;
        let tables = families
            .iter()
            .map(|family| TraceTable::with_share(*family, name, traced, share));
        Ok(PacketWatch {
            watch,
            passages: Passages::new(name),
            losses: Losses::default(),
            _tables: tables.collect::<Result<_, _>>()?,
        })
    }

    /// The packets that came to their end, until this time at the latest; empty when there were none.
    ///
    /// # Errors
    /// When the kernel would not say. Lost events are no error: see [`PacketWatch::losses`].
    pub fn wait(&mut self, until: Instant) -> Result<Vec<Passage>, SocketError> {
        loop {
            self.read()?;
            let now = Instant::now();
            let finished = self.passages.finished(now);
            if !finished.is_empty() || now >= until {
                return Ok(finished);
            }
            let due = self.passages.next_due().unwrap_or(until).min(until);
            readable_by(&self.watch, due)?;
        }
    }

    /// The packets that are on their way still.
    pub fn rest(&mut self) -> Vec<Passage> {
        self.passages.rest()
    }

    /// How often the kernel had more to tell than the socket could hold (`ENOBUFS`): then ways have gaps.
    pub fn losses(&self) -> u64 {
        self.losses.count()
    }

    /// Events of packets whose beginning was not seen.
    pub fn strangers(&self) -> u64 {
        self.passages.strangers()
    }

    fn read(&mut self) -> Result<(), SocketError> {
        let passages = &mut self.passages;
        let read = self.watch.take(&mut |event| passages.take(event, Instant::now()));
        if self.losses.heard(read)? == Heard::WithGaps {
            self.passages.lose();
        }
        Ok(())
    }
}

/// The handles of a chain's rules, in their order; empty when there is no such chain.
///
/// # Errors
/// When the kernel would not say.
pub fn rule_handles(family: TableFamily, table: &str, chain: &str) -> Result<Vec<u64>, SocketError> {
    let family = match family {
        TableFamily::Ip => NetlinkFamily::Ipv4,
        TableFamily::Ip6 => NetlinkFamily::Ipv6,
        TableFamily::Inet => NetlinkFamily::Inet,
        TableFamily::Arp => NetlinkFamily::Arp,
        TableFamily::Bridge => NetlinkFamily::Bridge,
        TableFamily::Netdev => NetlinkFamily::Netdev,
    };
    let question = Request::ChainRules { family, table, chain };
    Socket::netfilter()?.dump(
        |sequence, bytes| question.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::NewRule(rule) => Ok(Some(rule.handle)),
            _ => Ok(None),
        },
    )
}
