//! The control loop as a state machine: what happened and the time go in, what is to be done comes out.
//!
//! * What it is: [`Engine`] keeps the cluster's objects, knows per family what the kernel holds
//!   ([`iptables::diff::have::Have`]), and brings the two together, one bounded step at a time.
//! * In and out: [`Event`]s and `now` go in; [`Engine::next`] gives one [`Effect`] at a time for each family, each of
//!   which is answered by an [`Event::Answer`]; [`Report`]s tell what happened.
//! * What it deliberately does not know: clocks, threads, sockets, processes, the API server, how a step is carried out.
//! * Where to start reading: [`Engine`], then `family`.
//!
//! Invariant: whatever order changes come in, the kernel ends up with what the objects say
//! (test `incremental_equals_from_scratch`).
//! Invariant: nothing is remembered before the kernel said yes, and no change is forgotten before (the others in
//! `properties`). Each of these tests is shown able to fail by a [`fault::Fault`].

pub mod disturbance;
pub mod event;
mod failures;
mod family;
pub mod fault;
mod nft;
mod pace;
mod queue;
pub mod rehearsal;
mod runs;
mod world;

pub use disturbance::Disturbance;
pub use event::{About, Answer, Cause, Effect, Failure, Report, RunKind, StepSize};
pub use nft::{Foreign, ForeignExtent};
use queue::Rank;

pub use queue::Item;

use family::FamilyLoop;
use fault::{Fault, Seeded};
use iptables::build::{Capabilities, InvalidPackets};
use iptables::diff::count::RuleCount;
use model::object::Kind;
use model::snapshot::{Change, Snapshot};
use model::{Family, NodeFacts, PerFamily, ServiceName, Settings};
use nft::NftLoop;
use std::collections::BTreeSet;
use std::time::Duration;
use world::{NodeChange, World};

/// Which of the kernel interfaces rules go through. They differ in what a step costs and in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `nf_tables`: many small steps.
    NfTables,
    /// `x_tables`: every step costs the whole table.
    Legacy,
    /// Not the tools: a table of our own, by netlink (nftables mode).
    OwnTable,
}

/// How the engine goes about it.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The interface.
    pub backend: Backend,
    /// `minSyncPeriod`: the least time between two runs.
    pub min_sync: Duration,
    /// `syncPeriod`: how often the rules are looked at, and the longest wait after a failure.
    pub sync_period: Duration,
    /// How often everything is read back and compared: one hour.
    pub full_sync: Duration,
    /// How many services one step settles at most: 200.
    ///
    /// Every commit of `nf_tables` walks all rules that hooks reach, so many small steps cost more kernel time than few
    /// large ones, and the tool walks its list of chains for each chain it makes, so large ones cost more tool time.
    /// Measured at 10,000 services with 10 endpoints on kernel 6.18 with iptables 1.8.9, CPU of all restores together:
    /// 20.6 s in steps of 100, 16.5 s of 200, 16.7 s of 400, 16.0 s of 800.
    pub step_services: usize,
    /// How many elements one step of nftables mode writes at most, but for those of a single service that do not fit
    /// otherwise: 10,000, about 1 MiB. A host that grants smaller socket buffers has smaller steps.
    pub step_elements: usize,
    /// Seeds the spread of waits, so that nodes do not try together, nor two processes of one. With 0 looks at what others
    /// did come as soon as they can.
    pub seed: u64,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            backend: Backend::NfTables,
            min_sync: Duration::from_secs(1),
            sync_period: Duration::from_secs(30),
            full_sync: Duration::from_hours(1),
            step_services: 200,
            step_elements: 10_000,
            seed: 0,
        }
    }
}

/// What the host can do.
#[derive(Clone, Debug)]
pub struct Host {
    /// What each family's tools can do; `None` for a family that this host does not have.
    pub families: PerFamily<Option<Capabilities>>,
    /// What becomes of packets that conntrack calls INVALID.
    pub invalid: InvalidPackets,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Objects changed.
    Changed(Change),
    /// All objects of a kind have been seen once.
    Listed(Kind),
    /// The node's facts are these now.
    Facts(NodeFacts),
    /// The settings are these now: some of them follow from the node.
    Settings(Settings),
    /// Somebody else wrote into a family's tables.
    Disturbed(Family, Disturbance),
    /// Somebody else wrote into a family's table of nftables mode.
    NftDisturbed(Family, Foreign),
    /// A family's effect was carried out, or failed.
    Answer(Family, Answer),
}

/// How a family is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// When the oldest change came that is not in the kernel yet, in the engine's time.
    pub pending_since: Option<Duration>,
    /// How many failures there were since the last success.
    pub failures_in_a_row: u32,
    /// When everything was last compared.
    pub last_full_sync: Option<Duration>,
    /// How many services wait.
    pub queued: usize,
    /// How many of them were refused by themselves.
    pub refused: usize,
    /// How many rules there are in our chains.
    pub rules: RuleCount,
}

