//! Sends the packets of a round and says what differs from the table.

use super::rounds::Round;
use super::site::{Site, expected, proto};
use crate::rules::{counters, moved, native, parsed, saved};
use iptables::trace::LocalAddresses;
use lab::{Probe, ProbeOutcome, Refusal};
use model::{Family, NodeFacts, Outcome, Packet, PerFamily, Protocol};
use path::{Detail, Host, trace};
use scenario::Flow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

/// The chance that a row passes although one endpoint of its set is never chosen, or one more than its set is.
const MISS: f64 = 1e-6;

/// A dropped packet's client waits this long; every answer in a lab comes in a tenth of it.
const SILENCE: Duration = Duration::from_millis(300);

/// An answer may take this long on a busy machine: one lost packet is repeated after a second.
const ANSWER: Duration = Duration::from_secs(4);

/// Probes for outcomes that do not depend on chance.
const SURE_TRIES: usize = 3;

/// What came of a round.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Rows that real packets decided.
    pub by_packets: usize,
    /// Packets sent.
    pub packets: usize,
    /// Rows that only the tracer decided, since this lab has no sockets for them.
    pub by_tracer_only: Vec<String>,
    /// What differs from the table.
    pub wrong: Vec<String>,
}

/// One row with its probes and what came of them.
struct Asked<'a> {
    flow: &'a Flow,
    probes: Vec<Probe>,
    outcomes: Vec<ProbeOutcome>,
}

/// Whose rules a node has, and so what else can be asked besides packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// Rules of iptables: their counters, and the tracer.
    Iptables,
    /// A table of `nf_tables`: the tracer.
    Packets,
}

/// Decides every row of a round on a site whose node has its rules.
pub fn judge(site: &mut Site, round: &Round<'_>, facts: &NodeFacts, witness: Witness) -> Verdict {
    let mut verdict = Verdict::default();
    serve_own_targets(site, round, facts, &mut verdict);
    let mut source_ports = 30_100..=u16::MAX;
    let mut asked: Vec<Asked<'_>> = vec![];
    for flow in &round.flows {
        let Some(proto) = proto(flow.packet.protocol) else {
            verdict.by_tracer_only.push(flow.name.clone());
            continue;
        };
        let (count, patience) = match &flow.expect {
            Outcome::Delivered(to) => (tries(to.len()), ANSWER),
            Outcome::Dropped => (1, SILENCE),
            _ => (SURE_TRIES, ANSWER),
        };
        let base = Probe::tcp(flow.packet.dst)
            .from(flow.packet.src)
            .within(lab::live::patience(patience));
        let base = Probe { proto, ..base };
        // Each probe has a source port of its own, so that translations never clash and a kept port is seen as kept.
        let probes = (0..count).map(|_| base.from_port(source_ports.next().expect("a round has few probes")));
        asked.push(Asked {
            flow,
            probes: probes.collect(),
            outcomes: vec![],
        });
    }
    verdict.by_packets = asked.len();
    verdict.packets = asked.iter().map(|one| one.probes.len()).sum();
    let (mut dropped, mut others): (Vec<_>, Vec<_>) = asked
        .into_iter()
        .partition(|one| one.flow.expect == Outcome::Dropped);
    judge_answered(site, &mut others, facts, witness, &mut verdict);
    for one in &mut dropped {
        judge_dropped(site, one, witness, &mut verdict);
    }
    judge_by_tracer(site, round, facts, witness, &mut verdict);
    verdict
}

/// The smallest number of tries after which each of `count` endpoints, and one that should not be there, would have
/// been chosen, but for [`MISS`].
pub fn tries(count: usize) -> usize {
    let all = count + 1;
    let share = f64::from(u32::try_from(all).expect("few endpoints"));
    let missed = |tries: i32| share * (1.0 - 1.0 / share).powi(tries);
    let enough = (1..10_000)
        .find(|tries| missed(*tries) <= MISS)
        .expect("sets are small");
    usize::try_from(enough).expect("a positive number")
}

/// What arrives at the node itself needs a server there to tell.
fn serve_own_targets(site: &mut Site, round: &Round<'_>, facts: &NodeFacts, verdict: &mut Verdict) {
    let wanted: BTreeSet<(Protocol, SocketAddr)> = round
        .flows
        .iter()
        .filter(|flow| matches!(flow.expect, Outcome::Untouched | Outcome::Accepted))
        .filter(|flow| facts.is_local_address(flow.packet.dst.ip()))
        .map(|flow| (flow.packet.protocol, flow.packet.dst))
        .collect();
    for (protocol, address) in wanted {
        // On a health-check node port the daemon itself may listen already; its answer is known (`arrived`).
        let may_be_daemon = |flow: &Flow| flow.expect == Outcome::Accepted && flow.packet.dst == address;
        let taken = round.flows.iter().any(|flow| may_be_daemon(flow));
        if !site.serve_on_node(protocol, address) && !taken {
            let line = format!("no server at {} {address} of the node", protocol.as_lower());
            verdict.wrong.push(line);
        }
    }
}

