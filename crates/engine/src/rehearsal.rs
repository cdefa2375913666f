//! What the engine would do to rules as they were found, without doing it: each reading is answered with what was found,
//! and each step is taken to succeed.

use crate::{Answer, Effect, Engine, Event, Report};
use iptables::diff::observe::Observation;
use iptables::plan;
use model::object::{Kind, Object};
use model::snapshot::{Change, Snapshot};
use model::{Family, ServiceName};
use nftables::step::{self as own_table, Reading, Seen};
use std::time::Duration;

/// By then, what waits for packets on their way is taken away; what was written is not looked at again before.
const LONG_ENOUGH: Duration = Duration::from_secs(10);

/// What was found of one family.
#[derive(Clone, Debug)]
pub enum Found {
    /// Chains of iptables.
    Iptables(Observation),
    /// The table of nftables mode; `None` when there is none.
    OwnTable(Option<Seen>),
}

/// One step that would be taken.
#[derive(Clone, Debug)]
pub struct Rehearsed {
    /// What would be written.
    pub write: Write,
    /// The services that it settles.
    pub services: Vec<ServiceName>,
}

/// What a step writes.
#[derive(Clone, Debug)]
pub enum Write {
    /// Rules of iptables.
    Iptables(plan::Step),
    /// Parts of our own table.
    OwnTable(own_table::Step),
}

/// All steps of one family, from what was found to what the objects ask for, leftovers' removal included. No step means
/// that nothing differs.
///
/// `engine` is a new one, of the backend that `found` is of.
pub fn rehearse(mut engine: Engine, family: Family, objects: &Snapshot, found: Found) -> Vec<Rehearsed> {
    let mut now = Duration::ZERO;
    for kind in [Kind::ServiceCidr, Kind::Node, Kind::Service, Kind::Slice] {
        let of_kind = |object: &Object| object.kind() == kind;
        let objects = objects.clone().into_objects().filter(of_kind).collect();
        engine.handle(Event::Changed(Change::ReplaceAll { kind, objects }), now);
        engine.handle(Event::Listed(kind), now);
    }
    let mut found = Some(found);
    let mut steps = Vec::new();
    while let Some(at) = engine.wake_at(family).filter(|at| *at <= LONG_ENOUGH) {
        now = now.max(at);
        // An engine may say "nothing yet" between two effects that are due now.
        let Some(effect) = engine.next(family, now) else {
            continue;
        };
        let answer = match effect {
            Effect::Commit(step) => {
                steps.push(Rehearsed::of(Write::Iptables(step)));
                Answer::Committed
            }
            Effect::NftCommit(step) => {
                steps.push(Rehearsed::of(Write::OwnTable(step)));
                Answer::Committed
            }
            Effect::Observe { .. } | Effect::NftObserve(Reading::Everything) => read(
                found
                    .take()
                    .expect("invariant: everything is read once, at first"),
            ),
            Effect::NftObserve(_) => unreachable!("invariant: nothing fails here, and nobody looks again"),
        };
        engine.handle(Event::Answer(family, answer), now);
        if let Some(step) = steps.last_mut() {
            step.services.extend(applied(&mut engine));
        }
    }
    steps
}

impl Rehearsed {
    fn of(write: Write) -> Rehearsed {
        Rehearsed {
            write,
            services: Vec::new(),
        }
    }
}

fn read(found: Found) -> Answer {
    match found {
        Found::Iptables(observation) => Answer::Observed {
            generation: None,
            observation: Box::new(observation),
        },
        Found::OwnTable(seen) => Answer::NftObserved(Box::new(own_table::Observation::Everything(seen))),
    }
}

fn applied(engine: &mut Engine) -> Vec<ServiceName> {
    let reports = engine.take_reports().into_iter();
    let services = reports.filter_map(|report| match report {
        Report::Applied { services, .. } => Some(services),
        _ => None,
    });
    services.flatten().collect()
}
