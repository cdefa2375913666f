//! Which facts follow from what the engine and the source say. Pure.
//!
//! What holds of an object is said once, and again only after it did not hold for a while: sources say it each time the
//! object comes.

use super::Fact;
use cluster::SourceEvent;
use engine::{About, Report};
use model::Note;
use model::note::Subject;
use model::object::ObjectRef;
use model::snapshot::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects about which is remembered what was said. Of more than these nothing is said: nobody reads so many Events.
const MOST_OBJECTS: usize = 4096;

/// What has been said of objects.
pub(crate) struct Telling {
    node: Arc<str>,
    /// While objects were read.
    read: Said,
    /// When they were put together with others.
    resolved: Said,
    /// The object that the last notes were about: it comes next.
    expected: Option<Subject>,
}

#[derive(Default)]
struct Said(BTreeMap<Subject, BTreeSet<Note>>);

impl Telling {
    /// Nothing has been said.
    pub(crate) fn new(node: Arc<str>) -> Telling {
        Telling {
            node,
            read: Said::default(),
            resolved: Said::default(),
            expected: None,
        }
    }

    /// What a source said.
    pub(crate) fn source(&mut self, event: &SourceEvent) -> Vec<Fact> {
        match event {
            SourceEvent::Notes(notes) => {
                let mut by_object: BTreeMap<&Subject, Vec<&Note>> = BTreeMap::new();
                for note in notes {
                    by_object.entry(&note.subject).or_default().push(note);
                }
                self.expected = by_object.keys().last().map(|subject| (*subject).clone());
                let told = by_object.into_iter();
                told.flat_map(|(subject, notes)| self.read.now(subject, notes))
                    .collect()
            }
            SourceEvent::Change(Change::Apply(object)) => {
                let expected = self.expected.take();
                // An object about which nothing was noted has nothing wrong with it any more.
                if !self.read.0.is_empty() {
                    let subject = subject(&object.reference());
                    if expected.as_ref() != Some(&subject) {
                        self.read.0.remove(&subject);
                    }
                }
                Vec::new()
            }
            SourceEvent::Change(Change::Delete(reference)) => {
                self.read.0.remove(&subject(reference));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// What the engine reported.
    pub(crate) fn report(&mut self, report: &Report) -> Vec<Fact> {
        match report {
            Report::Noted { service, notes } => self.resolved.now(&Subject::service(service), notes),
            Report::Failed {
                family,
                failure,
                about: About::Service(name),
                ..
            } => vec![Fact::refused(&self.node, name, *family, failure)],
            Report::Damaged {
                family,
                what,
                by,
                backing_off,
                ..
            } => vec![Fact::damaged(
                &self.node,
                *family,
                what,
                by.as_deref(),
                *backing_off,
            )],
            _ => Vec::new(),
        }
    }
}

impl Said {
    /// These notes hold now of an object; those that did not hold before become facts.
    fn now<'a>(&mut self, subject: &Subject, notes: impl IntoIterator<Item = &'a Note>) -> Vec<Fact> {
        let notes: BTreeSet<Note> = notes
            .into_iter()
            .filter(|note| note.severity != model::Severity::Info)
            .cloned()
            .collect();
        if notes.is_empty() {
            self.0.remove(subject);
            return Vec::new();
        }
        if !self.0.contains_key(subject) && self.0.len() >= MOST_OBJECTS {
            return Vec::new();
        }
        let before = self.0.insert(subject.clone(), notes.clone()).unwrap_or_default();
        notes.difference(&before).filter_map(Fact::noted).collect()
    }
}

fn subject(reference: &ObjectRef) -> Subject {
    let cluster_wide = |kind, name: &Arc<str>| Subject {
        kind,
        namespace: "".into(),
        name: name.clone(),
    };
    match reference {
        ObjectRef::Service(name) => Subject::service(name),
        ObjectRef::Slice(slice) => Subject {
            kind: "EndpointSlice",
            namespace: slice.namespace.clone(),
            name: slice.name.clone(),
        },
        ObjectRef::Node(name) => cluster_wide("Node", name),
        ObjectRef::ServiceCidr(name) => cluster_wide("ServiceCIDR", name),
    }
}

#[cfg(test)]
mod tests;
