//! What is wanted: the objects, the node and the settings, and what they come to for one service.

use crate::event::Report;
use crate::fault::{Fault, Seeded};
use crate::queue::Rank;
use ipnet::IpNet;
use iptables::build::{
    self, BuildContext, Capabilities, EndpointComments, InvalidPackets, NodeRules, ServiceRules,
};
use model::crossing::{ClaimKey, ListedEndpoints, listed_by};
use model::resolve::{Context, resolve, resolve_node};
use model::snapshot::{Change, Snapshot, Touched};
use model::{DesiredNode, DesiredService, Family, NodeFacts, Note, PerFamily, ServiceName, Settings};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The objects, the node and the settings.
#[derive(Debug)]
pub(crate) struct World {
    snapshot: Snapshot,
    facts: NodeFacts,
    settings: Settings,
    capabilities: PerFamily<Capabilities>,
    invalid: InvalidPackets,
    /// Services whose counts and notes are of an earlier state.
    uncounted: BTreeSet<ServiceName>,
    /// How many endpoints each service lists: the parts of the large-cluster count.
    listed: BTreeMap<ServiceName, PerFamily<u32>>,
    totals: PerFamily<ListedEndpoints>,
    /// What the service that was asked for last comes to: one that changed is written and counted, one after the other.
    last: RefCell<Option<Last>>,
    /// The notes of services that have any.
    notes: BTreeMap<ServiceName, Vec<Note>>,
    seeded: Seeded,
}

/// What a service comes to, and what there is to say of it.
type Resolved = (Option<Arc<DesiredService>>, Vec<Note>);

/// A service, and what it comes to in the families that were asked for.
#[derive(Debug)]
struct Last {
    name: ServiceName,
    resolved: PerFamily<Option<Resolved>>,
}

/// What a change of the node concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeChange {
    /// Nothing.
    Nothing,
    /// The node's part of the rules.
    NodePart,
    /// Every service as well.
    Everything,
}

impl World {
    pub(crate) fn new(
        settings: Settings,
        facts: NodeFacts,
        capabilities: PerFamily<Capabilities>,
        invalid: InvalidPackets,
        seeded: Seeded,
    ) -> World {
        World {
            snapshot: Snapshot::new(),
            facts,
            settings,
            capabilities,
            invalid,
            uncounted: BTreeSet::new(),
            listed: BTreeMap::new(),
            totals: PerFamily::default(),
            last: RefCell::default(),
            notes: BTreeMap::new(),
            seeded,
        }
    }

