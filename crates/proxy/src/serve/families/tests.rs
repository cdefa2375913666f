use super::super::registry::Registry;
use super::*;

/// Upstream's metrics in iptables mode as control.md 7.2 lists them: name after `kubeproxy_`, type, labels in order of
/// the alphabet, bounds (`sync` and `npl` are typed in below), help after `[ALPHA] `.
const TABLE: &[(&str, &str, &[&str], &str, &str)] = &[
    (
        "sync_proxy_rules_duration_seconds",
        "histogram",
        &["ip_family"],
        "sync",
        "SyncProxyRules latency in seconds",
    ),
    (
        "sync_full_proxy_rules_duration_seconds",
        "histogram",
        &["ip_family"],
        "sync",
        "SyncProxyRules latency in seconds for full resyncs",
    ),
    (
        "sync_partial_proxy_rules_duration_seconds",
        "histogram",
        &["ip_family"],
        "sync",
        "SyncProxyRules latency in seconds for partial resyncs",
    ),
    (
        "sync_proxy_rules_last_timestamp_seconds",
        "gauge",
        &["ip_family"],
        "",
        "The last time proxy rules were successfully synced",
    ),
    (
        "sync_proxy_rules_last_queued_timestamp_seconds",
        "gauge",
        &["ip_family"],
        "",
        "The last time a sync of proxy rules was queued",
    ),
    (
        "network_programming_duration_seconds",
        "histogram",
        &["ip_family"],
        "npl",
        "In Cluster Network Programming Latency in seconds",
    ),
    (
        "sync_proxy_rules_endpoint_changes_pending",
        "gauge",
        &[],
        "",
        "Pending proxy rules Endpoint changes",
    ),
    (
        "sync_proxy_rules_endpoint_changes_total",
        "counter",
        &[],
        "",
        "Cumulative proxy rules Endpoint changes",
    ),
    (
        "sync_proxy_rules_service_changes_pending",
        "gauge",
        &[],
        "",
        "Pending proxy rules Service changes",
    ),
    (
        "sync_proxy_rules_service_changes_total",
        "counter",
        &[],
        "",
        "Cumulative proxy rules Service changes",
    ),
    (
        "sync_proxy_rules_no_local_endpoints_total",
        "gauge",
        &["ip_family", "traffic_policy"],
        "",
        "Number of services with a Local traffic policy and no endpoints",
    ),
    (
        "proxy_healthz_total",
        "counter",
        &["code"],
        "",
        "Cumulative proxy healthz HTTP status",
    ),
    (
        "proxy_livez_total",
        "counter",
        &["code"],
        "",
        "Cumulative proxy livez HTTP status",
    ),
    (
        "sync_proxy_rules_iptables_restore_failures_total",
        "counter",
        &["ip_family"],
        "",
        "Cumulative proxy iptables restore failures",
    ),
    (
        "sync_proxy_rules_iptables_partial_restore_failures_total",
        "counter",
        &["ip_family"],
        "",
        "Cumulative proxy iptables partial restore failures",
    ),
    (
        "sync_proxy_rules_iptables_total",
        "gauge",
        &["ip_family", "table"],
        "",
        "Total number of iptables rules owned by kube-proxy",
    ),
    (
        "sync_proxy_rules_iptables_last",
        "gauge",
        &["ip_family", "table"],
        "",
        "Number of iptables rules written by kube-proxy in last sync",
    ),
    (
        "iptables_ct_state_invalid_dropped_packets_total",
        "counter",
        &[],
        "",
        "packets dropped by iptables to work around conntrack problems",
    ),
    (
        "iptables_localhost_nodeports_accepted_packets_total",
        "counter",
        &[],
        "",
        "Number of packets accepted on nodeports of loopback interface",
    ),
    (
        "conntrack_reconciler_sync_duration_seconds",
        "histogram",
        &["ip_family"],
        "sync",
        "ReconcileConntrackFlowsLatency latency in seconds",
    ),
    (
        "conntrack_reconciler_deleted_entries_total",
        "counter",
        &["ip_family"],
        "",
        "Cumulative conntrack flows deleted by conntrack reconciler",
    ),
];

const SYNC_BOUNDS: &str =
    "0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256 0.512 1.024 2.048 4.096 8.192 16.384 +Inf";
const NPL_BOUNDS: &str = "0.25 0.5 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 \
    35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 65 70 75 80 85 90 95 100 105 110 115 120 \
    150 180 210 240 270 300 +Inf";

#[test]
fn every_metric_of_upstream_is_exposed_with_its_type_labels_buckets_and_help() {
    let mut registry = Registry::new(&all());
    assert_eq!(UPSTREAM.len(), TABLE.len());
    for (name, kind, labels, bounds, help) in TABLE {
        let metric = UPSTREAM
            .iter()
            .find(|metric| metric.name == format!("kubeproxy_{name}"));
        let metric = metric.unwrap_or_else(|| panic!("{name} is missing"));
        if *kind == "histogram" {
            registry.observe(metric.name, labels, 1.0);
        } else {
            registry.set(metric.name, labels, 1.0);
        }
        let text = registry.text();
        let full = format!("kubeproxy_{name}");
        assert!(
            text.contains(&format!("# HELP {full} [ALPHA] {help}\n# TYPE {full} {kind}\n")),
            "{full} in {text}"
        );
        let pairs: Vec<String> = labels
            .iter()
            .map(|label| format!("{label}=\"{label}\""))
            .collect();
        let pairs = pairs.join(",");
        match *kind {
            "histogram" => {
                let prefix = format!("{full}_bucket{{{pairs},le=\"");
                let ends: Vec<&str> = text
                    .lines()
                    .filter_map(|line| line.strip_prefix(&prefix)?.split('"').next())
                    .collect();
                assert_eq!(
                    ends.join(" "),
                    if *bounds == "npl" { NPL_BOUNDS } else { SYNC_BOUNDS }
                );
            }
            _ if pairs.is_empty() => assert!(text.contains(&format!("\n{full} 1\n"))),
            _ => assert!(text.contains(&format!("\n{full}{{{pairs}}} 1\n"))),
        }
    }
}

#[test]
fn our_metrics_stand_under_our_own_prefix_with_labels_in_order() {
    for metric in OWN {
        assert!(metric.name.starts_with("kubeproxy_rs_"), "{}", metric.name);
    }
    for metric in all() {
        assert!(metric.labels.is_sorted(), "{}", metric.name);
    }
}
