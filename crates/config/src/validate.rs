//! The checks a configuration must pass, all reported at once (upstream `pkg/proxy/apis/config/validation`).

use crate::GoDuration;
use crate::types::KubeProxyConfiguration;
use model::Family;
use model::address::{parse_ip, parse_net};
use serde_json::{Value, json};
use std::fmt;

/// One thing wrong with a configuration, in upstream's form.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldError {
    /// The value may not be.
    Invalid {
        /// Path under `KubeProxyConfiguration`.
        path: String,
        /// The value.
        value: Value,
        /// The rule it breaks.
        reason: String,
    },
    /// The value is not one of a few.
    Unsupported {
        /// Path under `KubeProxyConfiguration`.
        path: String,
        /// The value.
        value: Value,
        /// The few.
        supported: Vec<&'static str>,
    },
    /// It has to be set.
    Required {
        /// Path.
        path: String,
        /// Why.
        reason: String,
    },
    /// It may not be set at all.
    Forbidden {
        /// Path.
        path: String,
        /// Why not.
        reason: String,
    },
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldError::Invalid { path, value, reason } => {
                write!(f, "{path}: Invalid value: {value}: {reason}")
            }
            FieldError::Required { path, reason } => write!(f, "{path}: Required value: {reason}"),
            FieldError::Forbidden { path, reason } => write!(f, "{path}: Forbidden: {reason}"),
            FieldError::Unsupported {
                path,
                value,
                supported,
            } => {
                let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
                write!(
                    f,
                    "{path}: Unsupported value: {value}: supported values: {}",
                    list.join(", ")
                )
            }
        }
    }
}

/// Collects errors under one root path.
struct Errors(Vec<FieldError>);

impl Errors {
    fn invalid(&mut self, path: &str, value: impl Into<Value>, reason: &str) {
        let path = format!("KubeProxyConfiguration.{path}");
        self.0.push(FieldError::Invalid {
            path,
            value: value.into(),
            reason: reason.to_owned(),
        });
    }

    fn unsupported(&mut self, path: &str, value: &str, supported: &[&'static str]) {
        let path = format!("KubeProxyConfiguration.{path}");
        self.0.push(FieldError::Unsupported {
            path,
            value: value.into(),
            supported: supported.to_vec(),
        });
    }

    fn at_least_zero(&mut self, path: &str, value: i64) {
        if value < 0 {
            self.invalid(path, value, "must be greater than or equal to 0");
        }
    }

    fn not_negative(&mut self, path: &str, value: GoDuration) {
        if value.nanos() < 0 {
            self.invalid(path, value.to_string(), "must be greater than or equal to 0");
        }
    }

    fn in_range(&mut self, path: &str, value: i32, low: i32, high: i32) {
        if !(low..=high).contains(&value) {
            self.invalid(path, value, &format!("must be within the range [{low}, {high}]"));
        }
    }
}

/// The minor version before the one whose behaviour this is.
const PREVIOUS_VERSION: &str = "1.35";
const MODES: [&str; 3] = ["iptables", "ipvs", "nftables"];
const DETECT_MODES: [&str; 5] = [
    "ClusterCIDR",
    "NodeCIDR",
    "BridgeInterface",
    "InterfaceNamePrefix",
    "",
];

/// Everything wrong with a configuration, in upstream's order. Empty when it can be used.
pub fn validate(config: &KubeProxyConfiguration) -> Vec<FieldError> {
    let mut errors = Errors(Vec::new());
    modes(config, &mut errors);
    conntrack(config, &mut errors);
    errors.in_range(
        "KubeProxyLinuxConfiguration.OOMScoreAdj",
        config.oom_score_adj.unwrap_or(-999),
        -1000,
        1000,
    );
    if !MODES.contains(&config.mode.as_str()) && !config.mode.is_empty() {
        errors.invalid(
            "Mode.ProxyMode",
            config.mode.as_str(),
            "must be iptables, ipvs, nftables or blank (blank means the best-available proxy [currently iptables])",
        );
    }
    errors.at_least_zero(
        "ClientConnection.Burst",
        i64::from(config.client_connection.burst),
    );
    periods(config, &mut errors);
    addresses(config, &mut errors);
    node_port_addresses(config, &mut errors);
    show_hidden(config, &mut errors);
    detect_local(config, &mut errors);
    hostname_override(&config.hostname_override, &mut errors);
    errors.0
}

/// Longest name of an object, in bytes: a DNS subdomain's.
const MAX_NAME: usize = 253;

/// Why nothing can be looked for by this name of a Node; `None` where that can be tried.
///
/// No Node is called `a/b` either, or has a line break in its name, but a start with such a name is as upstream's.
pub fn why_no_node_name(name: &str) -> Option<&'static str> {
    let name = name.trim();
    if name.len() > MAX_NAME {
        Some("must be no longer than 253 bytes, as names of Nodes are")
    } else if name.contains(|c: char| c.is_control() && !c.is_whitespace()) {
        Some("must not contain control characters")
    } else {
        None
    }
}

