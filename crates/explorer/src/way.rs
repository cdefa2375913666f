//! The path of a packet: what `explain` says, and the steps to draw.

use explain::fate::RuleLine;
use explain::{Explanation, Finding, Reach, Rules, Severity, screen};
use serde_json::{Value, json};

/// Endpoints that are drawn; of more, only how many there are.
const MOST_ENDPOINTS: usize = 50;

/// Where rules come from, in a word.
pub(crate) fn rules_word(rules: Rules) -> &'static str {
    match rules {
        Rules::Observed => "observed",
        Rules::Rendered => "rendered",
        Rules::None => "none",
    }
}

/// Whether the sender reaches it, in a word.
pub(crate) fn reach_word(reach: Reach) -> &'static str {
    match reach {
        Reach::Yes => "yes",
        Reach::No => "no",
        Reach::Fails(_) => "sometimes",
        Reach::NotOurs => "not-ours",
        Reach::Unknown => "unknown",
    }
}

/// An explanation with the steps of the packet.
pub(crate) fn json(answer: &Explanation) -> Value {
    let endpoints: Vec<Value> = answer
        .deliveries
        .iter()
        .take(MOST_ENDPOINTS)
        .map(|of| {
            json!({
                "endpoint": of.endpoint.to_string(),
                "chance": of.chance,
                "source": if of.is_masqueraded { of.source.map(|ip| ip.to_string()) } else { None },
                "masquerade": of.is_masqueraded,
                "pod": of.pod,
                "node": of.node,
                "state": of.state,
                "works": of.works,
            })
        })
        .collect();
    json!({
        "headline": screen::headline(answer),
        "reachable": reach_word(answer.reach),
        "verdict": answer.verdict.as_str(),
        "from": answer.from,
        "to": answer.to,
        "node": answer.node,
        "mode": answer.mode.to_string(),
        "rules_are": rules_word(answer.rules_are),
        "service": answer.service.as_ref().map(ToString::to_string),
        "client": answer.client,
        "packet": answer.packet.as_ref().map(|packet| json!({
            "protocol": packet.protocol.to_string(),
            "source": packet.src.to_string(),
            "destination": packet.dst.to_string(),
        })),
        "steps": steps(&answer.rules),
        "endpoints": endpoints,
        "endpoints_total": answer.deliveries.len(),
        "findings": findings(answer, |severity| severity > Severity::Remark),
        "remarks": findings(answer, |severity| severity == Severity::Remark),
        "addresses": answer.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "next": answer.next,
    })
}

/// The rules on the way, those of one chain together.
fn steps(rules: &[RuleLine]) -> Vec<Value> {
    let of_one_chain =
        |one: &RuleLine, other: &RuleLine| (&one.table, &one.chain) == (&other.table, &other.chain);
    rules
        .chunk_by(of_one_chain)
        .filter_map(|chunk| {
            let first = chunk.first()?;
            let rules: Vec<Value> = chunk
                .iter()
                .map(|rule| json!({ "number": rule.number, "text": rule.text, "comment": rule.comment, "does": rule.target() }))
                .collect();
            Some(json!({ "table": first.table, "chain": first.chain, "rules": rules }))
        })
        .collect()
}

/// Findings of some severities, what matters most first.
pub(crate) fn findings(answer: &Explanation, which: impl Fn(Severity) -> bool) -> Vec<Value> {
    let all = answer.findings.iter();
    all.filter(|finding| which(finding.severity))
        .map(finding)
        .collect()
}

fn finding(of: &Finding) -> Value {
    let advice: Vec<Value> = of
        .advice
        .iter()
        .map(|advice| {
            json!({
                "object": advice.object.as_ref().map(ToString::to_string),
                "field": advice.field,
                "action": advice.action,
            })
        })
        .collect();
    json!({
        "id": of.cause.as_str(),
        "severity": of.severity.as_str(),
        "what": of.what,
        "why": of.why,
        "advice": advice,
    })
}
