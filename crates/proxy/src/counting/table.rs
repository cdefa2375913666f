//! The counters of nftables mode: one family's table of them, kept to what there is to count.

use super::Reading;
use super::frontends::Place;
use iptables::counted::{CountedPort, Counts};
use kernel::{CounterTable, SocketError};
use model::{Family, ServiceName};
use nftables::ast::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What is told of services.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Whether it is about all services, or about those alone that are named.
    pub(crate) extent: Extent,
    /// The places of services; a service without any is gone.
    pub(crate) services: BTreeMap<ServiceName, Vec<Place>>,
}

/// How much is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Of some services.
    #[default]
    Some,
    /// Of all there are.
    All,
}

/// What is to be counted no more, and what from now on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    gone: Vec<Vec<Value>>,
    come: Vec<Vec<Value>>,
}

/// One family's counters.
pub(super) struct Table {
    family: Family,
    open: Option<CounterTable>,
    /// How many tables there were: counters of one are not those of the next.
    made: u64,
    keys: BTreeMap<Vec<Value>, (CountedPort, Counts)>,
    services: BTreeMap<ServiceName, Vec<Vec<Value>>>,
}

impl Table {
    pub(super) fn new(family: Family) -> Table {
        Table {
            family,
            open: None,
            made: 0,
            keys: BTreeMap::new(),
            services: BTreeMap::new(),
        }
    }

    /// Counts what there is to count from now on. After a failure the table is made anew at the next call.
    pub(super) fn follow(&mut self, told: Told) -> Result<(), SocketError> {
        let is_news = told.extent == Extent::All || !told.services.is_empty();
        if self.open.is_some() && !is_news {
            return Ok(());
        }
        let change = self.learn(told);
        let table = if let Some(mut table) = self.open.take() {
            table.forget(&change.gone)?;
            table.count(&change.come)?;
            table
        } else {
            let mut table = CounterTable::new(self.family)?;
            table.count(&self.keys.keys().cloned().collect::<Vec<_>>())?;
            self.made += 1;
            table
        };
        self.open = Some(table);
        Ok(())
    }

    /// Takes in what was told.
    fn learn(&mut self, told: Told) -> Difference {
        let mut before: BTreeSet<Vec<Value>> = BTreeSet::new();
        let concerned: Vec<ServiceName> = match told.extent {
            Extent::Some => told.services.keys().cloned().collect(),
            Extent::All => self.services.keys().cloned().collect(),
        };
        for name in concerned {
            for key in self.services.remove(&name).unwrap_or_default() {
                // Another service may have it by now.
                if self.keys.get(&key).is_some_and(|(port, _)| port.service == name) {
                    self.keys.remove(&key);
                    before.insert(key);
                }
            }
        }
        let mut come = Vec::new();
        for (name, places) in told.services {
            for place in places {
                self.services
                    .entry(name.clone())
                    .or_default()
                    .push(place.key.clone());
                let was_there = before.remove(&place.key);
                let other = self.keys.insert(place.key.clone(), (place.port, place.counts));
                if !was_there && other.is_none() {
                    come.push(place.key);
                }
            }
        }
        Difference {
            gone: before.into_iter().collect(),
            come,
        }
    }

    /// All counters; `None` without a table, which was told.
    pub(super) fn read(&mut self) -> Result<Option<Vec<Reading>>, SocketError> {
        let Some(table) = &mut self.open else {
            return Ok(None);
        };
        let found = table.read()?;
        let readings = found.into_iter().filter_map(|(key, packets)| {
            let (port, counts) = self.keys.get(&key)?;
            let mut hasher = DefaultHasher::new();
            (self.made, &key).hash(&mut hasher);
            Some(Reading {
                id: hasher.finish(),
                port: port.clone(),
                counts: *counts,
                packets,
            })
        });
        Ok(Some(readings.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Protocol;

    fn key(port: u16) -> Vec<Value> {
        vec![Value::Protocol(Protocol::Tcp), Value::Port(port)]
    }

    fn told(extent: Extent, services: &[(&str, &[u16])]) -> Told {
        let places = |name: &str, ports: &[u16]| {
            let place = |port: &u16| Place {
                key: key(*port),
                port: CountedPort {
                    service: ServiceName::new("ns", name),
                    port: "p".into(),
                },
                counts: Counts::Connections,
            };
            (ServiceName::new("ns", name), ports.iter().map(place).collect())
        };
        Told {
            extent,
            services: services.iter().map(|(name, ports)| places(name, ports)).collect(),
        }
    }

    #[test]
    fn what_is_told_is_followed_by_as_little_as_is_needed() {
        let mut table = Table::new(Family::V4);
        let mut learn = |extent, services: &[(&str, &[u16])]| {
            let change = table.learn(told(extent, services));
            let owner = |port| {
                table
                    .keys
                    .get(&key(port))
                    .map(|(port, _)| port.service.name.to_string())
            };
            (change.gone, change.come, [1, 2, 3].map(owner))
        };
        let [one, two] = ["a", "b"].map(|name| Some(name.to_owned()));
        let expected = (vec![], vec![key(1), key(2)], [one.clone(), two.clone(), None]);
        assert_eq!(learn(Extent::All, &[("a", &[1]), ("b", &[2])]), expected);
        // The same again is no change: counters stay.
        let expected = (vec![], vec![], [one.clone(), two.clone(), None]);
        assert_eq!(learn(Extent::All, &[("a", &[1]), ("b", &[2])]), expected);
        let expected = (vec![], vec![key(3)], [one.clone(), two.clone(), two.clone()]);
        assert_eq!(learn(Extent::Some, &[("b", &[2, 3])]), expected);
        // An address goes from one to the other, in whichever order that is told.
        let expected = (vec![], vec![], [two.clone(), two.clone(), two.clone()]);
        assert_eq!(learn(Extent::Some, &[("b", &[1, 2, 3])]), expected);
        assert_eq!(learn(Extent::Some, &[("a", &[])]), expected);
        let expected = (vec![], vec![], [one.clone(), two.clone(), two.clone()]);
        assert_eq!(learn(Extent::Some, &[("a", &[1]), ("b", &[2, 3])]), expected);
        // Who is not named among all is gone.
        let expected = (vec![key(2), key(3)], vec![], [one, None, None]);
        assert_eq!(learn(Extent::All, &[("a", &[1])]), expected);
    }
}
