//! What the kernel said it holds, whatever we believed.

use super::{Held, frontend_of, is_shared};
use crate::ast::{Element, ElementKey};
use model::ServiceName;
use std::collections::{BTreeMap, BTreeSet};

/// Who lost by what others did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrected {
    /// Services of which something is other than it was believed, and the first of it.
    pub services: BTreeMap<ServiceName, ElementKey>,
    /// The node's own elements that are missing.
    pub node: Vec<ElementKey>,
    /// How many elements there are that nobody is known to want.
    pub strays: usize,
}

impl Corrected {
    /// Whether everything that somebody wants is as it was believed.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && self.node.is_empty()
    }
}

/// Elements, and what is there now.
type Told<'a> = BTreeMap<&'a ElementKey, Option<&'a Element>>;

impl Held {
    /// The kernel holds this under these keys, whatever we believed. Gives those to settle anew.
    ///
    /// Each service is unpacked once, since somebody may have flushed a set in which all of them have an element.
    pub fn correct<'a>(
        &mut self,
        now: impl IntoIterator<Item = (&'a ElementKey, Option<&'a Element>)>,
    ) -> Corrected {
        let mut corrected = Corrected::default();
        let mut of_services: BTreeMap<ServiceName, Told<'a>> = BTreeMap::new();
        let mut shared = Told::new();
        for (key, now) in now {
            if self.node.contains_key(key) {
                if now.is_none() {
                    self.node.remove(key);
                    corrected.node.push(key.clone());
                }
            } else if is_shared(key) && self.shared.holders(key) > 0 {
                shared.insert(key, now);
            } else if let Some(owner) = frontend_of(key).and_then(|frontend| self.owners.get(&frontend)) {
                of_services.entry(owner.clone()).or_default().insert(key, now);
            } else {
                self.found.put(key, now);
                corrected.strays += usize::from(now.is_some());
            }
        }
        shared.retain(|_, now| now.is_none());
        self.add_holders(&shared, &mut of_services);
        for (name, told) in of_services {
            if let Some(first) = self.correct_service(&name, &told) {
                corrected.services.insert(name, first.clone());
            }
        }
        corrected
    }

    /// What several services share is missing for each of them.
    fn add_holders<'a>(&mut self, gone: &Told<'a>, of_services: &mut BTreeMap<ServiceName, Told<'a>>) {
        if gone.is_empty() {
            return;
        }
        let mut lost = BTreeSet::new();
        for (name, packed) in &self.services {
            let keys = self.names.keys(self.family, packed).filter(is_shared);
            for key in keys {
                if let Some((key, now)) = gone.get_key_value(&key) {
                    lost.insert(*key);
                    of_services.entry(name.clone()).or_default().insert(key, *now);
                }
            }
        }
        for key in lost {
            self.shared.remove(key);
        }
    }

    /// Gives the first element that is other than it was believed.
    fn correct_service<'a>(&mut self, name: &ServiceName, told: &Told<'a>) -> Option<&'a ElementKey> {
        let mut elements = self.of(name);
        let mut first = None;
        for (key, now) in told {
            let known = elements.get(*key).map(|element| element.endpoint);
            if known == now.map(|element| element.endpoint) {
                continue;
            }
            match now {
                Some(element) => drop(elements.insert((*key).clone(), (*element).clone())),
                None => drop(elements.remove(*key)),
            }
            first = first.or(Some(*key));
        }
        if first.is_some() {
            self.keep(name, &elements);
        }
        first
    }
}
