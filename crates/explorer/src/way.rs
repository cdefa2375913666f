//! The path of a packet: what `explain` says, and the steps to draw.

use explain::fate::RuleLine;
use explain::world::NodeChoice;
use explain::{Explanation, Finding, Question, Reach, Rules, Severity, World, screen};
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

/// Whose rules the page shows, and whether others may be meant: nobody said which node.
pub(crate) fn seen_from(world: &World) -> Value {
    let is_named = !world.facts.name.is_empty() || world.host_facts.hostname.is_some();
    json!({
        "node": is_named.then(|| world.node_words()),
        "is_one_of_several": world.node_choice == NodeChoice::OneOfSeveral,
        "nodes": world.snapshot.nodes().count(),
    })
}

/// The answer to a question, by the rules of the one node that the page is of.
pub(crate) fn of_question(world: &World, question: &Question) -> Value {
    let mut told = json(&explain::explain(world, question));
    told["seen_from"] = seen_from(world);
    // The terminal asks the node that the packet comes to, where nobody names one.
    let meant = question.node(&world.snapshot, &world.objects);
    let is_this =
        |node: &str| *node == *world.facts.name || world.host_facts.hostname.as_deref() == Some(node);
    told["other_node"] = meant.filter(|node| !is_this(node)).as_deref().into();
    told
}

/// An explanation with the steps of the packet.
fn json(answer: &Explanation) -> Value {
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
            let is_one_of_endpoints = first.chain.starts_with("KUBE-SEP-");
            Some(json!({
                "table": first.table, "chain": first.chain, "rules": rules, "is_one_of_endpoints": is_one_of_endpoints,
            }))
        })
        .collect()
}

/// Findings of some severities, what matters most first.
pub(crate) fn findings(answer: &Explanation, which: impl Fn(Severity) -> bool) -> Vec<Value> {
    let headline = screen::headline(answer);
    let all = answer.findings.iter();
    all.filter(|finding| which(finding.severity))
        .map(|of| finding(of, headline.contains(&of.what)))
        .collect()
}

fn finding(of: &Finding, is_in_headline: bool) -> Value {
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
        "is_in_headline": is_in_headline,
        "why": of.why,
        "advice": advice,
    })
}
