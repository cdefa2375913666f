//! An engine on a kernel in memory, with time that stands still until somebody moves it.

use super::check::{self, Addresses};
use super::cluster::{Cluster, Heard};
use engine::fault::Seeded;
use engine::{Answer, Backend, Cause, Effect, Engine, EngineConfig, Event, Failure, Host, Report};
use iptables::ast::Ports;
use iptables::build::{BuildContext, Capabilities, EndpointComments, InvalidPackets, Nfacct};
use iptables::diff::observe::{Observation, Reading};
use kernel::fake::{FakeKernel, Journal};
use kernel::{FailureKind, LiesIn, RuleKernel, Scope};
use model::object::Kind;
use model::snapshot::Change;
use model::{Desired, Family, PerFamily};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What tool and kernel can do in these tests.
pub const CAPABILITIES: Capabilities = Capabilities {
    masquerade_ports: Ports::RandomFully,
    nfacct: Nfacct::Present,
};

/// Addresses that must be answered at every moment, and what was seen when they were not.
#[derive(Default)]
struct Watch {
    must: PerFamily<Addresses>,
    broken: Vec<String>,
}

pub struct Rig {
    pub kernel: FakeKernel,
    pub engine: Engine,
    pub now: Duration,
    pub reports: Vec<Report>,
    config: EngineConfig,
    seeded: Seeded,
    watch: Arc<Mutex<Watch>>,
    /// How long each effect takes.
    pub effect_takes: Duration,
    /// Changes that are heard while a step is on its way, one for each step.
    pub meanwhile: VecDeque<Heard>,
}

impl Rig {
    /// An engine that has been given all objects, on an empty kernel.
    pub fn new(cluster: &Cluster, backend: Backend, seeded: Seeded) -> Rig {
        let kernel = FakeKernel::new(match backend {
            Backend::NfTables => kernel::Backend::NfTables,
            Backend::Legacy => kernel::Backend::Legacy,
            Backend::OwnTable => panic!("nftables mode has a rig of its own"),
        });
        let config = EngineConfig {
            backend,
            step_services: 3,
            seed: 11,
            ..EngineConfig::default()
        };
        Rig::on(kernel, cluster, config, seeded)
    }

    /// On a kernel that holds something, with the steps and pace of the daemon.
    pub fn on_host(kernel: FakeKernel, cluster: &Cluster) -> Rig {
        let backend = match kernel.backend() {
            kernel::Backend::NfTables => Backend::NfTables,
            kernel::Backend::Legacy => Backend::Legacy,
        };
        let config = EngineConfig {
            backend,
            ..EngineConfig::default()
        };
        Rig::on(kernel, cluster, config, Seeded::default())
    }

    /// An engine that has heard of objects, but not that these are all.
    pub fn unlisted(kernel: FakeKernel, cluster: &Cluster) -> Rig {
        let mut rig = Rig::bare(
            kernel,
            cluster,
            EngineConfig::default(),
            Seeded::default(),
            &Family::ALL,
        );
        for object in cluster.objects() {
            rig.hear(Heard::Objects(Change::Apply(object)));
        }
        rig
    }

    /// On a host with one family.
    pub fn single(kernel: FakeKernel, cluster: &Cluster, family: Family) -> Rig {
        let mut rig = Rig::bare(
            kernel,
            cluster,
            EngineConfig::default(),
            Seeded::default(),
            &[family],
        );
        rig.list(cluster);
        rig
    }

    fn on(kernel: FakeKernel, cluster: &Cluster, config: EngineConfig, seeded: Seeded) -> Rig {
        let mut rig = Rig::bare(kernel, cluster, config, seeded, &Family::ALL);
        rig.list(cluster);
        rig
    }

