//! One copy of each node name while a file is read, however many endpoints name it.
//!
//! 100,000 endpoints on 1,000 nodes name a node 100,000 times; a copy each would cost some 5 MB until the snapshot
//! has taken the objects in.

use model::object::Object;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The copies in use.
#[derive(Debug, Default)]
pub(crate) struct NamePool {
    names: BTreeSet<Arc<str>>,
}

impl NamePool {
    /// Lets the object's endpoints share their node names with those of other objects.
    pub(crate) fn share(&mut self, object: &mut Object) {
        let Object::Slice(slice) = object else {
            return;
        };
        for name in slice
            .endpoints
            .iter_mut()
            .filter_map(|endpoint| endpoint.node.as_mut())
        {
            match self.names.get(name) {
                Some(copy) => *name = copy.clone(),
                None => {
                    self.names.insert(name.clone());
                }
            }
        }
    }
}
