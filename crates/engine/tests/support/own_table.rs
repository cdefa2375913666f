//! An engine of nftables mode on tables in memory.

use super::cluster::{Cluster, Heard};
use super::lost::lost;
use super::meant::Meant;
use engine::fault::Seeded;
use engine::{
    Answer, Backend, Cause, Effect, Engine, EngineConfig, Event, Failure, Foreign, ForeignExtent, Host,
    Report,
};
use iptables::build::InvalidPackets;
use kernel::fake::{FakeTable, FakeTables};
use model::balance::BUCKETS;
use model::object::Kind;
use model::snapshot::Change;
use model::{Desired, Family, PerFamily};
use netlink::Errno;
use nftables::ast::{ElementKey, Name, Value};
use nftables::build::{self, ServiceSlots};
use nftables::names::{self, Kind as Lists, Role};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A frontend of a kind of lists.
pub type Frontend = (Lists, Arc<[Value]>);

/// Which frontends are served.
#[derive(Default)]
struct Served {
    /// To whom is sent to this kind of lists.
    lists: BTreeSet<Frontend>,
    /// To clients from outside, whichever list they are sent to.
    outside: BTreeSet<Frontend>,
}

impl Served {
    /// What packets find no endpoint while the kernel goes from one state to the next.
    fn lost(&self, before: &FakeTable, after: &FakeTable) -> Vec<String> {
        let lists = self.lists.iter();
        let lists = lists.filter_map(|frontend| lost(before, after, frontend));
        let outside = self.outside.iter();
        let outside = outside.filter_map(|frontend| lost_from_outside(before, after, frontend));
        lists.chain(outside).collect()
    }
}

/// Frontends that have to be served at every moment, and what was seen when they were not.
#[derive(Default)]
struct Watch {
    must: PerFamily<Served>,
    /// Those that have to be served as soon as packets enter our chains.
    once_entered: PerFamily<Served>,
    broken: Vec<String>,
}

pub struct OwnTableRig {
    pub tables: FakeTables,
    pub engine: Engine,
    /// Whether the kernel says which element it refuses, as new ones do.
    pub names_elements: bool,
    /// Steps have at most so many elements, or all of one service.
    step_elements: usize,
    seeded: Seeded,
    pub now: Duration,
    pub reports: Vec<Report>,
    watch: Arc<Mutex<Watch>>,
}

impl OwnTableRig {
    pub fn new(tables: FakeTables, cluster: &Cluster) -> OwnTableRig {
        OwnTableRig::seeded(tables, cluster, 10_000, Seeded::default())
    }

    pub fn seeded(
        tables: FakeTables,
        cluster: &Cluster,
        step_elements: usize,
        seeded: Seeded,
    ) -> OwnTableRig {
        let config = EngineConfig {
            backend: Backend::OwnTable,
            step_services: 3,
            step_elements,
            seed: 11,
            ..EngineConfig::default()
        };
        let host = Host {
            families: PerFamily::from_fn(|_| Some(super::rig::CAPABILITIES)),
            invalid: InvalidPackets::Dropped,
        };
        let engine = Engine::seeded(
            cluster.settings.clone(),
            cluster.facts.clone(),
            &host,
            &config,
            seeded,
        );
        let watch = Arc::new(Mutex::new(Watch::default()));
        let mut tables = tables;
        let witness = watch.clone();
        tables.watch(Box::new(move |family, before, after| {
            let mut watch = witness.lock().unwrap();
            let must = watch.must.get(family);
            let mut broken = before.map(|before| must.lost(before, after)).unwrap_or_default();
            broken.extend(half_configured(before, after));
            let entered = |table: &FakeTable| {
                let chain = table.chains.get(&Name::new("nat-prerouting"));
                chain.is_some_and(|chain| !chain.rules.is_empty())
            };
            if entered(after) {
                broken.extend(watch.once_entered.get(family).lost(after, after));
            }
            watch.broken.extend(broken);
        }));
        let mut rig = OwnTableRig {
            tables,
            engine,
            names_elements: true,
            step_elements,
            seeded,
            now: Duration::from_secs(1),
            reports: Vec::new(),
            watch,
        };
        rig.list(cluster);
        rig
    }

