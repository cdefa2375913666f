//! The answer for programs. The field names are an interface: add, do not rename.

use crate::finding_json::{FindingJson, finding, write_pretty};
use explain::fate::RuleLine;
use explain::{Delivery, Explanation, Reach, Rules, Severity, screen};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct ExplanationJson<'a> {
    /// The first line of the text.
    headline: String,
    /// `yes`, `no`, `sometimes`, `not-ours` or `unknown`.
    reachable: &'static str,
    /// The share of connections that fails, 0 to 1; absent where it is not known.
    failing: Option<f64>,
    verdict: &'static str,
    from: &'a str,
    to: &'a str,
    node: &'a str,
    mode: String,
    /// `observed`, `rendered` or `none`.
    rules_are: &'static str,
    packet: Option<PacketJson>,
    service: Option<String>,
    /// Goes on after "the client ".
    client: &'a str,
    endpoints: Vec<EndpointJson<'a>>,
    /// What matters most first.
    findings: Vec<FindingJson<'a>>,
    remarks: Vec<FindingJson<'a>>,
    rules: Vec<RuleJson<'a>>,
    /// For node ports: where this one answers.
    addresses: Vec<String>,
    next: &'a [String],
}

#[derive(Serialize)]
struct PacketJson {
    protocol: &'static str,
    source: String,
    destination: String,
    in_interface: Option<String>,
    sent_here: bool,
}

#[derive(Serialize)]
struct EndpointJson<'a> {
    endpoint: String,
    chance: f64,
    masquerade: bool,
    source: Option<String>,
    pod: Option<&'a str>,
    node: Option<&'a str>,
    state: Option<&'static str>,
    works: bool,
}

#[derive(Serialize)]
struct RuleJson<'a> {
    table: &'a str,
    chain: &'a str,
    number: Option<u32>,
    text: &'a str,
    comment: Option<&'a str>,
}

/// Writes the answer.
pub(super) fn write(out: &mut dyn Write, answer: &Explanation) -> anyhow::Result<()> {
    write_pretty(out, &convert(answer))?;
    writeln!(out)?;
    Ok(())
}

fn convert(answer: &Explanation) -> ExplanationJson<'_> {
    let (reachable, failing) = match answer.reach {
        Reach::Yes => ("yes", Some(0.0)),
        Reach::No => ("no", Some(1.0)),
        Reach::Fails(share) => ("sometimes", Some(share)),
        Reach::NotOurs => ("not-ours", None),
        Reach::Unknown => ("unknown", None),
    };
    let of = |is_remark: bool| {
        let findings = answer.findings.iter();
        findings
            .filter(move |finding| (finding.severity == Severity::Remark) == is_remark)
            .map(finding)
            .collect()
    };
    ExplanationJson {
        headline: screen::headline(answer),
        reachable,
        failing,
        verdict: answer.verdict.as_str(),
        from: &answer.from,
        to: &answer.to,
        node: &answer.node,
        mode: answer.mode.to_string(),
        rules_are: match answer.rules_are {
            Rules::Observed => "observed",
            Rules::Rendered => "rendered",
            Rules::None => "none",
        },
        packet: answer.packet.as_ref().map(packet),
        service: answer.service.as_ref().map(ToString::to_string),
        client: &answer.client,
        endpoints: answer.deliveries.iter().map(endpoint).collect(),
        findings: of(false),
        remarks: of(true),
        rules: answer.rules.iter().map(rule).collect(),
        addresses: answer.addresses.iter().map(ToString::to_string).collect(),
        next: &answer.next,
    }
}

fn packet(packet: &model::Packet) -> PacketJson {
    let (sent_here, in_interface) = match &packet.origin {
        model::Origin::Host => (true, None),
        model::Origin::Interface(name) => (false, Some(name.to_string()).filter(|name| !name.is_empty())),
    };
    PacketJson {
        protocol: packet.protocol.as_lower(),
        source: packet.src.to_string(),
        destination: packet.dst.to_string(),
        in_interface,
        sent_here,
    }
}

fn endpoint(of: &Delivery) -> EndpointJson<'_> {
    EndpointJson {
        endpoint: of.endpoint.to_string(),
        chance: of.chance,
        masquerade: of.is_masqueraded,
        source: of.source.map(|ip| ip.to_string()),
        pod: of.pod.as_deref(),
        node: of.node.as_deref(),
        state: of.state,
        works: of.works,
    }
}

fn rule(of: &RuleLine) -> RuleJson<'_> {
    RuleJson {
        table: &of.table,
        chain: &of.chain,
        number: of.number,
        text: &of.text,
        comment: of.comment.as_deref(),
    }
}
