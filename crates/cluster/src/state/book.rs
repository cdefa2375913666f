//! The lines of what the server said, kept up to date, for the writer to take when it is due.
//!
//! Lines and not objects: what is written costs no second look at an object, and taking all lines is taking references.

use super::handover::{NEEDED, kind_of};
use super::line;
use super::writer::Pace;
use crate::{Health, SourceEvent};
use model::object::{Kind, ObjectRef};
use model::snapshot::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

/// One line of the file, shared with whoever writes it.
pub(super) type Line = Arc<[u8]>;

/// All lines, and when the server confirmed them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lines {
    pub(super) all: Vec<Line>,
    pub(super) bytes: u64,
    pub(super) confirmed: SystemTime,
}

/// What the server said so far, shared by the task that hears it and the thread that writes it.
#[derive(Debug)]
pub(super) struct Book {
    start: Instant,
    pages: Mutex<Pages>,
    wake: Condvar,
}

#[derive(Debug)]
struct Pages {
    lines: BTreeMap<ObjectRef, Line>,
    bytes: u64,
    listed: BTreeSet<Kind>,
    /// When the server last said something of each kind.
    heard: BTreeMap<Kind, SystemTime>,
    pace: Pace,
    ended: bool,
}

impl Book {
    pub(super) fn new(pace: Pace) -> Book {
        Book {
            start: Instant::now(),
            pages: Mutex::new(Pages {
                lines: BTreeMap::new(),
                bytes: 0,
                listed: BTreeSet::new(),
                heard: BTreeMap::new(),
                pace,
                ended: false,
            }),
            wake: Condvar::new(),
        }
    }

    /// Takes in what the server said, at this time of day.
    pub(super) fn note(&self, event: &SourceEvent, now: SystemTime) {
        match event {
            SourceEvent::Change(change) => self.change(change, now),
            SourceEvent::Synced(kind) => {
                let mut pages = self.lock();
                pages.heard.insert(*kind, now);
                if pages.listed.insert(*kind) && pages.is_complete() {
                    pages.pace.changed(self.start.elapsed());
                    self.wake.notify_one();
                }
            }
            SourceEvent::Health(kind, Health::Connected { .. } | Health::Bookmark | Health::Absent) => {
                self.lock().heard.insert(*kind, now);
                self.wake.notify_one();
            }
            _ => {}
        }
    }

    fn change(&self, change: &Change, now: SystemTime) {
        // Written before the lock is taken.
        let written: Vec<(ObjectRef, Line)> = match change {
            Change::Apply(object) => vec![(object.reference(), line::write(object).into())],
            Change::ReplaceAll { objects, .. } => objects
                .iter()
                .map(|object| (object.reference(), line::write(object).into()))
                .collect(),
            Change::Delete(_) => Vec::new(),
        };
        let mut pages = self.lock();
        pages.heard.insert(kind_of(change), now);
        let mut changed = false;
        match change {
            Change::Apply(_) => {}
            Change::Delete(name) => changed |= pages.remove(name),
            Change::ReplaceAll { kind, .. } => {
                let names: BTreeSet<&ObjectRef> = written.iter().map(|(name, _)| name).collect();
                let gone: Vec<ObjectRef> = pages
                    .lines
                    .keys()
                    .filter(|name| name.kind() == *kind && !names.contains(name))
                    .cloned()
                    .collect();
                for name in &gone {
                    changed |= pages.remove(name);
                }
            }
        }
        for (name, line) in written {
            changed |= pages.put(name, line);
        }
        if changed && pages.is_complete() {
            pages.pace.changed(self.start.elapsed());
            self.wake.notify_one();
        }
    }

    /// Waits until the lines are to be written; `None` at the end.
    pub(super) fn wait(&self) -> Option<Lines> {
        let mut pages = self.lock();
        loop {
            if pages.ended {
                return None;
            }
            let now = self.start.elapsed();
            let due = pages.due();
            match due {
                Some(due) if due <= now => {
                    pages.pace.begins();
                    return Some(pages.take());
                }
                Some(due) => {
                    let waited = self.wake.wait_timeout(pages, due.saturating_sub(now));
                    pages = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => pages = self.wake.wait(pages).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The lines taken last are on disk, or are not.
    pub(super) fn wrote(&self, result: Result<SystemTime, ()>) {
        let now = self.start.elapsed();
        let pace = &mut self.lock().pace;
        match result {
            Ok(confirmed) => pace.written(now, confirmed),
            Err(()) => pace.failed(now),
        }
    }

    /// Nobody will note anything any more.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn put(&mut self, name: ObjectRef, line: Line) -> bool {
        let before = self.lines.get(&name);
        if before == Some(&line) {
            return false;
        }
        self.bytes = self.bytes + size(&line) - before.map_or(0, size);
        self.lines.insert(name, line);
        true
    }

    fn remove(&mut self, name: &ObjectRef) -> bool {
        let Some(line) = self.lines.remove(name) else {
            return false;
        };
        self.bytes -= size(&line);
        true
    }

    /// Whether there is something to remember: half of it would be worse than nothing.
    fn is_complete(&self) -> bool {
        NEEDED.iter().all(|kind| self.listed.contains(kind))
    }

    /// Everything that was said is still so as of the time when the kind that has been quiet longest was heard.
    fn confirmed(&self) -> Option<SystemTime> {
        let heard = NEEDED.map(|kind| self.heard.get(&kind));
        heard
            .into_iter()
            .flatten()
            .min()
            .copied()
            .filter(|_| self.is_complete())
    }

    fn due(&self) -> Option<std::time::Duration> {
        self.pace.due(self.confirmed()?)
    }

    fn take(&self) -> Lines {
        Lines {
            all: self.lines.values().cloned().collect(),
            bytes: self.bytes,
            confirmed: self.confirmed().unwrap_or(SystemTime::UNIX_EPOCH),
        }
    }
}

fn size(line: &Line) -> u64 {
    // And its end.
    line.len() as u64 + 1
}

#[cfg(test)]
mod tests;
