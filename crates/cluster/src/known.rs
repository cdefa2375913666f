//! Which objects a source has told about, so that a new complete list can tell what went.

use model::object::ObjectRef;
use std::collections::BTreeMap;

/// Names of the objects told, each with the list that last had it.
///
/// Only names are kept: the objects themselves belong to whoever listens. A name shares its text with the object.
#[derive(Debug, Default)]
pub(crate) struct Known {
    list: u32,
    names: BTreeMap<ObjectRef, u32>,
}

impl Known {
    /// A new complete list begins.
    pub(crate) fn begin_list(&mut self) {
        self.list += 1;
    }

    /// This object is there.
    pub(crate) fn seen(&mut self, name: ObjectRef) {
        self.names.insert(name, self.list);
    }

    /// This object went. Whether it had been there.
    pub(crate) fn gone(&mut self, name: &ObjectRef) -> bool {
        self.names.remove(name).is_some()
    }

    /// The list is complete: forgets what it did not have, and says what that was, in order of name.
    pub(crate) fn end_list(&mut self) -> Vec<ObjectRef> {
        let list = self.list;
        self.names
            .extract_if(.., |_, seen_in| *seen_in != list)
            .map(|(name, _)| name)
            .collect()
    }
}