/// The control loop.
#[derive(Debug)]
pub struct Engine {
    world: World,
    families: PerFamily<Option<Loop>>,
    /// Kinds whose first list has not come yet.
    awaited: BTreeSet<Kind>,
    reports: Vec<Report>,
    seeded: Seeded,
}

impl Engine {
    /// An engine that knows no objects and nothing of the kernel.
    pub fn new(settings: Settings, facts: NodeFacts, host: &Host, config: &EngineConfig) -> Engine {
        Engine::seeded(settings, facts, host, config, Seeded::default())
    }

    /// The same with a fault in it.
    pub fn seeded(
        settings: Settings,
        facts: NodeFacts,
        host: &Host,
        config: &EngineConfig,
        seeded: Seeded,
    ) -> Engine {
        let any = host.families.v4.or(host.families.v6).unwrap_or(NO_CAPABILITIES);
        let capabilities = PerFamily::from_fn(|family| host.families.get(family).unwrap_or(any));
        let families = PerFamily::from_fn(|family| {
            let present = host.families.get(family).is_some();
            present.then(|| Loop::new(family, config, seeded))
        });
        Engine {
            world: World::new(settings, facts, capabilities, host.invalid, seeded),
            families,
            awaited: BTreeSet::from([Kind::Service, Kind::Slice]),
            reports: Vec::new(),
            seeded,
        }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, event: Event, now: Duration) {
        match event {
            Event::Changed(change) => self.changed(change, now),
            Event::Listed(kind) => {
                if self.awaited.remove(&kind) && self.awaited.is_empty() {
                    self.world.compact();
                }
            }
            Event::Facts(facts) => {
                let change = self.world.set_facts(facts);
                self.node_changed(change, now);
            }
            Event::Settings(settings) => {
                let change = self.world.set_settings(settings);
                self.node_changed(change, now);
            }
            Event::Disturbed(family, disturbance) => {
                if let Some(Loop::Iptables(family)) = self.families.get_mut(family) {
                    family.disturb(disturbance, now);
                }
            }
            Event::NftDisturbed(family, foreign) => {
                if let Some(Loop::Nftables(family)) = self.families.get_mut(family) {
                    family.disturb(foreign, now);
                }
            }
            Event::Answer(family, answer) => {
                if let Some(family) = self.families.get_mut(family) {
                    family.answer(&self.world, answer, now);
                }
            }
        }
    }

    /// What is to be done next for a family. `None` when there is nothing to do now, or when an answer is awaited.
    ///
    /// Nothing is done before both lists have come: rules of half the objects would be worse than the rules that are there.
    pub fn next(&mut self, family: Family, now: Duration) -> Option<Effect> {
        if !self.awaited.is_empty() {
            return None;
        }
        // Only iptables mode's rules depend on the count; in nftables mode it is made while the kernel is at work.
        if !matches!(self.families.get(family), Some(Loop::Nftables(_))) {
            self.count();
        }
        let effect = self.families.get_mut(family).as_mut()?.next(&self.world, now);
        if effect.is_none() {
            self.count();
        }
        effect
    }

    /// When [`Engine::next`] may have something for a family without another event; a time that has passed means now.
    pub fn wake_at(&self, family: Family) -> Option<Duration> {
        if !self.awaited.is_empty() {
            return None;
        }
        self.families.get(family).as_ref()?.wake_at()
    }

    /// What there is to tell since the last time.
    pub fn take_reports(&mut self) -> Vec<Report> {
        let mut reports = std::mem::take(&mut self.reports);
        for family in Family::ALL {
            if let Some(family) = self.families.get_mut(family) {
                reports.extend(family.take_reports());
            }
        }
        reports
    }

    /// How a family is doing; `None` for one that this host does not have.
    pub fn status(&self, family: Family) -> Option<Status> {
        self.families.get(family).as_ref().map(Loop::status)
    }

    /// What the kernel refuses of a family by itself, and is tried again by itself.
    pub fn refused(&self, family: Family) -> impl Iterator<Item = &Item> {
        let family = self.families.get(family).as_ref();
        family.into_iter().flat_map(Loop::refused)
    }

    /// Whether both lists have come.
    pub fn is_synced(&self) -> bool {
        self.awaited.is_empty()
    }

    /// The objects.
    pub fn snapshot(&self) -> &Snapshot {
        self.world.snapshot()
    }

    /// What is known of the node.
    pub fn facts(&self) -> &NodeFacts {
        self.world.facts()
    }

    fn changed(&mut self, change: Change, now: Duration) {
        let subject = self
            .seeded
            .has(Fault::ClaimHeirForgotten)
            .then(|| subject(&change))
            .flatten();
        let is_slice = matches!(&change, Change::Apply(object) if object.kind() == Kind::Slice);
        let mut touched = self.world.apply(change);
        if let Some(subject) = subject {
            touched.services.retain(|name| *name == subject);
        }
        for family in Family::ALL {
            let forgotten = family == Family::V6 && is_slice && self.seeded.has(Fault::OneFamilyForgotten);
            if let Some(family) = self.families.get_mut(family).as_mut().filter(|_| !forgotten) {
                family.change(touched.services.iter().cloned().map(Item::Service), now);
            }
        }
        let change = self.world.tell_node(&touched.nodes);
        self.node_changed(change, now);
        if !touched.service_cidrs.is_empty() {
            self.service_cidrs_changed(now);
        }
    }

