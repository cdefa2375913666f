//! The metrics there are: upstream's in iptables mode by name, type, labels, buckets and help (control.md 7.2), and ours.

use super::registry::{Bounds, Metric, Shape};

const FAMILY: &[&str] = &["ip_family"];
const SYNC: Shape = Shape::Histogram(Bounds::Sync);

/// Names of upstream's that are written from more than one place.
pub(crate) mod name {
    pub(crate) const SYNC_DURATION: &str = "kubeproxy_sync_proxy_rules_duration_seconds";
    pub(crate) const SYNC_FULL: &str = "kubeproxy_sync_full_proxy_rules_duration_seconds";
    pub(crate) const SYNC_PARTIAL: &str = "kubeproxy_sync_partial_proxy_rules_duration_seconds";
    pub(crate) const LAST_SYNC: &str = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";
    pub(crate) const LAST_QUEUED: &str = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds";
    pub(crate) const ENDPOINTS_PENDING: &str = "kubeproxy_sync_proxy_rules_endpoint_changes_pending";
    pub(crate) const ENDPOINTS_TOTAL: &str = "kubeproxy_sync_proxy_rules_endpoint_changes_total";
    pub(crate) const SERVICES_PENDING: &str = "kubeproxy_sync_proxy_rules_service_changes_pending";
    pub(crate) const SERVICES_TOTAL: &str = "kubeproxy_sync_proxy_rules_service_changes_total";
    pub(crate) const NO_LOCAL: &str = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
    pub(crate) const HEALTHZ: &str = "kubeproxy_proxy_healthz_total";
    pub(crate) const LIVEZ: &str = "kubeproxy_proxy_livez_total";
    pub(crate) const RESTORE_FAILURES: &str = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total";
    pub(crate) const PARTIAL_FAILURES: &str =
        "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total";
    pub(crate) const RULES_LAST: &str = "kubeproxy_sync_proxy_rules_iptables_last";
    pub(crate) const CT_INVALID: &str = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total";
    pub(crate) const LOCALHOST: &str = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total";
    pub(crate) const RECONCILE_DURATION: &str = "kubeproxy_conntrack_reconciler_sync_duration_seconds";
    pub(crate) const RECONCILE_DELETED: &str = "kubeproxy_conntrack_reconciler_deleted_entries_total";
    pub(crate) const BUILD: &str = "kubernetes_build_info";
    pub(crate) const FEATURE: &str = "kubernetes_feature_enabled";
}

/// Names of ours.
pub(crate) mod own {
    pub(crate) const WATCH_AGE: &str = "kubeproxy_rs_watch_age_seconds";
    pub(crate) const WATCH_FAILURES: &str = "kubeproxy_rs_watch_failures_total";
    pub(crate) const FAILURES: &str = "kubeproxy_rs_failures_total";
    pub(crate) const REPAIRS: &str = "kubeproxy_rs_repairs_total";
    pub(crate) const NOTES: &str = "kubeproxy_rs_notes";
    pub(crate) const OBJECT_NOTES: &str = "kubeproxy_rs_object_notes_total";
    pub(crate) const OLDEST_PENDING: &str = "kubeproxy_rs_oldest_pending_seconds";
    pub(crate) const REFUSED: &str = "kubeproxy_rs_refused_services";
    pub(crate) const STUCK: &str = "kubeproxy_rs_stuck_chains_total";
    pub(crate) const CT_ENTRIES: &str = "kubeproxy_rs_conntrack_entries";
    pub(crate) const CT_LIMIT: &str = "kubeproxy_rs_conntrack_limit";
    pub(crate) const CT_DROPS: &str = "kubeproxy_rs_conntrack_drops_total";
    pub(crate) const LISTEN_FAILURES: &str = "kubeproxy_rs_listen_failures_total";
    pub(crate) const HEALTH_PORT_FAILURES: &str = "kubeproxy_rs_health_port_failures_total";
}

const fn metric(
    name: &'static str,
    shape: Shape,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        help,
        shape,
        labels,
    }
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    metric(name, Shape::Counter, labels, help)
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    metric(name, Shape::Gauge, labels, help)
}

