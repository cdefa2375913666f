//! The loop that feeds the engine and hands out its effects.
//!
//! ```text
//! source ──► events ──► engine ──► effects ──► worker of each family ──► answers ──┐
//!                         ▲ addresses, time                                        │
//!                         └────────────────────────────────────────────────────────┘
//! ```

use crate::carry_out::Worker;
use crate::flows::Flows;
use crate::node::{Missing, facts, missing};
use crate::serve::Serving;
use crate::{Out, ProxyError, ProxyOptions, Task, host, tell};
use cluster::SourceEvent;
use engine::{Answer, Disturbance, Engine, EngineConfig, Event};
use kernel::LiveKernel;
use model::object::Kind;
use model::snapshot::{Change, Snapshot};
use model::{Family, NodeFacts, PerFamily};
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Changes a source may be ahead.
const AHEAD: usize = 512;
/// How long the Node is waited for, and its pod CIDR after that (control.md 3.3).
const NODE_PATIENCE: Duration = Duration::from_secs(30);
const POD_CIDR_PATIENCE: Duration = Duration::from_mins(5);
/// How often the host's addresses are looked at.
const ADDRESSES_PERIOD: Duration = Duration::from_secs(5);
/// Changes that are taken in at once before effects are looked for.
const AT_ONCE: usize = 256;

/// What came until the Node was known.
struct Early {
    snapshot: Snapshot,
    listed: Vec<Kind>,
}

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
    let mut control = Control::new(options, &found, early, serving)?;
    control.serve(events).await;
    Ok(())
}

/// Takes in what the source says until the Node is there with what the configuration needs of it.
///
/// Objects that come meanwhile are kept; no rule is written.
async fn wait_for_node(
    options: &ProxyOptions,
    events: &mut Receiver<SourceEvent>,
    serving: &Serving,
) -> Result<Early, ProxyError> {
    let mut early = Early {
        snapshot: Snapshot::new(),
        listed: Vec::new(),
    };
    let start = Instant::now();
    loop {
        let listed = early.listed.contains(&Kind::Node);
        let lacks = missing(options, &early.snapshot);
        let from_files = matches!(options.from, crate::From::Manifests(_));
        // The time to wait begins when the server has answered; without an answer there is nothing to decide on.
        let patience = match lacks {
            None if listed => return Ok(early),
            Some(Missing::PodCidr) => NODE_PATIENCE + POD_CIDR_PATIENCE,
            _ => NODE_PATIENCE,
        };
        let files_are_read = from_files && early.listed.contains(&Kind::Service) && listed;
        if listed && (start.elapsed() >= patience || files_are_read) {
            return without_node(options, lacks, early);
        }
        let deadline = if listed {
            start + patience
        } else {
            Instant::now() + NODE_PATIENCE
        };
        match timeout_at(deadline, events.recv()).await {
            Ok(Some(event)) => {
                serving.source(&event);
                early.take(event);
            }
            Ok(None) => return Ok(early),
            Err(_) => tracing::warn!(node = %options.node_name, "still waiting for the Node"),
        }
    }
}

fn without_node(options: &ProxyOptions, lacks: Option<Missing>, early: Early) -> Result<Early, ProxyError> {
    let node = &options.node_name;
    match lacks {
        Some(Missing::Node) if options.config.detect_local_mode == "NodeCIDR" => {
            Err(ProxyError::NoPodCidr(format!("node {node:?} to exist")))
        }
        Some(Missing::PodCidr) => Err(ProxyError::NoPodCidr(format!(
            "PodCIDR allocation on node {node:?}"
        ))),
        Some(Missing::Node) => {
            tracing::error!(%node, "there is no Node of this name: no endpoint counts as local. Give --hostname-override");
            Ok(early)
        }
        Some(Missing::Addresses) => {
            tracing::error!(%node, "the Node has no addresses; going on with loopback ones");
            Ok(early)
        }
        None => Ok(early),
    }
}

impl Early {
    fn take(&mut self, event: SourceEvent) {
        tell::source(&event);
        match event {
            SourceEvent::Change(change) => drop(self.snapshot.apply(change)),
            SourceEvent::Synced(kind) if !self.listed.contains(&kind) => self.listed.push(kind),
            _ => {}
        }
    }

    /// All that came, as the events it would have been.
    fn replay(self) -> Vec<Event> {
        let Early { snapshot, listed } = self;
        let mut events: Vec<Event> = snapshot
            .into_objects()
            .map(|object| Event::Changed(Change::Apply(object)))
            .collect();
        events.extend(listed.into_iter().map(Event::Listed));
        events
    }
}

