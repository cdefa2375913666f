//! The demonstration in nftables mode: what the oracle says of each request from the cluster's objects alone, beside what
//! the kernel did, and the chains of our table that the packet met on its way.

use super::predict::Request;
use super::report::{EndpointsLine, ServiceLine};
use super::stage::{NODE, Site};
use super::text::Page;
use super::{Args, Form, REQUESTS, listing};
use crate::failure::Answer;
use crate::render::own_table::table;
use anyhow::{Context, Result, bail};
use kernel::follow::{Follower, Translation, Turn, translation};
use kernel::{NftTable, Traced};
use lab::{Probe, ProbeOutcome};
use model::oracle::outcome;
use model::{Delivery, Family, Outcome, Protocol};
use nftables::names::TABLE;
use nftables::step::{Observation, Reading, Seen};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

/// How long the proxy may take to write its table.
const SYNC: Duration = Duration::from_secs(15);

/// The kernel tells a packet's steps at once; when it has been silent for so long, it has told all.
const QUIET: Duration = Duration::from_millis(150);

/// The name of our own table, whose rules ask the kernel to trace.
const TRACING: &str = "kube-proxy-demo";

/// TCP's number.
const TCP: u8 = 6;

/// One fact on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Fact {
    what: String,
    predicted: String,
    observed: String,
    agrees: bool,
}

/// A rule that the packet met.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Step {
    chain: String,
    verdict: String,
}

/// A request and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Asked {
    title: String,
    from: String,
    to: String,
    facts: Vec<Fact>,
    /// The chains of the table that its first packet met, and what was decided there.
    way: Vec<Step>,
    outcome: String,
    translation: Option<String>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Report {
    services: Vec<ServiceLine>,
    endpoints: Vec<EndpointsLine>,
    /// What the kernel lacks of the table that `render` shows.
    differences: Vec<String>,
    requests: Vec<Asked>,
    agrees: bool,
}

impl Asked {
    fn agrees(&self) -> bool {
        self.facts.iter().all(|fact| fact.agrees)
    }
}

/// Runs it.
///
/// # Errors
/// When it could not be done on this machine.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let report = match args.output {
        Form::Text => {
            let mut page = Page::new(out);
            page.opening(
                "what the oracle says of it from the Services and EndpointSlices alone, what the kernel made of it, as \
                 its connection table tells, and which chains of kube-proxy's table the packet met.",
            )?;
            let report = perform(args, Some(&mut page))?;
            closing(&mut page, &report)?;
            report
        }
        Form::Json => {
            let report = perform(args, None)?;
            let json = serde_json::to_string_pretty(&report).context("cannot write the report")?;
            writeln!(out, "{json}").context("cannot write the report")?;
            report
        }
    };
    Ok(if report.agrees {
        Answer::Clean
    } else {
        Answer::Findings
    })
}

fn perform(args: &Args, mut page: Option<&mut Page<'_>>) -> Result<Report> {
    let begin = Instant::now();
    let program = std::env::current_exe().context("cannot find our own program")?;
    let mut site = Site::set(&program, "nftables")?;
    let seen = wait_for_table(&mut site)?;
    let mut report = Report {
        services: listing::services(&site.world.snapshot),
        endpoints: listing::endpoints(&site.world.snapshot),
        differences: missing(&site, &seen),
        requests: Vec::new(),
        agrees: true,
    };
    if let Some(page) = page.as_deref_mut() {
        beginning(page, &report, &seen, begin.elapsed())?;
    }
    if let Some(command) = &args.tamper {
        site.tamper(command).context("cannot do what --tamper says")?;
        if let Some(page) = page.as_deref_mut() {
            page.broken_by_hand(command)?;
        }
    }
    for (request, number) in REQUESTS.iter().zip(1..) {
        let asked = ask(&site, request)?;
        if let Some(page) = page.as_deref_mut() {
            show(page, number, &asked)?;
        }
        report.agrees &= asked.agrees();
        report.requests.push(asked);
    }
    site.strike()?;
    Ok(report)
}

