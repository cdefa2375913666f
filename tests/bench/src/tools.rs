//! What the tools alone need for the steps of a cold start, with nobody in between.

use crate::Backend;
use crate::objects::Objects;
use anyhow::{Context, Result, bail};
use engine::{Answer, Effect, Engine, EngineConfig, Event, Host};
use ipnet::IpNet;
use iptables::ast::Ports;
use iptables::build::{Capabilities, InvalidPackets, Nfacct};
use iptables::diff::observe::Observation;
use iptables::render::{StepText, Tool};
use model::object::{self, Kind};
use model::snapshot::Change;
use model::{Family, LocalDetector, NodeFacts, PerFamily, Settings};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the benchmark's host can do.
pub const CAPABILITIES: Capabilities = Capabilities {
    masquerade_ports: Ports::RandomFully,
    nfacct: Nfacct::Absent,
};

/// The objects of a cluster, converted.
pub fn changes(objects: &Objects) -> Vec<Change> {
    let mut found = vec![Objects::node()];
    for i in 0..objects.count() {
        found.push(objects.slice(i));
        found.push(objects.service(i));
    }
    found
        .into_iter()
        .flat_map(|object| object::decode(object).objects)
        .map(Change::Apply)
        .collect()
}

/// Settings and facts as the daemon of the benchmark has them.
pub fn node() -> (Settings, NodeFacts) {
    let cluster: IpNet = "11.0.0.0/8".parse().expect("a network");
    let detectors = PerFamily {
        v4: Some(LocalDetector::Cidr(cluster)),
        v6: None,
    };
    let settings = Settings {
        detectors,
        localhost_node_ports_wanted: true,
        ..Settings::default()
    };
    (
        settings,
        NodeFacts {
            name: crate::objects::NODE.into(),
            ..NodeFacts::default()
        },
    )
}

/// One step as the tools take it.
pub struct ToolStep {
    /// Chains made first, with their tables; one that is there already is no failure.
    make_first: Vec<(String, String)>,
    /// The restore's input.
    text: String,
}

/// The steps of a cold start of IPv4, from an engine whose every step is said to have worked.
pub fn cold_start_texts(objects: &Objects, backend: Backend) -> Vec<ToolStep> {
    let (settings, facts) = node();
    let host = Host {
        families: PerFamily {
            v4: Some(CAPABILITIES),
            v6: None,
        },
        invalid: InvalidPackets::Dropped,
    };
    let (engine_backend, tool) = match backend {
        Backend::NfTables => (engine::Backend::NfTables, Tool::NfTables),
        Backend::Legacy => (engine::Backend::Legacy, Tool::Legacy),
    };
    let config = EngineConfig {
        backend: engine_backend,
        min_sync: Duration::ZERO,
        ..EngineConfig::default()
    };
    let mut engine = Engine::new(settings, facts, &host, &config);
    let mut now = Duration::from_secs(1);
    for change in changes(objects) {
        engine.handle(Event::Changed(change), now);
    }
    for kind in [Kind::Node, Kind::Service, Kind::Slice] {
        engine.handle(Event::Listed(kind), now);
    }
    let mut texts = Vec::new();
    while let Some(effect) = engine.next(Family::V4, now) {
        let answer = match effect {
            Effect::Commit(step) => {
                texts.push(tool_step(&StepText {
                    step: &step,
                    family: Family::V4,
                    tool,
                }));
                Answer::Committed
            }
            Effect::Observe { .. } => Answer::Observed {
                generation: Some(1),
                observation: Box::new(Observation::new(Family::V4)),
            },
            Effect::NftCommit(_) | Effect::NftObserve(_) => {
                unreachable!("invariant: the tools are measured in iptables mode")
            }
        };
        now += Duration::from_millis(1);
        engine.handle(Event::Answer(Family::V4, answer), now);
    }
    texts
}

fn tool_step(text: &StepText<'_>) -> ToolStep {
    let chains = text.chains_to_make_first();
    ToolStep {
        make_first: chains
            .map(|(table, chain)| (table.to_string(), chain.to_string()))
            .collect(),
        text: text.to_string(),
    }
}

/// Feeds the texts to the tool, one after the other, and gives the time it took.
pub fn restore_all(steps: &[ToolStep], backend: Backend) -> Result<Duration> {
    let tool = match backend {
        Backend::NfTables => "/usr/sbin/iptables-nft",
        Backend::Legacy => "/usr/sbin/iptables-legacy",
    };
    let restore = format!("{tool}-restore");
    let start = Instant::now();
    for step in steps {
        for (table, chain) in &step.make_first {
            Command::new(tool)
                .args(["-w", "5", "-t", table, "-N", chain])
                .stderr(Stdio::null())
                .status()?;
        }
        let mut child = Command::new(&restore)
            .args(["-w", "5", "--noflush"])
            .stdin(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {restore}"))?;
        child
            .stdin
            .take()
            .expect("it is piped")
            .write_all(step.text.as_bytes())?;
        if !child.wait()?.success() {
            bail!("{restore} refused a step of {} bytes", step.text.len());
        }
    }
    Ok(start.elapsed())
}
