//! What is said when no Node has our name: the commonest reason why nothing counts as local.

use crate::ProxyOptions;
use model::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// So many names are told.
const TOLD: usize = 5;
/// Names that differ in so many letters are alike.
const ALIKE: usize = 2;

/// Why it matters, which name was looked for, where that came from, and which names there are instead.
pub(crate) fn describe(options: &ProxyOptions, snapshot: &Snapshot) -> String {
    let name = &*options.node_name;
    let origin = if options.config.hostname_override.is_empty() {
        "this host's own name"
    } else {
        "from hostnameOverride (--hostname-override)"
    };
    let known = known(snapshot);
    format!(
        "no Node is named {name:?} ({origin}), so no endpoint counts as local, and what only local endpoints may serve is dropped; {}",
        advice(name, &known)
    )
}

fn advice(name: &str, known: &BTreeSet<Arc<str>>) -> String {
    if known.is_empty() {
        return "set hostnameOverride to the name of this host's Node; the Node is taken in when it appears"
            .to_owned();
    }
    if known.contains(name) {
        return "EndpointSlices have endpoints on a node of this name, so its Node may still appear, and is taken in then"
            .to_owned();
    }
    let alike: Vec<&str> = known
        .iter()
        .map(|one| &**one)
        .filter(|one| is_alike(name, one))
        .collect();
    if let Some(first) = alike.first() {
        return format!(
            "the nodes that EndpointSlices name include {}; if that is this host, set hostnameOverride to {first:?}",
            listed(&alike)
        );
    }
    let all: Vec<&str> = known.iter().map(|one| &**one).collect();
    format!(
        "EndpointSlices name {} other nodes ({}) and never this one; set hostnameOverride to the one that is this host",
        all.len(),
        listed(&all)
    )
}

fn listed(names: &[&str]) -> String {
    let more = if names.len() > TOLD { ", …" } else { "" };
    let told: Vec<&str> = names.iter().copied().take(TOLD).collect();
    format!("{}{more}", told.join(", "))
}

/// All names of nodes that objects tell.
fn known(snapshot: &Snapshot) -> BTreeSet<Arc<str>> {
    let of_slices = snapshot.slices().flat_map(|slice| {
        slice
            .endpoints
            .iter()
            .filter_map(|endpoint| endpoint.node.clone())
    });
    let nodes = snapshot.nodes().map(|node| node.name.clone());
    of_slices.chain(nodes).collect()
}

/// Whether two names may mean one host: but for case, a domain, something before or behind, or a slip of the finger.
fn is_alike(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let contains = |long: &str, short: &str| {
        let rest = long.strip_prefix(short).or_else(|| long.strip_suffix(short));
        !short.is_empty()
            && rest.is_some_and(|rest| rest.starts_with(['.', '-']) || rest.ends_with(['.', '-']))
    };
    one == other
        || label(&one) == label(&other)
        || contains(&one, &other)
        || contains(&other, &one)
        || (one.len() > 2 * ALIKE && distance(&one, &other) <= ALIKE)
}

/// How many letters have to be put in, left out or replaced.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, theirs) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *theirs);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn names_of_one_host_are_alike_and_others_are_not() {
        for (one, other) in [
            ("vm", "VM"),
            ("vm", "vm.example.org"),
            ("node1.internal", "node1.example.org"),
            ("node1", "cluster-node1"),
            ("worker-01", "worker-1"),
            ("ip-10-0-0-1", "ip-10-0-0-1.ec2.internal"),
        ] {
            assert!(is_alike(one, other) && is_alike(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("vm", "db"),
            ("vm", "vmware"),
            ("worker-1", "control-plane"),
            ("", "node"),
        ] {
            assert!(!is_alike(one, other) && !is_alike(other, one), "{one} {other}");
        }
    }

    #[test]
    fn a_name_that_is_alike_is_offered() {
        let advice = advice("vm", &set(&["db.example", "vm.example"]));
        assert!(
            advice.ends_with(
                "include vm.example; if that is this host, set hostnameOverride to \"vm.example\""
            ),
            "{advice}"
        );
    }

    #[test]
    fn slices_that_never_name_us_are_told_with_a_few_of_their_names() {
        let advice = advice("vm", &set(&["a1", "b1", "c1", "d1", "e1", "f1"]));
        assert!(
            advice.contains("name 6 other nodes (a1, b1, c1, d1, e1, …) and never this one"),
            "{advice}"
        );
    }

    #[test]
    fn a_name_that_slices_know_is_waited_for() {
        let advice = advice("vm", &set(&["vm"]));
        assert!(advice.contains("may still appear"), "{advice}");
    }
}
