//! One packet's way through the rules of iptables-legacy, put together from the steps that the kernel logs.
//!
//! These have no number for the packet. It is known by what neither NAT nor forwarding changes ([`Fingerprint`]), by its
//! addresses, and by the order of the hooks.

#[cfg(test)]
mod tests;

use super::{MOST, Met, Passage, SILENCE, Seen, What, is_from_same, is_same};
use crate::trace_table::Traced;
use model::Family;
use netlink::nflog::{LegacyStep, Logged, StepKind};
use netlink::packet::{Fingerprint, PacketView};
use nftables::listed::TableFamily;
use std::time::{Duration, Instant};

/// After a step at the last hook, the others there come within this time.
const LINGER: Duration = Duration::from_millis(100);

/// Hooks as netfilter numbers them.
const PREROUTING: u8 = 0;
const INPUT: u8 = 1;
const OUTPUT: u8 = 3;
const POSTROUTING: u8 = 4;

/// A packet that is on its way.
#[derive(Debug)]
struct Open {
    passage: Passage,
    print: Fingerprint,
    hook: u8,
}

/// The packets that are on their way.
#[derive(Debug)]
pub(crate) struct LoggedPassages {
    own: &'static str,
    traced: Vec<Traced>,
    open: Vec<Open>,
    strangers: u64,
}

impl LoggedPassages {
    /// For packets that our own chain of this name asks about, at whose end each is told of first.
    pub(crate) fn new(own: &'static str, traced: &[Traced]) -> LoggedPassages {
        LoggedPassages {
            own,
            traced: traced.to_vec(),
            open: Vec::new(),
            strangers: 0,
        }
    }

    /// Steps of packets whose beginning was not seen, and packets that others log to the same group.
    pub(crate) fn strangers(&self) -> u64 {
        self.strangers
    }

    /// Takes what was read at this time.
    pub(crate) fn take(&mut self, logged: &Logged<'_>, now: Instant) {
        let seen = PacketView::of(logged.payload).zip(Fingerprint::of(logged.payload));
        let (Some(step), Some((view, print))) = (LegacyStep::read(logged.prefix), seen) else {
            self.strangers += 1;
            return;
        };
        if step.table == "raw" && step.chain == self.own {
            if step.kind == StepKind::Return {
                self.begin(logged, view, print, now);
            }
            return;
        }
        let Some(at) = self.of(logged, &view, print) else {
            self.strangers += 1;
            return;
        };
        let open = &mut self.open[at];
        open.hook = logged.hook;
        open.passage.seen_as(logged, view, now);
        open.passage.met.push(Met {
            family: TableFamily::of(Family::of(view.source)),
            table: step.table.to_owned(),
            chain: step.chain.to_owned(),
            what: What::Step {
                kind: step.kind,
                number: step.number,
            },
            mark: logged.mark,
            became: None,
        });
    }

    /// The packets of which nothing more is awaited, oldest first.
    pub(crate) fn finished(&mut self, now: Instant) -> Vec<Passage> {
        let all = std::mem::take(&mut self.open);
        let (done, open) = all.into_iter().partition(|open| open.due() <= now);
        self.open = open;
        let done: Vec<Open> = done;
        done.into_iter().map(Open::end).collect()
    }

    /// Steps were lost: packets that are on their way may have gaps.
    pub(crate) fn lose(&mut self) {
        let open = self.open.iter_mut();
        open.for_each(|open| open.passage.has_gaps = true);
    }

    /// Those that are on their way still.
    pub(crate) fn rest(&mut self) -> Vec<Passage> {
        self.open.drain(..).map(Open::end).collect()
    }

    /// When the next one will be at its end if nothing more is told of it.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.open.iter().map(Open::due).min()
    }

    fn begin(&mut self, logged: &Logged<'_>, view: PacketView, print: Fingerprint, now: Instant) {
        let mut newest = self.open.iter_mut().rev();
        if let Some(open) = newest.find(|open| open.comes_back(logged, print)) {
            open.hook = PREROUTING;
            return open.passage.seen_as(logged, view, now);
        }
        // Somebody else's rule may have set the trace mark before.
        if !self.traced.iter().any(|traced| traced.fits(&view, logged.iif)) {
            self.strangers += 1;
            return;
        }
        if self.open.len() >= MOST {
            self.open.remove(0);
        }
        let passage = Passage {
            sent_here: logged.hook == OUTPUT,
            in_interface: logged.iif,
            out_interface: logged.oif,
            mark: logged.mark,
            ..Passage::new(view, now)
        };
        let hook = logged.hook;
        self.open.push(Open { passage, print, hook });
    }

    /// Whose step it is: of those packets that look alike and are not past this hook, the newest with these addresses; else,
    /// where NAT has changed its destination meanwhile, with this source.
    fn of(&self, logged: &Logged<'_>, view: &PacketView, print: Fingerprint) -> Option<usize> {
        let find = |is_it: &dyn Fn(&PacketView) -> bool| {
            self.open.iter().rposition(|open| {
                open.print == print && open.hook <= logged.hook && is_it(&open.passage.after)
            })
        };
        find(&|after| is_same(after, view))
            .or_else(|| find(&|after| is_from_same(after, view)))
            .or_else(|| self.open.iter().rposition(|open| open.comes_back(logged, print)))
    }
}

impl Open {
    /// Whether it went out through `lo` and is coming in there, or has just begun to.
    fn comes_back(&self, logged: &Logged<'_>, print: Fingerprint) -> bool {
        let is_in = logged.hook == PREROUTING && matches!(self.hook, POSTROUTING | PREROUTING);
        is_in && self.print == print && self.passage.comes_back(logged.iif)
    }

    /// Whether no hook comes behind the one where it was last seen.
    fn is_at_the_end(&self) -> bool {
        matches!(self.hook, INPUT | POSTROUTING)
    }

    fn due(&self) -> Instant {
        let patience = if self.is_at_the_end() { LINGER } else { SILENCE };
        self.passage.last + patience
    }

    /// Nothing tells of verdicts: a packet came through unless the last rule it met says otherwise.
    fn end(self) -> Passage {
        let is_at_the_end = self.is_at_the_end();
        let mut passage = self.passage;
        if is_at_the_end {
            passage.seen = Seen::Through;
        }
        if passage.met.iter().any(is_of_nat) {
            passage.is_first = Some(true);
        }
        passage
    }
}

impl Passage {
    /// A step shows the packet as it is before the step does anything: so what it met last has made it so.
    fn seen_as(&mut self, logged: &Logged<'_>, view: PacketView, now: Instant) {
        self.last = now;
        self.out_interface = logged.oif.or(self.out_interface);
        if let Some(met) = self.met.last_mut() {
            met.mark = logged.mark;
        }
        self.became(view);
    }

    /// Takes what conntrack knows of the packet's way out, which no step shows.
    pub(crate) fn leaves_as(&mut self, view: PacketView) {
        if self.is_first.is_none() && !is_same(&view, &self.before) {
            // It was translated without being asked: an earlier packet was.
            self.is_first = Some(false);
        }
        match self.met.last() {
            Some(met) if is_of_nat(met) => self.became(view),
            _ => self.after = view,
        }
    }
}

/// Its table is asked once for a connection.
fn is_of_nat(met: &Met) -> bool {
    met.table == "nat"
}
