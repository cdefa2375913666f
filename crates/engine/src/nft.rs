//! One family's loop in nftables mode.
//!
//! ```text
//!            +-- reading needed --> NftObserve --answer--+
//!            |                                           v
//! changes -> take (paced) -> queue -> step -> NftCommit --ok--> remember -> next step ... in sync
//!                              ^                 |                 +-- what waits for packets on their way: later
//!                              +---- failed: read the elements it was about, smaller steps, wait
//! ```
//!
//! A step is one transaction of the kernel, but for what nothing leads to yet of a long one, so that a failed one has
//! changed nothing that packets meet; what it said about our belief
//! (something there that we took to be absent, or the other way round) is read by key.

mod answer;
mod foreign;
mod putting_back;
mod stepping;
mod takeover;

pub use foreign::{Foreign, ForeignExtent};

use crate::event::{Effect, Report, RunKind, StepSize};
use crate::failures::Failures;
use crate::family::disturbed::Disturbed;
use crate::fault::{Fault, Seeded};
use crate::queue::{Item, Rank};
use crate::runs::Runs;
use crate::world::World;
use crate::{EngineConfig, Status};
use iptables::diff::count::RuleCount;
use model::{Family, ServiceName};
use nftables::ast::{ElementKey, Elements, Name};
use nftables::build::Shapes;
use nftables::held::{Held, Settling};
use nftables::step::{Held as HeldFrame, Reading, Step};
use putting_back::{PuttingBack, Reliance};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a packet may be on its way between two looks into sets. It takes microseconds; a guest may be stopped.
const ON_THE_WAY: Duration = Duration::from_secs(2);

/// The loop of one family.
#[derive(Debug)]
pub(crate) struct NftLoop {
    family: Family,
    config: EngineConfig,
    held: Held,
    /// What the kernel has of chains and sets; `None` without a table, or with one that nothing can be made of.
    frame: Option<HeldFrame>,
    /// Whether a table that nothing can be made of is in the way.
    in_the_way: bool,
    /// The shapes that there are chains for.
    shapes: Shapes,
    /// Chains and sets of another that go once ours serve.
    taking_over: TakingOver,
    need: Need,
    runs: Runs,
    failures: Failures,
    /// What services no longer need, and when it may be taken away.
    retiring: BTreeMap<ServiceName, BTreeMap<ElementKey, Duration>>,
    /// Those that keep what they give up for a service that is to take it over.
    keepers: BTreeMap<ServiceName, BTreeSet<ServiceName>>,
    out: Option<Outstanding>,
    step_limit: usize,
    next_look: Duration,
    disturbed: Disturbed<Foreign>,
    /// What somebody took from many services, and is put back before anything else is done.
    putting_back: Option<PuttingBack>,
    reliance: Reliance,
    /// Since when the table is known to be gone, and whether what was out then has been answered.
    gone: Option<Gone>,
    /// Whether the next reading is of what somebody else did.
    looking: bool,
    /// When somebody else last put something into our sets that no service of ours wants.
    strays_since: Option<Duration>,
    /// Who may have done what the next reading shows.
    suspect: Option<std::sync::Arc<str>>,
    reports: Vec<Report>,
    seeded: Seeded,
}

/// What must be read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// These elements, about which a failed step makes us doubt.
    Elements(BTreeSet<ElementKey>),
    /// Chains and sets.
    Frame,
    Everything,
}

/// The kernel told that the table went.
#[derive(Clone, Copy, Debug)]
struct Gone {
    since: Duration,
    /// An effect was out: its answer may be from before.
    while_out: bool,
}

/// How far a table of another has become ours.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TakingOver {
    /// The table is ours.
    Nothing,
    /// Our elements are filled in beside what serves.
    Filling,
    /// Ours serve; what is not ours goes once all services are settled, and it is known by then what is.
    Tidying,
    /// The rules of these chains go, then these sets, then these chains.
    Clearing {
        rules: Vec<Name>,
        sets: Vec<Name>,
        chains: Vec<Name>,
    },
}

/// What an answer is awaited for.
#[derive(Debug)]
enum Outstanding {
    Reading,
    Commit(Box<Work>),
}

/// A step on its way into the kernel, and what is known once it is there.
#[derive(Debug, Default)]
struct Work {
    /// What was taken from the queue for it, and from which place; nothing for a step that makes the table or takes it
    /// over.
    items: Vec<(Rank, Item)>,
    settlings: Vec<Settling>,
    /// The services of which it puts back what they had.
    put_back: Vec<ServiceName>,
    node: Option<Elements>,
    frame: Option<HeldFrame>,
    shapes: Shapes,
    leftovers: Vec<nftables::diff::Operation>,
    /// How far the taking over has come then, when it gets on.
    takeover: Option<TakingOver>,
    step: Step,
    keys: BTreeSet<ElementKey>,
    size: StepSize,
}

impl NftLoop {
    pub(crate) fn new(family: Family, config: &EngineConfig, seeded: Seeded) -> NftLoop {
        NftLoop {
            family,
            held: Held::new(family),
            frame: None,
            in_the_way: false,
            shapes: Shapes::new(),
            taking_over: TakingOver::Nothing,
            need: Need::Everything,
            runs: Runs::new(family, config),
            failures: Failures::new(family, config),
            retiring: BTreeMap::new(),
            keepers: BTreeMap::new(),
            out: None,
            step_limit: config.step_services.max(1),
            next_look: Duration::ZERO,
            disturbed: Disturbed::new(config.seed),
            putting_back: None,
            reliance: Reliance::Relied,
            gone: None,
            looking: false,
            strays_since: None,
            suspect: None,
            reports: Vec::new(),
            config: config.clone(),
            seeded,
        }
    }