/// Waits until the proxy says that all is in the kernel, and reads what is there.
fn wait_for_table(site: &mut Site) -> Result<Seen> {
    let deadline = Instant::now() + SYNC;
    let of_v4 = |line: &str| line.contains("rules are in sync") && line.contains(&Family::V4.to_string());
    loop {
        if let Some(status) = site.proxy.ended()? {
            bail!("the proxy ended ({status}); it said:\n{}", site.proxy.log());
        }
        if site.proxy.log().lines().any(of_v4) {
            break;
        }
        if Instant::now() > deadline {
            bail!(
                "the proxy wrote no table within {SYNC:?}; it said:\n{}",
                site.proxy.log()
            );
        }
        thread::sleep(Duration::from_millis(50));
    }
    let read = || NftTable::new(Family::V4)?.observe(&Reading::Everything);
    match site
        .lab
        .namespace(NODE)?
        .run(read)?
        .context("cannot read the table")?
    {
        Observation::Everything(Some(seen)) => Ok(seen),
        _ => bail!("the proxy says that it is in sync, and there is no table {TABLE}"),
    }
}

/// What the kernel lacks of what is wanted.
fn missing(site: &Site, seen: &Seen) -> Vec<String> {
    let (frame, elements) = table(&site.world, Family::V4);
    let chains = frame
        .chains
        .iter()
        .filter(|chain| !seen.frame.chains.contains_key(&chain.name));
    let chains = chains.map(|chain| format!("chain {} is missing", chain.name));
    let elements = elements
        .iter()
        .filter(|(key, element)| !seen.elements.holds(key, element));
    let elements = elements.map(|(key, _)| format!("an element of {} is missing: {:?}", key.set, key.key));
    chains.chain(elements).collect()
}

/// Predicts a request, sends it, and compares.
fn ask(site: &Site, request: &Request) -> Result<Asked> {
    let desired = site.world.desired.get(Family::V4);
    let predicted = outcome(desired, &site.world.facts, &request.packet());
    let (way, translation, answer) = site.lab.namespace(NODE)?.run(|| watch(site, request))??;
    let way = way.into_iter().map(|turn| Step {
        chain: turn.chain,
        verdict: turn.verdict,
    });
    Ok(Asked {
        title: request.title.to_owned(),
        from: request.from.to_string(),
        to: request.to.to_string(),
        facts: facts(site, request.from.ip(), &predicted, translation, &answer),
        way: way.collect(),
        outcome: lab::cli::outcome_text(&answer),
        translation: translation
            .map(|translation| format!("{} → {}", translation.source_after, translation.destination_after)),
    })
}

/// Sends the request; runs in the node's namespace.
fn watch(site: &Site, request: &Request) -> Result<(Vec<Turn>, Option<Translation>, ProbeOutcome)> {
    let traced = Traced {
        source: Some(request.from.ip()),
        destination: Some(request.to.ip()),
        protocol: Some(TCP),
        port: Some(request.to.port()),
        ..Traced::default()
    };
    let follower = Follower::start(Family::V4, TRACING, traced);
    let mut follower = follower.context("cannot ask the kernel for a trace")?;
    let probe = Probe::tcp(request.to)
        .from(request.from.ip())
        .from_port(request.from.port());
    let answer = site.lab.probe(request.place, probe)?;
    let way = follower.first_packet_in(TABLE, QUIET)?;
    let made = translation(Protocol::Tcp, request.from, request.to).context("cannot ask conntrack")?;
    Ok((way, made, answer))
}

fn facts(
    site: &Site,
    client: IpAddr,
    predicted: &Outcome,
    made: Option<Translation>,
    answer: &ProbeOutcome,
) -> Vec<Fact> {
    let nobody = "no connection".to_owned();
    let none = BTreeSet::new();
    let deliveries = match predicted {
        Outcome::Delivered(to) => to,
        _ => &none,
    };
    let chosen = deliveries
        .iter()
        .find(|delivery| made.is_some_and(|made| made.destination_after == delivery.endpoint));
    let destination = Fact {
        what: "destination".to_owned(),
        predicted: one_of(deliveries, predicted),
        observed: made.map_or_else(|| nobody.clone(), |made| made.destination_after.to_string()),
        agrees: chosen.is_some(),
    };
    // The oracle says whether the source is rewritten; to which address of the node, routing does.
    let masquerade = deliveries.iter().any(|delivery| delivery.masquerade);
    let source = made.map(|made| made.source_after.ip());
    let as_predicted = |ip: IpAddr| {
        if masquerade {
            site.world.facts.is_local_address(ip)
        } else {
            ip == client
        }
    };
    let source = Fact {
        what: format!("source, was {client}"),
        predicted: if masquerade {
            "an address of the node"
        } else {
            "kept"
        }
        .to_owned(),
        observed: source.map_or(nobody, |ip| ip.to_string()),
        agrees: source.is_some_and(as_predicted),
    };
    let pods: Vec<String> = match chosen {
        Some(chosen) => pod(site, chosen.endpoint.ip()).into_iter().collect(),
        None => deliveries
            .iter()
            .filter_map(|delivery| pod(site, delivery.endpoint.ip()))
            .collect(),
    };
    let heard = answer.answered_by().unwrap_or("nobody").to_owned();
    let answers = Fact {
        what: "who answers".to_owned(),
        agrees: pods.contains(&heard),
        predicted: pods.join(" or "),
        observed: heard,
    };
    vec![destination, source, answers]
}

