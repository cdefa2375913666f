//! What we believe the kernel holds, service by service.
//!
//! Invariant: it changes only when the kernel said yes ([`Held::remember`]), or said what it holds
//! ([`Held::correct`], [`Held::adopt`]).
//!
//! Elements are kept packed, about 10 bytes each, since there are as many as endpoints in the cluster.

mod correct;
mod owners;
mod packed;
mod put_back;

pub use correct::Corrected;
pub use put_back::Harmed;

use crate::ast::{Element, ElementKey, Elements, Value};
use crate::build::{self, Shapes};
use crate::diff::{self, Change, Operation};
use crate::names::{self, Kind, Role};
use crate::pool::Pool;
use model::{DesiredService, Family, ServiceName};
use owners::{Owners, Shared};
use packed::Numbers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the kernel holds of one family's elements.
#[derive(Debug)]
pub struct Held {
    family: Family,
    names: Numbers,
    services: BTreeMap<ServiceName, Box<[u8]>>,
    node: Elements,
    /// Whose the elements under each frontend are.
    owners: Owners,
    /// How many services hold an element that several may want.
    shared: Shared,
    /// What was found at the start and nobody has claimed yet.
    found: Pool,
}

/// An address, protocol and port of services, or a node port.
pub type Frontend = (Kind, Arc<[Value]>);

/// What a service needs.
#[derive(Debug)]
pub struct Settling {
    /// The service.
    pub name: ServiceName,
    /// What to do to its elements.
    pub change: Change,
    /// The shapes that its lists have.
    pub shapes: Shapes,
    /// What the kernel holds of it once the change is carried out.
    then: Elements,
    /// What of it was found at the start: it is the service's from now on.
    found: Vec<ElementKey>,
    /// What of it was another's, whose frontend has become this service's.
    taken: BTreeMap<ServiceName, Vec<ElementKey>>,
}

impl Settling {
    /// The services whose frontends it takes: it can't go into one batch with what they need themselves.
    pub fn takes_from(&self) -> impl Iterator<Item = &ServiceName> {
        self.taken.keys()
    }
}

impl Held {
    /// Nothing is held.
    pub fn new(family: Family) -> Held {
        Held {
            family,
            names: Numbers::default(),
            services: BTreeMap::new(),
            node: Elements::new(),
            owners: Owners::default(),
            shared: Shared::default(),
            found: Pool::default(),
        }
    }

    /// Forgets everything in favour of what was read.
    pub fn adopt(&mut self, found: Pool) {
        *self = Held::new(self.family);
        self.found = found;
    }

    /// The services of which anything is held.
    pub fn services(&self) -> impl Iterator<Item = &ServiceName> {
        self.services.keys()
    }

    /// What a service needs so that the kernel holds what is wanted of it; `None` wants nothing of it. What lies under
    /// `spared` frontends is left for the services that take them; what has `waited` for packets on their way goes as soon
    /// as nothing else is to be written.
    pub fn settle(
        &self,
        name: &ServiceName,
        want: Option<&DesiredService>,
        waited: &BTreeSet<ElementKey>,
        spared: &[Frontend],
    ) -> Settling {
        let mut have = self.of(name);
        let is_spared = |key: &ElementKey| spared.iter().any(|frontend| lies_under(key, frontend));
        let left: Elements = match spared {
            [] => Elements::new(),
            _ => have.extract_if(.., |key, _| is_spared(key)).collect(),
        };
        let found = want.map(|want| self.claim(want, &mut have)).unwrap_or_default();
        let taken = want
            .map(|want| self.take_over(name, want, &mut have))
            .unwrap_or_default();
        let (elements, shapes) = want.map_or_else(Default::default, |want| {
            let slots = build::place(&build::placed(want, &have), want);
            (build::service(want, &slots), build::shapes(want, &slots))
        });
        let mut change = diff::change(&have, &elements);
        let mut then = elements;
        then.extend(left);
        change.retire(waited);
        for operation in change.later.iter().chain(&change.last) {
            let (Operation::Delete(key, element)
            | Operation::Add(key, element)
            | Operation::Replace(key, element, _)) = operation;
            then.insert(key.clone(), element.clone());
        }
        Settling {
            name: name.clone(),
            change,
            shapes,
            then,
            found,
            taken,
        }
    }

