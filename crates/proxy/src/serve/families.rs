//! The metrics there are: upstream's of the mode by name, type, labels, buckets and help (`pkg/proxy/metrics`), and ours.

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
    pub(crate) const NFT_FAILURES: &str = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total";
    pub(crate) const NFT_CLEANUP_FAILURES: &str =
        "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total";
    pub(crate) const PROGRAMMING: &str = "kubeproxy_network_programming_duration_seconds";
    pub(crate) const RULES_TOTAL: &str = "kubeproxy_sync_proxy_rules_iptables_total";
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
    pub(crate) const DAMAGED: &str = "kubeproxy_rs_damaged_services_total";
    pub(crate) const SWEEP_FAILURES: &str = "kubeproxy_rs_conntrack_sweep_failures_total";
    pub(crate) const NOTES: &str = "kubeproxy_rs_notes";
    pub(crate) const OBJECT_NOTES: &str = "kubeproxy_rs_object_notes_total";
    pub(crate) const OLDEST_PENDING: &str = "kubeproxy_rs_oldest_pending_seconds";
    pub(crate) const REFUSED: &str = "kubeproxy_rs_refused_services";
    pub(crate) const STUCK: &str = "kubeproxy_rs_stuck_chains_total";
    pub(crate) const REMEMBERED: &str = "kubeproxy_rs_remembered_state_in_use";
    pub(crate) const REMEMBERED_AGE: &str = "kubeproxy_rs_remembered_state_age_seconds";
    pub(crate) const REMEMBERED_FAILING: &str = "kubeproxy_rs_remembered_state_write_failing";
    pub(crate) const CT_ENTRIES: &str = "kubeproxy_rs_conntrack_entries";
    pub(crate) const CT_LIMIT: &str = "kubeproxy_rs_conntrack_limit";
    pub(crate) const CT_DROPS: &str = "kubeproxy_rs_conntrack_drops_total";
    pub(crate) const AFFINITY_CLIENTS: &str = "kubeproxy_rs_affinity_clients";
    pub(crate) const AFFINITY_FULLEST: &str = "kubeproxy_rs_affinity_fullest_set_ratio";
    pub(crate) const LISTEN_FAILURES: &str = "kubeproxy_rs_listen_failures_total";
    pub(crate) const NODE_FOUND: &str = "kubeproxy_rs_node_found";
    pub(crate) const HEALTH_PORT_FAILURES: &str = "kubeproxy_rs_health_port_failures_total";
    pub(crate) const EVENTS: &str = "kubeproxy_rs_events_total";
    pub(crate) const HOST_FIREWALL: &str = "kubeproxy_rs_host_firewall_chains";
    pub(crate) const NODE_PORT_CONFLICTS: &str = "kubeproxy_rs_node_port_conflicts";
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

/// Upstream's own, in every mode.
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
        name::PROGRAMMING,
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

/// Upstream's own, in iptables mode alone.
pub(crate) const OF_IPTABLES_MODE: &[Metric] = &[
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
        name::RULES_TOTAL,
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
];

/// Upstream's own, in nftables mode alone.
pub(crate) const OF_NFTABLES_MODE: &[Metric] = &[
    counter(
        name::NFT_FAILURES,
        FAMILY,
        "[ALPHA] Cumulative proxy nftables sync failures",
    ),
    counter(
        name::NFT_CLEANUP_FAILURES,
        FAMILY,
        "[ALPHA] Cumulative proxy nftables cleanup failures",
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
        "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
    ),
    gauge(
        name::FEATURE,
        &["name", "stage"],
        "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
    ),
    counter(
        "registered_metrics_total",
        &["deprecated_version", "stability_level"],
        "[BETA] The count of registered metrics broken by stability level and deprecation version.",
    ),
    counter(
        "disabled_metrics_total",
        &[],
        "[BETA] The count of disabled metrics.",
    ),
    counter("hidden_metrics_total", &[], "[BETA] The count of hidden metrics."),
    counter(
        "process_cpu_seconds_total",
        &[],
        "Total user and system CPU time spent in seconds.",
    ),
    gauge("process_max_fds", &[], "Maximum number of open file descriptors."),
    counter(
        "process_network_receive_bytes_total",
        &[],
        "Number of bytes received by the process over the network.",
    ),
    counter(
        "process_network_transmit_bytes_total",
        &[],
        "Number of bytes sent by the process over the network.",
    ),
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
    gauge(
        "process_virtual_memory_max_bytes",
        &[],
        "Maximum amount of virtual memory available in bytes.",
    ),
];

/// Ours.
pub(crate) const OWN: &[Metric] = &[
    gauge(
        own::REMEMBERED,
        &[],
        "1 while objects remembered on disk are in use because the API server does not answer",
    ),
    gauge(
        own::REMEMBERED_AGE,
        &[],
        "Seconds since the API server confirmed the remembered objects, while they are in use",
    ),
    gauge(
        own::REMEMBERED_FAILING,
        &[],
        "1 while objects cannot be written to the state folder",
    ),
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
    counter(
        own::DAMAGED,
        FAMILY,
        "Services whose rules were found changed by somebody else, summed over all such times",
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
    gauge(
        own::AFFINITY_CLIENTS,
        FAMILY,
        "Clients that session affinity remembers, in nftables mode on kernels from 6.16",
    ),
    gauge(
        own::AFFINITY_FULLEST,
        FAMILY,
        "How full the fullest set of such clients is; at 1 it remembers no new ones",
    ),
    counter(
        own::SWEEP_FAILURES,
        FAMILY,
        "Times the connection table could not be gone through to its end",
    ),
    counter(
        own::LISTEN_FAILURES,
        &["server"],
        "Times the health or metrics port could not be opened",
    ),
    gauge(
        own::NODE_FOUND,
        &[],
        "Whether there is a Node of the name this proxy goes by; without one nothing counts as local",
    ),
    counter(
        own::HEALTH_PORT_FAILURES,
        FAMILY,
        "Times a service's health-check node port could not be opened",
    ),
    counter(
        own::EVENTS,
        &["outcome"],
        "Events for the API server by what became of them: written, refused, unreachable, withheld",
    ),
    gauge(
        own::HOST_FIREWALL,
        &["hook", "ip_family"],
        "Chains of others that drop what they do not accept, as nftables mode found them at its start",
    ),
    gauge(
        own::NODE_PORT_CONFLICTS,
        &[],
        "Sockets of other processes on node ports, which are not reached there",
    ),
];

/// Modes whose metrics differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// iptables mode.
    Iptables,
    /// nftables mode.
    Nftables,
}

impl Mode {
    /// The mode that a configuration names; a process of any other ends at once.
    pub(crate) fn of(config: &config::KubeProxyConfiguration) -> Mode {
        match config.mode.as_str() {
            "nftables" => Mode::Nftables,
            _ => Mode::Iptables,
        }
    }
}

/// All metrics of a mode.
pub(crate) fn all(mode: Mode) -> Vec<Metric> {
    let of_mode = match mode {
        Mode::Iptables => OF_IPTABLES_MODE,
        Mode::Nftables => OF_NFTABLES_MODE,
    };
    [UPSTREAM, of_mode, GENERIC, super::requests::REQUESTS, OWN].concat()
}

#[cfg(test)]
mod tests;
