//! The cluster's objects as last seen.
//!
//! * In and out: [`Change`]s go in; [`Touched`] says which services must be resolved again.
//! * Invariant: a snapshot is a function of the objects in it. The order in which they came cannot be told
//!   (test `the_order_of_changes_cannot_be_told`).
//! * Invariant: what no object says any more takes no room (test `an_emptied_snapshot_equals_a_new_one`).

mod intern;

#[cfg(test)]
mod tests;

use crate::ServiceName;
use crate::crossing::Claims;
use crate::object::{Kind, Node, Object, ObjectRef, Service, ServiceCidr, Slice, SliceName};
use intern::Interner;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The cluster's objects as last seen.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    services: BTreeMap<ServiceName, Service>,
    slices: BTreeMap<SliceName, Slice>,
    // The slices of each service that has any, sorted by name.
    slices_of: BTreeMap<ServiceName, Box<[SliceName]>>,
    nodes: BTreeMap<Arc<str>, Node>,
    service_cidrs: BTreeMap<Arc<str>, ServiceCidr>,
    claims: Claims,
    interner: Interner,
}

/// Snapshots are equal when they hold the same objects.
impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        self.services == other.services
            && self.slices == other.slices
            && self.slices_of == other.slices_of
            && self.nodes == other.nodes
            && self.service_cidrs == other.service_cidrs
            && self.claims == other.claims
    }
}

impl Eq for Snapshot {}

/// One change to the cluster's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An object came or changed.
    Apply(Object),
    /// An object went.
    Delete(ObjectRef),
    /// These are all objects of a kind; others of the kind are gone.
    ReplaceAll {
        /// The kind.
        kind: Kind,
        /// All of it. Objects of other kinds are ignored; of two with one name the last counts.
        objects: Vec<Object>,
    },
}

/// What a change concerns. Empty when nothing changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Services to resolve again: changed, gone, with other slices, or with other chances for what they claim.
    pub services: BTreeSet<ServiceName>,
    /// Nodes that came, changed or went.
    pub nodes: BTreeSet<Arc<str>>,
    /// `ServiceCIDRs` that came, changed or went.
    pub service_cidrs: BTreeSet<Arc<str>>,
}

impl Touched {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && self.nodes.is_empty() && self.service_cidrs.is_empty()
    }

    /// Adds what another change concerns.
    pub fn merge(&mut self, other: Touched) {
        self.services.extend(other.services);
        self.nodes.extend(other.nodes);
        self.service_cidrs.extend(other.service_cidrs);
    }
}

impl Snapshot {
    /// An empty snapshot.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a change.
    pub fn apply(&mut self, change: Change) -> Touched {
        match change {
            Change::Apply(object) => self.apply_object(object),
            Change::Delete(reference) => self.delete(&reference),
            Change::ReplaceAll { kind, objects } => self.replace_all(kind, objects),
        }
    }

    /// All services, skipped ones included, by name.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    /// One service.
    pub fn service(&self, name: &ServiceName) -> Option<&Service> {
        self.services.get(name)
    }

