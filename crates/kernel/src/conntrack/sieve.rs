//! What passes through a sweep, and what is held: the part of it without a socket.

use super::delete::Fate;
use super::sweep::SweepReport;
use conntrack::{Flow, Stale, Verdict};
use model::Protocol;
use netlink::DecodeError;
use netlink::conntrack::{Entry, Layer4, Message};
use netlink::message;
use std::net::SocketAddr;

/// Whether a sieve must be emptied before it is given more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Not yet.
    Room,
    /// Now.
    Full,
}

/// Reads a dump message by message and holds stale entries, a batch at most.
pub struct Sieve<'a> {
    protocol: Protocol,
    batch: usize,
    verdict: &'a mut dyn FnMut(&Flow) -> Verdict,
    stale: Vec<(Entry, Stale)>,
    report: &'a mut SweepReport,
}

impl<'a> Sieve<'a> {
    /// Holds nothing. Entries of other protocols pass unseen: kernels before 5.8 do not leave them out.
    pub fn new(
        protocol: Protocol,
        batch: usize,
        verdict: &'a mut dyn FnMut(&Flow) -> Verdict,
        report: &'a mut SweepReport,
    ) -> Self {
        Sieve {
            protocol,
            batch: batch.max(1),
            verdict,
            stale: Vec::new(),
            report,
        }
    }

    /// The protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Reads a message of a dump.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn look_at(&mut self, message: message::Message<'_>) -> Result<Held, DecodeError> {
        if let Message::Entry(entry) = Message::read(message)? {
            self.judge(entry);
        }
        Ok(if self.stale.len() < self.batch {
            Held::Room
        } else {
            Held::Full
        })
    }

    fn judge(&mut self, entry: Entry) {
        let Some(flow) = flow(&entry).filter(|flow| flow.protocol == self.protocol) else {
            return;
        };
        self.report.seen += 1;
        if let Verdict::Delete(why) = (self.verdict)(&flow) {
            self.stale.push((entry, why));
        }
    }

    /// Takes out what is held.
    pub fn take(&mut self) -> Vec<(Entry, Stale)> {
        std::mem::take(&mut self.stale)
    }

    /// Gives back the room that was taken out.
    pub fn give_back(&mut self, mut room: Vec<(Entry, Stale)>) {
        room.clear();
        self.stale = room;
    }

    /// Counts what became of an entry.
    pub fn settle(&mut self, why: Stale, fate: Fate) {
        match fate {
            Fate::Deleted => *self.report.deleted.entry(why).or_default() += 1,
            Fate::GoneAlready => self.report.gone_already += 1,
            Fate::Unanswered => self.report.unanswered += 1,
        }
    }

    /// The dump was not one state of the table.
    pub fn interrupt(&mut self) {
        self.report.interrupted = true;
    }
}

/// The flow of an entry; `None` for protocols that no Service has.
fn flow(entry: &Entry) -> Option<Flow> {
    let (original, reply) = (&entry.original, &entry.reply);
    let protocol = Protocol::ALL
        .into_iter()
        .find(|protocol| protocol.number() == original.protocol)?;
    let (Layer4::Ports { source, destination }, Layer4::Ports { source: answers, .. }) =
        (original.layer4, reply.layer4)
    else {
        return None;
    };
    Some(Flow {
        protocol,
        client: SocketAddr::new(original.source, source),
        destination: SocketAddr::new(original.destination, destination),
        answerer: SocketAddr::new(reply.source, answers),
    })
}