struct Control {
    options: ProxyOptions,
    engine: Engine,
    workers: PerFamily<Option<Worker>>,
    answers: UnboundedReceiver<(Family, Answer)>,
    disturbances: UnboundedReceiver<(Family, Disturbance)>,
    addresses: Vec<IpAddr>,
    flows: Flows,
    /// Changes of a reading of files that is not over; `None` for a source whose changes stand for themselves.
    ///
    /// A Service and its slices come one after the other, even out of one file. Rules for the first alone would refuse
    /// what the second serves.
    unread: Option<Vec<Change>>,
    start: Instant,
    serving: Serving,
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
        let settings = config::settings(&options.config, &facts);
        let (sync_period, min_sync) = options.config.sync_periods();
        let config = EngineConfig {
            backend: match found.probe.backend {
                kernel::Backend::NfTables => engine::Backend::NfTables,
                kernel::Backend::Legacy => engine::Backend::Legacy,
            },
            min_sync: min_sync.to_std(),
            sync_period: sync_period.to_std(),
            seed: u64::from(std::process::id()),
            ..EngineConfig::default()
        };
        let flows = Flows::new(options.tcp, settings.clone(), serving.clone());
        let mut engine = Engine::new(settings, facts, &found.host, &config);
        for event in early.replay() {
            engine.handle(event, Duration::ZERO);
        }
        let (answers_in, answers) = unbounded_channel();
        let workers = PerFamily::from_fn(|family| worker(family, found, flows.proved(family), &answers_in));
        let from_files = matches!(options.from, crate::From::Manifests(_));
        Ok(Control {
            options,
            unread: from_files.then(Vec::new),
            engine,
            workers,
            answers,
            disturbances: disturbances(found),
            addresses,
            flows,
            start: Instant::now(),
            serving,
        })
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    async fn serve(&mut self, mut events: Receiver<SourceEvent>) {
        let mut look = Instant::now() + ADDRESSES_PERIOD;
        let mut batch = Vec::with_capacity(AT_ONCE);
        loop {
            self.hand_out();
            let wake = self.wake_at().unwrap_or(look).min(look);
            tokio::select! {
                count = events.recv_many(&mut batch, AT_ONCE) => {
                    if count == 0 {
                        return;
                    }
                    batch.drain(..).for_each(|event| self.take(event));
                }
                Some((family, answer)) = self.answers.recv() => {
                    let now = self.now();
                    self.serving.answered(family);
                    self.engine.handle(Event::Answer(family, answer), now);
                }
                Some((family, disturbance)) = self.disturbances.recv() => {
                    let now = self.now();
                    self.engine.handle(Event::Disturbed(family, disturbance), now);
                }
                () = sleep_until(wake) => {
                    if Instant::now() >= look {
                        self.look_at_addresses();
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
                worker.give(effect);
            }
        }
        let now = self.now();
        for report in self.engine.take_reports() {
            self.serving.report(&report);
            self.flows.report(&report, &self.engine);
            tell::report(report, now);
        }
        self.serving.look(&self.engine, now);
    }

    fn wake_at(&self) -> Option<Instant> {
        let wakes = Family::ALL
            .into_iter()
            .filter_map(|family| self.engine.wake_at(family));
        wakes.min().map(|at| self.start + at)
    }

    fn take(&mut self, event: SourceEvent) {
        self.serving.source(&event);
        tell::source(&event);
        match event {
            SourceEvent::Change(change) => match &mut self.unread {
                Some(unread) => unread.push(change),
                None => self.change(change),
            },
            SourceEvent::Synced(kind) => {
                let read = self.unread.as_mut().map(std::mem::take).unwrap_or_default();
                for change in read {
                    self.change(change);
                }
                let now = self.now();
                self.engine.handle(Event::Listed(kind), now);
            }
            _ => {}
        }
    }

    fn change(&mut self, change: Change) {
        let is_node = concerns_node(&change);
        let now = self.now();
        self.engine.handle(Event::Changed(change), now);
        if is_node {
            self.tell_facts();
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
            // The last thing that a deleted Node said still holds (control.md 4.3).
            NodeFacts {
                interface_addresses: self.addresses.clone(),
                ..self.engine.facts().clone()
            }
        };
        let now = self.now();
        self.engine.handle(Event::Facts(facts), now);
        self.flows.node(&self.engine);
    }
}

fn worker(
    family: Family,
    found: &host::Found,
    proved: crate::flows::Proved,
    answers: &UnboundedSender<(Family, Answer)>,
) -> Option<Worker> {
    found.host.families.get(family).as_ref()?;
    Some(Worker::start(
        family,
        LiveKernel::new(found.probe.clone()),
        proved,
        answers.clone(),
    ))
}

/// What others do to the tables, where the kernel tells of it.
fn disturbances(found: &host::Found) -> UnboundedReceiver<(Family, Disturbance)> {
    let (out, disturbances) = unbounded_channel();
    if found.probe.backend == kernel::Backend::NfTables {
        crate::drift::watch(out);
    }
    disturbances
}

/// Whether a change is about a Node.
fn concerns_node(change: &Change) -> bool {
    match change {
        Change::Apply(object) => object.kind() == Kind::Node,
        Change::Delete(reference) => reference.kind() == Kind::Node,
        Change::ReplaceAll { kind, .. } => *kind == Kind::Node,
    }
}
