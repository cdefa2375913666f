//! The loop that feeds the engine and hands out its effects.
//!
//! ```text
//! source ──► events ──► engine ──► effects ──► worker of each family ──► answers ──┐
//!                         ▲ addresses, time                                        │
//!                         └────────────────────────────────────────────────────────┘
//! ```

use crate::carry_out::Worker;
use crate::events::Fact;
use crate::flows::Flows;
use crate::leftovers::Leftovers;
use crate::node::wait::{Early, wait_for_node};
use crate::node::{Node, facts};
use crate::port_conflicts::PortConflicts;
use crate::serve::{Looks, Seen, Serving};
use crate::thread::ThreadError;
use crate::{Out, ProxyError, ProxyOptions, Task, counting, host, own_table, start, tell};
use cluster::{Remembered, SourceEvent};
use engine::{Answer, Engine, EngineConfig, Event};
use kernel::probe::Probe;
use kernel::{LiveKernel, TableWatch};
use model::object::Kind;
use model::snapshot::Change;
use model::{Family, NodeFacts, PerFamily};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::time::{Instant, sleep_until};

/// Changes a source may be ahead.
const AHEAD: usize = 512;
/// How often the host's addresses are looked at, should the kernel not have told of a change.
const ADDRESSES_PERIOD: Duration = Duration::from_secs(5);
/// Changes that are taken in at once before effects are looked for.
const AT_ONCE: usize = 256;

/// Serves until the source ends, which it does not.
pub(crate) async fn serve(
    options: ProxyOptions,
    found: host::Found,
    source: Box<dyn FnOnce(Out) -> Task + Send>,
    serving: Serving,
) -> Result<(), ProxyError> {
    serving.host(&found.host);
    let (out, mut events) = channel(AHEAD);
    tokio::spawn(source(out));
    let early = wait_for_node(&options, &mut events, &serving).await?;
    start::check(&options, &early.snapshot, &found)?;
    let mut control = Control::new(options, &found, early, serving)?;
    control.serving.event(Fact::starting(control.serving.node()));
    control.serve(events).await
}

struct Control {
    options: ProxyOptions,
    engine: Engine,
    workers: PerFamily<Option<Worker>>,
    answers: UnboundedReceiver<(Family, Answer)>,
    disturbances: UnboundedReceiver<Event>,
    addresses: Vec<IpAddr>,
    addresses_changed: UnboundedReceiver<()>,
    node: Node,
    flows: Flows,
    leftovers: Leftovers,
    /// Changes of a reading of files that is not over; `None` for a source whose changes stand for themselves.
    ///
    /// A Service and its slices come one after the other, even out of one file. Rules for the first alone would refuse
    /// what the second serves.
    unread: Option<Vec<Change>>,
    start: Instant,
    serving: Serving,
    port_conflicts: PortConflicts,
    teller: tell::Teller,
    looks: Looks,
}

