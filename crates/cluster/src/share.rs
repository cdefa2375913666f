//! One copy of each place while a file is read, however many endpoints are there.
//!
//! 100,000 endpoints on 1,000 nodes name a node 100,000 times; a copy each would cost some 5 MB until the snapshot
//! has taken the objects in.

use model::object::{Object, Place};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The copies in use.
#[derive(Debug, Default)]
pub(crate) struct NamePool {
    places: BTreeSet<Arc<Place>>,
}

impl NamePool {
    /// Lets the object's endpoints share their places with those of other objects.
    pub(crate) fn share(&mut self, object: &mut Object) {
        let Object::Slice(slice) = object else {
            return;
        };
        for endpoint in &mut slice.endpoints {
            match self.places.get(&endpoint.place) {
                Some(copy) => endpoint.place = copy.clone(),
                None => drop(self.places.insert(endpoint.place.clone())),
            }
        }
    }
}