    /// Gives back the room that many objects, each taken in after the one before, take too much.
    pub(crate) fn compact(&mut self) {
        self.snapshot.compact();
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub(crate) fn facts(&self) -> &NodeFacts {
        &self.facts
    }

    pub(crate) fn apply(&mut self, change: Change) -> Touched {
        self.forget_last();
        let touched = self.snapshot.apply(change);
        self.uncounted.extend(touched.services.iter().cloned());
        touched
    }

    /// Takes over what this node's object says, if it is among these.
    pub(crate) fn tell_node(&mut self, touched: &BTreeSet<Arc<str>>) -> NodeChange {
        if !touched.contains(&self.facts.name) {
            return NodeChange::Nothing;
        }
        // The last thing that a deleted node said still holds.
        let Some(node) = self.snapshot.node(&self.facts.name) else {
            return NodeChange::Nothing;
        };
        let mut facts = self.facts.clone();
        node.tell(&mut facts);
        self.set_facts(facts)
    }

    /// Takes over new facts about the node.
    pub(crate) fn set_facts(&mut self, facts: NodeFacts) -> NodeChange {
        self.forget_last();
        let before = std::mem::replace(&mut self.facts, facts);
        if before == self.facts {
            return NodeChange::Nothing;
        }
        let same_but_for_interfaces = NodeFacts {
            interface_addresses: self.facts.interface_addresses.clone(),
            ..before
        };
        if same_but_for_interfaces == self.facts {
            NodeChange::NodePart
        } else {
            NodeChange::Everything
        }
    }

    /// Takes over new settings.
    pub(crate) fn set_settings(&mut self, settings: Settings) -> NodeChange {
        self.forget_last();
        if std::mem::replace(&mut self.settings, settings) == self.settings {
            NodeChange::Nothing
        } else {
            NodeChange::Everything
        }
    }

    /// All services there are.
    pub(crate) fn services(&self) -> impl Iterator<Item = &ServiceName> {
        self.snapshot.services().map(|service| &service.name)
    }

    /// What else needs this service: the API server and DNS come first.
    pub(crate) fn rank(&self, name: &ServiceName) -> Rank {
        let is_dns = || {
            let service = self.snapshot.service(name);
            service.is_some_and(|service| service.ports.iter().any(|port| port.port == 53))
        };
        match (&*name.namespace, &*name.name) {
            ("default", "kubernetes") => Rank::First,
            ("kube-system", _) if is_dns() => Rank::First,
            _ => Rank::Rest,
        }
    }

    /// One service's rules; none when it is gone, or wants nothing of the family.
    pub(crate) fn service_rules(&self, family: Family, name: &ServiceName) -> ServiceRules {
        let Some(desired) = self.desired(family, name) else {
            return ServiceRules::default();
        };
        build::service(
            &desired,
            &resolve_node(family, &self.facts, &self.settings),
            &self.context(family),
        )
    }

    /// What is wanted of one service; `None` when it is gone, or wants nothing of the family.
    pub(crate) fn desired(&self, family: Family, name: &ServiceName) -> Option<Arc<DesiredService>> {
        self.resolved(family, name).0
    }

    /// What no service owns.
    pub(crate) fn desired_node(&self, family: Family) -> DesiredNode {
        resolve_node(family, &self.facts, &self.settings)
    }

    /// Who has the better claim to a frontend.
    pub(crate) fn winner(&self, key: ClaimKey) -> Option<&ServiceName> {
        self.snapshot.claims().winner(key, &self.settings.external_ips)
    }

    /// The networks that cluster IPs come from, sorted.
    pub(crate) fn service_cidrs(&self) -> Vec<IpNet> {
        let cidrs = self
            .snapshot
            .service_cidrs()
            .flat_map(|cidr| cidr.cidrs.iter().copied());
        let all: BTreeSet<IpNet> = cidrs.collect();
        all.into_iter().collect()
    }

    /// The rules that no service owns.
    pub(crate) fn node_rules(&self, family: Family) -> NodeRules {
        build::node(
            &resolve_node(family, &self.facts, &self.settings),
            &self.context(family),
        )
    }

    /// Whether rules written now carry the comments of endpoints.
    pub(crate) fn comments(&self, family: Family) -> EndpointComments {
        EndpointComments::for_cluster(self.totals.get(family))
    }

    /// Brings counts and notes up to date, and says what is new.
    pub(crate) fn count(&mut self) -> Vec<Report> {
        if self.uncounted.is_empty() {
            return Vec::new();
        }
        let before = PerFamily::from_fn(|family| self.comments(family));
        let mut reports = Vec::new();
        for name in std::mem::take(&mut self.uncounted) {
            reports.extend(self.count_service(name));
        }
        for family in Family::ALL {
            let comments = self.comments(family);
            if comments != *before.get(family) {
                reports.push(Report::EndpointComments { family, comments });
            }
        }
        reports
    }

    fn count_service(&mut self, name: ServiceName) -> Option<Report> {
        let mut notes = Vec::new();
        let counts = PerFamily::from_fn(|family| {
            let (desired, new) = self.resolved(family, &name);
            notes.extend(new);
            let count = desired.as_deref().map_or(0, listed_by);
            u32::try_from(count).expect("invariant: objects are smaller than 4 GiB")
        });
        let known = self.listed.remove(&name).unwrap_or_default();
        for family in Family::ALL {
            let total = self.totals.get_mut(family);
            total.replace(*known.get(family) as usize, *counts.get(family) as usize);
        }
        if counts != PerFamily::default() {
            self.listed.insert(name.clone(), counts);
        }
        self.note(name, notes)
    }

    fn note(&mut self, service: ServiceName, mut notes: Vec<Note>) -> Option<Report> {
        notes.sort();
        notes.dedup();
        let known = self.notes.remove(&service).unwrap_or_default();
        if !notes.is_empty() {
            self.notes.insert(service.clone(), notes.clone());
        }
        (known != notes).then_some(Report::Noted { service, notes })
    }

    /// The objects, the node or the settings are others: whatever was asked for may be other than it was.
    fn forget_last(&mut self) {
        *self.last.get_mut() = None;
    }

    fn resolved(&self, family: Family, name: &ServiceName) -> Resolved {
        let mut last = self.last.borrow_mut();
        if last.as_ref().is_none_or(|last| last.name != *name) {
            *last = Some(Last {
                name: name.clone(),
                resolved: PerFamily::default(),
            });
        }
        let last = last.as_mut().expect("invariant: it was just put there");
        let known = last.resolved.get_mut(family);
        known.get_or_insert_with(|| self.resolve(family, name)).clone()
    }

    fn resolve(&self, family: Family, name: &ServiceName) -> Resolved {
        let Some(service) = self.snapshot.service(name) else {
            return (None, Vec::new());
        };
        let nameless = self.seeded.has(Fault::LocalListForgotten).then(|| NodeFacts {
            name: "".into(),
            ..self.facts.clone()
        });
        let context = Context {
            family,
            node: nameless.as_ref().unwrap_or(&self.facts),
            settings: &self.settings,
            claims: self.snapshot.claims(),
        };
        let (desired, notes) = resolve(service, &self.snapshot.slices_of(name), &context);
        (desired.map(Arc::new), notes)
    }

    fn context(&self, family: Family) -> BuildContext {
        BuildContext {
            capabilities: *self.capabilities.get(family),
            endpoint_comments: self.comments(family),
            invalid: self.invalid,
        }
    }
}
