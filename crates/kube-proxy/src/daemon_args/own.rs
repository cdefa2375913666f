//! The flags that fill no field of the configuration: some of upstream's, and all of ours.

use crate::external_ips;
use crate::state_args::{STATE_DIR, STATE_MAX_AGE};
use config::flags::FlagKind;

/// Ours: upstream never cuts TCP connections.
pub(super) const CUT_GONE_TCP: &str = "conntrack-cut-gone-tcp";

/// Ours: upstream has no such pages.
pub(super) const EXPLORER: &str = "explorer";

/// Ours: upstream counts nothing by Service.
pub(super) const SERVICE_METRICS: &str = "service-metrics";

/// Flags that fill no field of the configuration.
pub(super) const OWN: [(&str, FlagKind, &str, &str); 17] = [
    (
        "boot-id-file",
        FlagKind::Value,
        "path",
        "Accepted, without effect",
    ),
    (
        "cleanup",
        FlagKind::Bool,
        "true|false",
        "Remove the rules that kube-proxy wrote, and end",
    ),
    (
        "config",
        FlagKind::Value,
        "path",
        "Configuration file (KubeProxyConfiguration, YAML or JSON); replaces all flags but these: --manifests, --master, --state-dir, --state-max-age, --conntrack-cut-gone-tcp, --explorer, --service-metrics, --external-ip-allowed-cidrs, --hostname-override and the logging flags",
    ),
    (
        CUT_GONE_TCP,
        FlagKind::Bool,
        "true|false",
        "Cut TCP connections to an endpoint that no slice of its service lists any more, so that clients need not wait for a timeout; never done without it",
    ),
    (
        EXPLORER,
        FlagKind::Bool,
        "true|false",
        "Serve the explorer at /explore/ of the metrics address: services, their endpoints and rules, the path of a packet, the last changes. It shows the cluster's Services to whoever reaches that address",
    ),
    (
        external_ips::FLAG,
        FlagKind::List,
        "cidrs",
        "Networks that Services' external IPs may be of, comma separated; others are left out, with a note and an Event. Without it, all are served",
    ),
    (
        "hostname-override",
        FlagKind::Value,
        "name",
        "The Node's name, if it is not the host's",
    ),
    (
        "init-only",
        FlagKind::Bool,
        "true|false",
        "Prepare the host as root, and end",
    ),
    (
        "machine-id-file",
        FlagKind::Value,
        "path",
        "Accepted, without effect",
    ),
    (
        "manifests",
        FlagKind::Value,
        "path",
        "A file or folder of manifests to take objects from, watched, in place of an API server",
    ),
    (
        "master",
        FlagKind::Value,
        "url",
        "The API server's URL, in place of the kubeconfig's",
    ),
    (
        STATE_DIR,
        FlagKind::Value,
        "path",
        "A folder of this node in which to remember what the API server said, for a start while it cannot be reached; nothing is remembered without it",
    ),
    (
        STATE_MAX_AGE,
        FlagKind::Value,
        "duration",
        "How old what is remembered in --state-dir may be; 24h if not given",
    ),
    (
        SERVICE_METRICS,
        FlagKind::Value,
        "number",
        "Count connections by Service, from the rules' counters, and expose so many service ports (at most 1000) as metrics; 0, as without it, counts nothing",
    ),
    (
        "version",
        FlagKind::Bool,
        "true|raw|vX.Y.Z",
        "Print the version, and end",
    ),
    (
        "write-config-to",
        FlagKind::Value,
        "path",
        "Write the configuration in effect to this file, and end",
    ),
    ("help", FlagKind::Bool, "true|false", "Print help"),
];