    /// Something changed, and waits for the next run.
    pub(crate) fn change(&mut self, items: impl IntoIterator<Item = Item>, now: Duration) {
        for item in items {
            self.runs.change(item.rank(), item, now);
        }
    }

    /// Services may be concerned by what is not theirs, such as the node's zone. They are settled behind those that
    /// changed themselves.
    pub(crate) fn reconsider(&mut self, services: impl Iterator<Item = (Rank, ServiceName)>, now: Duration) {
        for (rank, name) in services {
            self.runs.change(rank, Item::Service(name), now);
        }
    }

    /// What the kernel refuses by itself.
    pub(crate) fn refused(&self) -> impl Iterator<Item = &Item> {
        self.failures.troubled()
    }

    /// Somebody else wrote into our table.
    pub(crate) fn disturb(&mut self, foreign: Foreign, now: Duration) {
        let most = self.config.sync_period;
        let is_gone = foreign.extent == ForeignExtent::Gone;
        if is_gone {
            self.gone = Some(Gone {
                since: self.gone.map_or(now, |gone| gone.since),
                while_out: self.out.is_some(),
            });
        }
        // Who flushes a set has done it in one commit, and many services may lack it.
        if is_gone || foreign.elements.len() > self.config.step_services {
            self.disturbed.note_at_once(foreign, now, most);
        } else {
            self.disturbed.note(foreign, now, most);
        }
    }

    /// What is to be done now, if anything. Nothing while an answer is awaited.
    pub(crate) fn next(&mut self, world: &World, now: Duration) -> Option<Effect> {
        if self.out.is_some() || now < self.failures.blocked_until() {
            return None;
        }
        self.ask_for_readings(world, now);
        if let Some(reading) = self.reading() {
            self.out = Some(Outstanding::Reading);
            return Some(Effect::NftObserve(reading));
        }
        self.runs.take_changes(now);
        self.take_up_due(now);
        let effect = self.step(world, now);
        if effect.is_none() {
            self.end_run(now);
        }
        effect
    }

    /// When [`NftLoop::next`] may have something without anything happening before; `None` while an answer is awaited.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        if self.out.is_some() {
            return None;
        }
        if self.need != Need::Nothing || self.runs.is_busy() || self.putting_back.is_some() {
            return Some(self.failures.blocked_until());
        }
        let times = [
            self.runs.changes_due(),
            self.failures.retry_at(),
            self.retiring.values().flat_map(BTreeMap::values).min().copied(),
            Some(self.next_look),
            self.disturbed.at(),
            self.runs.full_at(),
        ];
        let first = times.into_iter().flatten().min()?;
        Some(first.max(self.failures.blocked_until()))
    }

    pub(crate) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    pub(crate) fn status(&self) -> Status {
        let pending = [
            self.runs.pending_since(),
            self.failures.troubled_since(),
            self.gone.map(|gone| gone.since),
        ];
        Status {
            pending_since: pending.into_iter().flatten().min(),
            failures_in_a_row: self.failures.in_a_row(),
            last_full_sync: self.runs.last_full(),
            queued: self.runs.queued(),
            refused: self.failures.troubled().len(),
            rules: RuleCount::default(),
        }
    }

    fn ask_for_readings(&mut self, world: &World, now: Duration) {
        if self.runs.is_full_due(now) {
            self.need = Need::Everything;
        } else if self.next_look <= now && self.need == Need::Nothing {
            self.need = Need::Frame;
        }
        if self.disturbed.at().is_some_and(|at| at <= now) {
            self.look_at_foreign(world, now);
        }
    }

    fn reading(&self) -> Option<Reading> {
        match &self.need {
            Need::Nothing => None,
            Need::Elements(keys) => Some(Reading::Elements(keys.iter().cloned().collect())),
            Need::Frame => Some(Reading::Frame),
            Need::Everything => Some(Reading::Everything),
        }
    }

    /// Troubled items and retirements whose time has come.
    fn take_up_due(&mut self, now: Duration) {
        let mut first = None;
        for (item, since) in self.failures.due(now) {
            self.runs.queue.push(Rank::Changed, item.clone());
            first = Some(first.map_or(since, |first: Duration| first.min(since)));
        }
        for (name, waiting) in &self.retiring {
            let is_due = waiting.values().any(|at| *at <= now);
            if is_due && !self.seeded.has(Fault::NftRetirementForgotten) {
                self.runs.queue.push(Rank::Rest, Item::Service(name.clone()));
            }
        }
        // A retirement alone is no run: nothing waits for it, and nothing is told of it.
        if let Some(since) = first {
            self.runs.begin(since, RunKind::Changes);
        }
    }

    fn end_run(&mut self, now: Duration) {
        if self.putting_back.is_some() {
            return;
        }
        let Some(in_sync) = self.runs.end(now) else {
            return;
        };
        if matches!(
            in_sync,
            Report::InSync {
                run: RunKind::Full,
                ..
            }
        ) {
            self.held.compact();
        }
        if self.failures.has_no_trouble() && self.gone.is_none() {
            // What a failed step was about has been read since, and needs no step any more.
            self.reports.extend(self.failures.step_worked());
            self.reports.push(in_sync);
        }
    }
}
