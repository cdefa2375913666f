//! What one proxy exposes and the other does not, or otherwise.

use super::{Family, Scrape, Series};
use std::collections::BTreeSet;

/// Two scrapes of one proxy, before and after something happened.
pub struct Pair {
    /// Before.
    pub before: Scrape,
    /// After.
    pub after: Scrape,
}

/// Families of upstream's that mean nothing here, by how their names begin; ADR 31 says why.
const LEFT_OUT: &[&str] = &[
    "go_",
    "aggregator_discovery_",
    "apiserver_",
    "authenticated_user_requests",
    "authentication_",
    "authorization_",
    "cardinality_enforcement_unexpected_categorizations_total",
    "field_validation_",
    "informer_",
    "leader_election_",
    "rest_client_exec_plugin_",
    "rest_client_transport_",
    "version_info",
    "watch_cache_",
    "workqueue_",
];

/// Families whose series or movements are each proxy's own affair; ADR 34 says why.
const OWN_SERIES: &[&str] = &[
    // Which gates there are, and who built it.
    "kubernetes_build_info",
    "kubernetes_feature_enabled",
    "registered_metrics_total",
    // The table is gone through when upstream goes through it, and at start and each minute as well.
    "kubeproxy_conntrack_reconciler_",
    // Requests are each client's own.
    "rest_client_",
];

/// Families that may move in one proxy alone: what is written is a difference here, a full sync is a reading of
/// everything, and processes differ.
const OWN_MOVES: &[&str] = &[
    "kubeproxy_sync_proxy_rules_iptables_last",
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
    "process_",
];

/// Families whose values are the same in both at the end, and so move by the same amount.
const SAME_VALUES: &[&str] = &[
    "kubeproxy_network_programming_duration_seconds",
    "kubeproxy_proxy_healthz_total",
    "kubeproxy_proxy_livez_total",
    "kubeproxy_conntrack_reconciler_deleted_entries_total",
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
    "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    "kubeproxy_sync_proxy_rules_iptables_total",
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
    "kubeproxy_sync_proxy_rules_service_changes_pending",
    "kubeproxy_sync_proxy_rules_service_changes_total",
    "kubernetes_healthcheck",
    "kubernetes_healthchecks_total",
];

/// All that is other in `ours` than in `upstreams`, a line each.
pub fn differences(upstreams: &Pair, ours: &Pair) -> Vec<String> {
    let mut found = Vec::new();
    for (name, theirs) in &upstreams.after {
        if LEFT_OUT.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        let Some(our) = ours.after.get(name) else {
            if !OWN_SERIES.iter().any(|start| name.starts_with(start)) {
                found.push(format!("{name}: not there"));
            }
            continue;
        };
        interface(name, theirs, our, &mut found);
        if !OWN_SERIES.iter().any(|start| name.starts_with(start)) {
            series(name, theirs, our, &mut found);
            moves(name, upstreams, ours, &mut found);
        }
        if SAME_VALUES.contains(&name.as_str()) {
            values(name, upstreams, ours, &mut found);
        }
    }
    let own = |name: &&String| !name.starts_with("kubeproxy_rs_");
    for name in ours.after.keys().filter(own) {
        if !upstreams.after.contains_key(name) && !OWN_SERIES.iter().any(|start| name.starts_with(start)) {
            found.push(format!("{name}: upstream has no such family"));
        }
    }
    found
}

fn interface(name: &str, theirs: &Family, ours: &Family, found: &mut Vec<String>) {
    let mut compare = |what: &str, theirs: String, ours: String| {
        if theirs != ours {
            found.push(format!("{name}: its {what} is {ours}, upstream's {theirs}"));
        }
    };
    compare("type", theirs.kind.clone(), ours.kind.clone());
    compare("help", theirs.help.clone(), ours.help.clone());
    compare(
        "list of labels",
        format!("{:?}", theirs.label_names()),
        format!("{:?}", ours.label_names()),
    );
    compare(
        "list of bounds",
        format!("{:?}", theirs.bounds()),
        format!("{:?}", ours.bounds()),
    );
}

fn series(name: &str, theirs: &Family, ours: &Family, found: &mut Vec<String>) {
    let [theirs, ours] = [theirs, ours].map(|family| family.series.keys().collect::<BTreeSet<_>>());
    for labels in theirs.difference(&ours) {
        found.push(format!("{name}{{{labels}}}: not there"));
    }
    for labels in ours.difference(&theirs) {
        found.push(format!("{name}{{{labels}}}: upstream has no such series"));
    }
}

fn moves(name: &str, upstreams: &Pair, ours: &Pair, found: &mut Vec<String>) {
    if OWN_MOVES.iter().any(|start| name.starts_with(start)) {
        return;
    }
    for labels in upstreams.after[name].series.keys() {
        let [theirs, our] = [upstreams, ours].map(|pair| has_moved(pair, name, labels));
        if theirs != our {
            let who = if theirs { "upstream's alone" } else { "ours alone" };
            found.push(format!("{name}{{{labels}}}: {who} has moved"));
        }
    }
}

fn values(name: &str, upstreams: &Pair, ours: &Pair, found: &mut Vec<String>) {
    for labels in upstreams.after[name].series.keys() {
        let [theirs, our] = [upstreams, ours].map(|pair| {
            let value = |scrape| at(scrape, name, labels).map_or(0.0, |series| series.value);
            (value(&pair.before), value(&pair.after))
        });
        if theirs != our {
            found.push(format!(
                "{name}{{{labels}}}: from {} to {}, upstream's from {} to {}",
                our.0, our.1, theirs.0, theirs.1
            ));
        }
    }
}

fn has_moved(pair: &Pair, name: &str, labels: &str) -> bool {
    at(&pair.before, name, labels) != at(&pair.after, name, labels)
}

fn at<'s>(scrape: &'s Scrape, name: &str, labels: &str) -> Option<&'s Series> {
    scrape.get(name)?.series.get(labels)
}
