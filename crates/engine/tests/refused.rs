//! A service that the kernel refuses again and again waits by itself: everything else is in, and goes on at once.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use engine::{Answer, Cause, Effect, Engine, EngineConfig, Event, Failure, Host};
use iptables::build::InvalidPackets;
use iptables::diff::observe::{Observation, Reading};
use kernel::fake::FakeKernel;
use kernel::{RuleKernel, Scope};
use model::object::{Kind, Object};
use model::snapshot::Change;
use model::{Family, PerFamily, ServiceName};
use std::time::Duration;
use support::cluster::Cluster;
use support::rig::CAPABILITIES;

/// One family of an engine, on a kernel that refuses every step with a certain service in it.
struct Refusing {
    engine: Engine,
    kernel: FakeKernel,
    refused: ServiceName,
    now: Duration,
    /// When each service's rules were written.
    written: Vec<(Duration, ServiceName)>,
    refusals: usize,
}

impl Refusing {
    fn new(cluster: &Cluster, refused: &ServiceName) -> Refusing {
        let host = Host {
            families: PerFamily {
                v4: Some(CAPABILITIES),
                v6: None,
            },
            invalid: InvalidPackets::Dropped,
        };
        let (settings, facts) = (cluster.settings.clone(), cluster.facts.clone());
        let mut engine = Engine::new(settings, facts, &host, &EngineConfig::default());
        for object in cluster.objects() {
            engine.handle(Event::Changed(Change::Apply(object)), Duration::ZERO);
        }
        for kind in [Kind::Service, Kind::Slice] {
            engine.handle(Event::Listed(kind), Duration::ZERO);
        }
        Refusing {
            engine,
            kernel: FakeKernel::new(kernel::Backend::NfTables),
            refused: refused.clone(),
            now: Duration::ZERO,
            written: Vec::new(),
            refusals: 0,
        }
    }

    fn run(&mut self, until: Duration) {
        loop {
            if let Some(effect) = self.engine.next(Family::V4, self.now) {
                let answer = self.carry_out(effect);
                self.now += Duration::from_millis(10);
                self.engine.handle(Event::Answer(Family::V4, answer), self.now);
                continue;
            }
            match self.engine.wake_at(Family::V4) {
                Some(wake) if wake <= until => self.now = self.now.max(wake),
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    fn carry_out(&mut self, effect: Effect) -> Answer {
        match effect {
            Effect::Commit(step) if step.services.contains(&self.refused) => {
                self.refusals += 1;
                Answer::CommitFailed(Failure {
                    cause: Cause::Content,
                    text: "refused".to_owned(),
                })
            }
            Effect::Commit(step) => {
                self.kernel.commit(Family::V4, &step).unwrap();
                let now = self.now;
                self.written
                    .extend(step.services.into_iter().map(|name| (now, name)));
                Answer::Committed
            }
            Effect::NftCommit(_) | Effect::NftObserve(_) => panic!("of nftables mode"),
            Effect::Observe { reading, .. } => {
                let mut observation = Observation::new(Family::V4);
                let scopes = match reading {
                    Reading::Everything => vec![Scope::Everything],
                    Reading::Chains(tables) => {
                        let scope = |(table, chains)| Scope::Chains(table, chains);
                        tables.into_iter().map(scope).collect()
                    }
                };
                for scope in scopes {
                    let mut record = |table, name, chain| observation.record(table, &name, &chain);
                    self.kernel.observe(Family::V4, &scope, &mut record).unwrap();
                }
                Answer::Observed {
                    generation: self.kernel.generation().unwrap(),
                    observation: Box::new(observation),
                }
            }
        }
    }
}

#[test]
fn everything_else_is_in_and_a_change_waits_for_nobody_after_an_hour_of_refusals() {
    let mut cluster = Cluster::new(5);
    for _ in 0..20 {
        cluster.add_service();
        cluster.add_slice();
    }
    let mut names = cluster
        .services
        .values()
        .filter(|service| service.cluster_ips.v4.is_some() && &*service.name.namespace != "default")
        .map(|service| service.name.clone());
    let (refused, other) = (names.next().unwrap(), names.next().unwrap());
    drop(names);
    let mut refusing = Refusing::new(&cluster, &refused);
    refusing.run(Duration::from_mins(1));
    let status = refusing.engine.status(Family::V4).unwrap();
    assert!(status.last_full_sync.is_some(), "{status:?}");
    let items: Vec<_> = refusing
        .engine
        .refused(Family::V4)
        .filter_map(|item| item.service())
        .collect();
    assert_eq!(items, [&refused]);

    refusing.run(Duration::from_hours(1));
    // Its waits grow to the sync period, and looks find nothing new about it.
    assert!(
        (60..300).contains(&refusing.refusals),
        "{} refusals",
        refusing.refusals
    );
    let begun = refusing.now;
    let mut service = cluster.services[&other].clone();
    let mut ports = service.ports.to_vec();
    ports[0].port += 1;
    service.ports = ports.into_boxed_slice();
    let change = Change::Apply(Object::Service(Box::new(service)));
    refusing.engine.handle(Event::Changed(change), begun);
    refusing.run(begun + Duration::from_mins(2));
    let written = refusing
        .written
        .iter()
        .find(|(at, name)| *at >= begun && *name == other);
    let waited = written.map(|(at, _)| at.saturating_sub(begun));
    assert!(
        waited.is_some_and(|waited| waited < Duration::from_secs(2)),
        "{waited:?}"
    );
}
