//! What the kernel's counters amount to. Pure: readings and their time go in.
//!
//! A counter goes with its rule: a rule that is written anew begins at zero. So each counter's last value is kept, and what
//! it grew by is added up for the service port, which never goes down. What a counter grew by between the last
//! reading and its rule's end is lost.

use iptables::counted::{CountedPort, Counts};
use model::{Family, PerFamily};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::time::Duration;

/// How long a service port may have no rules before what was counted for it is forgotten. Tables are flushed and written
/// anew, and services deleted and made again, faster than that.
const GONE_AFTER: Duration = Duration::from_mins(10);

/// One counter as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Whose counter it is. Several with one number are one counter.
    pub(crate) id: u64,
    /// What it counts for.
    pub(crate) port: CountedPort,
    /// What it counts.
    pub(crate) counts: Counts,
    /// Its value.
    pub(crate) packets: u64,
}

/// Sums of one service port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) connections: u64,
    pub(crate) rejected: u64,
    pub(crate) dropped: u64,
}

impl Sums {
    fn of(&mut self, counts: Counts) -> &mut u64 {
        match counts {
            Counts::Connections => &mut self.connections,
            Counts::Rejected => &mut self.rejected,
            Counts::Dropped => &mut self.dropped,
        }
    }

    fn total(self) -> u64 {
        self.connections
            .saturating_add(self.rejected)
            .saturating_add(self.dropped)
    }
}

/// What was counted for one service port.
#[derive(Clone, Debug)]
struct OfPort {
    sums: Sums,
    /// When it last had rules.
    seen: Duration,
}

#[derive(Clone, Debug, Default)]
struct OfFamily {
    /// Each counter's value as it was last read.
    last: BTreeMap<u64, u64>,
    ports: BTreeMap<CountedPort, OfPort>,
}

/// Everything that was counted, and which service ports have series.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    most: NonZeroUsize,
    families: PerFamily<OfFamily>,
    shown: BTreeSet<CountedPort>,
    left_out: usize,
}

impl Tally {
    /// So many service ports may have series.
    pub(crate) fn new(most: NonZeroUsize) -> Tally {
        Tally {
            most,
            families: PerFamily::default(),
            shown: BTreeSet::new(),
            left_out: 0,
        }
    }

    /// Takes in all counters of a family.
    pub(crate) fn take(&mut self, family: Family, readings: Vec<Reading>, now: Duration) {
        let mut counters: BTreeMap<u64, Reading> = BTreeMap::new();
        for reading in readings {
            match counters.get_mut(&reading.id) {
                Some(known) => known.packets = known.packets.saturating_add(reading.packets),
                None => drop(counters.insert(reading.id, reading)),
            }
        }
        let of = self.families.get_mut(family);
        let before = std::mem::take(&mut of.last);
        for (id, reading) in counters {
            let last = before.get(&id).copied().unwrap_or(0);
            // Less than before: somebody has set it back to zero since.
            let grown = reading.packets.checked_sub(last).unwrap_or(reading.packets);
            of.last.insert(id, reading.packets);
            let port = of.ports.entry(reading.port).or_insert_with(|| OfPort {
                sums: Sums::default(),
                seen: now,
            });
            port.seen = now;
            let sum = port.sums.of(reading.counts);
            *sum = sum.saturating_add(grown);
        }
        of.ports
            .retain(|_, port| now.saturating_sub(port.seen) < GONE_AFTER);
    }

    /// Decides who has series, after all families were read: whoever has them keeps them, and room goes to those with most
    /// traffic so far, of equal ones by name.
    pub(crate) fn settle(&mut self) {
        let mut totals: BTreeMap<&CountedPort, u64> = BTreeMap::new();
        for of in [&self.families.v4, &self.families.v6] {
            for (port, counted) in &of.ports {
                let total = totals.entry(port).or_default();
                *total = total.saturating_add(counted.sums.total());
            }
        }
        let mut shown = std::mem::take(&mut self.shown);
        shown.retain(|port| totals.contains_key(port));
        let mut waiting: Vec<(&CountedPort, u64)> = totals
            .into_iter()
            .filter(|(port, total)| *total > 0 && !shown.contains(*port))
            .collect();
        // Equal ones stay in the order of their names.
        waiting.sort_by_key(|(_, total)| std::cmp::Reverse(*total));
        let room = self.most.get().saturating_sub(shown.len());
        self.left_out = waiting.len().saturating_sub(room);
        shown.extend(waiting.into_iter().take(room).map(|(port, _)| port.clone()));
        self.shown = shown;
    }

    /// The sums of those that have series, by family.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (Family, &CountedPort, Sums)> {
        Family::ALL.into_iter().flat_map(move |family| {
            let ports = &self.families.get(family).ports;
            self.shown
                .iter()
                .filter_map(move |port| Some((family, port, ports.get(port)?.sums)))
        })
    }

    /// How many service ports with traffic have no series for want of room.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }

    /// What was counted for the ports of one service, whether or not they have series.
    pub(crate) fn of_service(
        &self,
        service: &model::ServiceName,
    ) -> impl Iterator<Item = (Family, &CountedPort, Sums)> {
        let first = CountedPort {
            service: service.clone(),
            port: "".into(),
        };
        Family::ALL.into_iter().flat_map(move |family| {
            let ports = self.families.get(family).ports.range(first.clone()..);
            let own = ports.take_while(|(port, _)| port.service == first.service);
            own.map(move |(port, counted)| (family, port, counted.sums))
                .collect::<Vec<_>>()
        })
    }
}

#[cfg(test)]
mod tests;