    fn bare(
        mut kernel: FakeKernel,
        cluster: &Cluster,
        config: EngineConfig,
        seeded: Seeded,
        families: &[Family],
    ) -> Rig {
        let watch = Arc::new(Mutex::new(Watch::default()));
        let witness = watch.clone();
        kernel.watch(Box::new(move |family, ruleset| {
            let mut watch = witness.lock().unwrap();
            let broken = check::unanswered(ruleset, watch.must.get(family));
            watch
                .broken
                .extend(broken.into_iter().map(|text| format!("{family}: {text}")));
        }));
        let host = Host {
            families: PerFamily::from_fn(|family| families.contains(&family).then_some(CAPABILITIES)),
            invalid: InvalidPackets::Dropped,
        };
        let engine = Engine::seeded(
            cluster.settings.clone(),
            cluster.facts.clone(),
            &host,
            &config,
            seeded,
        );
        Rig {
            kernel,
            engine,
            now: Duration::from_secs(1),
            reports: Vec::new(),
            config,
            seeded,
            watch,
            effect_takes: Duration::from_millis(20),
            meanwhile: VecDeque::new(),
        }
    }

    fn list(&mut self, cluster: &Cluster) {
        for kind in [Kind::Node, Kind::Service, Kind::Slice] {
            let objects = cluster
                .objects()
                .into_iter()
                .filter(|object| object.kind() == kind)
                .collect();
            self.hear(Heard::Objects(Change::ReplaceAll { kind, objects }));
            self.engine.handle(Event::Listed(kind), self.now);
        }
    }

