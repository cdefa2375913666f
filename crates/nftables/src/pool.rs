//! Elements that were read and that no service has claimed yet.

use crate::ast::{Data, Element, ElementKey, Elements, Name, Value};
use crate::diff::Operation;
use crate::names::{self, Form, Kind, Role};
use crate::wire::{self, End};
use model::Family;
use std::collections::BTreeMap;

/// Elements by set, as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool(BTreeMap<Name, OfSet>);

/// Data by key.
type OfSet = BTreeMap<Box<[u8]>, Box<[u8]>>;

impl Pool {
    /// Adds an element as the kernel reported it: its key, in sets of ranges the upper end behind it, and its data.
    pub fn add(&mut self, set: &Name, key: Box<[u8]>, data: Box<[u8]>) {
        self.0.entry(set.clone()).or_default().insert(key, data);
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(BTreeMap::is_empty)
    }

    /// How many elements are left.
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Whether an element is there.
    pub fn has(&self, key: &ElementKey) -> bool {
        self.0
            .get(&key.set)
            .is_some_and(|elements| elements.contains_key(&bytes_of(key)))
    }

    /// Whether an element is there as it should be.
    pub fn holds(&self, key: &ElementKey, element: &Element) -> bool {
        let data = element.endpoint.map(wire::endpoint).unwrap_or_default();
        let elements = self.0.get(&key.set);
        elements
            .and_then(|elements| elements.get(&bytes_of(key)))
            .is_some_and(|found| **found == *data)
    }

    /// An element, if it is there, without its comment.
    pub fn found(&self, key: &ElementKey) -> Option<Element> {
        let data = self.0.get(&key.set)?.get(&bytes_of(key))?;
        Some(Element {
            endpoint: wire::read_endpoint(data),
            comment: None,
        })
    }

    /// Takes out whatever is so, of sets that are ours.
    pub fn drop_all(&mut self, is_so: impl Fn(&ElementKey) -> bool, family: Family) {
        for operation in self.rest(family, usize::MAX) {
            if is_so(operation.key()) {
                self.take(operation.key());
            }
        }
    }

    /// Takes an element out.
    pub fn take(&mut self, key: &ElementKey) {
        if let Some(elements) = self.0.get_mut(&key.set) {
            elements.remove(&bytes_of(key));
            if elements.is_empty() {
                self.0.remove(&key.set);
            }
        }
    }

    /// An element is there now, or no longer.
    pub fn put(&mut self, key: &ElementKey, now: Option<&Element>) {
        match now {
            None => self.take(key),
            Some(element) => {
                let data = element.endpoint.map(wire::endpoint).unwrap_or_default();
                self.add(&key.set, bytes_of(key), data.into());
            }
        }
    }

    /// Copies whatever lies under a frontend: in the sets of its kind, in those of its other list, and who is admitted.
    pub fn under(&self, family: Family, kind: Kind, frontend: &[Value], into: &mut Elements) {
        let other = match kind {
            Kind::Service | Kind::ServiceLocal => Kind::ServiceLocal,
            Kind::NodePort | Kind::NodePortLocal => Kind::NodePortLocal,
        };
        let bytes = wire::key(frontend, End::Lower);
        for (set, elements) in &self.0 {
            let Some(form) = names::form_of(set.as_str()) else {
                continue;
            };
            let concerns = match form.role {
                Role::Shared | Role::Clients(_) => false,
                Role::Admission => kind == Kind::Service,
                _ => form.kind == Some(kind) || form.kind == Some(other),
            };
            if !concerns {
                continue;
            }
            if set.as_str() == names::ALLOWED {
                let whole = wire::key_length(form.key, family);
                let admitted = elements
                    .iter()
                    .filter(|(key, _)| key.get(whole - bytes.len()..whole) == Some(&bytes));
                into.extend(admitted.filter_map(|(key, data)| read(family, set, &form, key, data)));
            } else if let Some(data) = elements.get(bytes.as_slice()) {
                into.extend(read(family, set, &form, &bytes, data));
            }
        }
    }

    /// Deletions of what is left, at most so many.
    pub fn rest(&self, family: Family, most: usize) -> Vec<Operation> {
        let all = self.0.iter().flat_map(|(set, elements)| {
            let form = names::form_of(set.as_str());
            elements.iter().filter_map(move |(key, data)| {
                let form = form.filter(|form| !matches!(form.role, Role::Clients(_)))?;
                read(family, set, &form, key, data)
            })
        });
        all.take(most)
            .map(|(key, element)| Operation::Delete(key, element))
            .collect()
    }
}

fn bytes_of(key: &ElementKey) -> Box<[u8]> {
    let mut bytes = wire::key(&key.key, End::Lower);
    if key.set.as_str() == names::ALLOWED {
        bytes.extend(wire::key(&key.key, End::Upper));
    }
    bytes.into()
}

fn read(family: Family, set: &Name, form: &Form, key: &[u8], data: &[u8]) -> Option<(ElementKey, Element)> {
    let length = wire::key_length(form.key, family);
    let (lower, upper) = key.split_at_checked(length)?;
    let values = wire::read_key(form.key, family, lower, (!upper.is_empty()).then_some(upper))?;
    let endpoint = match form.data {
        Data::None => None,
        Data::Endpoint => Some(wire::read_endpoint(data)?),
    };
    let key = ElementKey {
        set: set.clone(),
        key: values.into(),
    };
    let element = Element {
        endpoint,
        comment: None,
    };
    Some((key, element))
}
