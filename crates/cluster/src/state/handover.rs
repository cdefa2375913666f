//! From the file's objects to the server's, kind by kind, with no moment in between that is worse than either.
//!
//! * A list counts when it is complete, and then at once: half of it would take services away.
//! * Services and `EndpointSlices` count together. A new list of Services over remembered slices would refuse what is
//!   new since, and new slices under remembered Services would refuse every port that was renamed, until the other list
//!   comes, which may be never. It is also what holds without a memory: nothing is written before both have come.
//! * The Node and `ServiceCIDRs` stand for themselves.
//! * No rule is made of `ServiceCIDRs`, and a server may lack them or refuse them: nothing waits for their list.
//!
//! Invariant: what comes out leads to the same objects as what went in, once all lists have come
//! (test `whatever_comes_the_end_is_what_the_server_says`).

use crate::{Remembered, SourceEvent};
use model::object::{Kind, Object, ObjectRef};
use model::snapshot::Change;
use std::collections::BTreeMap;
use std::time::Duration;

/// Kinds whose lists count together.
const GROUPS: [&[Kind]; 3] = [&[Kind::Slice, Kind::Service], &[Kind::Node], &[Kind::ServiceCidr]];

/// Kinds whose lists rules need.
pub(super) const NEEDED: [Kind; 3] = [Kind::Service, Kind::Slice, Kind::Node];

/// What is known of the lists.
#[derive(Debug)]
pub(super) struct Handover {
    /// Lists that have not been handed on.
    coming: BTreeMap<Kind, Coming>,
    memory: Memory,
}

#[derive(Debug, Default)]
struct Coming {
    objects: BTreeMap<ObjectRef, Object>,
    complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    NotUsed,
    InUse,
    Over,
}

impl Handover {
    pub(super) fn new() -> Handover {
        let kinds = GROUPS.iter().flat_map(|group| group.iter());
        Handover {
            coming: kinds.map(|kind| (*kind, Coming::default())).collect(),
            memory: Memory::NotUsed,
        }
    }

    /// Whether the file may be used: a list that rules need has not come, and the file is not in use yet.
    pub(super) fn wants_memory(&self) -> bool {
        self.memory == Memory::NotUsed && self.lacks_list()
    }

    fn lacks_list(&self) -> bool {
        NEEDED.iter().any(|kind| self.coming.contains_key(kind))
    }

    /// Whether the event is about a list that is waited for.
    pub(super) fn is_waited_for(&self, event: &SourceEvent) -> bool {
        let kind = match event {
            SourceEvent::Change(change) => kind_of(change),
            SourceEvent::Synced(kind) => *kind,
            _ => return false,
        };
        self.coming.get(&kind).is_some_and(|coming| !coming.complete)
    }

    /// Takes in what the server says; what is to be handed on now goes into `out`.
    pub(super) fn take(&mut self, event: SourceEvent, out: &mut Vec<SourceEvent>) {
        match event {
            SourceEvent::Change(change) => match self.coming.get_mut(&kind_of(&change)) {
                Some(coming) => coming.change(change),
                None => out.push(SourceEvent::Change(change)),
            },
            SourceEvent::Synced(kind) => match self.coming.get_mut(&kind) {
                Some(coming) => {
                    coming.complete = true;
                    self.hand_on(kind, out);
                }
                None => out.push(SourceEvent::Synced(kind)),
            },
            other => out.push(other),
        }
    }

    /// Uses remembered objects for the lists that have not come.
    pub(super) fn remember(&mut self, objects: Vec<Object>, age: Duration) -> SourceEvent {
        self.memory = Memory::InUse;
        let mut of_kind: BTreeMap<Kind, Vec<Object>> =
            self.coming.keys().map(|kind| (*kind, Vec::new())).collect();
        for object in objects {
            // What the server has said by now is newer.
            if let Some(objects) = of_kind.get_mut(&object.kind()) {
                objects.push(object);
            }
        }
        SourceEvent::Remembered(Remembered::InUse {
            kinds: of_kind.keys().copied().collect(),
            objects: of_kind.values().map(Vec::len).sum(),
            changes: of_kind
                .into_iter()
                .map(|(kind, objects)| Change::ReplaceAll { kind, objects })
                .collect(),
            age,
        })
    }

    fn hand_on(&mut self, kind: Kind, out: &mut Vec<SourceEvent>) {
        let group = GROUPS
            .into_iter()
            .find(|group| group.contains(&kind))
            .expect("invariant: every kind is in a group");
        let complete = |kind: &Kind| self.coming.get(kind).is_some_and(|coming| coming.complete);
        if !group.iter().all(complete) {
            return;
        }
        let mut changes = Vec::new();
        for kind in group {
            let coming = self.coming.remove(kind).unwrap_or_default();
            changes.push(Change::ReplaceAll {
                kind: *kind,
                objects: coming.objects.into_values().collect(),
            });
        }
        out.push(SourceEvent::Together(changes));
        out.extend(group.iter().map(|kind| SourceEvent::Synced(*kind)));
        if self.memory == Memory::InUse && !self.lacks_list() {
            self.memory = Memory::Over;
            out.push(SourceEvent::Remembered(Remembered::Over));
        }
    }
}

impl Coming {
    fn change(&mut self, change: Change) {
        match change {
            Change::Apply(object) => drop(self.objects.insert(object.reference(), object)),
            Change::Delete(name) => drop(self.objects.remove(&name)),
            Change::ReplaceAll { objects, .. } => {
                self.objects = objects
                    .into_iter()
                    .map(|object| (object.reference(), object))
                    .collect();
            }
        }
    }
}

pub(super) fn kind_of(change: &Change) -> Kind {
    match change {
        Change::Apply(object) => object.kind(),
        Change::Delete(name) => name.kind(),
        Change::ReplaceAll { kind, .. } => *kind,
    }
}

#[cfg(test)]
mod tests;
