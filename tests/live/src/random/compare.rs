//! What `trace` says of a packet, what `trace --live` told of it, and what its sender met.

use super::site::{PODS, Place};
use lab::{ProbeOutcome, Refusal};
use model::Family;
use serde_json::Value;
use std::net::SocketAddr;

/// What became of a packet, in one word.
pub fn fate(answer: &Value) -> &str {
    answer["outcome"]["kind"].as_str().unwrap_or("not single")
}

/// The first packet of a connection, as it was told, if it was compared.
pub fn of<'a>(passages: &'a [Value], key: &(String, String, String)) -> Option<&'a Value> {
    let (proto, from, to) = key;
    passages.iter().find(|one| {
        one["protocol"] == **proto
            && one["from"] == **from
            && one["to"] == **to
            && one["check"]["result"] != "not-compared"
    })
}

/// Whether the way that the kernel told is one of those that `trace` gave: by its end, its chance and their number, and by
/// the rules that it met where no die is thrown (the kernel tells every throw, `trace` the first; `--check` compares them).
///
/// # Errors
/// With the packet, and the ways where it is none of them.
pub fn is_one_of(answer: &Value, passage: &Value) -> Result<(), String> {
    let check = &passage["check"];
    if check["result"] != "agrees" {
        return Err(format!("{passage}"));
    }
    let ways = answer["ways"].as_array().ok_or("there are no ways")?;
    let is_through = passage["end"] == "through";
    let masqueraded = passage["from"] != passage["from_after"];
    let fits = |way: &&Value| {
        let to = way["translated"].as_str().or(passage["to"].as_str());
        let through = matches!(way["end"]["kind"].as_str(), Some("local" | "left"));
        // The node's own packet may be given the port that it has.
        let same_source = match way["masquerade"].as_bool() {
            Some(true) => masqueraded || passage["sent_here"] == true,
            _ => !masqueraded,
        };
        let rules = rules(&way["steps"], |step| step["step"] == "rule");
        // A client that an empty slot remembers meets more rules than one that it does not.
        let perhaps = way["steps"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|step| step["step"] == "perhaps");
        let throws = perhaps || rules.iter().any(|rule| rule[2].contains("numgen "));
        through == is_through
            && (!is_through || passage["to_after"].as_str() == to && same_source)
            && way["probability"] == check["probability"]
            && (throws || rules == self::rules(&passage["steps"], |step| step["text"].is_string()))
    };
    // A list of clients that was read with the rules may know the client; the comparison leaves that open.
    let remembers = answer.to_string().contains("/sticky/");
    if check["ways"] != ways.len() && !remembers || !ways.iter().any(|way| fits(&way)) {
        return Err(format!("{passage} is none of {}", answer["ways"]));
    }
    Ok(())
}

/// Table, chain and words of each rule that was met; one of nftables may have done several things.
fn rules(steps: &Value, is_rule: impl Fn(&Value) -> bool) -> Vec<[String; 3]> {
    let met = steps
        .as_array()
        .into_iter()
        .flatten()
        .filter(|step| is_rule(step));
    let mut rules: Vec<[String; 3]> = met
        .map(|step| ["table", "chain", "text"].map(|name| step[name].to_string()))
        .collect();
    rules.dedup();
    rules
}

/// Whether the sender met what `trace` says.
///
/// # Errors
/// With both.
pub fn met(answer: &Value, passage: &Value, outcome: &ProbeOutcome) -> Result<(), String> {
    let is_right = match (fate(answer), outcome) {
        (
            "delivered",
            ProbeOutcome::Answered {
                name, seen_client, ..
            },
        ) => {
            let to: Option<SocketAddr> = passage["to_after"].as_str().and_then(|to| to.parse().ok());
            let is_it = |to: SocketAddr, pod: &Place| pod.address(Family::of(to.ip())) == to.ip();
            let served = to.and_then(|to| PODS.iter().find(|pod| is_it(to, pod)));
            served.is_some_and(|pod| pod.name == name)
                && (passage["from"] != passage["from_after"] || passage["from"] == seen_client.to_string())
        }
        ("rejected", outcome) => *outcome == ProbeOutcome::Refused(Refusal::PortUnreachable),
        ("dropped", outcome) => *outcome == ProbeOutcome::Timeout,
        // Whoever is there answers: the sink, a pod, or the node, which may have nobody at that port.
        ("untouched", ProbeOutcome::Answered { seen_destination, .. }) => {
            seen_destination.is_none_or(|seen| passage["to"] == seen.to_string())
        }
        ("untouched", ProbeOutcome::Refused(_)) => {
            matches!(passage["out_interface"].as_str(), None | Some("lo"))
        }
        _ => false,
    };
    if is_right {
        Ok(())
    } else {
        Err(format!(
            "trace says {}, its sender met {outcome:?}: {passage}",
            answer["outcome"]
        ))
    }
}