    fn list(&mut self, cluster: &Cluster) {
        for kind in [Kind::Node, Kind::Service, Kind::Slice] {
            let objects = cluster.objects().into_iter();
            let objects = objects.filter(|object| object.kind() == kind).collect();
            self.hear(Heard::Objects(Change::ReplaceAll { kind, objects }));
            self.engine.handle(Event::Listed(kind), self.now);
        }
    }

    /// A new process on the same kernel.
    pub fn restart(self, cluster: &Cluster) -> OwnTableRig {
        let mut next = OwnTableRig::seeded(self.tables, cluster, self.step_elements, self.seeded);
        next.names_elements = self.names_elements;
        next.now = self.now + Duration::from_secs(2);
        next
    }

    pub fn hear(&mut self, heard: Heard) {
        let event = match heard {
            Heard::Objects(change) => Event::Changed(change),
            Heard::Facts(facts) => Event::Facts(facts),
        };
        self.engine.handle(event, self.now);
    }

    /// What is served both by what is wanted now and by all that was wanted since the last [`OwnTableRig::watch_only`]
    /// has to be served from now on.
    pub fn watch_also(&mut self, cluster: &Cluster) {
        let mut watch = self.watch.lock().unwrap();
        for family in Family::ALL {
            let served = served(&desired(cluster, family));
            let must = watch.must.get_mut(family);
            must.lists.retain(|frontend| served.lists.contains(frontend));
            must.outside.retain(|frontend| served.outside.contains(frontend));
        }
    }

    /// What is wanted now is there, and has to be served from now on.
    pub fn watch_only(&mut self, cluster: &Cluster) {
        let mut watch = self.watch.lock().unwrap();
        watch.must = PerFamily::from_fn(|family| served(&desired(cluster, family)));
    }

    pub fn watch_nothing(&mut self) {
        self.watch.lock().unwrap().must = PerFamily::default();
    }

    /// What is wanted now has to be served as soon as packets enter our chains.
    pub fn must_be_whole_when_entered(&mut self, cluster: &Cluster) {
        let mut watch = self.watch.lock().unwrap();
        watch.once_entered = PerFamily::from_fn(|family| served(&desired(cluster, family)));
    }

