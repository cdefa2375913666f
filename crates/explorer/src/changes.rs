//! The last changes: which object, what changed, when it was heard, and when the kernel had it.
//!
//! Like [`Changes`], the engine works on the two families apart, and a step that is under way does not know of what is heard
//! while it runs: a change is in the kernel when a step is, that began after the change was heard.

use crate::answer::Answer;
use crate::difference;
use crate::request::AboutChanges;
use model::object::{Kind, Object, ObjectRef};
use model::snapshot::{Change, Snapshot};
use model::{Family, PerFamily, ServiceName};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Entries that are kept when nobody says.
pub const MOST: usize = 1_000;
/// Bytes of text that an entry keeps; what is longer is cut.
const LONGEST: usize = 400;
/// Objects of one list that have entries of their own, when a list comes again.
const MOST_OF_A_LIST: usize = 100;

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Since some start; never goes back.
    pub running: Duration,
    /// Since 1970.
    pub since_1970: Duration,
}

/// The last changes, and those among them that wait for the kernel. Takes bounded room.
#[derive(Clone, Debug)]
pub struct Changes {
    most: usize,
    entries: VecDeque<Entry>,
    /// The number of the next entry.
    next: u64,
    families: PerFamily<Option<Waiting>>,
}

#[derive(Clone, Debug, Default)]
struct Waiting {
    /// Numbers of entries.
    of: BTreeMap<ServiceName, Vec<u64>>,
    /// When the step under way was handed out, if there is one.
    step: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Entry {
    number: u64,
    heard: Now,
    kind: &'static str,
    object: String,
    what: String,
    service: Option<ServiceName>,
    kernel: PerFamily<Kernel>,
}

/// What an entry is made of.
struct Told {
    kind: &'static str,
    object: String,
    what: String,
    service: Option<ServiceName>,
    families: PerFamily<bool>,
}

impl Told {
    /// That concerns no service's rules.
    fn apart(kind: &'static str, object: String, what: String) -> Told {
        Told {
            kind,
            object,
            what,
            service: None,
            families: PerFamily::default(),
        }
    }
}

/// How changes came to an end.
#[derive(Clone, Copy)]
struct Settled {
    /// Those that were heard until then.
    until: Duration,
    /// How, this long after each was heard.
    how: fn(Duration) -> Kernel,
    /// When.
    now: Duration,
}

impl Settled {
    /// Nothing had to be written for what was heard until now.
    fn as_it_was(now: Now) -> Settled {
        Settled {
            until: now.running,
            how: Kernel::AsItWas,
            now: now.running,
        }
    }
}

/// What the kernel has of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Kernel {
    /// It has no part in it.
    #[default]
    NotConcerned,
    /// Nothing yet; why the last try failed.
    Waits(Option<String>),
    /// It was written, this long after it was heard.
    Written(Duration),
    /// Nothing had to be written, as was found this long after it was heard.
    AsItWas(Duration),
}

impl Default for Changes {
    fn default() -> Self {
        Changes::new(MOST)
    }
}

impl Changes {
    /// That keep so many.
    pub fn new(most: usize) -> Changes {
        Changes {
            most: most.max(1),
            entries: VecDeque::new(),
            next: 1,
            families: PerFamily::default(),
        }
    }

    /// This host has this family.
    pub fn serves(&mut self, family: Family) {
        self.families.get_mut(family).get_or_insert_default();
    }

    /// A change was heard. `before` is what was known until then.
    pub fn heard(&mut self, change: &Change, before: &Snapshot, now: Now) {
        match change {
            Change::Apply(object) => self.object(&object.reference(), Some(object), before, now),
            Change::Delete(reference) => self.object(reference, None, before, now),
            Change::ReplaceAll { kind, objects } => self.list(*kind, objects, before, now),
        }
    }

    fn object(&mut self, reference: &ObjectRef, after: Option<&Object>, before: &Snapshot, now: Now) {
        let was = known(before, reference);
        let Some(what) = difference::words(was.as_ref(), after) else {
            return;
        };
        let both = [was.as_ref(), after].into_iter().flatten();
        let (service, families) = concerned(both);
        let (kind, object) = named(reference);
        let told = Told {
            kind,
            object,
            what,
            service,
            families,
        };
        self.add(told, now);
    }

