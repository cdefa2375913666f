//! Which Service a note concerns: its own, or the one that the slice is of.

use model::note::Subject;
use model::object::SliceName;
use model::snapshot::Snapshot;
use model::{Note, ServiceName};
use std::collections::BTreeMap;

/// The notes of a Service: how many there are, and how many of them say that something is left out, and not just that
/// something is odd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) all: usize,
    pub(crate) warnings: usize,
}

/// The Service that a note concerns.
pub(crate) fn concerns(snapshot: &Snapshot, note: &Note) -> Option<ServiceName> {
    match note.subject.kind {
        "Service" => Some(name_of(&note.subject)),
        "EndpointSlice" => {
            let name = SliceName::new(note.subject.namespace.clone(), note.subject.name.clone());
            snapshot.slice(&name)?.service.clone()
        }
        _ => None,
    }
}

/// The Service of a subject that is one.
pub(crate) fn name_of(subject: &Subject) -> ServiceName {
    ServiceName::new(subject.namespace.clone(), subject.name.clone())
}

/// How many notes each Service has.
pub(crate) fn by_service(snapshot: &Snapshot, notes: &[Note]) -> BTreeMap<ServiceName, Noted> {
    let mut all: BTreeMap<ServiceName, Noted> = BTreeMap::new();
    for note in notes {
        if let Some(name) = concerns(snapshot, note) {
            let count = all.entry(name).or_default();
            count.all += 1;
            count.warnings += usize::from(note.severity > model::Severity::Info);
        }
    }
    all
}
