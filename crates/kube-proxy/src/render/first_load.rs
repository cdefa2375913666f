//! The steps with which the daemon brings a cluster's rules into an empty kernel.

use crate::input::World;
use engine::{Answer, Effect, Engine, EngineConfig, Event, Host};
use iptables::build::{Capabilities, InvalidPackets};
use iptables::diff::observe::Observation;
use iptables::plan::Plan;
use model::object::{Kind, Object};
use model::snapshot::Change;
use model::{Family, PerFamily};
use std::time::Duration;

/// The plan of one family, in the order of `nf_tables`.
///
/// The engine is asked what it would do; every reading finds nothing and every step is taken.
pub fn first_load(world: &World, family: Family, capabilities: Capabilities) -> Plan {
    let now = Duration::ZERO;
    let mut engine = engine_for(world, family, capabilities);
    for kind in [Kind::Node, Kind::Service, Kind::Slice] {
        let of_kind = |object: &Object| object.kind() == kind;
        let objects = world.snapshot.clone().into_objects().filter(of_kind).collect();
        engine.handle(Event::Changed(Change::ReplaceAll { kind, objects }), now);
        engine.handle(Event::Listed(kind), now);
    }
    let mut plan = Plan::default();
    // An engine may say "nothing yet" between two effects that are due now.
    while engine.wake_at(family).is_some_and(|at| at <= now) {
        let Some(effect) = engine.next(family, now) else {
            continue;
        };
        let answer = match effect {
            Effect::Commit(step) => {
                plan.steps.push(step);
                Answer::Committed
            }
            Effect::Observe { .. } => Answer::Observed {
                generation: None,
                observation: Box::new(Observation::new(family)),
            },
        };
        engine.handle(Event::Answer(family, answer), now);
    }
    plan
}

fn engine_for(world: &World, family: Family, capabilities: Capabilities) -> Engine {
    let host = Host {
        families: PerFamily::from_fn(|of| (of == family).then_some(capabilities)),
        invalid: InvalidPackets::Dropped,
    };
    let (settings, facts) = (world.settings.clone(), world.facts.clone());
    Engine::new(settings, facts, &host, &EngineConfig::default())
}