    /// All slices, skipped ones included, by name.
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.slices.values()
    }

    /// One slice.
    pub fn slice(&self, name: &SliceName) -> Option<&Slice> {
        self.slices.get(name)
    }

    /// The slices of a service, skipped ones included, by name.
    pub fn slices_of(&self, service: &ServiceName) -> Vec<&Slice> {
        let names = self.slices_of.get(service).map_or(&[][..], Box::as_ref);
        let slice = |name: &SliceName| {
            self.slices
                .get(name)
                .expect("invariant: the index names slices that are there")
        };
        names.iter().map(slice).collect()
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// One node.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// All `ServiceCIDRs`, by name.
    pub fn service_cidrs(&self) -> impl Iterator<Item = &ServiceCidr> {
        self.service_cidrs.values()
    }

    /// All objects, taken out.
    pub fn into_objects(self) -> impl Iterator<Item = Object> {
        let nodes = self.nodes.into_values().map(Object::Node);
        let cidrs = self.service_cidrs.into_values().map(Object::ServiceCidr);
        let services = self
            .services
            .into_values()
            .map(|service| Object::Service(Box::new(service)));
        let slices = self
            .slices
            .into_values()
            .map(|slice| Object::Slice(Box::new(slice)));
        nodes.chain(cidrs).chain(services).chain(slices)
    }

    /// Who claims what.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    fn apply_object(&mut self, mut object: Object) -> Touched {
        self.interner.share(&mut object);
        match object {
            Object::Service(service) => self.apply_service(*service),
            Object::Slice(slice) => self.apply_slice(*slice),
            Object::Node(node) => {
                let name = node.name.clone();
                let changed = self.nodes.get(&name) != Some(&node);
                self.nodes.insert(name.clone(), node);
                node_touched(name, changed)
            }
            Object::ServiceCidr(cidr) => {
                let name = cidr.name.clone();
                let changed = self.service_cidrs.get(&name) != Some(&cidr);
                self.service_cidrs.insert(name.clone(), cidr);
                cidr_touched(name, changed)
            }
        }
    }

    fn delete(&mut self, reference: &ObjectRef) -> Touched {
        match reference {
            ObjectRef::Service(name) => self.delete_service(name),
            ObjectRef::Slice(name) => self.delete_slice(name),
            ObjectRef::Node(name) => {
                let changed = self.nodes.remove(name).is_some();
                node_touched(name.clone(), changed)
            }
            ObjectRef::ServiceCidr(name) => {
                let changed = self.service_cidrs.remove(name).is_some();
                cidr_touched(name.clone(), changed)
            }
        }
    }

    fn replace_all(&mut self, kind: Kind, objects: Vec<Object>) -> Touched {
        let mut stale = self.references(kind);
        let mut touched = Touched::default();
        for object in objects {
            if object.kind() == kind {
                stale.remove(&object.reference());
                touched.merge(self.apply_object(object));
            }
        }
        for reference in &stale {
            touched.merge(self.delete(reference));
        }
        touched
    }

    fn references(&self, kind: Kind) -> BTreeSet<ObjectRef> {
        match kind {
            Kind::Service => self.services.keys().cloned().map(ObjectRef::Service).collect(),
            Kind::Slice => self.slices.keys().cloned().map(ObjectRef::Slice).collect(),
            Kind::Node => self.nodes.keys().cloned().map(ObjectRef::Node).collect(),
            Kind::ServiceCidr => self
                .service_cidrs
                .keys()
                .cloned()
                .map(ObjectRef::ServiceCidr)
                .collect(),
        }
    }

    fn apply_service(&mut self, service: Service) -> Touched {
        let before = self.services.get(&service.name);
        if before == Some(&service) {
            return Touched::default();
        }
        let mut services = self.claims.replace(before, Some(&service));
        services.insert(service.name.clone());
        self.services.insert(service.name.clone(), service);
        services_touched(services)
    }

    fn delete_service(&mut self, name: &ServiceName) -> Touched {
        let Some(before) = self.services.remove(name) else {
            return Touched::default();
        };
        let mut services = self.claims.replace(Some(&before), None);
        services.insert(before.name);
        services_touched(services)
    }

    fn apply_slice(&mut self, slice: Slice) -> Touched {
        let before = self.slices.get(&slice.name);
        if before == Some(&slice) {
            return Touched::default();
        }
        let mut services = BTreeSet::new();
        let owner_before = before.and_then(|before| before.service.clone());
        if owner_before != slice.service {
            if let Some(owner) = &owner_before {
                self.disown(owner, &slice.name);
            }
            if let Some(owner) = &slice.service {
                self.own(owner, &slice.name);
            }
        }
        services.extend(owner_before);
        services.extend(slice.service.clone());
        self.slices.insert(slice.name.clone(), slice);
        services_touched(services)
    }

    fn delete_slice(&mut self, name: &SliceName) -> Touched {
        let Some(owner) = self.slices.remove(name).map(|slice| slice.service) else {
            return Touched::default();
        };
        if let Some(owner) = &owner {
            self.disown(owner, name);
        }
        services_touched(owner.into_iter().collect())
    }

    fn own(&mut self, owner: &ServiceName, slice: &SliceName) {
        let names = self.slices_of.entry(owner.clone()).or_default();
        let at = names.partition_point(|name| name < slice);
        let mut more = std::mem::take(names).into_vec();
        more.insert(at, slice.clone());
        *names = more.into();
    }

    fn disown(&mut self, owner: &ServiceName, slice: &SliceName) {
        if let Some(names) = self.slices_of.get_mut(owner) {
            let rest = std::mem::take(names).into_iter().filter(|name| name != slice);
            *names = rest.collect();
            if names.is_empty() {
                self.slices_of.remove(owner);
            }
        }
    }

    /// Gives back the room that objects, each put in after the one before, take too much: a map that grows at its end
    /// is half empty.
    pub fn compact(&mut self) {
        self.services = std::mem::take(&mut self.services).into_iter().collect();
        self.slices = std::mem::take(&mut self.slices).into_iter().collect();
        self.slices_of = std::mem::take(&mut self.slices_of).into_iter().collect();
        self.claims.compact();
        self.interner.compact();
    }
}

fn services_touched(services: BTreeSet<ServiceName>) -> Touched {
    Touched {
        services,
        ..Touched::default()
    }
}

fn node_touched(name: Arc<str>, changed: bool) -> Touched {
    Touched {
        nodes: changed.then_some(name).into_iter().collect(),
        ..Touched::default()
    }
}

fn cidr_touched(name: Arc<str>, changed: bool) -> Touched {
    Touched {
        service_cidrs: changed.then_some(name).into_iter().collect(),
        ..Touched::default()
    }
}