/// Deviation: upstream takes any text, and no Node has it (ADR 20).
fn hostname_override(name: &str, errors: &mut Errors) {
    if let Some(reason) = why_no_node_name(name) {
        let beginning: String = name.chars().take(80).collect();
        let more = if beginning.len() < name.len() { "..." } else { "" };
        errors.invalid("HostnameOverride", beginning + more, reason);
    }
}

fn modes(config: &KubeProxyConfiguration, errors: &mut Errors) {
    let bit = config.iptables.masquerade_bit.unwrap_or(14);
    errors.in_range("KubeProxyIPTablesConfiguration.MasqueradeBit", bit, 0, 31);
    if config.mode == "ipvs" {
        errors.not_negative("KubeProxyIPVSConfiguration.TCPTimeout", config.ipvs.tcp_timeout);
        errors.not_negative(
            "KubeProxyIPVSConfiguration.TCPFinTimeout",
            config.ipvs.tcp_fin_timeout,
        );
        errors.not_negative("KubeProxyIPVSConfiguration.UDPTimeout", config.ipvs.udp_timeout);
        for (i, text) in config.ipvs.exclude_cidrs.iter().flatten().enumerate() {
            if parse_net(text).is_none() {
                let path = format!("KubeProxyIPVSConfiguration.ExcludeCidrs[{i}]");
                errors.invalid(&path, text.as_str(), "must be a valid CIDR");
            }
        }
    }
    if config.mode == "nftables" {
        let bit = config.nftables.masquerade_bit.unwrap_or(14);
        errors.in_range("KubeProxyNFTablesConfiguration.MasqueradeBit", bit, 0, 31);
    }
}

fn conntrack(config: &KubeProxyConfiguration, errors: &mut Errors) {
    let c = &config.conntrack;
    let path = |name: &str| format!("KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration.{name}");
    errors.at_least_zero(&path("MaxPerCore"), i64::from(c.max_per_core.unwrap_or(0)));
    errors.at_least_zero(&path("Min"), i64::from(c.min.unwrap_or(0)));
    errors.not_negative(
        &path("TCPEstablishedTimeout"),
        c.tcp_established_timeout.unwrap_or_default(),
    );
    errors.not_negative(
        &path("TCPCloseWaitTimeout"),
        c.tcp_close_wait_timeout.unwrap_or_default(),
    );
    errors.not_negative(&path("UDPTimeout"), c.udp_timeout);
    errors.not_negative(&path("UDPStreamTimeout"), c.udp_stream_timeout);
}

fn periods(config: &KubeProxyConfiguration, errors: &mut Errors) {
    let (sync, min) = config.sync_periods();
    if config.config_sync_period.nanos() <= 0 {
        errors.invalid(
            "ConfigSyncPeriod",
            config.config_sync_period.to_string(),
            "must be greater than 0",
        );
    }
    if sync.nanos() <= 0 {
        errors.invalid("SyncPeriod", sync.to_string(), "must be greater than 0");
    }
    errors.not_negative("MinSyncPeriod", min);
    if min > sync {
        let reason = "must be greater than or equal to KubeProxyConfiguration.MinSyncPeriod";
        errors.invalid("SyncPeriod", min.to_string(), reason);
    }
}

impl KubeProxyConfiguration {
    /// `syncPeriod` and `minSyncPeriod` of the mode in use.
    pub fn sync_periods(&self) -> (GoDuration, GoDuration) {
        match self.mode.as_str() {
            "ipvs" => (self.ipvs.sync_period, self.ipvs.min_sync_period),
            "nftables" => (self.nftables.sync_period, self.nftables.min_sync_period),
            _ => (self.iptables.sync_period, self.iptables.min_sync_period),
        }
    }
}

fn addresses(config: &KubeProxyConfiguration, errors: &mut Errors) {
    if parse_ip(&config.bind_address).is_none() {
        let reason = "not a valid textual representation of an IP address";
        errors.invalid("BindAddress", config.bind_address.as_str(), reason);
    }
    if !config.healthz_bind_address.is_empty() {
        ip_and_port("HealthzBindAddress", &config.healthz_bind_address, errors);
    }
    ip_and_port("MetricsBindAddress", &config.metrics_bind_address, errors);
}

