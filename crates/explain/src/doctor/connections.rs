//! The connection table.

use super::Patient;
use crate::facts::ConntrackFacts;
use crate::finding::{Advice, Cause, Finding};
use iptables::ast::{Ports, TableName, Target};

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let facts = &patient.world.host_facts;
    let mut conntrack = facts.conntrack.unwrap_or_default();
    let limit = facts.sysctl_number("net.netfilter.nf_conntrack_max");
    if let (0, Some(limit)) = (conntrack.limit, limit) {
        conntrack.limit = u64::try_from(limit).unwrap_or(0);
    }
    let mut found = Vec::new();
    found.extend(full(conntrack));
    found.extend(small(conntrack));
    found.extend(collisions(patient, conntrack));
    found
}

fn more(limit: u64) -> String {
    let twice = limit.saturating_mul(2);
    format!(
        "sysctl -w net.netfilter.nf_conntrack_max={twice}, and conntrack.maxPerCore or conntrack.min in kube-proxy's configuration"
    )
}

fn full(of: ConntrackFacts) -> Option<Finding> {
    let percent = (of.entries.saturating_mul(100)).checked_div(of.limit)?;
    let lost = match (of.drop, of.early_drop) {
        (0, 0) => String::new(),
        (drop, early) => format!(
            " {drop} packets were dropped for it, and {early} connections thrown out early, since the host started."
        ),
    };
    let (entries, limit) = (of.entries, of.limit);
    let what = format!("the connection table is {percent}% full: {entries} of {limit}");
    let finding = match percent {
        95.. => Finding::fault(Cause::ConntrackFull, what),
        80..95 => Finding::warning(Cause::ConntrackFull, what),
        _ if of.drop > 0 => Finding::warning(
            Cause::ConntrackLoss,
            format!(
                "the connection table was full before: {} packets were dropped",
                of.drop
            ),
        ),
        _ => return None,
    };
    Some(
        finding
            .because(format!(
                "When it is full, new connections are dropped (\"nf_conntrack: table full, dropping packet\"), to Services and to everything \
                 else.{lost}"
            ))
            .advise(Advice::act(more(limit)))
            .advise(Advice::act("look whose they are: conntrack -L | awk '{print $1, $4}' | sort | uniq -c | sort -n | tail")),
    )
}

/// The least that upstream sets, whatever the machine.
const LEAST: u64 = 131_072;

fn small(of: ConntrackFacts) -> Option<Finding> {
    (1..LEAST).contains(&of.limit).then(|| {
        let limit = of.limit;
        Finding::warning(
            Cause::ConntrackSmall,
            format!("the connection table has room for {limit} connections, less than the {LEAST} that kube-proxy sets"),
        )
        .because("kube-proxy could not raise it (a container without the right, conntrack.min), or somebody took it back.")
        .advise(Advice::act(more(LEAST / 2)))
    })
}

/// So many collisions are no accident: a busy resolver makes a few.
const COLLISIONS: u64 = 100;

fn collisions(patient: &Patient, of: ConntrackFacts) -> Option<Finding> {
    let number = of.insert_failed;
    if number < COLLISIONS {
        return None;
    }
    let what =
        format!("{number} connections were lost when two got the same addresses and ports (insert_failed)");
    let is_kept = patient
        .chains(TableName::Nat, "KUBE-POSTROUTING")
        .any(|(_, chain)| {
            let mut rules = chain.rules.iter();
            rules.any(|rule| rule.target == Target::Masquerade(Ports::Kept))
        });
    let why = "Their first packet is dropped, and sent again after a second or more: stalls of 1, 3 or 5 s, of DNS above all.";
    let advice = if is_kept {
        "update iptables to 1.6.2 or later, so that kube-proxy writes MASQUERADE --random-fully"
    } else {
        "let each DNS look-up use one socket a family (options single-request-reopen), or run a node-local DNS cache"
    };
    Some(
        Finding::warning(Cause::ConntrackLoss, what)
            .because(why)
            .advise(Advice::act(advice)),
    )
}
