//! How long it takes from what made an endpoint change to rules that know of it: upstream's
//! `network_programming_duration_seconds`.
//!
//! A time waits from the moment that the engine is given its slice until the kernel has what the slice says. It is not
//! lost when a step fails. Deviation: upstream loses it (ADR 33).

use engine::{About, Report};
use model::object::{Object, ObjectRef, Slice, SliceName, TriggerTime};
use model::snapshot::Change;
use model::{Family, PerFamily, ServiceName};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many times of one family wait at most; more than that are not counted.
const MOST: usize = 10_000;

/// Times that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Programming {
    /// Older times are from before this process, which can't have been faster. In nanoseconds since 1970.
    start: i64,
    families: PerFamily<Option<Waiting>>,
    /// The last time that each slice named, so that one is counted once however often its slice comes.
    slices: BTreeMap<SliceName, (Family, ServiceName, TriggerTime)>,
}

#[derive(Clone, Debug, Default)]
struct Waiting {
    of: BTreeMap<ServiceName, Vec<Trigger>>,
    /// How many there are.
    count: usize,
    /// Since when the step under way exists, if there is one: it does not know of what came later.
    step: Option<Duration>,
    /// Services that the kernel refused by themselves.
    refused: BTreeSet<ServiceName>,
}

#[derive(Clone, Copy, Debug)]
struct Trigger {
    time: TriggerTime,
    heard: Duration,
}

impl Programming {
    /// Of a process that started then, in seconds since 1970.
    pub(super) fn since(start: Duration) -> Programming {
        Programming {
            start: i64::try_from(start.as_nanos()).unwrap_or(i64::MAX),
            ..Programming::default()
        }
    }

    /// This host has these families.
    pub(super) fn serves(&mut self, family: Family) {
        self.families.get_mut(family).get_or_insert_default();
    }

    /// The engine is given a change.
    pub(super) fn given(&mut self, change: &Change, now: Duration) {
        match change {
            Change::Apply(Object::Slice(slice)) => self.slice(slice, now),
            Change::Delete(ObjectRef::Slice(name)) => self.gone(name),
            Change::ReplaceAll { kind, objects } if *kind == model::object::Kind::Slice => {
                let slices = || {
                    objects.iter().filter_map(|object| match object {
                        Object::Slice(slice) => Some(&**slice),
                        _ => None,
                    })
                };
                let there: BTreeSet<&SliceName> = slices().map(|slice| &slice.name).collect();
                let known: Vec<SliceName> = self.slices.keys().cloned().collect();
                known
                    .iter()
                    .filter(|name| !there.contains(name))
                    .for_each(|name| self.gone(name));
                slices().for_each(|slice| self.slice(slice, now));
            }
            _ => {}
        }
    }

    fn slice(&mut self, slice: &Slice, heard: Duration) {
        let (Some(time), Some(family), Some(service)) = (slice.triggered, slice.family, &slice.service)
        else {
            return;
        };
        if time.since_1970() <= self.start {
            return;
        }
        let Some(waiting) = self.families.get_mut(family) else {
            return;
        };
        let known = (family, service.clone(), time);
        if self.slices.insert(slice.name.clone(), known.clone()) != Some(known) && waiting.count < MOST {
            let times = waiting.of.entry(service.clone()).or_default();
            times.push(Trigger { time, heard });
            waiting.count += 1;
        }
    }

    /// The times of its service mean nothing any more, as upstream has it.
    fn gone(&mut self, name: &SliceName) {
        if let Some((family, service, _)) = self.slices.remove(name)
            && let Some(waiting) = self.families.get_mut(family)
        {
            waiting.take(&service, |_| true);
        }
    }

    /// A step was handed out. A step that follows another of the same making knows no more than that one.
    pub(super) fn step(&mut self, family: Family, now: Duration) {
        if let Some(waiting) = self.families.get_mut(family) {
            waiting.step.get_or_insert(now);
        }
    }

    /// The engine told something; out come the times of what the kernel has now.
    pub(super) fn report(&mut self, report: &Report) -> Option<(Family, Vec<TriggerTime>)> {
        match report {
            Report::Applied { family, services, .. } => {
                let waiting = self.families.get_mut(*family).as_mut()?;
                let step = waiting.step.take()?;
                let mut times = Vec::new();
                for service in services {
                    waiting.refused.remove(service);
                    times.extend(waiting.take(service, |trigger| trigger.heard <= step));
                }
                Some((*family, times))
            }
            Report::Failed { family, about, .. } => {
                let waiting = self.families.get_mut(*family).as_mut()?;
                waiting.step = None;
                if let About::Service(service) = about {
                    waiting.refused.insert(service.clone());
                }
                None
            }
            _ => None,
        }
    }

    /// Nothing is queued: all that the engine was given is in the kernel, refused services excepted.
    pub(super) fn idle(&mut self, family: Family, refused: usize) -> Vec<TriggerTime> {
        let Some(waiting) = self.families.get_mut(family) else {
            return Vec::new();
        };
        if refused == 0 {
            waiting.refused.clear();
        }
        let held = std::mem::take(&mut waiting.refused);
        let done: Vec<ServiceName> = waiting
            .of
            .keys()
            .filter(|name| !held.contains(*name))
            .cloned()
            .collect();
        waiting.refused = held;
        done.iter()
            .flat_map(|name| waiting.take(name, |_| true))
            .collect()
    }
}

impl Waiting {
    fn take(&mut self, service: &ServiceName, is_done: impl Fn(&Trigger) -> bool) -> Vec<TriggerTime> {
        let Some(times) = self.of.remove(service) else {
            return Vec::new();
        };
        let (done, left): (Vec<Trigger>, Vec<Trigger>) = times.into_iter().partition(is_done);
        self.count -= done.len();
        if !left.is_empty() {
            self.of.insert(service.clone(), left);
        }
        done.into_iter().map(|trigger| trigger.time).collect()
    }
}

#[cfg(test)]
mod tests;
