//! What somebody took from many services at once is put back as it was held: nobody has to ask again what is wanted.

use super::{Held, frontend_of, is_shared};
use crate::ast::{Element, ElementKey};
use crate::diff::Operation;
use crate::pool::Pool;
use model::ServiceName;
use std::collections::BTreeMap;

/// Services that were harmed, and what is there now.
#[derive(Debug)]
pub struct Harmed {
    there: There,
    /// Those that nobody has looked at, the first of them last.
    services: Vec<ServiceName>,
}

#[derive(Debug)]
enum There {
    /// What was read, and nothing else.
    Read(Pool),
    /// This, of these elements. The others are as they are held.
    Told(BTreeMap<ElementKey, Option<Element>>),
}

/// How something is that is held.
enum Found {
    AsHeld,
    Missing,
    Other(Element),
}

impl Harmed {
    /// Everything was read. `services`: in the order in which they are put back.
    pub fn read(there: Pool, mut services: Vec<ServiceName>) -> Harmed {
        services.reverse();
        let there = There::Read(there);
        Harmed { there, services }
    }

    /// This was told of elements, and the others are as they are held.
    pub fn told(there: BTreeMap<ElementKey, Option<Element>>, mut services: Vec<ServiceName>) -> Harmed {
        services.reverse();
        let there = There::Told(there);
        Harmed { there, services }
    }

    /// The next service to look at.
    pub fn next_service(&mut self) -> Option<ServiceName> {
        self.services.pop()
    }
}

impl There {
    /// How an element is, which is as it is held from now on.
    fn find(&mut self, key: &ElementKey, held: &Element) -> Found {
        let now = match self {
            There::Told(told) => match told.remove(key) {
                None => return Found::AsHeld,
                Some(now) => now,
            },
            There::Read(pool) => {
                let now = pool.found(key);
                if is_shared(key) {
                    // The next who shares it finds it there.
                    pool.put(key, Some(held));
                } else {
                    pool.take(key);
                }
                now
            }
        };
        match now {
            None => Found::Missing,
            Some(now) if now.endpoint == held.endpoint => Found::AsHeld,
            Some(now) => Found::Other(now),
        }
    }
}

impl Held {
    /// Whether the elements of services are among what is told, so that it may be other than what they hold.
    pub fn is_of_services(&self, key: &ElementKey) -> bool {
        if is_shared(key) {
            return self.shared.holders(key) > 0;
        }
        frontend_of(key).is_some_and(|frontend| self.owners.get(&frontend).is_some())
    }

    /// What puts a service's elements back. Whoever shares some of them finds them as they should be from now on.
    pub fn put_back(&self, name: &ServiceName, harmed: &mut Harmed) -> Vec<Operation> {
        let mut operations = Vec::new();
        for (key, held) in self.of(name) {
            match harmed.there.find(&key, &held) {
                Found::AsHeld => {}
                Found::Missing => operations.push(Operation::Add(key, held)),
                Found::Other(now) => operations.push(Operation::Replace(key, now, held)),
            }
        }
        operations
    }

    /// All have been looked at. What is there besides is nobody's, or it is given back: it lies under somebody's
    /// frontend and is not held.
    pub fn all_put_back(&mut self, harmed: Harmed) -> Vec<(ElementKey, Option<Element>)> {
        match harmed.there {
            There::Told(rest) => rest.into_iter().collect(),
            There::Read(mut rest) => {
                for key in self.node.keys() {
                    rest.take(key);
                }
                rest.drop_all(|key| is_shared(key) && self.shared.holders(key) > 0, self.family);
                self.found = rest;
                Vec::new()
            }
        }
    }

    /// The node's own elements that a reading lacks are not held any more.
    pub fn correct_node(&mut self, seen: &Pool) {
        self.node.retain(|key, _| seen.has(key));
    }
}
