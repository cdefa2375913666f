//! One packet's way through `nf_tables`, put together from the events of a trace; [`logged`] does so for iptables-legacy.
//!
//! Values alone. A trace's number is the kernel's guess at a packet: it comes again for other packets within a second,
//! and changes on the way through a bridge. What does not change is that each packet comes into our own table first.

mod logged;
#[cfg(test)]
mod tests;

pub(crate) use logged::LoggedPassages;

use crate::follow::words;
use crate::trace_table::{ENTRIES, TRACE_TABLES};
use netlink::nflog::StepKind;
use netlink::nfnl::Family as NetlinkFamily;
use netlink::nft::{CtDirection, Policy, TraceEvent, TraceStep, Verdict};
use netlink::packet::PacketView;
use nftables::listed::TableFamily;
use std::time::{Duration, Instant};

/// What became of a packet, as far as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It came to the end of our late chains: it reached this host's sockets, or left.
    Through,
    /// A rule or a policy dropped it, or refused it.
    Dropped,
    /// Nothing more was told of it: a program decides (a queue), there was no route, or events were lost.
    NoMore,
}

/// A rule or a policy that a packet met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// Family of the table.
    pub family: TableFamily,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// What it was.
    pub what: What,
    /// The packet's mark behind it.
    pub mark: u32,
    /// The packet as it was seen next, where that differs: what NAT made of it.
    pub became: Option<PacketView>,
}

/// What was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A rule.
    Rule {
        /// Its handle, as `nft --handle list` prints it.
        handle: u64,
        /// What it decided, as `nft monitor trace` prints it.
        verdict: String,
    },
    /// A base chain's policy.
    Policy {
        /// Whether it let the packet pass.
        accepts: bool,
    },
    /// A step in legacy, which tells numbers and no verdicts.
    Step {
        /// What the kernel calls it.
        kind: StepKind,
        /// The rule's number, from 1; that of a chain's end is one more than it has rules.
        number: u32,
    },
}

/// A packet's way.
#[derive(Clone, Debug)]
pub struct Passage {
    /// When it was first told of.
    pub began: Instant,
    /// Whether this host sends it.
    pub sent_here: bool,
    /// Index of the interface it came in through.
    pub in_interface: Option<u32>,
    /// Index of the interface it goes out through.
    pub out_interface: Option<u32>,
    /// The packet as it came.
    pub before: PacketView,
    /// The packet as it was last seen.
    pub after: PacketView,
    /// Whether it is the first of its connection; `None` when the kernel does not tell (6.18 does, 6.1 does
    /// not). One that is sent again before it was answered counts as first, too.
    pub is_first: Option<bool>,
    /// Its mark at first.
    pub mark: u32,
    /// What it met, in order.
    pub met: Vec<Met>,
    /// What became of it.
    pub seen: Seen,
    /// Whether steps of it may have been lost.
    pub has_gaps: bool,
    ids: Vec<u32>,
    flow: Option<Flow>,
    last: Instant,
}

/// A connection by its number, and the packet's direction in it: answers have the same number.
type Flow = (u32, Option<CtDirection>);

fn flow(event: &TraceEvent<'_>) -> Option<Flow> {
    event
        .connection
        .map(|connection| (connection.id, connection.direction))
}

/// After a packet's end nothing comes any more, but for one that goes on through `lo`.
const LINGER: Duration = Duration::from_millis(20);
/// Nothing more is awaited of a packet of which nothing was told for so long.
const SILENCE: Duration = Duration::from_secs(1);
/// Packets that are on their way at once.
const MOST: usize = 1024;
/// `NF_CT_STATE_BIT(IP_CT_NEW)`.
const NEW: u32 = 8;

/// The packets that are on their way.
#[derive(Debug)]
pub struct Passages {
    own: String,
    open: Vec<Passage>,
    done: Vec<Passage>,
    strangers: u64,
}

impl Passages {
    /// For traces that the rules of our own table of this name ask for.
    pub fn new(own: &str) -> Passages {
        Passages {
            own: own.to_owned(),
            open: Vec::new(),
            done: Vec::new(),
            strangers: 0,
        }
    }