impl Control {
    fn new(
        options: ProxyOptions,
        found: &host::Found,
        early: Early,
        serving: Serving,
    ) -> Result<Control, ProxyError> {
        let addresses = host::addresses()?;
        let facts = facts(&options, &early.snapshot, addresses.clone());
        let node = Node::new(&options, &early.snapshot, &facts);
        let settings = node.settings().clone();
        let (sync_period, min_sync) = options.config.sync_periods();
        let config = EngineConfig {
            backend: match &found.way {
                host::Way::OwnTable => engine::Backend::OwnTable,
                host::Way::Tools(probe) if probe.backend == kernel::Backend::Legacy => {
                    engine::Backend::Legacy
                }
                host::Way::Tools(_) => engine::Backend::NfTables,
            },
            min_sync: min_sync.to_std(),
            sync_period: sync_period.to_std(),
            step_elements: own_table::step_elements(),
            // In a container the process is always number 1.
            seed: RandomState::new().hash_one(std::process::id()),
            ..EngineConfig::default()
        };
        let mut flows = Flows::new(options.tcp, settings.clone(), serving.clone());
        if early.remembered {
            flows.hold();
        }
        let port_conflicts = PortConflicts::start(serving.clone());
        let mut engine = Engine::new(settings, facts, &found.host, &config);
        for event in early.replay() {
            if let Event::Changed(change) = &event {
                serving.given(change, &engine);
            }
            engine.handle(event, Duration::ZERO);
        }
        let carrier = match &found.way {
            host::Way::OwnTable => tell::Carrier::Kernel,
            host::Way::Tools(_) => tell::Carrier::Tool,
        };
        let (answers_in, answers) = unbounded_channel();
        let served = PerFamily::from_fn(|family| found.host.families.get(family).is_some());
        counting::start(&found.way, served, &serving)?;
        let kernel_side = KernelSide::start(found, served, &flows, &serving, &answers_in)?;
        let from_files = matches!(options.from, crate::From::Manifests(_));
        Ok(Control {
            options,
            unread: from_files.then(Vec::new),
            engine,
            workers: kernel_side.workers,
            answers,
            disturbances: kernel_side.disturbances,
            addresses,
            addresses_changed: host::watch_addresses()?,
            node,
            flows,
            leftovers: kernel_side.leftovers,
            start: Instant::now(),
            looks: serving.looks(),
            serving,
            port_conflicts,
            teller: tell::Teller::new(carrier),
        })
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    async fn serve(&mut self, mut events: Receiver<SourceEvent>) -> Result<(), ProxyError> {
        let mut look = Instant::now() + ADDRESSES_PERIOD;
        let mut batch = Vec::with_capacity(AT_ONCE);
        loop {
            self.hand_out();
            let wake = self.wake_at().unwrap_or(look).min(look);
            tokio::select! {
                count = events.recv_many(&mut batch, AT_ONCE) => {
                    if count == 0 {
                        return Ok(());
                    }
                    batch.drain(..).try_for_each(|event| self.take(event))?;
                }
                Some((family, answer)) = self.answers.recv() => {
                    let now = self.now();
                    self.serving.answered(family);
                    self.teller.answered(family, now);
                    self.engine.handle(Event::Answer(family, answer), now);
                }
                Some(disturbed) = self.disturbances.recv() => {
                    let now = self.now();
                    self.engine.handle(disturbed, now);
                }
                Some(()) = self.addresses_changed.recv() => self.look_at_addresses(),
                look = self.looks.next() => {
                    // Whoever looked may have gone.
                    let _ = look.send(self.seen());
                }
                () = sleep_until(wake) => {
                    if Instant::now() >= look {
                        self.look_at_addresses();
                        self.port_conflicts.look(&self.engine, self.node.settings());
                        look = Instant::now() + ADDRESSES_PERIOD;
                    }
                }
            }
        }
    }

    /// Gives each family what it is to do next, and tells what there is to tell.
    fn hand_out(&mut self) {
        for family in Family::ALL {
            let now = self.now();
            if let Some(worker) = self.workers.get(family)
                && let Some(effect) = self.engine.next(family, now)
            {
                self.serving.began(family, &effect);
                self.teller.began(family, now);
                worker.give(effect);
            }
        }
        let now = self.now();
        for report in self.engine.take_reports() {
            self.serving.report(&report);
            self.flows.report(&report, &self.engine);
            self.port_conflicts.report(&report);
            self.teller.report(report, now);
        }
        self.teller.look(now);
        self.flows.look(&self.engine, now);
        self.leftovers.look(&self.engine);
        self.serving.look(&self.engine, now);
    }

    fn wake_at(&self) -> Option<Instant> {
        let wakes = Family::ALL
            .into_iter()
            .filter_map(|family| self.engine.wake_at(family));
        wakes.chain(self.teller.next()).min().map(|at| self.start + at)
    }

    fn take(&mut self, event: SourceEvent) -> Result<(), ProxyError> {
        self.serving.source(&event);
        tell::source(&event);
        match event {
            SourceEvent::Change(change) => match &mut self.unread {
                Some(unread) => unread.push(change),
                None => self.change(change)?,
            },
            SourceEvent::Synced(kind) => {
                let read = self.unread.as_mut().map(std::mem::take).unwrap_or_default();
                for change in read {
                    self.change(change)?;
                }
                let now = self.now();
                self.engine.handle(Event::Listed(kind), now);
            }
            SourceEvent::Together(changes) => self.changes(changes)?,
            SourceEvent::Remembered(Remembered::InUse { kinds, changes, .. }) => {
                self.flows.hold();
                self.changes(changes)?;
                let now = self.now();
                for kind in kinds {
                    self.engine.handle(Event::Listed(kind), now);
                }
            }
            SourceEvent::Remembered(Remembered::Over) => self.flows.release(&self.engine),
            _ => {}
        }
        Ok(())
    }

    fn changes(&mut self, changes: Vec<Change>) -> Result<(), ProxyError> {
        changes.into_iter().try_for_each(|change| self.change(change))
    }

    fn change(&mut self, change: Change) -> Result<(), ProxyError> {
        let is_node = concerns_node(&change);
        self.serving.given(&change, &self.engine);
        let now = self.now();
        self.engine.handle(Event::Changed(change), now);
        if is_node {
            self.node.look(&self.options, self.engine.snapshot())?;
            self.tell_facts();
        }
        Ok(())
    }

    /// A copy of what is known, for whoever looks.
    fn seen(&self) -> Seen {
        Seen {
            snapshot: self.engine.snapshot().clone(),
            facts: self.engine.facts().clone(),
            settings: self.node.settings().clone(),
        }
    }

    fn look_at_addresses(&mut self) {
        match host::addresses() {
            Ok(addresses) if addresses != self.addresses => {
                self.addresses = addresses;
                self.tell_facts();
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "this host's addresses stay as they were last read"),
        }
    }

    fn tell_facts(&mut self) {
        let snapshot = self.engine.snapshot();
        let facts = if snapshot.node(&self.options.node_name).is_some() {
            facts(&self.options, snapshot, self.addresses.clone())
        } else {
            // The last thing that a deleted Node said still holds, as upstream has it.
            NodeFacts {
                interface_addresses: self.addresses.clone(),
                ..self.engine.facts().clone()
            }
        };
        let now = self.now();
        if let Some(settings) = self.node.follow(&self.options, &facts) {
            self.flows.settings(settings.clone());
            self.engine.handle(Event::Settings(settings), now);
        }
        self.engine.handle(Event::Facts(facts), now);
        self.flows.node(&self.engine);
        self.serving.addresses(&self.engine);
    }
}

/// Who carries effects out, and who tells what others do.
struct KernelSide {
    workers: PerFamily<Option<Worker>>,
    disturbances: UnboundedReceiver<Event>,
    leftovers: Leftovers,
}

impl KernelSide {
    fn start(
        found: &host::Found,
        served: PerFamily<bool>,
        flows: &Flows,
        serving: &Serving,
        answers: &UnboundedSender<(Family, Answer)>,
    ) -> Result<KernelSide, ThreadError> {
        let probe = match &found.way {
            host::Way::OwnTable => return KernelSide::own_table(served, serving, answers),
            host::Way::Tools(probe) => probe,
        };
        let mut drift = crate::drift::start(probe.backend, served)?;
        let workers = workers(served, |family| {
            let kernel = LiveKernel::new(Probe::clone(probe)).keeping(serving.failed_inputs());
            let left = drift.left.get_mut(family).take();
            Worker::start(family, kernel, flows.proved(family), left, answers.clone())
        })?;
        Ok(KernelSide {
            workers,
            disturbances: drift.disturbances,
            leftovers: Leftovers::beside_iptables_mode(probe, served)?,
        })
    }