    /// A list that comes again tells what was missed in between; the first one tells nothing that could be looked for.
    fn list(&mut self, kind: Kind, objects: &[Object], before: &Snapshot, now: Now) {
        let mut told = 0;
        let is_first = match kind {
            Kind::Service => before.services().next().is_none(),
            Kind::Slice => before.slices().next().is_none(),
            Kind::Node => before.nodes().next().is_none(),
            Kind::ServiceCidr => before.service_cidrs().next().is_none(),
        };
        for object in objects.iter().filter(|_| !is_first) {
            let count = self.next;
            if told < MOST_OF_A_LIST {
                self.object(&object.reference(), Some(object), before, now);
            }
            told += usize::from(self.next != count);
        }
        let what = format!("listed: {}", objects.len());
        self.add(Told::apart(word(kind), String::new(), what), now);
    }

    /// Rules were found to be other than they had been left.
    pub fn damaged(&mut self, family: Family, what: &str, now: Now) {
        self.add(Told::apart("Rules", family.to_string(), what.to_owned()), now);
    }

    fn add(&mut self, told: Told, now: Now) {
        let number = self.next;
        self.next += 1;
        let kernel = PerFamily::from_fn(|family| {
            let waiting = self.families.get_mut(family).as_mut();
            match (waiting.filter(|_| *told.families.get(family)), &told.service) {
                (Some(waiting), Some(service)) => {
                    waiting.of.entry(service.clone()).or_default().push(number);
                    Kernel::Waits(None)
                }
                _ => Kernel::NotConcerned,
            }
        });
        self.entries.push_back(Entry {
            number,
            heard: now,
            kind: told.kind,
            object: cut(&told.object),
            what: cut(&told.what),
            service: told.service,
            kernel,
        });
        while self.entries.len() > self.most {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(Entry {
            number,
            service: Some(service),
            ..
        }) = self.entries.pop_front()
        else {
            return;
        };
        for family in Family::ALL {
            let Some(waiting) = self.families.get_mut(family) else {
                continue;
            };
            if let Some(numbers) = waiting.of.get_mut(&service) {
                numbers.retain(|one| *one != number);
                if numbers.is_empty() {
                    waiting.of.remove(&service);
                }
            }
        }
    }

    /// A step was handed out. A step that follows another of the same making knows no more than that one.
    pub fn step(&mut self, family: Family, now: Now) {
        if let Some(waiting) = self.families.get_mut(family) {
            waiting.step.get_or_insert(now.running);
        }
    }

    /// The kernel took the step, which settled these.
    pub fn written(&mut self, family: Family, services: &[ServiceName], now: Now) {
        let Some(waiting) = self.families.get_mut(family) else {
            return;
        };
        let Some(step) = waiting.step.take() else {
            return;
        };
        let settled = Settled {
            until: step,
            how: Kernel::Written,
            now: now.running,
        };
        for service in services {
            self.settle(family, service, settled);
        }
    }

    /// The kernel's rules for these are what is wanted already.
    pub fn as_it_was(&mut self, family: Family, services: &[ServiceName], now: Now) {
        for service in services {
            self.settle(family, service, Settled::as_it_was(now));
        }
    }

    /// The step failed; when it was about one service alone, that is named.
    pub fn failed(&mut self, family: Family, service: Option<&ServiceName>, why: &str) {
        let Some(waiting) = self.families.get_mut(family) else {
            return;
        };
        waiting.step = None;
        let numbers = service
            .and_then(|service| waiting.of.get(service))
            .cloned()
            .unwrap_or_default();
        for number in numbers {
            if let Some(entry) = self.entry(number) {
                *entry.kernel.get_mut(family) = Kernel::Waits(Some(cut(why)));
            }
        }
    }

    /// Nothing is queued: what was heard is in the kernel, but for what failed by itself.
    pub fn idle(&mut self, family: Family, now: Now) {
        let Some(waiting) = self.families.get_mut(family) else {
            return;
        };
        let services: Vec<ServiceName> = waiting.of.keys().cloned().collect();
        for service in services {
            let has_failed = self.families.get(family).as_ref().is_some_and(|waiting| {
                let numbers = waiting.of.get(&service).map_or(&[][..], Vec::as_slice);
                numbers.iter().any(|number| {
                    let entry = self.at(*number).and_then(|at| self.entries.get(at));
                    entry.is_some_and(|entry| matches!(entry.kernel.get(family), Kernel::Waits(Some(_))))
                })
            });
            if !has_failed {
                self.settle(family, &service, Settled::as_it_was(now));
            }
        }
    }

    /// Changes of a service that were heard until then are in the kernel.
    fn settle(&mut self, family: Family, service: &ServiceName, settled: Settled) {
        let Some(waiting) = self.families.get_mut(family) else {
            return;
        };
        let Some(numbers) = waiting.of.remove(service) else {
            return;
        };
        let mut left = Vec::new();
        for number in numbers {
            let Some(entry) = self.entry(number) else {
                continue;
            };
            if entry.heard.running <= settled.until {
                let took = settled.now.saturating_sub(entry.heard.running);
                *entry.kernel.get_mut(family) = (settled.how)(took);
            } else {
                left.push(number);
            }
        }
        if let Some(waiting) = self
            .families
            .get_mut(family)
            .as_mut()
            .filter(|_| !left.is_empty())
        {
            waiting.of.insert(service.clone(), left);
        }
    }

    /// Where the entry of a number is. Numbers follow one another.
    fn at(&self, number: u64) -> Option<usize> {
        let first = self.entries.front()?.number;
        usize::try_from(number.checked_sub(first)?).ok()
    }

    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let at = self.at(number)?;
        self.entries.get_mut(at)
    }