fn ip_and_port(path: &str, text: &str, errors: &mut Errors) {
    let Some((host, port)) = split_host_port(text) else {
        errors.invalid(path, text, "must be IP:port");
        return;
    };
    if parse_ip(host).is_none() {
        errors.invalid(path, host, "must be a valid IP");
    }
    if !port.parse::<u16>().is_ok_and(|port| port != 0) {
        errors.invalid(path, port, "must be a valid port");
    }
}

/// `host:port` or `[host]:port`, as Go splits it.
pub(crate) fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(host) => Some((host.strip_suffix(']')?, port)),
        None if host.contains(':') => None,
        None => Some((host, port)),
    }
}

fn node_port_addresses(config: &KubeProxyConfiguration, errors: &mut Errors) {
    let list = config.node_port_addresses.as_deref().unwrap_or_default();
    for (i, text) in list.iter().enumerate() {
        let path = format!("NodePortAddresses[{i}]");
        if text == "primary" {
            if i != 0 || list.len() != 1 {
                errors.invalid(&path, text.as_str(), "can't use both 'primary' and CIDRs");
            }
            break;
        }
        if parse_net(text).is_none() {
            errors.invalid(&path, text.as_str(), "must be a valid CIDR");
        }
    }
}

/// Only the minor version before this one can be named.
fn show_hidden(config: &KubeProxyConfiguration, errors: &mut Errors) {
    let version = &config.show_hidden_metrics_for_version;
    if !version.is_empty() && version != PREVIOUS_VERSION {
        let reason = format!(
            "invalid showHiddenMetricsForVersion: showHiddenMetricsForVersion: Invalid value: {version:?}: must be omitted or have the value '{PREVIOUS_VERSION}'; only the previous minor version is allowed"
        );
        errors.invalid("ShowHiddenMetricsForVersion", version.as_str(), &reason);
    }
}

fn detect_local(config: &KubeProxyConfiguration, errors: &mut Errors) {
    match config.detect_local_mode.as_str() {
        "BridgeInterface" => {
            let name = &config.detect_local.bridge_interface;
            interface("DetectLocalConfiguration.InterfaceName", name, errors);
            // To iptables it is the beginning of every name, and no rule can be for traffic from none of them.
            if name == "+" {
                let reason = "must be a name; in iptables + alone stands for every interface";
                errors.invalid("DetectLocalConfiguration.InterfaceName", "+", reason);
            }
        }
        "InterfaceNamePrefix" => {
            let prefix = &config.detect_local.interface_name_prefix;
            interface("DetectLocalConfiguration.InterfacePrefix", prefix, errors);
        }
        "ClusterCIDR" if !config.cluster_cidr.is_empty() => cluster_cidrs(config, errors),
        mode if !DETECT_MODES.contains(&mode) => errors.unsupported("DetectLocalMode", mode, &DETECT_MODES),
        _ => {}
    }
}

/// Longest name of an interface, in bytes: `IFNAMSIZ` of the kernel, without the zero at the end.
const MAX_INTERFACE: usize = 15;

/// What the kernel's `dev_valid_name` lets an interface be called, without quotes, which the tools' text has a use for.
///
/// Deviation: upstream asks only that there is one, and writes it into the tools' text as it is (ADR 20).
fn interface(path: &str, name: &str, errors: &mut Errors) {
    let refused = |c: char| c.is_whitespace() || c.is_control() || "/:\"'".contains(c);
    if name.is_empty() {
        errors.invalid(path, "", "must not be empty");
    } else if name.len() > MAX_INTERFACE || name == "." || name == ".." || name.contains(refused) {
        let reason = "must be what an interface can be called: 1 to 15 bytes, not . or .., without whitespace, control characters, quotes, '/' and ':'";
        errors.invalid(path, name, reason);
    }
}

