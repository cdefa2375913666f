//! One copy of each node and zone name, however many endpoints name it.
//!
//! 100,000 endpoints on 1,000 nodes name a node 100,000 times; a copy each would cost some 5 MB.

use model::object::Object;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The copies in use.
#[derive(Debug, Default)]
pub(crate) struct NamePool {
    names: BTreeSet<Arc<str>>,
}

impl NamePool {
    /// Lets the object's endpoints share their names with those of other objects.
    pub(crate) fn share(&mut self, object: &mut Object) {
        if let Object::Slice(slice) = object {
            for name in slice.endpoints.iter_mut().filter_map(|endpoint| endpoint.node.as_mut()) {
                self.one(name);
            }
        }
    }

    /// Lets go of names that no object has any more.
    pub(crate) fn forget_unused(&mut self) {
        self.names.retain(|name| Arc::strong_count(name) > 1);
    }

    fn one(&mut self, name: &mut Arc<str>) {
        match self.names.get(name) {
            Some(copy) => *name = copy.clone(),
            None => {
                self.names.insert(name.clone());
            }
        }
    }
}
