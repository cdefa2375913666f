//! Repeats become series, and a flood becomes a trickle. Pure: the time comes with what happened.
//!
//! The first time, an Event is posted. The second time within six minutes, a series of two is patched onto it. From then
//! on repeats are counted here, and the count is patched every half hour and when the series ends.

use super::fact::{Fact, Regarding, Weight};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Who reports.
const CONTROLLER: &str = "kube-proxy";
/// A fact that has not come up for so long is news when it comes up again.
const FORGOTTEN: Duration = Duration::from_mins(6);
/// How often the count of a series that goes on is told.
const REFRESHED: Duration = Duration::from_mins(30);
/// Longest note that the API takes, in bytes.
const NOTE_BYTES: usize = 1024;
/// Longest name of an object.
const NAME_BYTES: usize = 253;
/// New Events that may wait for their turn.
const HELD: usize = 500;

/// A moment, on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// Since the process started.
    pub(crate) since_start: Duration,
    /// The time of day.
    pub(crate) wall: Timestamp,
}

/// One request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: String,
    /// The whole Event: what is posted, also when one that was to be patched has gone.
    pub(crate) event: Value,
    /// What is patched, when the Event should be there.
    pub(crate) patch: Option<Value>,
}

/// What becomes of a fact.
#[derive(Debug, PartialEq)]
pub(crate) enum Taken {
    /// To be sent now.
    Write(Box<Write>),
    /// Counted, or waiting for its turn.
    Kept,
    /// Left out: too many of its sort wait already.
    Withheld,
}

/// What makes two facts the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    regarding: Regarding,
    weight: Weight,
    reason: &'static str,
    action: &'static str,
    distinct: String,
}

/// An Event that was posted and may come up again.
struct Known {
    name: String,
    event: Value,
    count: u32,
    last: At,
    /// The count that the server was last told.
    told: u32,
    told_at: Duration,
}

/// Tells new facts from repeated ones.
///
/// It remembers no more than what the buckets let through in [`FORGOTTEN`], series that go on, and [`HELD`] of each sort.
pub(crate) struct Correlator {
    instance: String,
    known: BTreeMap<Key, Known>,
    of_node: Turns,
    of_objects: Turns,
    /// Names have to differ.
    last_nanosecond: i128,
}

impl Correlator {
    pub(crate) fn new(host: &str) -> Correlator {
        Correlator {
            instance: format!("{CONTROLLER}-{host}"),
            known: BTreeMap::new(),
            // Few things are said of the node, and they matter.
            of_node: Turns::new(20, Duration::from_secs(10)),
            // Every node says the same of a bad Service.
            of_objects: Turns::new(20, Duration::from_secs(30)),
            last_nanosecond: 0,
        }
    }

    /// Takes in a fact.
    pub(crate) fn take(&mut self, fact: Fact, at: At) -> Taken {
        let key = Key::of(&fact);
        if let Some(known) = self.known.get_mut(&key) {
            known.count = known.count.saturating_add(1);
            known.last = at;
            return match known.count {
                2 => Taken::Write(Box::new(known.series(&key, at.since_start))),
                _ => Taken::Kept,
            };
        }
        let turns = self.turns(&key.regarding);
        if turns.bucket.take(at.since_start) {
            return Taken::Write(Box::new(self.first(key, fact.note, at)));
        }
        turns.hold(key, fact.note, at)
    }