    pub fn take_broken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.watch.lock().unwrap().broken)
    }

    /// Does everything there is to do now. Gives the number of effects.
    pub fn work(&mut self) -> usize {
        self.effects(usize::MAX)
    }

    /// Does so much of it at most.
    pub fn effects(&mut self, most: usize) -> usize {
        let mut effects = 0;
        for round in 0.. {
            assert!(round < 20_000, "the engine finds no end");
            let before = effects;
            for family in Family::ALL {
                if effects >= most {
                    break;
                }
                if let Some(effect) = self.engine.next(family, self.now) {
                    effects += 1;
                    let answer = self.carry_out(family, effect);
                    self.now += Duration::from_millis(5);
                    self.engine.handle(Event::Answer(family, answer), self.now);
                }
            }
            let due = |family: &Family| self.engine.wake_at(*family).is_some_and(|at| at <= self.now);
            if effects >= most || effects == before && !Family::ALL.iter().any(due) {
                break;
            }
        }
        self.reports.extend(self.engine.take_reports());
        effects
    }

    fn carry_out(&mut self, family: Family, effect: Effect) -> Answer {
        match effect {
            Effect::NftCommit(step) => match self.tables.commit(family, &step) {
                Ok(()) => Answer::Committed,
                Err(refusal) => {
                    let failure = Failure {
                        cause: match refusal.errno {
                            Errno::ENOBUFS => Cause::Host,
                            _ => Cause::Content,
                        },
                        text: format!("{refusal:?}"),
                    };
                    match refusal.element.filter(|_| self.names_elements) {
                        Some(element) => Answer::NftRefused(failure, element),
                        None => Answer::CommitFailed(failure),
                    }
                }
            },
            Effect::NftObserve(reading) => {
                Answer::NftObserved(Box::new(self.tables.observe(family, &reading)))
            }
            other => panic!("not of this mode: {other:?}"),
        }
    }

    /// Somebody else changes a family's table, and the kernel tells of it as it does.
    pub fn stranger(&mut self, family: Family, does: impl FnOnce(&mut Option<FakeTable>)) {
        let before = self.tables.table(family).cloned();
        does(self.tables.table_mut(family));
        let after = self.tables.table(family);
        let foreign = told(before.as_ref(), after);
        self.engine.handle(Event::NftDisturbed(family, foreign), self.now);
    }

    /// Lets the time go by.
    pub fn pass(&mut self, how_long: Duration) {
        let until = self.now + how_long;
        while self.now < until {
            self.work();
            self.now += Duration::from_millis(50);
        }
        self.work();
    }

    /// Works and waits until nothing is pending, then until nothing waits for packets on their way.
    pub fn settle(&mut self) -> Result<(), String> {
        let deadline = self.now + Duration::from_mins(10);
        let mut quiet = 0;
        loop {
            self.work();
            let pending = |family: &Family| self.engine.status(*family).unwrap().pending_since.is_some();
            if !Family::ALL.iter().any(pending) {
                quiet += 1;
                self.now += Duration::from_secs(5);
                if quiet > 3 {
                    return Ok(());
                }
                continue;
            }
            quiet = 0;
            if self.now > deadline {
                return Err(format!("never settled: {:?}", self.reports.last()));
            }
            let next = Family::ALL
                .iter()
                .filter_map(|family| self.engine.wake_at(*family))
                .min();
            self.now = next
                .unwrap_or(self.now)
                .max(self.now + Duration::from_millis(100));
        }
    }

    /// Nothing is there that would not be made from scratch, whatever may be missing.
    pub fn compare_what_is_too_much(&self, cluster: &Cluster) -> Result<(), String> {
        for family in Family::ALL {
            let table = self.tables.table(family).ok_or("no table")?;
            let (_, want) = build::parts(&desired(cluster, family));
            let (have, want) = (Meant::of(&table.elements), Meant::of(&want));
            if !have.is_within(&want) {
                return Err(format!("{family}: {}", have.difference(&want)));
            }
        }
        Ok(())
    }

    /// What is there is what would be made from scratch, but for which endpoint is in which slot.
    pub fn compare(&self, cluster: &Cluster) -> Result<(), String> {
        for family in Family::ALL {
            let desired = desired(cluster, family);
            let (shapes, want) = build::parts(&desired);
            let table = self.tables.table(family).ok_or("no table")?;
            let (have, want) = (Meant::of(&table.elements), Meant::of(&want));
            if have != want {
                return Err(format!("{family}: {}", have.difference(&want)));
            }
            let frame = build::frame(&desired.node, &shapes, &[]);
            let held = nftables::step::Held {
                sets: table.sets.keys().cloned().collect(),
                chains: table
                    .chains
                    .iter()
                    .map(|(name, chain)| (name.clone(), Some(chain.rules.clone())))
                    .collect(),
            };
            // Shapes that were needed once stay, and their rules with them.
            let missing = frame.chains.iter().find(|chain| {
                let have = held.chains.get(&chain.name).and_then(Option::as_ref);
                have.is_none_or(|have| !chain.rules.iter().all(|rule| have.contains(rule)))
            });
            if let Some(chain) = missing {
                return Err(format!("{family}: chain {} lacks rules", chain.name));
            }
        }
        Ok(())
    }
}