    /// Answers what is asked.
    pub fn answer(&self, asked: &AboutChanges) -> Answer {
        let fits = |entry: &&Entry| {
            let text = format!("{} {} {}", entry.kind, entry.object, entry.what).to_lowercase();
            let service = entry
                .service
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            let mut words = asked.words.iter();
            words.all(|word| text.contains(word.as_str()) || service.contains(word.as_str()))
        };
        let rows: Vec<Value> = self
            .entries
            .iter()
            .rev()
            .filter(fits)
            .take(asked.limit)
            .map(Entry::json)
            .collect();
        Answer::json(&json!({ "kept": self.entries.len(), "most": self.most, "changes": rows }))
    }
}

impl Entry {
    fn json(&self) -> Value {
        let mut state = "none";
        let mut took = None;
        let mut why = None;
        for family in Family::ALL {
            match self.kernel.get(family) {
                Kernel::Waits(reason) => {
                    state = "waits";
                    why = why.or(reason.as_deref());
                }
                Kernel::Written(after) | Kernel::AsItWas(after) if state != "waits" => {
                    let is_written = matches!(self.kernel.get(family), Kernel::Written(_));
                    if is_written || state == "none" {
                        state = if is_written { "written" } else { "as-it-was" };
                    }
                    took = took.max(Some(*after));
                }
                Kernel::NotConcerned | Kernel::Written(_) | Kernel::AsItWas(_) => {}
            }
        }
        let took = took.filter(|_| state != "waits");
        let heard = self.heard.since_1970;
        json!({
            "kind": self.kind,
            "object": self.object,
            "service": self.service.as_ref().map(ToString::to_string),
            "what": self.what,
            "heard_ms": millis(heard),
            "kernel": state,
            "kernel_ms": took.map(|took| millis(heard + took)),
            "took_ms": took.map(|took| took.as_secs_f64() * 1e3),
            "why": why,
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn cut(text: &str) -> String {
    match text.char_indices().find(|(at, _)| *at > LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "Service",
        Kind::Slice => "EndpointSlice",
        Kind::Node => "Node",
        Kind::ServiceCidr => "ServiceCIDR",
    }
}

fn named(reference: &ObjectRef) -> (&'static str, String) {
    let name = match reference {
        ObjectRef::Service(name) => name.to_string(),
        ObjectRef::Slice(name) => name.to_string(),
        ObjectRef::Node(name) | ObjectRef::ServiceCidr(name) => name.to_string(),
    };
    (word(reference.kind()), name)
}

/// What was known of an object.
fn known(snapshot: &Snapshot, reference: &ObjectRef) -> Option<Object> {
    match reference {
        ObjectRef::Service(name) => {
            let service = snapshot.service(name)?;
            Some(Object::Service(Box::new(service.clone())))
        }
        ObjectRef::Slice(name) => snapshot
            .slice(name)
            .map(|slice| Object::Slice(Box::new(slice.clone()))),
        ObjectRef::Node(name) => snapshot.node(name).cloned().map(Object::Node),
        ObjectRef::ServiceCidr(name) => {
            let mut all = snapshot.service_cidrs();
            all.find(|cidr| cidr.name == *name)
                .cloned()
                .map(Object::ServiceCidr)
        }
    }
}

/// The service that an object's versions are about, and the families that have to do with it.
fn concerned<'a>(versions: impl Iterator<Item = &'a Object>) -> (Option<ServiceName>, PerFamily<bool>) {
    let mut service = None;
    let mut families = PerFamily::default();
    for object in versions {
        match object {
            Object::Service(one) => {
                for family in Family::ALL {
                    *families.get_mut(family) |= one.cluster_ips.get(family).is_some();
                }
                service = Some(one.name.clone());
            }
            Object::Slice(one) => {
                if let (Some(family), None) = (one.family, one.skipped) {
                    *families.get_mut(family) = true;
                }
                service = one.service.clone().or(service);
            }
            Object::Node(_) | Object::ServiceCidr(_) => {}
        }
    }
    (service, families)
}

#[cfg(test)]
mod tests;
