use super::super::registry::Registry;
use super::super::service_counts;
use super::*;

/// Name, type, labels, bounds, help.
type Row = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
);

/// Upstream 1.36's metrics in iptables mode, listed by hand: name after `kubeproxy_`, type, labels in order of
/// the alphabet, bounds (`sync` and `npl` are typed in below), help after `[ALPHA] `.
const TABLE: &[Row] = &[
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
const NPL_BOUNDS: &str = "0 0.25 0.5 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 \
    35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 65 70 75 80 85 90 95 100 105 110 115 120 \
    150 180 210 240 270 300 +Inf";

/// The names in [`TABLE`] that nftables mode has not.
const NOT_IN_NFTABLES_MODE: [&str; 6] = [
    "sync_proxy_rules_iptables_restore_failures_total",
    "sync_proxy_rules_iptables_partial_restore_failures_total",
    "sync_proxy_rules_iptables_total",
    "sync_proxy_rules_iptables_last",
    "iptables_ct_state_invalid_dropped_packets_total",
    "iptables_localhost_nodeports_accepted_packets_total",
];

/// Those that it has instead, in the form of [`TABLE`].
const OF_NFTABLES_MODE_ALONE: [Row; 2] = [
    (
        "sync_proxy_rules_nftables_sync_failures_total",
        "counter",
        &["ip_family"],
        "",
        "Cumulative proxy nftables sync failures",
    ),
    (
        "sync_proxy_rules_nftables_cleanup_failures_total",
        "counter",
        &["ip_family"],
        "",
        "Cumulative proxy nftables cleanup failures",
    ),
];

#[test]
fn nftables_mode_has_upstreams_metrics_of_that_mode_and_no_others() {
    let common = TABLE
        .iter()
        .filter(|(name, ..)| !NOT_IN_NFTABLES_MODE.contains(name));
    is_exposed(
        Mode::Nftables,
        &common.copied().chain(OF_NFTABLES_MODE_ALONE).collect::<Vec<_>>(),
    );
}

#[test]
fn every_metric_of_upstream_is_exposed_with_its_type_labels_buckets_and_help() {
    is_exposed(Mode::Iptables, TABLE);
}

fn is_exposed(mode: Mode, table: &[Row]) {
    let metrics = all(mode);
    let mut registry = Registry::new(&metrics);
    let own =
        |metric: &&Metric| metric.name.starts_with("kubeproxy_") && !metric.name.starts_with("kubeproxy_rs_");
    assert_eq!(metrics.iter().filter(own).count(), table.len());
    for (name, kind, labels, bounds, help) in table {
        let metric = metrics
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
    for metric in OWN.iter().chain(service_counts::METRICS) {
        assert!(metric.labels.is_sorted(), "{}", metric.name);
        assert!(metric.name.starts_with("kubeproxy_rs_"), "{}", metric.name);
    }
    for metric in [all(Mode::Iptables), all(Mode::Nftables)].concat() {
        assert!(metric.labels.is_sorted(), "{}", metric.name);
    }
}

#[test]
fn every_metric_of_ours_is_in_the_book_with_its_type_and_labels() {
    let book = include_str!("../../../../../docs/metrics.md");
    for metric in OWN.iter().chain(service_counts::METRICS) {
        let kind = match metric.shape {
            Shape::Counter => "counter",
            Shape::Gauge => "gauge",
            Shape::Histogram(_) => "histogram",
        };
        let row = book
            .lines()
            .find(|line| line.contains(&format!("`{}`", metric.name)));
        let row = row.unwrap_or_else(|| panic!("docs/metrics.md does not name {}", metric.name));
        let words = format!("| {kind} | {} |", metric.labels.join(", ")).replace("|  |", "| |");
        assert!(row.contains(&words), "{words} in {row}");
    }
}

/// Families of upstream's that are not here, by how their names begin (ADR 31).
const LEFT_OUT: [&str; 3] = [
    "cardinality_enforcement_",
    "rest_client_exec_plugin_",
    "rest_client_transport_",
];

/// The names of a sample's labels, and the bound if there is one.
fn labels(sample: &str) -> (Vec<&str>, Option<&str>) {
    let mut names = Vec::new();
    let mut bound = None;
    let (_, pairs) = sample.split_once('{').unwrap_or_default();
    for (before, after) in pairs
        .match_indices("=\"")
        .map(|(at, _)| (&pairs[..at], &pairs[at + 2..]))
    {
        let name = before.rsplit([',', '"']).next().expect("a name");
        if name == "le" {
            bound = after.split('"').next();
        } else {
            names.push(name);
        }
    }
    (names, bound)
}

#[test]
fn what_upstream_exposed_in_a_cluster_is_declared_with_its_type_labels_buckets_and_help() {
    let text = include_str!("../../../../../scenarios/metrics/upstream-after.txt");
    let declared = [all(Mode::Iptables), super::super::slis::METRICS.to_vec()].concat();
    let mut seen = 0;
    for part in text.split("# HELP ").skip(1) {
        let mut lines = part.lines();
        let (name, help) = lines
            .next()
            .and_then(|line| line.split_once(' '))
            .expect("a help");
        if LEFT_OUT.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        let metric = declared.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is not declared"));
        let kind = match metric.shape {
            Shape::Counter => "counter",
            Shape::Gauge => "gauge",
            Shape::Histogram(_) => "histogram",
        };
        assert_eq!(metric.help, help, "{name}");
        assert_eq!(lines.next(), Some(&*format!("# TYPE {name} {kind}")));
        let samples: Vec<&str> = lines.collect();
        let (names, _) = labels(samples.last().expect("a sample"));
        assert_eq!(metric.labels, names, "{name}");
        if let Shape::Histogram(bounds) = metric.shape {
            let mut theirs: Vec<f64> = samples
                .iter()
                .filter_map(|sample| labels(sample).1)
                .map(|bound| bound.parse().expect("a number"))
                .collect();
            theirs.dedup();
            let count = bounds.upper().len();
            assert_eq!(theirs[..count], bounds.upper(), "{name}");
            assert!(theirs[count].is_infinite(), "{name}");
        }
        seen += 1;
    }
    assert!(seen > 35, "{seen}");
}