    fn own_table(
        served: PerFamily<bool>,
        serving: &Serving,
        answers: &UnboundedSender<(Family, Answer)>,
    ) -> Result<KernelSide, ThreadError> {
        // Before anything of iptables mode can go.
        crate::host_firewall::look(serving, served);
        let (out, disturbances) = unbounded_channel();
        crate::drift::watch::<TableWatch>(out)?;
        Ok(KernelSide {
            workers: workers(served, |family| own_table::worker(family, answers.clone()))?,
            disturbances,
            leftovers: Leftovers::beside_nftables_mode(served)?,
        })
    }
}

/// A worker for each family that is served.
fn workers(
    served: PerFamily<bool>,
    mut start: impl FnMut(Family) -> Result<Worker, ThreadError>,
) -> Result<PerFamily<Option<Worker>>, ThreadError> {
    let mut workers = PerFamily::default();
    for family in Family::ALL.into_iter().filter(|family| *served.get(*family)) {
        *workers.get_mut(family) = Some(start(family)?);
    }
    Ok(workers)
}

/// Whether a change is about a Node.
fn concerns_node(change: &Change) -> bool {
    match change {
        Change::Apply(object) => object.kind() == Kind::Node,
        Change::Delete(reference) => reference.kind() == Kind::Node,
        Change::ReplaceAll { kind, .. } => *kind == Kind::Node,
    }
}