    /// Only nftables mode has rules for networks of cluster IPs.
    fn service_cidrs_changed(&mut self, now: Duration) {
        for family in Family::ALL {
            if let Some(Loop::Nftables(family)) = self.families.get_mut(family) {
                family.change([Item::Node], now);
            }
        }
    }

    fn node_changed(&mut self, change: NodeChange, now: Duration) {
        match change {
            NodeChange::Nothing => return,
            NodeChange::NodePart if self.seeded.has(Fault::TailForgotten) => return,
            NodeChange::NodePart | NodeChange::Everything => {}
        }
        let world = &self.world;
        for family in Family::ALL {
            let Some(family) = self.families.get_mut(family) else {
                continue;
            };
            family.change([Item::Node], now);
            if change == NodeChange::Everything {
                family.reconsider(world.services().map(|name| (world.rank(name), name.clone())), now);
            }
        }
    }

    fn count(&mut self) {
        let reports = self.world.count();
        #[cfg(feature = "mutants")]
        if self.seeded.has(Fault::ThresholdRewritesAll) {
            self.rewrite_at_threshold(&reports);
        }
        self.reports.extend(reports);
    }

    #[cfg(feature = "mutants")]
    fn rewrite_at_threshold(&mut self, reports: &[Report]) {
        for report in reports {
            if let Report::EndpointComments { family, .. } = report
                && let Some(Loop::Iptables(family)) = self.families.get_mut(*family)
            {
                family.distrust_chains();
                family.change(self.world.services().cloned().map(Item::Service), Duration::ZERO);
            }
        }
    }
}

/// One family's loop, by mode.
#[derive(Debug)]
enum Loop {
    Iptables(Box<FamilyLoop>),
    Nftables(Box<NftLoop>),
}

impl Loop {
    fn new(family: Family, config: &EngineConfig, seeded: Seeded) -> Loop {
        match config.backend {
            Backend::OwnTable => Loop::Nftables(Box::new(NftLoop::new(family, config, seeded))),
            Backend::NfTables | Backend::Legacy => {
                Loop::Iptables(Box::new(FamilyLoop::new(family, config, seeded)))
            }
        }
    }

    fn change(&mut self, items: impl IntoIterator<Item = Item>, now: Duration) {
        match self {
            Loop::Iptables(family) => family.change(items, now),
            Loop::Nftables(family) => family.change(items, now),
        }
    }

    fn answer(&mut self, world: &World, answer: Answer, now: Duration) {
        match self {
            Loop::Iptables(family) => family.answer(world, answer, now),
            Loop::Nftables(family) => family.answer(world, answer, now),
        }
    }

    fn next(&mut self, world: &World, now: Duration) -> Option<Effect> {
        match self {
            Loop::Iptables(family) => family.next(world, now),
            Loop::Nftables(family) => family.next(world, now),
        }
    }

    fn wake_at(&self) -> Option<Duration> {
        match self {
            Loop::Iptables(family) => family.wake_at(),
            Loop::Nftables(family) => family.wake_at(),
        }
    }

    fn take_reports(&mut self) -> Vec<Report> {
        match self {
            Loop::Iptables(family) => family.take_reports(),
            Loop::Nftables(family) => family.take_reports(),
        }
    }

    fn reconsider(&mut self, services: impl Iterator<Item = (Rank, ServiceName)>, now: Duration) {
        match self {
            Loop::Iptables(family) => family.reconsider(services, now),
            Loop::Nftables(family) => family.reconsider(services, now),
        }
    }

    fn refused(&self) -> Box<dyn Iterator<Item = &Item> + '_> {
        match self {
            Loop::Iptables(family) => Box::new(family.refused()),
            Loop::Nftables(family) => Box::new(family.refused()),
        }
    }

    fn status(&self) -> Status {
        match self {
            Loop::Iptables(family) => family.status(),
            Loop::Nftables(family) => family.status(),
        }
    }
}

/// Used for a family that is not there.
const NO_CAPABILITIES: Capabilities = Capabilities {
    masquerade_ports: iptables::ast::Ports::Kept,
    nfacct: iptables::build::Nfacct::Absent,
};

/// The service that a change is of, when it is of one.
fn subject(change: &Change) -> Option<ServiceName> {
    use model::object::{Object, ObjectRef};
    match change {
        Change::Apply(Object::Service(service)) => Some(service.name.clone()),
        Change::Delete(ObjectRef::Service(name)) => Some(name.clone()),
        _ => None,
    }
}