/// What notifications say of a change.
fn told(before: Option<&FakeTable>, after: Option<&FakeTable>) -> Foreign {
    let mut foreign = Foreign {
        by: Some("nft (pid 4711)".into()),
        ..Foreign::default()
    };
    let (Some(before), Some(after)) = (before, after) else {
        foreign.extent = ForeignExtent::Gone;
        return foreign;
    };
    let all: BTreeSet<&ElementKey> = before.elements.keys().chain(after.elements.keys()).collect();
    for key in all {
        let now = after.elements.get(key);
        if before.elements.get(key) != now {
            foreign.elements.insert(key.clone(), now.cloned());
        }
    }
    if (&before.sets, &before.chains) != (&after.sets, &after.chains) {
        foreign.extent = ForeignExtent::Frame;
    }
    foreign
}

pub fn desired(cluster: &Cluster, family: Family) -> Desired {
    Desired::from_snapshot(&cluster.snapshot(), family, &cluster.facts, &cluster.settings).0
}

/// The frontends that have endpoints.
fn served(desired: &Desired) -> Served {
    let mut all = Served::default();
    for service in desired.services.values() {
        let slots = build::place(&ServiceSlots::new(), service);
        let elements = build::service(service, &slots);
        let mut lists = BTreeSet::new();
        for key in elements.keys() {
            let form = names::form_of(key.set.as_str()).unwrap();
            if let (Some(kind), Role::Slot(_) | Role::Bucket(_)) = (form.kind, form.role) {
                lists.insert((kind, key.key.clone()));
            }
        }
        let is_there = |key: &ElementKey| elements.contains_key(key);
        let outside = build::frontends(service).into_iter();
        let outside = outside.filter(|frontend| lists.contains(&list_from_outside(frontend, is_there)));
        all.outside.extend(outside);
        all.lists.extend(lists);
    }
    all
}

/// The list that clients from outside are sent to.
fn list_from_outside((kind, key): &Frontend, is_there: impl Fn(&ElementKey) -> bool) -> Frontend {
    let policy_local = ElementKey {
        set: kind.policy_local(),
        key: key.clone(),
    };
    let list = match kind {
        Lists::Service if is_there(&policy_local) => Lists::ServiceLocal,
        Lists::NodePort if is_there(&policy_local) => Lists::NodePortLocal,
        other => *other,
    };
    (list, key.clone())
}

/// Frontends that have come to be looked for and of which no slot or bucket is taken.
fn half_configured(before: Option<&FakeTable>, table: &FakeTable) -> Vec<String> {
    let mut broken = Vec::new();
    let is_new = |key: &&ElementKey| before.is_none_or(|before| !before.elements.contains_key(*key));
    for key in table.elements.keys().filter(is_new) {
        let Some(form) = names::form_of(key.set.as_str()) else {
            continue;
        };
        let Some(kind) = form.kind else {
            continue;
        };
        let sets: Vec<Name> = match form.role {
            Role::Within(bound, _) => (0..bound.get()).map(|slot| kind.slot(slot)).collect(),
            Role::Hashed => (0..BUCKETS).map(|bucket| kind.bucket(bucket)).collect(),
            _ => continue,
        };
        let is_taken = |set| {
            let key = key.key.clone();
            table.elements.contains_key(&ElementKey { set, key })
        };
        if !sets.into_iter().any(is_taken) {
            broken.push(format!("{key:?} is looked for and has no endpoint"));
        }
    }
    broken
}

/// The same for a packet from outside, for which `policy-local` is looked into first.
fn lost_from_outside(before: &FakeTable, after: &FakeTable, frontend: &Frontend) -> Option<String> {
    let list_in = |table: &FakeTable| list_from_outside(frontend, |key| table.elements.contains_key(key));
    let late = lost(after, after, &list_in(after));
    late.or_else(|| lost(before, after, &list_in(before)))
}
