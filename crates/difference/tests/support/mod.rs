//! Worlds of scenarios, and what the engine makes of rules in them.

#![allow(dead_code, reason = "each test file uses a part of it")]

use difference::drift::{self, Drift};
use engine::rehearsal::{Found, Rehearsed, rehearse};
use engine::{Backend, Engine, EngineConfig, Host};
use iptables::ast::{Ports, Ruleset};
use iptables::build::{BuildContext, Capabilities, EndpointComments, InvalidPackets, Nfacct, ruleset};
use iptables::diff::observe::Observation;
use kernel::OBSERVED_TABLES;
use model::crossing::ListedEndpoints;
use model::snapshot::Snapshot;
use model::{Desired, Family, NodeFacts, PerFamily, Settings};
use nftables::ast::{Elements, Frame};
use nftables::build::{self, Shapes};
use nftables::listed;
use nftables::step::Seen;

/// A node of a cluster.
pub struct World {
    pub name: String,
    pub snapshot: Snapshot,
    pub facts: NodeFacts,
    pub settings: Settings,
    pub desired: PerFamily<Desired>,
}

pub const CAPABILITIES: Capabilities = Capabilities {
    masquerade_ports: Ports::RandomFully,
    nfacct: Nfacct::Present,
};

/// Every golden cluster and every cluster of a truth table.
pub fn worlds() -> Vec<World> {
    let golden = scenario::golden_cases().into_iter().map(|case| World {
        name: case.name,
        snapshot: case.snapshot,
        facts: case.facts,
        settings: case.settings,
        desired: case.desired,
    });
    golden.collect()
}

pub fn world(name: &str) -> World {
    let mut worlds = worlds().into_iter();
    worlds
        .find(|world| world.name == name)
        .unwrap_or_else(|| panic!("no golden cluster {name}"))
}

impl World {
    /// The rules of iptables mode.
    pub fn rules(&self, family: Family) -> Ruleset {
        let desired = self.desired.get(family);
        let context = BuildContext {
            capabilities: CAPABILITIES,
            endpoint_comments: EndpointComments::for_cluster(&ListedEndpoints::of(desired)),
            invalid: InvalidPackets::Dropped,
        };
        ruleset(desired, &context)
    }

    /// The table of nftables mode.
    pub fn table(&self, family: Family) -> listed::Table {
        let (frame, elements) = self.frame(family);
        listed::of_frame(&frame, &elements)
    }

    fn frame(&self, family: Family) -> (Frame, Elements) {
        let desired = self.desired.get(family);
        let (shapes, elements) = build::parts(desired);
        (self.frame_of(family, &shapes), elements)
    }

    fn frame_of(&self, family: Family, shapes: &Shapes) -> Frame {
        let cidrs = self
            .snapshot
            .service_cidrs()
            .flat_map(|cidr| cidr.cidrs.iter().copied());
        let mut cidrs: Vec<_> = cidrs.collect();
        cidrs.sort();
        cidrs.dedup();
        build::frame(&self.desired.get(family).node, shapes, &cidrs)
    }

    /// A table as it is read.
    pub fn seen(&self, family: Family, table: &listed::Table) -> Seen {
        listed::seen(table, family, |shapes| self.frame_of(family, shapes)).expect("a whole list")
    }

    /// What the daemon would do about chains.
    pub fn steps(&self, family: Family, found: &Ruleset, capabilities: Capabilities) -> Vec<Rehearsed> {
        let mut observation = Observation::new(family);
        for table in OBSERVED_TABLES {
            for (name, chain) in found
                .tables
                .get(&table)
                .into_iter()
                .flat_map(|table| &table.chains)
            {
                observation.record(table, name, chain);
            }
        }
        let engine = self.engine(family, Backend::NfTables, capabilities);
        rehearse(engine, family, &self.snapshot, Found::Iptables(observation))
    }

    /// How chains differ.
    pub fn drift(&self, family: Family, found: &Ruleset) -> Drift {
        let steps = self.steps(family, found, drift::capabilities(found));
        drift::rules(self.desired.get(family), found, &steps)
    }

    /// How a table differs, with `nft`'s words or without.
    pub fn table_drift(&self, family: Family, table: Option<&listed::Table>) -> Drift {
        let seen = table.map(|table| self.seen(family, table));
        let engine = self.engine(family, Backend::OwnTable, CAPABILITIES);
        let steps = rehearse(engine, family, &self.snapshot, Found::OwnTable(seen.clone()));
        drift::own_table(self.desired.get(family), seen.as_ref(), table, &steps)
    }

    fn engine(&self, family: Family, backend: Backend, capabilities: Capabilities) -> Engine {
        let host = Host {
            families: PerFamily::from_fn(|of| (of == family).then_some(capabilities)),
            invalid: InvalidPackets::Dropped,
        };
        let config = EngineConfig {
            backend,
            ..EngineConfig::default()
        };
        Engine::new(self.settings.clone(), self.facts.clone(), &host, &config)
    }
}
