//! What a table means, whichever slots its endpoints lie in.

use super::own_table::Frontend;
use nftables::ast::{Element, ElementKey};
use nftables::names::{self, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Elements, but for the slots in which endpoints lie.
#[derive(Debug, PartialEq, Eq)]
pub struct Meant {
    others: BTreeSet<ElementKey>,
    endpoints: BTreeMap<Frontend, BTreeSet<SocketAddr>>,
    sticky: BTreeMap<Frontend, Option<u32>>,
    buckets: BTreeMap<ElementKey, Option<SocketAddr>>,
}

impl Meant {
    pub fn of(elements: &BTreeMap<ElementKey, Element>) -> Meant {
        let mut meant = Meant {
            others: BTreeSet::new(),
            endpoints: BTreeMap::new(),
            sticky: BTreeMap::new(),
            buckets: BTreeMap::new(),
        };
        let mut bounds: BTreeMap<Frontend, u32> = BTreeMap::new();
        for (key, element) in elements {
            let form = names::form_of(key.set.as_str()).unwrap();
            let frontend = form.kind.map(|kind| (kind, key.key.clone()));
            match (frontend, form.role) {
                (Some(frontend), Role::Slot(_)) => {
                    let new = meant
                        .endpoints
                        .entry(frontend)
                        .or_default()
                        .insert(element.endpoint.unwrap());
                    assert!(new, "{key:?}: an endpoint in two slots");
                }
                (Some(frontend), Role::Within(bound, sticky)) => {
                    let twice = meant.sticky.insert(frontend.clone(), sticky);
                    assert!(twice.is_none(), "{key:?}: in two sets");
                    bounds.insert(frontend, bound.get());
                }
                (_, Role::Bucket(_)) => drop(meant.buckets.insert(key.clone(), element.endpoint)),
                _ => drop(meant.others.insert(key.clone())),
            }
        }
        for (frontend, bound) in bounds {
            let outside = elements.keys().find(|key| {
                let form = names::form_of(key.set.as_str()).unwrap();
                form.kind == Some(frontend.0)
                    && key.key == frontend.1
                    && matches!(form.role, Role::Slot(slot) if slot >= bound)
            });
            assert!(outside.is_none(), "{outside:?} lies outside of {bound}");
        }
        meant
    }

    pub fn is_within(&self, want: &Meant) -> bool {
        let mut endpoints = self.endpoints.iter();
        self.others.is_subset(&want.others)
            && endpoints.all(|(key, have)| want.endpoints.get(key).is_some_and(|want| have.is_subset(want)))
            && self
                .sticky
                .iter()
                .all(|(key, have)| want.sticky.get(key) == Some(have))
            && self
                .buckets
                .iter()
                .all(|(key, have)| want.buckets.get(key) == Some(have))
    }

    pub fn difference(&self, want: &Meant) -> String {
        let more: Vec<_> = self.others.difference(&want.others).take(3).collect();
        let less: Vec<_> = want.others.difference(&self.others).take(3).collect();
        let endpoints: Vec<_> = want
            .endpoints
            .iter()
            .filter(|(key, endpoints)| self.endpoints.get(*key) != Some(endpoints))
            .take(3)
            .map(|(key, endpoints)| (key, endpoints, self.endpoints.get(key)))
            .collect();
        let strange: Vec<_> = self
            .endpoints
            .keys()
            .filter(|key| !want.endpoints.contains_key(*key))
            .take(3)
            .collect();
        let buckets = want.buckets.iter();
        let buckets = buckets
            .filter(|(key, endpoint)| self.buckets.get(*key) != Some(endpoint))
            .count();
        format!(
            "more {more:?}, less {less:?}, endpoints {endpoints:?}, strange {strange:?}, {buckets} of {} buckets wrong",
            want.buckets.len()
        )
    }
}