/// Endpoints in as many columns as there are.
fn one_of(deliveries: &BTreeSet<Delivery>, predicted: &Outcome) -> String {
    let mut endpoints = deliveries.iter().map(|delivery| delivery.endpoint);
    match (endpoints.next(), endpoints.next(), endpoints.count()) {
        (None, ..) => predicted.to_string(),
        (Some(only), None, _) => only.to_string(),
        (Some(one), Some(other), 0) if one.port() == other.port() => {
            format!("{} or {} at {}", one.ip(), other.ip(), one.port())
        }
        (.., more) => format!("one of {} endpoints", more + 2),
    }
}

fn pod(site: &Site, ip: IpAddr) -> Option<String> {
    let mut pods = site.lab.topology().pods.iter();
    let found = pods.find(|pod| pod.addresses.contains(&ip))?;
    Some(found.reply_name().to_owned())
}

fn beginning(page: &mut Page<'_>, report: &Report, seen: &Seen, took: Duration) -> Result<()> {
    let (sets, chains) = (seen.frame.sets.len(), seen.frame.chains.len());
    page.paragraph(&format!(
        "The cluster stands, and kube-proxy has written its table of {chains} chains and {sets} sets and maps, {:.1} s \
         after the start.",
        took.as_secs_f64()
    ))?;
    for line in &report.differences {
        page.line(&format!("  not as rendered: {line}"))?;
    }
    page.line("")?;
    page.listings(&report.services, &report.endpoints)
}

fn show(page: &mut Page<'_>, number: usize, asked: &Asked) -> Result<()> {
    page.heading(&format!("Request {number}: {}", asked.title))?;
    page.sides("predicted by the oracle", "")?;
    for fact in &asked.facts {
        page.two_sides(&fact.what, &fact.predicted, &fact.observed, fact.agrees)?;
    }
    page.line("")?;
    page.labelled("packet", &format!("{} → {}", asked.from, asked.to))?;
    let after = asked
        .translation
        .as_deref()
        .unwrap_or("the kernel has no such connection");
    page.labelled("behind NAT", after)?;
    page.labelled("outcome", &asked.outcome)?;
    page.line("")?;
    let width = asked.way.iter().map(|step| step.chain.len()).max().unwrap_or(0);
    for (index, step) in asked.way.iter().enumerate() {
        let label = if index == 0 { "its way" } else { "" };
        page.line(&format!(
            "    {label:<13}{:<width$}   {}",
            step.chain, step.verdict
        ))?;
    }
    page.line("")
}

fn closing(page: &mut Page<'_>, report: &Report) -> Result<()> {
    page.heading("Summary")?;
    for (asked, number) in report.requests.iter().zip(1..) {
        let same = asked.facts.iter().filter(|fact| fact.agrees).count();
        let text = format!(
            "  request {number}: {same} of {} facts as predicted, {}",
            asked.facts.len(),
            asked.outcome
        );
        page.line(&text)?;
    }
    page.line("")?;
    if report.agrees {
        page.paragraph("Every packet went where it should. The lab is gone again.")?;
        page.line("")?;
        page.paragraph("Next, break something by hand and watch the sides differ:")?;
        return page.line(
            "    kube-proxy lab demo --proxy-mode nftables --tamper 'nft flush chain ip kube-proxy masquerading'",
        );
    }
    page.paragraph("The kernel did not do what the cluster's objects ask for.")
}
