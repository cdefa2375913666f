//! One request: predicted, sent, watched in the kernel, and put side by side.

use super::predict::{Predicted, Prediction, Request, Taken, observed_steps};
use super::report::{Asked, Row, Side, side_by_side};
use super::stage::{Stage, observed};
use super::words;
use anyhow::{Context, Result, bail};
use iptables::ast::Ruleset;
use kernel::follow::{Follower, MetRule, Translation, translation};
use kernel::{RuleKernel, Traced};
use lab::{Probe, ProbeOutcome};
use model::{Family, Protocol};
use std::net::IpAddr;
use std::time::Duration;

/// The name of our own table, whose rules ask the kernel to trace.
const TABLE: &str = "kube-proxy-demo";

/// The kernel tells a packet's steps at once; when it has been silent for so long, it has told all.
const QUIET: Duration = Duration::from_millis(150);

/// How often a request is sent anew because the rules were changed under it.
const ATTEMPTS: u16 = 3;

/// TCP's number.
const TCP: u8 = 6;

/// What the kernel did.
struct Seen {
    /// The rules, just before.
    rules: Ruleset,
    met: Vec<MetRule>,
    translation: Option<Translation>,
    outcome: ProbeOutcome,
}

/// Predicts a request from the wanted rules, sends it, and compares.
///
/// # Errors
/// When it could not be sent or watched; that nobody answers is an answer.
pub fn ask(stage: &Stage, request: &Request) -> Result<Asked> {
    let intent = Prediction::new(stage.site.node.with_rules(stage.intent.clone()), request);
    let seen = watch(stage, request)?;
    let taken = Taken {
        met: &seen.met,
        endpoint: seen.translation.map(|translation| translation.destination_after),
    };
    let live = Prediction::new(stage.site.node.with_rules(seen.rules.clone()), request);
    let observed = observed_steps(&seen.rules, &seen.met);
    let observed_side = observed_side(&seen);
    let way = intent.way(&taken);
    let live_way = live.way(&taken);
    let live_rows = side_by_side(live_way.steps(), observed.clone());
    // Whether an answer finds its way back is beyond what `trace` is asked.
    let live_ends_alike = match &seen.translation {
        Some(after) => {
            live_way.source() == Some(after.source_after.ip())
                && live_way.destination() == after.destination_after
        }
        // A packet that does not get through leaves no connection.
        None => !live_way.got_through(),
    };
    Ok(Asked {
        title: request.title.to_owned(),
        from: request.from.to_string(),
        to: request.to.to_string(),
        chances: intent.chances(),
        chance: way.chance(),
        steps: side_by_side(way.steps(), observed),
        predicted: predicted_side(stage, &way),
        observed: observed_side,
        outcome: lab::cli::outcome_text(&seen.outcome),
        translation: seen
            .translation
            .map(|translation| format!("{} → {}", translation.source_after, translation.destination_after)),
        predicted_end: way.end(),
        predicted_source: if way.masqueraded() {
            format!("masqueraded, was {}", request.from.ip())
        } else {
            "kept".to_owned()
        },
        why: words::why(request.from.ip(), way.marked_in().as_deref()),
        trace_of_live_rules_agrees: live_ends_alike && live_rows.iter().all(Row::agrees),
    })
}

fn predicted_side(stage: &Stage, way: &Predicted<'_>) -> Side {
    let to = way.destination();
    Side {
        source: way.source().map(|ip| ip.to_string()),
        destination: Some(to.to_string()),
        answered_by: way.got_through().then(|| pod(stage, to.ip())).flatten(),
    }
}

fn pod(stage: &Stage, ip: IpAddr) -> Option<String> {
    let mut pods = stage.site.lab.topology().pods.iter();
    let found = pods.find(|pod| pod.addresses.contains(&ip))?;
    Some(found.reply_name().to_owned())
}

fn observed_side(seen: &Seen) -> Side {
    Side {
        source: seen
            .translation
            .map(|translation| translation.source_after.ip().to_string()),
        destination: seen
            .translation
            .map(|translation| translation.destination_after.to_string()),
        answered_by: seen.outcome.answered_by().map(str::to_owned),
    }
}

/// Sends the request and reads what the kernel says of it. When somebody changes the rules meanwhile, nobody can say
/// which ones the packet met: another is sent.
fn watch(stage: &Stage, request: &Request) -> Result<Seen> {
    for attempt in 0..ATTEMPTS {
        let mut again = *request;
        again.from.set_port(request.from.port() + attempt);
        if let Some(seen) = stage.on_node(|| watch_once(stage, &again))?? {
            return Ok(seen);
        }
    }
    bail!("somebody changes the node's rules all the time")
}

/// Runs in the node's namespace. `None` when the rules were changed.
fn watch_once(stage: &Stage, request: &Request) -> Result<Option<Seen>> {
    let mut kernel = stage.kernel();
    let traced = Traced {
        source: Some(request.from.ip()),
        destination: Some(request.to.ip()),
        protocol: Some(TCP),
        port: Some(request.to.port()),
        ..Traced::default()
    };
    let mut follower =
        Follower::start(Family::V4, TABLE, traced).context("cannot ask the kernel for a trace")?;
    let generation = kernel.generation()?;
    let rules = observed(&mut kernel)?;
    let probe = Probe::tcp(request.to)
        .from(request.from.ip())
        .from_port(request.from.port());
    let outcome = stage.site.lab.probe(request.place, probe)?;
    let met = follower.first_packet(QUIET);
    if kernel.generation()? != generation {
        return Ok(None);
    }
    let translation = translation(Protocol::Tcp, request.from, request.to).context("cannot ask conntrack")?;
    Ok(Some(Seen {
        rules,
        met: met?,
        translation,
        outcome,
    }))
}
