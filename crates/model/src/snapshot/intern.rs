//! One copy of each text and of each set of hints.

use crate::object::{Hints, Object, Place, Service, Slice};
use crate::{NamespacedName, ServiceName};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Shares equal values, so that 100,000 endpoints on 100 nodes hold 100 places.
#[derive(Clone, Debug)]
pub(super) struct Interner {
    texts: Pool<str>,
    names: Pool<NamespacedName>,
    hints: Pool<Hints>,
    places: Pool<Place>,
}

impl Default for Interner {
    fn default() -> Self {
        Interner {
            texts: Pool::new(),
            names: Pool::new(),
            hints: Pool::new(),
            places: Pool::new(),
        }
    }
}

impl Interner {
    /// Replaces what the object holds by the shared copies.
    pub(super) fn share(&mut self, object: &mut Object) {
        match object {
            Object::Service(service) => self.share_service(service),
            Object::Slice(slice) => self.share_slice(slice),
            // One of each, or few.
            Object::Node(_) | Object::ServiceCidr(_) => {}
        }
    }

    fn share_service(&mut self, service: &mut Service) {
        self.share_name(&mut service.name);
        for port in &mut service.ports {
            self.texts.share(&mut port.name);
        }
    }

    fn share_slice(&mut self, slice: &mut Slice) {
        if let Some(service) = &mut slice.service {
            self.share_name(service);
        }
        for port in &mut slice.ports {
            self.texts.share(&mut port.name);
        }
        for endpoint in &mut slice.endpoints {
            self.share_place(&mut endpoint.place);
        }
    }

    fn share_name(&mut self, name: &mut ServiceName) {
        self.names.share(&mut name.0);
    }

    /// Places differ that name one node, so the parts of a new one are shared as well.
    fn share_place(&mut self, place: &mut Arc<Place>) {
        if self.places.get(place) {
            return;
        }
        let mut new = Place::clone(place);
        if let Some(node) = &mut new.node {
            self.texts.share(node);
        }
        if let Some(hints) = &mut new.hints {
            self.hints.share(hints);
        }
        *place = Arc::new(new);
        self.places.share(place);
    }

    /// Gives back the room that values, each put in after the one before, take too much.
    pub(super) fn compact(&mut self) {
        self.names.values = std::mem::take(&mut self.names.values).into_iter().collect();
    }
}

/// Values in use, and some that no longer are.
#[derive(Debug)]
struct Pool<T: ?Sized + Ord> {
    values: BTreeSet<Arc<T>>,
    prune_at: usize,
}

// Derived, it would ask for `T: Clone`.
impl<T: ?Sized + Ord> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Pool {
            values: self.values.clone(),
            prune_at: self.prune_at,
        }
    }
}

impl<T: ?Sized + Ord> Pool<T> {
    fn new() -> Self {
        Pool {
            values: BTreeSet::new(),
            prune_at: 1024,
        }
    }

    /// Replaces a value by the shared copy, if there is one.
    fn get(&self, value: &mut Arc<T>) -> bool {
        let shared = self.values.get(value);
        if let Some(shared) = shared {
            *value = Arc::clone(shared);
        }
        shared.is_some()
    }

    fn share(&mut self, value: &mut Arc<T>) {
        if self.get(value) {
            return;
        }
        if self.values.len() >= self.prune_at {
            // Values that only the pool still holds go, each time the pool has doubled.
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.prune_at = (self.values.len() * 2).max(1024);
        }
        self.values.insert(Arc::clone(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_become_one() {
        let mut pool: Pool<str> = Pool::new();
        let (mut a, mut b): (Arc<str>, Arc<str>) = ("node-a".into(), "node-a".into());
        pool.share(&mut a);
        pool.share(&mut b);
        assert!(Arc::ptr_eq(&a, &b));
    }

    #[test]
    fn texts_that_nobody_holds_are_forgotten() {
        let mut pool: Pool<str> = Pool::new();
        for i in 0..10_000 {
            let mut text: Arc<str> = format!("pod-{i}").into();
            pool.share(&mut text);
        }
        assert!(pool.values.len() <= 1024, "{} kept", pool.values.len());
    }
}