    /// The services whose frontends a service takes.
    pub fn losers<'a>(
        &'a self,
        name: &'a ServiceName,
        want: &DesiredService,
    ) -> impl Iterator<Item = &'a ServiceName> {
        let frontends = build::frontends(want).into_iter();
        let owners = frontends.filter_map(|frontend| self.owners.get(&frontend));
        owners.filter(move |owner| *owner != name)
    }

    /// The frontends of which a service holds something and that it does not want.
    pub fn given_up(&self, name: &ServiceName, want: Option<&DesiredService>) -> Vec<Frontend> {
        let packed = self.services.get(name);
        let held = packed.map(|packed| self.frontends(packed)).unwrap_or_default();
        let wanted: BTreeSet<Frontend> = want
            .map(build::frontends)
            .unwrap_or_default()
            .into_iter()
            .collect();
        held.difference(&wanted).cloned().collect()
    }

    /// What lies under a frontend goes with it when it becomes another service's.
    fn take_over(
        &self,
        name: &ServiceName,
        want: &DesiredService,
        have: &mut Elements,
    ) -> BTreeMap<ServiceName, Vec<ElementKey>> {
        let mut taken: BTreeMap<ServiceName, Vec<ElementKey>> = BTreeMap::new();
        for frontend in build::frontends(want) {
            let Some(owner) = self.owners.get(&frontend).filter(|owner| *owner != name) else {
                continue;
            };
            let mut under = self.of(owner);
            under.retain(|key, _| lies_under(key, &frontend));
            taken
                .entry(owner.clone())
                .or_default()
                .extend(under.keys().cloned());
            have.extend(under);
        }
        taken
    }

    /// What was found under a service's frontends, and the shared elements that it wants, is as if it had been held.
    fn claim(&self, want: &DesiredService, have: &mut Elements) -> Vec<ElementKey> {
        if self.found.is_empty() {
            return Vec::new();
        }
        let mut claimed = Elements::new();
        for (kind, key) in build::frontends(want) {
            self.found.under(self.family, kind, &key, &mut claimed);
        }
        let slots = build::place(&build::placed(want, &claimed), want);
        for key in build::service(want, &slots).into_keys() {
            let shared = names::form_of(key.set.as_str()).is_some_and(|form| form.kind.is_none());
            if shared && self.found.has(&key) {
                claimed.insert(key, Element::default());
            }
        }
        let keys = claimed.keys().cloned().collect();
        for (key, element) in claimed {
            have.entry(key).or_insert(element);
        }
        keys
    }

    /// What the node's own elements need.
    pub fn settle_node(&self, want: &Elements) -> Vec<Operation> {
        let mut have = self.node.clone();
        for key in want.keys().filter(|key| self.found.has(key)) {
            have.insert(key.clone(), Element::default());
        }
        diff::change(&have, want).now
    }

    /// The kernel holds the node's elements.
    pub fn remember_node(&mut self, want: Elements) {
        for key in want.keys() {
            self.found.take(key);
        }
        self.node = want;
    }

    /// The kernel said yes to what a service needed.
    pub fn remember(&mut self, settling: &Settling) {
        for key in &settling.found {
            self.found.take(key);
        }
        for (owner, keys) in &settling.taken {
            let mut elements = self.of(owner);
            for key in keys {
                elements.remove(key);
            }
            self.keep(owner, &elements);
        }
        for key in self.shared_of(&settling.name) {
            self.shared.release(&key);
        }
        for key in settling.then.keys().filter(|key| is_shared(key)) {
            self.shared.hold(key);
        }
        self.keep(&settling.name, &settling.then);
    }

    /// The operations of several services as one batch: what is shared is put in for the first that wants it, and taken
    /// out after the last.
    pub fn together<'a>(&self, settlings: impl IntoIterator<Item = &'a Settling>) -> Vec<Operation> {
        let mut operations = Vec::new();
        let mut counts: BTreeMap<&ElementKey, (i64, &Element)> = BTreeMap::new();
        for settling in settlings {
            for operation in &settling.change.now {
                match operation {
                    Operation::Add(key, element) if is_shared(key) => {
                        counts.entry(key).or_insert((0, element)).0 += 1;
                    }
                    Operation::Delete(key, element) if is_shared(key) => {
                        counts.entry(key).or_insert((0, element)).0 -= 1;
                    }
                    other => operations.push(other.clone()),
                }
            }
        }
        for (key, (delta, element)) in counts {
            let before = i64::from(self.shared.holders(key));
            // Found at the start and not claimed by others yet: it is there already.
            let there = before > 0 || self.found.has(key);
            if !there && before + delta > 0 {
                operations.push(Operation::Add(key.clone(), element.clone()));
            } else if there && before + delta <= 0 && delta < 0 {
                operations.push(Operation::Delete(key.clone(), element.clone()));
            }
        }
        operations
    }

    /// Whether the kernel holds all that a service needs now, since others share it.
    pub fn needs_no_write(&self, settling: &Settling) -> bool {
        let mut operations = settling.change.now.iter();
        let all_shared = operations.all(|operation| is_shared(operation.key()));
        all_shared && self.together([settling]).is_empty()
    }

    /// How many services hold elements that are missing or changed, given which are as they are held.
    pub fn harmed(&self, is_as_held: impl Fn(&ElementKey, &Element) -> bool) -> usize {
        let is_whole = |elements: &Elements| elements.iter().all(|(key, element)| is_as_held(key, element));
        let services = self.services.values();
        services
            .filter(|packed| !is_whole(&self.names.unpack(self.family, packed)))
            .count()
    }

    /// What was found at the start and belongs to nobody, at most so much of it.
    pub fn leftovers(&self, most: usize) -> Vec<Operation> {
        self.found.rest(self.family, most)
    }

    /// Leftovers have been deleted.
    pub fn forget_leftovers(&mut self, deleted: &[Operation]) {
        for operation in deleted {
            if let Operation::Delete(key, _) = operation {
                self.found.take(key);
            }
        }
    }

    fn of(&self, name: &ServiceName) -> Elements {
        let packed = self.services.get(name);
        packed
            .map(|packed| self.names.unpack(self.family, packed))
            .unwrap_or_default()
    }

    fn keep(&mut self, name: &ServiceName, elements: &Elements) {
        let packed = self.names.pack(elements);
        let now = self.frontends(&packed);
        let before = match self.services.remove(name) {
            Some(before) => self.frontends(&before),
            None => BTreeSet::new(),
        };
        for gone in before.difference(&now) {
            if self.owners.get(gone) == Some(name) {
                self.owners.remove(gone);
            }
        }
        for new in now {
            self.owners.insert(&new, name);
        }
        if !elements.is_empty() {
            self.services.insert(name.clone(), packed);
        }
    }

    /// The frontends that packed elements lie under.
    fn frontends(&self, packed: &[u8]) -> BTreeSet<Frontend> {
        let keys = self.names.keys(self.family, packed);
        keys.filter_map(|key| frontend_of(&key)).collect()
    }

    /// The elements of a service that others may hold as well.
    fn shared_of(&self, name: &ServiceName) -> Vec<ElementKey> {
        let packed = self.services.get(name).into_iter();
        let keys = packed.flat_map(|packed| self.names.keys(self.family, packed));
        keys.filter(is_shared).collect()
    }

    /// Gives back the room that many services, each put in after the one before, take too much.
    pub fn compact(&mut self) {
        self.services = std::mem::take(&mut self.services).into_iter().collect();
        self.owners.compact();
        self.shared.compact();
    }
}

/// The frontend that an element lies under; `None` for what is no one frontend's.
pub fn frontend_of(key: &ElementKey) -> Option<Frontend> {
    let form = names::form_of(key.set.as_str())?;
    match form.kind {
        Some(Kind::Service | Kind::ServiceLocal) => Some((Kind::Service, key.key.clone())),
        Some(Kind::NodePort | Kind::NodePortLocal) => Some((Kind::NodePort, key.key.clone())),
        None if form.role == Role::Admission => {
            let length = names::SERVICE_KEY.len();
            let start = key.key.len().checked_sub(length)?;
            Some((Kind::Service, key.key[start..].into()))
        }
        None => None,
    }
}

fn lies_under(key: &ElementKey, frontend: &Frontend) -> bool {
    frontend_of(key).as_ref() == Some(frontend)
}

/// Whether several services may want the same element.
fn is_shared(key: &ElementKey) -> bool {
    let set = key.set.as_str();
    set == names::HAIRPIN || set == names::CLUSTER_IPS
}