/// Upstream's own, in iptables mode.
pub(crate) const UPSTREAM: &[Metric] = &[
    metric(
        name::SYNC_DURATION,
        SYNC,
        FAMILY,
        "[ALPHA] SyncProxyRules latency in seconds",
    ),
    metric(
        name::SYNC_FULL,
        SYNC,
        FAMILY,
        "[ALPHA] SyncProxyRules latency in seconds for full resyncs",
    ),
    metric(
        name::SYNC_PARTIAL,
        SYNC,
        FAMILY,
        "[ALPHA] SyncProxyRules latency in seconds for partial resyncs",
    ),
    gauge(
        name::LAST_SYNC,
        FAMILY,
        "[ALPHA] The last time proxy rules were successfully synced",
    ),
    gauge(
        name::LAST_QUEUED,
        FAMILY,
        "[ALPHA] The last time a sync of proxy rules was queued",
    ),
    metric(
        "kubeproxy_network_programming_duration_seconds",
        Shape::Histogram(Bounds::Programming),
        FAMILY,
        "[ALPHA] In Cluster Network Programming Latency in seconds",
    ),
    gauge(
        name::ENDPOINTS_PENDING,
        &[],
        "[ALPHA] Pending proxy rules Endpoint changes",
    ),
    counter(
        name::ENDPOINTS_TOTAL,
        &[],
        "[ALPHA] Cumulative proxy rules Endpoint changes",
    ),
    gauge(
        name::SERVICES_PENDING,
        &[],
        "[ALPHA] Pending proxy rules Service changes",
    ),
    counter(
        name::SERVICES_TOTAL,
        &[],
        "[ALPHA] Cumulative proxy rules Service changes",
    ),
    gauge(
        name::NO_LOCAL,
        &["ip_family", "traffic_policy"],
        "[ALPHA] Number of services with a Local traffic policy and no endpoints",
    ),
    counter(
        name::HEALTHZ,
        &["code"],
        "[ALPHA] Cumulative proxy healthz HTTP status",
    ),
    counter(
        name::LIVEZ,
        &["code"],
        "[ALPHA] Cumulative proxy livez HTTP status",
    ),
    counter(
        name::RESTORE_FAILURES,
        FAMILY,
        "[ALPHA] Cumulative proxy iptables restore failures",
    ),
    counter(
        name::PARTIAL_FAILURES,
        FAMILY,
        "[ALPHA] Cumulative proxy iptables partial restore failures",
    ),
    gauge(
        "kubeproxy_sync_proxy_rules_iptables_total",
        &["ip_family", "table"],
        "[ALPHA] Total number of iptables rules owned by kube-proxy",
    ),
    gauge(
        name::RULES_LAST,
        &["ip_family", "table"],
        "[ALPHA] Number of iptables rules written by kube-proxy in last sync",
    ),
    counter(
        name::CT_INVALID,
        &[],
        "[ALPHA] packets dropped by iptables to work around conntrack problems",
    ),
    counter(
        name::LOCALHOST,
        &[],
        "[ALPHA] Number of packets accepted on nodeports of loopback interface",
    ),
    metric(
        name::RECONCILE_DURATION,
        SYNC,
        FAMILY,
        "[ALPHA] ReconcileConntrackFlowsLatency latency in seconds",
    ),
    counter(
        name::RECONCILE_DELETED,
        FAMILY,
        "[ALPHA] Cumulative conntrack flows deleted by conntrack reconciler",
    ),
];

/// What every Kubernetes component exposes, as far as it means something here (ADR 31 lists the rest).
pub(crate) const GENERIC: &[Metric] = &[
    gauge(
        name::BUILD,
        &[
            "build_date",
            "compiler",
            "git_commit",
            "git_tree_state",
            "git_version",
            "go_version",
            "major",
            "minor",
            "platform",
        ],
        "[ALPHA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
    ),
    gauge(
        name::FEATURE,
        &["name", "stage"],
        "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
    ),
    counter(
        "process_cpu_seconds_total",
        &[],
        "Total user and system CPU time spent in seconds.",
    ),
    gauge("process_max_fds", &[], "Maximum number of open file descriptors."),
    gauge("process_open_fds", &[], "Number of open file descriptors."),
    gauge(
        "process_resident_memory_bytes",
        &[],
        "Resident memory size in bytes.",
    ),
    gauge(
        "process_start_time_seconds",
        &[],
        "Start time of the process since unix epoch in seconds.",
    ),
    gauge(
        "process_virtual_memory_bytes",
        &[],
        "Virtual memory size in bytes.",
    ),
];

/// Ours.
pub(crate) const OWN: &[Metric] = &[
    gauge(
        own::WATCH_AGE,
        &["kind"],
        "Seconds since the watch of this kind last said something, bookmarks included",
    ),
    counter(
        own::WATCH_FAILURES,
        &["kind"],
        "Times the watch of this kind was found silent or could not be opened",
    ),
    counter(
        own::FAILURES,
        &["about", "cause", "ip_family"],
        "Failures at the kernel's side by what they were about and what they lie in",
    ),
    counter(
        own::REPAIRS,
        FAMILY,
        "Times rules were found changed by somebody else, and were repaired",
    ),
    gauge(
        own::NOTES,
        &["kind", "severity"],
        "Things wrong with Services and their slices that hold now, by kind",
    ),
    counter(
        own::OBJECT_NOTES,
        &["severity"],
        "Parts of objects, and whole objects, left out as malformed, counted each time the object comes",
    ),
    gauge(
        own::OLDEST_PENDING,
        FAMILY,
        "Seconds since the oldest change came that the kernel does not have; 0 when it has all",
    ),
    gauge(
        own::REFUSED,
        FAMILY,
        "Services whose rules the kernel refuses by themselves",
    ),
    counter(
        own::STUCK,
        FAMILY,
        "Chains that nobody wants and that could not be deleted",
    ),
    gauge(
        own::CT_ENTRIES,
        &[],
        "Entries in the connection table of this network namespace",
    ),
    gauge(
        own::CT_LIMIT,
        &[],
        "Most entries the connection table takes; 0 is no limit",
    ),
    counter(
        own::CT_DROPS,
        &["reason"],
        "Packets and entries the connection table dropped, by the kernel's counter",
    ),
    counter(
        own::LISTEN_FAILURES,
        &["server"],
        "Times the health or metrics port could not be opened",
    ),
    counter(
        own::HEALTH_PORT_FAILURES,
        FAMILY,
        "Times a service's health-check node port could not be opened",
    ),
];

/// All of them.
pub(crate) fn all() -> Vec<Metric> {
    [UPSTREAM, GENERIC, OWN].concat()
}

#[cfg(test)]
mod tests;