    /// A new process on the same kernel.
    pub fn restart(self, cluster: &Cluster) -> Rig {
        let mut next = Rig::on(self.kernel, cluster, self.config, self.seeded);
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

    /// From now on, and at every moment, what is answered both by what is wanted now and by all that was wanted since
    /// the last [`Rig::watch_only`] has to be answered.
    pub fn watch_also(&mut self, cluster: &Cluster) {
        let mut watch = self.watch.lock().unwrap();
        for family in Family::ALL {
            let (desired, _) =
                Desired::from_snapshot(&cluster.snapshot(), family, &cluster.facts, &cluster.settings);
            watch
                .must
                .get_mut(family)
                .keep_common(&Addresses::answered(&desired));
        }
    }

    /// What is wanted now is in the kernel, and has to be answered from now on.
    pub fn watch_only(&mut self, cluster: &Cluster) {
        let mut watch = self.watch.lock().unwrap();
        for family in Family::ALL {
            let (desired, _) =
                Desired::from_snapshot(&cluster.snapshot(), family, &cluster.facts, &cluster.settings);
            *watch.must.get_mut(family) = Addresses::answered(&desired);
        }
    }

    pub fn watch_nothing(&mut self) {
        self.watch.lock().unwrap().must = PerFamily::default();
    }

    /// Moments at which an address was not answered that had to be.
    pub fn take_broken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.watch.lock().unwrap().broken)
    }

    /// Does everything there is to do now. Gives the number of effects.
    pub fn work(&mut self) -> usize {
        let mut effects = 0;
        for round in 0.. {
            assert!(round < 20_000, "the engine finds no end");
            let before = effects;
            for family in Family::ALL {
                if let Some(effect) = self.engine.next(family, self.now) {
                    effects += 1;
                    let answer = self.carry_out(family, effect);
                    if let Some(heard) = self.meanwhile.pop_front() {
                        self.hear(heard);
                    }
                    self.now += self.effect_takes;
                    self.engine.handle(Event::Answer(family, answer), self.now);
                }
            }
            let due = Family::ALL
                .iter()
                .any(|family| self.engine.wake_at(*family).is_some_and(|at| at <= self.now));
            if effects == before && !due {
                break;
            }
        }
        self.reports.extend(self.engine.take_reports());
        effects
    }

    /// Works and waits until nothing is pending in these families; gives up after `patience`.
    pub fn settle_within(&mut self, families: &[Family], patience: Duration) -> Result<(), String> {
        let deadline = self.now + patience;
        loop {
            self.work();
            let pending = families
                .iter()
                .any(|family| self.engine.status(*family).unwrap().pending_since.is_some());
            if !pending {
                let Some(heard) = self.meanwhile.pop_front() else {
                    return Ok(());
                };
                self.hear(heard);
                continue;
            }
            let wake = families
                .iter()
                .filter_map(|family| self.engine.wake_at(*family))
                .min();
            match wake {
                Some(at) if at <= deadline => self.now = self.now.max(at),
                _ => {
                    let status = Family::ALL.map(|family| self.engine.status(family));
                    let reports = self.last_reports();
                    let now = self.now;
                    return Err(format!(
                        "{now:?}: not in sync after {patience:?}: {status:#?} {reports:#?}"
                    ));
                }
            }
        }
    }

    pub fn settle(&mut self) -> Result<(), String> {
        self.settle_within(&Family::ALL, Duration::from_mins(10))
    }

    /// Lets time pass, doing what falls due.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.work();
            let wake = Family::ALL
                .iter()
                .filter_map(|family| self.engine.wake_at(*family))
                .min();
            match wake {
                Some(at) if at <= until => self.now = self.now.max(at),
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    pub fn last_reports(&self) -> Vec<&Report> {
        let from = self.reports.len().saturating_sub(6);
        self.reports[from..].iter().collect()
    }

    /// The steps that were carried out since the journal was last cleared.
    pub fn steps(&self) -> Vec<(Family, &iptables::plan::Step)> {
        let commits = self.kernel.journal().iter().filter_map(|entry| match entry {
            Journal::Commit { family, step, .. } => Some((*family, step)),
            Journal::Observe { .. } => None,
        });
        commits.collect()
    }

    /// Whether the kernel holds what the objects say, compared with what is built from scratch.
    pub fn compare(&self, cluster: &Cluster, family: Family) -> Result<(), String> {
        let (desired, _) =
            Desired::from_snapshot(&cluster.snapshot(), family, &cluster.facts, &cluster.settings);
        let context = BuildContext {
            capabilities: CAPABILITIES,
            endpoint_comments: EndpointComments::Kept,
            invalid: InvalidPackets::Dropped,
        };
        let want = iptables::build::ruleset(&desired, &context);
        check::same(&want, self.kernel.ruleset(family)).map_err(|text| format!("{family}: {text}"))?;
        let (want, counted) = (check::rules_owned(&want), self.engine.status(family));
        match counted {
            Some(status) if status.rules != want => Err(format!(
                "{family}: counted {:?}, there are {want:?}",
                status.rules
            )),
            _ => Ok(()),
        }
    }

    pub fn compare_both(&self, cluster: &Cluster) -> Result<(), String> {
        Family::ALL
            .iter()
            .try_for_each(|family| self.compare(cluster, *family))
    }

    fn carry_out(&mut self, family: Family, effect: Effect) -> Answer {
        match effect {
            Effect::Commit(step) => match self.kernel.commit(family, &step) {
                Ok(()) => Answer::Committed,
                Err(error) => Answer::CommitFailed(failure(error.kind, &error)),
            },
            Effect::Observe { reading, unless } => self.observe(family, &reading, unless),
            Effect::NftCommit(_) | Effect::NftObserve(_) => panic!("nftables mode has a rig of its own"),
        }
    }

    fn observe(&mut self, family: Family, reading: &Reading, unless: Option<u32>) -> Answer {
        let generation = self.kernel.generation().unwrap();
        if unless.is_some() && unless == generation {
            return Answer::Unchanged;
        }
        let mut observation = Observation::new(family);
        for scope in scopes(reading) {
            let result = self.kernel.observe(family, &scope, &mut |table, name, chain| {
                observation.record(table, &name, &chain);
            });
            if let Err(error) = result {
                return Answer::ObserveFailed(failure(error.kind, &error));
            }
        }
        Answer::Observed {
            generation,
            observation: Box::new(observation),
        }
    }
}

fn scopes(reading: &Reading) -> Vec<Scope> {
    match reading {
        Reading::Everything => vec![Scope::Everything],
        Reading::Chains(tables) => tables
            .iter()
            .map(|(table, chains)| Scope::Chains(*table, chains.clone()))
            .collect(),
    }
}

fn failure(kind: FailureKind, error: &dyn std::fmt::Display) -> Failure {
    let cause = match kind.lies_in() {
        LiesIn::Host => Cause::Host,
        LiesIn::Busy => Cause::Busy,
        LiesIn::Content => Cause::Content,
        LiesIn::Size => Cause::Size,
    };
    Failure {
        cause,
        text: error.to_string(),
    }
}