fn cluster_cidrs(config: &KubeProxyConfiguration, errors: &mut Errors) {
    let list: Vec<&str> = config.cluster_cidr.split(',').collect();
    let nets: Vec<_> = list.iter().map(|text| parse_net(text)).collect();
    let families: Vec<Family> = nets.iter().flatten().map(|net| Family::of(net.addr())).collect();
    let path = "DetectLocalConfiguration.ClusterCIDRs";
    let same_family = families.len() == 2 && list.len() == 2 && families[0] == families[1];
    if list.len() > 2 || same_family {
        let reason = "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]";
        errors.invalid(path, json!(list), reason);
        return;
    }
    for (i, text) in list.iter().enumerate() {
        if nets[i].is_none() {
            errors.invalid(
                &format!("{path}[{i}]"),
                *text,
                "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a bridge and of a prefix with this name, each in use.
    fn faults(name: &str) -> [Vec<String>; 2] {
        ["BridgeInterface", "InterfaceNamePrefix"].map(|mode| {
            let mut config = KubeProxyConfiguration::before_flags();
            config.fill_linux_defaults();
            config.detect_local_mode = mode.to_owned();
            config.detect_local.bridge_interface = name.to_owned();
            config.detect_local.interface_name_prefix = name.to_owned();
            validate(&config).iter().map(ToString::to_string).collect()
        })
    }

    #[track_caller]
    fn is_refused(name: &str) {
        let fields = ["InterfaceName", "InterfacePrefix"];
        for (found, field) in faults(name).into_iter().zip(fields) {
            let path = format!("KubeProxyConfiguration.DetectLocalConfiguration.{field}: Invalid value: ");
            let value = Value::from(name).to_string();
            assert_eq!(found.len(), 1, "{name:?}: {found:?}");
            let rest = found[0].strip_prefix(&(path + &value + ": "));
            assert!(
                rest.is_some_and(|rule| rule.contains("1 to 15 bytes")),
                "{found:?}"
            );
            assert_eq!(found[0].lines().count(), 1);
        }
    }

    #[test]
    fn every_character_that_no_interface_has_or_that_ends_a_word_is_refused_wherever_it_is() {
        for byte in 0..=127_u8 {
            let c = char::from(byte);
            for name in [format!("{c}ab"), format!("a{c}b"), format!("ab{c}")] {
                if byte > b' ' && byte < 127 && !b"/:\"'".contains(&byte) {
                    assert_eq!(faults(&name), [Vec::<String>::new(), Vec::new()], "{name:?}");
                } else {
                    is_refused(&name);
                }
            }
        }
        is_refused("x\n-A PREROUTING -j ACCEPT\n#");
        is_refused("a\u{a0}b");
        is_refused("a\u{2028}b");
    }

    #[test]
    fn a_name_is_as_long_as_the_kernel_takes_it_and_no_longer() {
        assert_eq!(faults("abcdefghijklmno"), [Vec::<String>::new(), Vec::new()]);
        is_refused("abcdefghijklmnop");
        // Bytes count: these are eight characters.
        is_refused("öööööööö");
        is_refused(".");
        is_refused("..");
        assert!(
            faults("")
                .iter()
                .all(|found| found[0].ends_with("must not be empty"))
        );
    }

    #[test]
    fn a_node_name_is_what_can_be_looked_for() {
        let faults = |name: &str| -> Vec<String> {
            let mut config = KubeProxyConfiguration::defaults();
            config.hostname_override = name.to_owned();
            validate(&config).iter().map(ToString::to_string).collect()
        };
        let longest = "a".repeat(253);
        for name in [
            "",
            "node-a",
            " Node-A\n",
            "\tb",
            "a/b",
            "Ä",
            "a b",
            "- x",
            "a_b",
            "a\nb",
            "node.example.com",
            &longest,
        ] {
            assert_eq!(faults(name), Vec::<String>::new(), "{name:?}");
        }
        for name in ["a\0", "\u{1b}[31mred", "a\u{7f}", "a\u{9b}b"] {
            let [fault] = faults(name).try_into().unwrap();
            assert!(
                fault.starts_with("KubeProxyConfiguration.HostnameOverride: Invalid value: "),
                "{fault}"
            );
            assert!(fault.ends_with("must not contain control characters"), "{fault}");
        }
        for name in ["a".repeat(254), "ä".repeat(127), "\u{1b}".repeat(1 << 20)] {
            let [fault] = faults(&name).try_into().unwrap();
            assert!(
                fault.contains("...\": must be no longer than 253 bytes"),
                "{fault}"
            );
            assert!(fault.len() < 800, "{} bytes", fault.len());
        }
    }

    #[test]
    fn a_bridge_that_would_be_every_interface_is_refused() {
        let [bridge, prefix] = faults("+");
        assert!(
            bridge[0].contains("InterfaceName: Invalid value: \"+\""),
            "{bridge:?}"
        );
        assert_eq!(prefix, Vec::<String>::new());
    }

    #[test]
    fn a_name_that_is_not_in_use_is_let_be_as_upstream_has_it() {
        let mut config = KubeProxyConfiguration::before_flags();
        config.fill_linux_defaults();
        config.detect_local.bridge_interface = "a b".to_owned();
        config.detect_local.interface_name_prefix = "a b".to_owned();
        assert_eq!(validate(&config), []);
    }
}
