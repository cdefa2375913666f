//! Watches: initial events, changes as the selectors see them, bookmarks, and their end.

use crate::query::{Start, WatchQuery};
use crate::reply::Part;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::Status;
use crate::store::{Change, Entry, Store, bookmark_object};
use futures::stream::{self, Stream};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

/// So long before its end a watch gets a last bookmark, as a real server does it.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// What a watch reads from.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) store: Arc<Mutex<Store>>,
    /// Moves whenever the log has grown.
    pub(crate) grown: Receiver<()>,
}

struct Watch {
    source: Source,
    resource: Resource,
    query: WatchQuery,
    ready: VecDeque<Part>,
    /// Where in the log to go on.
    position: usize,
    /// Changes up to this version are known to whoever asked.
    known: u64,
    /// Where the log ended when the watch began: bookmarks before are old news.
    began: usize,
    last_bookmark: Option<Instant>,
    end: Option<Instant>,
}

/// An event as a line.
pub(crate) fn line(kind: &str, object: &Value) -> Part {
    Part::Line(json!({"type": kind, "object": object}).to_string())
}

/// Opens a watch.
pub(crate) fn open(
    source: &Source,
    resource: Resource,
    query: WatchQuery,
) -> impl Stream<Item = Part> + Send + use<> {
    let mut watch = {
        let store = source.store.lock().unwrap_or_else(PoisonError::into_inner);
        let end = query.timeout.map(|timeout| Instant::now() + timeout);
        Watch {
            ready: VecDeque::new(),
            position: store.log().len(),
            known: store.version(),
            began: store.log().len(),
            last_bookmark: end
                .filter(|_| query.bookmarks)
                .and_then(|end| end.checked_sub(LAST_BOOKMARK)),
            end,
            resource,
            query,
            source: source.clone(),
        }
    };
    watch.begin();
    stream::unfold(watch, |mut watch| async move {
        watch.next().await.map(|part| (part, watch))
    })
}

impl Watch {
    fn begin(&mut self) {
        let shared = self.source.store.clone();
        let store = shared.lock().unwrap_or_else(PoisonError::into_inner);
        match self.query.start {
            Start::InitialEvents(Some(version)) if version > store.version() => {
                let status = Status::too_large(version, store.version());
                self.ready.push_back(line("ERROR", &status.json()));
                self.ready.push_back(Part::End);
            }
            Start::InitialEvents(_) => {
                self.add_all(&store);
                let mut object = bookmark_object(self.resource, store.version());
                object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
                self.ready.push_back(line("BOOKMARK", &object));
            }
            Start::Everything => self.add_all(&store),
            Start::After(version) if version < store.oldest() => {
                self.expire(version, &store);
            }
            Start::After(version) => {
                self.position = store.position_after(version);
                self.known = version;
            }
        }
    }

    /// Whether a bookmark of this version is sent. Whoever resumes from a version is told of newer ones alone, and
    /// whoever asked for what lies ahead is told nothing until then.
    fn wants_bookmark(&self, version: u64) -> bool {
        let is_news = match self.query.start {
            Start::After(asked) => version > asked,
            Start::InitialEvents(_) | Start::Everything => version >= self.known,
        };
        self.query.bookmarks && is_news
    }

    fn add_all(&mut self, store: &Store) {
        let objects = store.objects().iter();
        let matching = objects
            .filter(|(key, object)| key.resource == self.resource && self.query.selector.matches(object));
        self.ready
            .extend(matching.map(|(_, object)| line("ADDED", object)));
    }

    fn expire(&mut self, version: u64, store: &Store) {
        let status = Status::expired(version, store.oldest());
        self.ready.push_back(line("ERROR", &status.json()));
        self.ready.push_back(Part::End);
    }

    async fn next(&mut self) -> Option<Part> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Some(part);
            }
            self.source.grown.borrow_and_update();
            self.read_log();
            if !self.ready.is_empty() {
                continue;
            }
            tokio::select! {
                grown = self.source.grown.changed() => {
                    // The server goes down.
                    grown.ok()?;
                }
                () = at(self.last_bookmark) => {
                    self.last_bookmark = None;
                    let version = self.source.store.lock().unwrap_or_else(PoisonError::into_inner).version();
                    if self.wants_bookmark(version) {
                        self.bookmark(version);
                    }
                }
                () = at(self.end) => return None,
            }
        }
    }

    fn read_log(&mut self) {
        let shared = self.source.store.clone();
        let store = shared.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, entry) in store.log().iter().enumerate().skip(self.position) {
            match entry {
                Entry::Change(change) if change.version > self.known => {
                    self.ready
                        .extend(seen(change, self.resource, &self.query.selector));
                }
                Entry::Bookmark { version } if index >= self.began && self.wants_bookmark(*version) => {
                    self.bookmark(*version);
                }
                Entry::Expire(resource) if index >= self.began && *resource == self.resource => {
                    self.expire(self.known, &store);
                }
                Entry::Change(_) | Entry::Bookmark { .. } | Entry::Expire(_) => {}
            }
        }
        self.position = store.log().len();
    }

    fn bookmark(&mut self, version: u64) {
        let object = bookmark_object(self.resource, version);
        self.ready.push_back(line("BOOKMARK", &object));
    }
}

/// What a change is for somebody who sees only what the selectors let through.
fn seen(change: &Change, resource: Resource, selector: &Selector) -> Option<Part> {
    if change.key.resource != resource {
        return None;
    }
    let matching = |object: &Option<Arc<Value>>| object.clone().filter(|object| selector.matches(object));
    match (matching(&change.before), matching(&change.after)) {
        (None, None) => None,
        (None, Some(after)) => Some(line("ADDED", &after)),
        (Some(_), Some(after)) => Some(line("MODIFIED", &after)),
        (Some(before), None) => {
            // As it was when it was last seen, with the version of its going.
            let mut last = Value::clone(&before);
            last["metadata"]["resourceVersion"] = change.version.to_string().into();
            Some(line("DELETED", &last))
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