    /// Events of packets whose beginning was not seen: somebody else traces as well, or events were lost.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }

    /// Takes an event that was read at this time.
    pub fn take(&mut self, event: &TraceEvent<'_>, now: Instant) {
        let is_own = event.table == self.own;
        if !is_own && event.table.starts_with(TRACE_TABLES) {
            // Somebody else follows packets meanwhile.
            return;
        }
        let is_entry = ENTRIES.contains(&event.chain);
        if is_own && is_entry && matches!(event.step(), Some(TraceStep::Rule { .. })) {
            return self.begin(event, now);
        }
        let Some(at) = self.of(event) else {
            self.strangers += 1;
            return;
        };
        let passage = &mut self.open[at];
        passage.take(event, now);
        match event.step() {
            Some(TraceStep::Policy(_)) if is_own && !is_entry => passage.seen = Seen::Through,
            Some(_) if is_own => {}
            Some(TraceStep::Rule { handle, verdict }) => {
                if matches!(verdict, Verdict::Drop) {
                    passage.seen = Seen::Dropped;
                }
                let verdict = words(verdict);
                passage.met(event, What::Rule { handle, verdict });
            }
            Some(TraceStep::Policy(policy)) => {
                let accepts = policy == Policy::Accept;
                if !accepts {
                    passage.seen = Seen::Dropped;
                }
                passage.met(event, What::Policy { accepts });
            }
            Some(TraceStep::EndOfChain) | None => {}
        }
    }

    /// The packets that are at their end, oldest first.
    pub fn finished(&mut self, now: Instant) -> Vec<Passage> {
        let (done, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|passage| passage.due() <= now);
        self.open = open;
        let mut all = std::mem::take(&mut self.done);
        all.extend::<Vec<Passage>>(done);
        all
    }

    /// Events were lost: those that are not told yet may have gaps.
    pub fn lose(&mut self) {
        let all = self.open.iter_mut().chain(&mut self.done);
        all.for_each(|passage| passage.has_gaps = true);
    }

    /// Those that are on their way still.
    pub fn rest(&mut self) -> Vec<Passage> {
        let mut all = std::mem::take(&mut self.done);
        all.append(&mut self.open);
        all
    }

    /// When the next one will be at its end if nothing more is told of it.
    pub fn next_due(&self) -> Option<Instant> {
        self.open.iter().map(Passage::due).min()
    }

    fn begin(&mut self, event: &TraceEvent<'_>, now: Instant) {
        let Some(view) = event.packet() else {
            self.strangers += 1;
            return;
        };
        if let Some(passage) = self.of_loopback(event, &view) {
            return passage.take(event, now);
        }
        // Another packet with the number of one that is at its end.
        if let Some(at) = self.open.iter().position(|open| open.ids.contains(&event.id)) {
            self.done.push(self.open.remove(at));
        }
        if self.open.len() >= MOST {
            self.done.push(self.open.remove(0));
        }
        self.open.push(Passage {
            sent_here: event.chain == "output",
            in_interface: event.iif,
            out_interface: event.oif,
            mark: event.mark.unwrap_or_default(),
            ids: vec![event.id],
            ..Passage::new(view, now)
        });
    }

    /// Whose event it is: by its number; else, of the packets that are not at their end, by what the packet looks like, by
    /// its connection, and where NAT has changed its destination meanwhile, by its source. Of several it is the newest:
    /// the kernel goes on with a packet before it takes the next one.
    fn of(&self, event: &TraceEvent<'_>) -> Option<usize> {
        let by_id = self.open.iter().rposition(|open| open.ids.contains(&event.id));
        let find = |is_it: &dyn Fn(&Passage) -> bool| {
            let is_on_its_way = |open: &Passage| open.seen == Seen::NoMore || open.comes_back(event.iif);
            self.open
                .iter()
                .rposition(|open| is_on_its_way(open) && is_it(open))
        };
        let view = event.packet();
        let flow = flow(event);
        let is_free = |open: &Passage| open.flow.is_none() || open.flow == flow;
        by_id
            .or_else(|| find(&|open| view.is_some_and(|view| is_same(&open.after, &view)) && is_free(open)))
            .or_else(|| find(&|open| flow.is_some() && open.flow == flow))
            .or_else(|| {
                find(&|open| view.is_some_and(|view| is_from_same(&open.after, &view)) && is_free(open))
            })
    }