    /// What is due at this time: facts whose turn has come, and counts of series.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<Write> {
        let mut due = Vec::new();
        while let Some((key, held)) = self.of_node.next(now).or_else(|| self.of_objects.next(now)) {
            due.push(self.first(key, held.note, held.at));
        }
        for (key, known) in &mut self.known {
            let ends = now.saturating_sub(known.last.since_start) >= FORGOTTEN;
            let grew = known.count > known.told;
            if grew && (ends || now.saturating_sub(known.told_at) >= REFRESHED) {
                due.push(known.series(key, now));
            }
        }
        self.known
            .retain(|_, known| now.saturating_sub(known.last.since_start) < FORGOTTEN);
        due
    }

    fn turns(&mut self, regarding: &Regarding) -> &mut Turns {
        match regarding.kind {
            "Node" => &mut self.of_node,
            _ => &mut self.of_objects,
        }
    }

    fn first(&mut self, key: Key, note: String, at: At) -> Write {
        self.last_nanosecond = at.wall.as_nanosecond().max(self.last_nanosecond + 1);
        let name = name(&key.regarding.name, self.last_nanosecond);
        let event = self.event(&key, note, &name, at.wall);
        let namespace = key.regarding.events_in();
        let known = Known {
            name: name.clone(),
            event: event.clone(),
            count: 1,
            last: at,
            told: 1,
            told_at: at.since_start,
        };
        self.known.insert(key, known);
        Write {
            namespace,
            name,
            event,
            patch: None,
        }
    }

    fn event(&self, key: &Key, mut note: String, name: &str, time: Timestamp) -> Value {
        note.truncate(note.floor_char_boundary(NOTE_BYTES));
        let of = &key.regarding;
        let mut regarding = json!({"apiVersion": of.api_version, "kind": of.kind, "name": &*of.name});
        if !of.namespace.is_empty() {
            regarding["namespace"] = json!(&*of.namespace);
        }
        let mut event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": &*of.events_in()},
            "eventTime": micros(time),
            "reportingController": CONTROLLER,
            "reportingInstance": self.instance,
            "action": key.action,
            "reason": key.reason,
            "regarding": regarding,
            "type": match key.weight {
                Weight::Normal => "Normal",
                Weight::Warning => "Warning",
            },
        });
        if !note.is_empty() {
            event["note"] = json!(note);
        }
        event
    }
}

impl Known {
    fn series(&mut self, key: &Key, now: Duration) -> Write {
        self.told = self.count;
        self.told_at = now;
        let series = json!({"count": self.count, "lastObservedTime": micros(self.last.wall)});
        let mut event = self.event.clone();
        event["series"] = series.clone();
        Write {
            namespace: key.regarding.events_in(),
            name: self.name.clone(),
            event,
            patch: Some(json!({"series": series})),
        }
    }
}

impl Key {
    fn of(fact: &Fact) -> Key {
        Key {
            regarding: fact.regarding.clone(),
            weight: fact.weight,
            reason: fact.reason,
            action: fact.action,
            distinct: fact.distinct.clone(),
        }
    }
}

impl Regarding {
    /// Events about cluster-wide objects are kept in the namespace `default`.
    fn events_in(&self) -> Arc<str> {
        if self.namespace.is_empty() {
            "default".into()
        } else {
            self.namespace.clone()
        }
    }
}

/// New facts of one sort, one after the other when there are many.
struct Turns {
    bucket: Bucket,
    held: VecDeque<(Key, Held)>,
    held_keys: BTreeSet<Key>,
}

/// A fact that waits for its turn.
struct Held {
    note: String,
    at: At,
}

impl Turns {
    fn new(burst: u32, every: Duration) -> Turns {
        Turns {
            bucket: Bucket::new(burst, every),
            held: VecDeque::new(),
            held_keys: BTreeSet::new(),
        }
    }

    fn hold(&mut self, key: Key, note: String, at: At) -> Taken {
        if self.held_keys.contains(&key) {
            return Taken::Kept;
        }
        if self.held.len() >= HELD {
            return Taken::Withheld;
        }
        self.held_keys.insert(key.clone());
        self.held.push_back((key, Held { note, at }));
        Taken::Kept
    }

    fn next(&mut self, now: Duration) -> Option<(Key, Held)> {
        if self.held.is_empty() || !self.bucket.take(now) {
            return None;
        }
        let (key, held) = self.held.pop_front()?;
        self.held_keys.remove(&key);
        Some((key, held))
    }
}

/// A token bucket.
struct Bucket {
    every: Duration,
    burst: u32,
    /// When it is full again, if nobody takes.
    full_at: Duration,
}

impl Bucket {
    fn new(burst: u32, every: Duration) -> Bucket {
        Bucket {
            every,
            burst,
            full_at: Duration::ZERO,
        }
    }

    fn take(&mut self, now: Duration) -> bool {
        let full_at = self.full_at.max(now) + self.every;
        let there_is_one = full_at <= now + self.every * self.burst;
        if there_is_one {
            self.full_at = full_at;
        }
        there_is_one
    }
}

/// `node-a.18a3f5b2c4d5e6f7`, cut so that it is an object's name.
fn name(of: &str, nanosecond: i128) -> String {
    let moment = format!(".{nanosecond:x}");
    let end = of.floor_char_boundary(NAME_BYTES - moment.len());
    let kept = of[..end].trim_end_matches(['.', '-']);
    format!("{kept}{moment}")
}

/// As the API's `MicroTime`.
fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}