fn judge_answered(
    site: &Site,
    asked: &mut [Asked<'_>],
    facts: &NodeFacts,
    witness: Witness,
    verdict: &mut Verdict,
) {
    let count = |family| match witness {
        Witness::Iptables => counters(&site.lab, &site.node, family),
        Witness::Packets => BTreeMap::new(),
    };
    let before = PerFamily::from_fn(count);
    send(site, asked);
    let after = PerFamily::from_fn(count);
    for one in asked.iter() {
        let family = one.flow.packet.family();
        let rules = moved(before.get(family), after.get(family));
        let wrong = match &one.flow.expect {
            Outcome::Delivered(_) => delivered(one, site),
            Outcome::Rejected => all(one, |_, outcome| {
                *outcome == ProbeOutcome::Refused(Refusal::PortUnreachable)
            }),
            Outcome::Accepted if witness == Witness::Packets => arrived(one, facts),
            Outcome::Accepted => accepted(one, &rules).or_else(|| arrived(one, facts)),
            Outcome::Untouched => untouched(one, facts),
            Outcome::Dropped => Some("dropped rows go alone".to_owned()),
        };
        verdict.wrong.extend(wrong.map(|wrong| say(one.flow, &wrong)));
    }
}

fn say(flow: &Flow, wrong: &str) -> String {
    format!("{}: expected {}, but {wrong}", flow.name, flow.expect)
}

/// Sends all probes, each place on a thread of its own.
fn send(site: &Site, asked: &mut [Asked<'_>]) {
    let mut by_place: BTreeMap<&str, Vec<&mut Asked<'_>>> = BTreeMap::new();
    for one in asked {
        by_place
            .entry(site.place(one.flow.packet.src))
            .or_default()
            .push(one);
    }
    thread::scope(|scope| {
        for (place, mut rows) in by_place {
            scope.spawn(move || {
                let probes: Vec<Probe> = rows.iter().flat_map(|row| row.probes.iter().copied()).collect();
                let outcomes = site.lab.probe_each(place, &probes);
                let mut outcomes = outcomes
                    .unwrap_or_else(|error| panic!("{}", error.chain()))
                    .into_iter();
                for row in &mut rows {
                    row.outcomes = outcomes.by_ref().take(row.probes.len()).collect();
                }
            });
        }
    });
}

/// The first outcome that is not as it should be.
fn all(one: &Asked<'_>, is_right: impl Fn(&Probe, &ProbeOutcome) -> bool) -> Option<String> {
    let mut pairs = one.probes.iter().zip(&one.outcomes);
    let wrong = pairs.find(|(probe, outcome)| !is_right(probe, outcome));
    wrong.map(|(_, outcome)| format!("{outcome:?}"))
}

/// Every endpoint of the set answered, no other did, and each saw the client or the node as it should.
fn delivered(one: &Asked<'_>, site: &Site) -> Option<String> {
    let mut missing = expected(&one.flow.expect);
    let masqueraded = missing.clone();
    // A masqueraded packet of the node itself may keep its address; then only its port tells (`--random-fully`).
    let mut unchanged: BTreeMap<&str, bool> = BTreeMap::new();
    for (probe, outcome) in one.probes.iter().zip(&one.outcomes) {
        let ProbeOutcome::Answered {
            name, seen_client, ..
        } = outcome
        else {
            return Some(format!("{outcome:?}"));
        };
        let Some(masquerade) = masqueraded.get(name) else {
            return Some(format!("it reached {name}"));
        };
        missing.remove(name);
        let sent = (probe.src, probe.src_port);
        let kept = sent == (Some(seen_client.ip()), Some(seen_client.port()));
        *unchanged.entry(name).or_insert(true) &= kept;
        match masquerade {
            false if !kept => return Some(format!("{name} saw {seen_client} in place of {sent:?}")),
            true if !site.own.contains(&seen_client.ip()) => {
                return Some(format!("{name} saw {seen_client}, which is not the node's"));
            }
            _ => {}
        }
    }
    let never: Vec<&str> = missing.keys().map(String::as_str).collect();
    if !never.is_empty() {
        return Some(format!(
            "{} was not reached in {} tries",
            never.join(", "),
            one.probes.len()
        ));
    }
    let seen = |(name, kept): (&&str, &bool)| (masqueraded[*name] && *kept).then(|| (*name).to_owned());
    let not_rewritten: Vec<String> = unchanged.iter().filter_map(seen).collect();
    (!not_rewritten.is_empty()).then(|| format!("{} always saw the client", not_rewritten.join(", ")))
}

/// The daemon's own health server answered: it speaks HTTP, which the probe does not, and so the probe got there.
fn arrived(one: &Asked<'_>, facts: &NodeFacts) -> Option<String> {
    let by_daemon =
        |outcome: &ProbeOutcome| matches!(outcome, ProbeOutcome::Failed(text) if text.contains("HTTP/1.1"));
    if one.outcomes.iter().all(by_daemon) {
        None
    } else {
        untouched(one, facts)
    }
}

/// The sink (or the node itself) saw the packet as it was sent.
fn untouched(one: &Asked<'_>, facts: &NodeFacts) -> Option<String> {
    let own = facts.is_local_address(one.flow.packet.dst.ip());
    all(one, |probe, outcome| {
        let ProbeOutcome::Answered {
            name,
            seen_client,
            seen_destination,
        } = outcome
        else {
            return false;
        };
        let place = match seen_destination {
            Some(seen) => !own && name == "sink" && *seen == probe.dst,
            None => own && name == "node",
        };
        place && (Some(seen_client.ip()), Some(seen_client.port())) == (probe.src, probe.src_port)
    })
}

/// A rule that accepts this port has counted.
fn accepted(one: &Asked<'_>, moved: &BTreeMap<String, u64>) -> Option<String> {
    let packet = &one.flow.packet;
    let is_about = [
        format!("-p {} ", packet.protocol.as_lower()),
        format!("--dport {} ", packet.dst.port()),
    ];
    let counted = moved
        .keys()
        .any(|rule| is_about.iter().all(|words| rule.contains(words)) && rule.ends_with("-j ACCEPT"));
    (!counted).then(|| "no rule accepted it".to_owned())
}

/// Silence, and exactly one DROP rule counted: one about this destination.
fn judge_dropped(site: &Site, one: &mut Asked<'_>, witness: Witness, verdict: &mut Verdict) {
    if witness == Witness::Packets {
        send(site, std::slice::from_mut(one));
        let wrong = all(one, |_, outcome| *outcome == ProbeOutcome::Timeout);
        verdict.wrong.extend(wrong.map(|wrong| say(one.flow, &wrong)));
        return;
    }
    let packet = &one.flow.packet;
    let before = counters(&site.lab, &site.node, packet.family());
    send(site, std::slice::from_mut(one));
    let after = counters(&site.lab, &site.node, packet.family());
    let wrong = all(one, |_, outcome| *outcome == ProbeOutcome::Timeout);
    let wrong = wrong.or_else(|| {
        let moved = moved(&before, &after);
        let drops: Vec<&String> = moved.keys().filter(|rule| rule.ends_with("-j DROP")).collect();
        let is_about = |rule: &String| {
            rule.contains(&format!("-d {}/", packet.dst.ip()))
                || rule.contains(&format!("--dport {} ", packet.dst.port()))
                    && rule.contains("--dst-type LOCAL")
        };
        match drops.as_slice() {
            [rule] if is_about(rule) => None,
            _ => Some(format!("these rules dropped: {drops:?}")),
        }
    });
    verdict.wrong.extend(wrong.map(|wrong| say(one.flow, &wrong)));
}

/// The third witness: the tracer over the rules that the kernel holds. What `nft` lists is read as text and as JSON.
fn judge_by_tracer(
    site: &Site,
    round: &Round<'_>,
    facts: &NodeFacts,
    witness: Witness,
    verdict: &mut Verdict,
) {
    let addresses = facts
        .interface_addresses
        .iter()
        .copied()
        .chain(site.own.iter().copied());
    let borrowed = round
        .stations
        .iter()
        .filter(|(_, station)| **station == super::rounds::Station::NodeBorrowing);
    let addresses: BTreeSet<_> = addresses.chain(borrowed.map(|(address, _)| *address)).collect();
    let known = Host {
        addresses: LocalAddresses::Known(addresses),
        ..Host::default()
    };
    let hosts = match witness {
        Witness::Iptables => vec![Host {
            rules: PerFamily::from_fn(|family: Family| parsed(&saved(&site.lab, &site.node, family), family)),
            ..known
        }],
        Witness::Packets => native(&site.lab, &site.node)
            .map(|native| Host {
                native,
                ..known.clone()
            })
            .into(),
    };
    for flow in &round.flows {
        let packet: &Packet = &flow.packet;
        for host in &hosts {
            match (trace(host, packet, Detail::Met).outcome(), &flow.expect) {
                (Ok(outcome), expect) if outcome == *expect => {}
                // No table of this mode accepts anything: the packet arrives as it was sent.
                (Ok(Outcome::Untouched), Outcome::Accepted) if witness == Witness::Packets => {}
                (other, _) => verdict
                    .wrong
                    .push(say(flow, &format!("the tracer says {other:?}"))),
            }
        }
    }
}