    /// A packet that this host sends to itself comes in again: it is the same one.
    fn of_loopback(&mut self, event: &TraceEvent<'_>, view: &PacketView) -> Option<&mut Passage> {
        let mut newest = self.open.iter_mut().rev();
        newest.find(|open| open.comes_back(event.iif) && is_same(&open.after, view))
    }
}

impl Passage {
    fn new(view: PacketView, now: Instant) -> Passage {
        Passage {
            began: now,
            sent_here: false,
            in_interface: None,
            out_interface: None,
            before: view,
            after: view,
            is_first: None,
            mark: 0,
            met: Vec::new(),
            seen: Seen::NoMore,
            has_gaps: false,
            ids: Vec::new(),
            flow: None,
            last: now,
        }
    }

    /// When it was last told of.
    pub fn ended(&self) -> Instant {
        self.last
    }

    /// Whether it goes out where this event's packet comes in: through `lo`.
    fn comes_back(&self, iif: Option<u32>) -> bool {
        self.sent_here && iif.is_some() && self.out_interface == iif
    }

    /// The packet looks like this now: what it met last made it so.
    fn became(&mut self, view: PacketView) {
        if is_same(&view, &self.after) {
            return;
        }
        self.after = view;
        if let Some(met) = self.met.last_mut() {
            met.became = Some(view);
        }
    }

    fn take(&mut self, event: &TraceEvent<'_>, now: Instant) {
        self.last = now;
        self.out_interface = event.oif.or(self.out_interface);
        if !self.ids.contains(&event.id) {
            self.ids.push(event.id);
        }
        if let Some(connection) = event.connection {
            self.flow = flow(event);
            let is_new = connection.state.map(|state| state & NEW != 0);
            self.is_first = self.is_first.or(is_new);
        }
        if let Some(view) = event.packet() {
            self.became(view);
        }
    }

    fn met(&mut self, event: &TraceEvent<'_>, what: What) {
        self.met.push(Met {
            family: family(event.family),
            table: event.table.to_owned(),
            chain: event.chain.to_owned(),
            what,
            mark: event.mark.unwrap_or_default(),
            became: None,
        });
    }

    fn due(&self) -> Instant {
        self.last
            + match self.seen {
                Seen::NoMore => SILENCE,
                Seen::Through | Seen::Dropped => LINGER,
            }
    }
}

/// Whether two packets have the same addresses and ports.
fn is_same(one: &PacketView, other: &PacketView) -> bool {
    let ends = |view: &PacketView| {
        (
            view.source,
            view.source_port,
            view.destination,
            view.destination_port,
        )
    };
    one.protocol == other.protocol && ends(one) == ends(other)
}

/// Whether two packets have the same source.
fn is_from_same(one: &PacketView, other: &PacketView) -> bool {
    let from = |view: &PacketView| (view.protocol, view.source, view.source_port);
    from(one) == from(other)
}

/// A table's family in words. Tables of other families than these cannot be traced through the hooks of IP.
fn family(family: NetlinkFamily) -> TableFamily {
    match family {
        NetlinkFamily::Ipv4 => TableFamily::Ip,
        NetlinkFamily::Ipv6 => TableFamily::Ip6,
        NetlinkFamily::Arp => TableFamily::Arp,
        NetlinkFamily::Bridge => TableFamily::Bridge,
        NetlinkFamily::Netdev => TableFamily::Netdev,
        NetlinkFamily::Inet | NetlinkFamily::Unspecified | NetlinkFamily::Other(_) => TableFamily::Inet,
    }
}
