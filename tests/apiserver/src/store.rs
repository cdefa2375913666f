//! The objects, and all that happened to them.

use crate::resource::Resource;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which object: of a resource, in a namespace (empty if it has none), with a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) resource: Resource,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// An entry of the log.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// An object came, changed or went.
    Change(Change),
    /// A bookmark for every watch that wants them.
    Bookmark { version: u64 },
    /// Every watch of this resource ends with 410.
    Expire(Resource),
}

/// An object before and after; `None` where it is not there.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Arc<Value>>,
    pub(crate) after: Option<Arc<Value>>,
}

/// All objects of a version: by name, in order.
pub(crate) type Objects = BTreeMap<Key, Arc<Value>>;

/// The store. Versions count every change of any object, as etcd's revisions do.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    /// Nothing before this version is kept.
    oldest: u64,
    objects: Objects,
    log: Vec<Entry>,
    made: u64,
}

/// The first version. Not 1, so that there are versions that are too old.
const FIRST: u64 = 100;

impl Store {
    pub(crate) fn new() -> Self {
        Store {
            version: FIRST,
            oldest: FIRST,
            objects: Objects::new(),
            log: Vec::new(),
            made: 0,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    pub(crate) fn log(&self) -> &[Entry] {
        &self.log
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// A new object's name for itself, and the time of its making: always the same, so that runs are alike.
    pub(crate) fn birth(&mut self) -> (String, &'static str) {
        self.made += 1;
        (
            format!("00000000-0000-4000-8000-{:012}", self.made),
            "2026-01-01T00:00:00Z",
        )
    }

    /// Writes an object, and gives it back as written.
    pub(crate) fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), object.clone());
        self.changed(key, before, Some(object.clone()));
        object
    }

    /// Deletes an object, and gives it back as it was.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.version += 1;
        self.changed(key.clone(), Some(before.clone()), None);
        Some(before)
    }

    fn changed(&mut self, key: Key, before: Option<Arc<Value>>, after: Option<Arc<Value>>) {
        self.log.push(Entry::Change(Change {
            version: self.version,
            key,
            before,
            after,
        }));
    }

    pub(crate) fn bookmark(&mut self) {
        self.log.push(Entry::Bookmark {
            version: self.version,
        });
    }

    /// Forgets what happened up to now: older versions are answered with 410 from here on.
    pub(crate) fn compact(&mut self) {
        self.version += 1;
        self.oldest = self.version;
    }

    pub(crate) fn expire(&mut self, resource: Resource) {
        self.log.push(Entry::Expire(resource));
    }

    /// As if a backup had been restored: no objects, and an early version. Nobody hears of it.
    pub(crate) fn restore_backup(&mut self) {
        // Watches know their places in the log, so that it keeps its length; what it says never happened.
        let log = self.log.iter().map(|_| Entry::Bookmark { version: 0 }).collect();
        *self = Store {
            version: FIRST / 2,
            oldest: FIRST / 2,
            log,
            made: self.made,
            objects: Objects::new(),
        };
    }

    /// Where in the log the first change after a version is.
    pub(crate) fn position_after(&self, version: u64) -> usize {
        let first = self
            .log
            .iter()
            .position(|entry| matches!(entry, Entry::Change(change) if change.version > version));
        first.unwrap_or(self.log.len())
    }

    /// The objects as they were at a version that is still kept.
    pub(crate) fn at(&self, version: u64) -> Objects {
        let mut objects = self.objects.clone();
        for entry in self.log[self.position_after(version)..].iter().rev() {
            if let Entry::Change(change) = entry {
                match &change.before {
                    Some(before) => objects.insert(change.key.clone(), before.clone()),
                    None => objects.remove(&change.key),
                };
            }
        }
        objects
    }
}

/// The object of a bookmark: its kind, a version, and nothing else.
pub(crate) fn bookmark_object(resource: Resource, version: u64) -> Value {
    let mut object = json!({
        "kind": resource.kind(), "apiVersion": resource.api_version(),
        "metadata": {"resourceVersion": version.to_string()},
    });
    match resource {
        Resource::Services => {
            object["spec"] = json!({});
            object["status"] = json!({"loadBalancer": {}});
        }
        Resource::Nodes | Resource::ServiceCidrs => {
            object["spec"] = json!({});
            object["status"] = json!({});
        }
        Resource::EndpointSlices => {
            object["endpoints"] = Value::Null;
            object["ports"] = Value::Null;
            object["addressType"] = "".into();
        }
        Resource::Events => {
            object["eventTime"] = Value::Null;
            object["regarding"] = json!({});
        }
    }
    object
}
