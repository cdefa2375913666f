//! The checks a configuration must pass, all reported at once (control.md 2.4).

use crate::GoDuration;
use crate::types::{FlushFrequency, KubeProxyConfiguration};
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
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldError::Invalid { path, value, reason } => {
                write!(f, "{path}: Invalid value: {value}: {reason}")
            }
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
            "must be iptables,ipvs,nftables or blank (blank means the best-available proxy [currently iptables])",
        );
    }
    errors.at_least_zero(
        "ClientConnection.Burst",
        i64::from(config.client_connection.burst),
    );
    periods(config, &mut errors);
    addresses(config, &mut errors);
    node_port_addresses(config, &mut errors);
    detect_local(config, &mut errors);
    logging(config, &mut errors);
    errors.0
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
fn split_host_port(text: &str) -> Option<(&str, &str)> {
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

fn detect_local(config: &KubeProxyConfiguration, errors: &mut Errors) {
    match config.detect_local_mode.as_str() {
        "BridgeInterface" if config.detect_local.bridge_interface.is_empty() => {
            errors.invalid("DetectLocalConfiguration.InterfaceName", "", "must not be empty");
        }
        "InterfaceNamePrefix" if config.detect_local.interface_name_prefix.is_empty() => {
            errors.invalid(
                "DetectLocalConfiguration.InterfacePrefix",
                "",
                "must not be empty",
            );
        }
        "ClusterCIDR" if !config.cluster_cidr.is_empty() => cluster_cidrs(config, errors),
        mode if !DETECT_MODES.contains(&mode) => errors.unsupported("DetectLocalMode", mode, &DETECT_MODES),
        _ => {}
    }
}

fn cluster_cidrs(config: &KubeProxyConfiguration, errors: &mut Errors) {
    let list: Vec<&str> = config.cluster_cidr.split(',').collect();
    let nets: Vec<_> = list.iter().map(|text| parse_net(text)).collect();
    let families: Vec<Family> = nets.iter().flatten().map(|net| Family::of(net.addr())).collect();
    let path = "DetectLocalConfiguration.ClusterCIDRs";
    if list.len() > 2 {
        errors.invalid(
            path,
            json!(list),
            "only one CIDR allowed or a valid DualStack CIDR (e.g. 10.100.0.0/16,fde4:8dba:82e1::/48)",
        );
    } else if list.len() == 2 && families.len() == 2 && families[0] == families[1] {
        errors.invalid(
            path,
            json!(list),
            "must be a valid DualStack CIDR (e.g. 10.100.0.0/16,fde4:8dba:82e1::/48)",
        );
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

/// Verbosities above the largest signed 32-bit number, formats, vmodule (control.md 11.2).
fn logging(config: &KubeProxyConfiguration, errors: &mut Errors) {
    let logging = &config.logging;
    if !["text", "json"].contains(&logging.format.as_str()) {
        errors.invalid(
            "logging.format",
            logging.format.as_str(),
            "Unsupported log format",
        );
    }
    let flush = match logging.flush_frequency {
        FlushFrequency::Nanoseconds(nanos) => nanos,
        FlushFrequency::Duration(duration) => duration.nanos(),
    };
    if flush <= 0 {
        errors.invalid("logging.flushFrequency", flush, "Must be greater than zero");
    }
    if i32::try_from(logging.verbosity).is_err() {
        errors.invalid("logging.verbosity", logging.verbosity, "Must be <= 2147483647");
    }
    if !logging.vmodule.is_empty() && logging.format != "text" {
        errors.invalid(
            "logging.vmodule",
            logging.format.as_str(),
            "Only supported for text log format",
        );
    }
    for (i, entry) in logging.vmodule.iter().enumerate() {
        if entry.file_pattern.is_empty() || entry.file_pattern.contains(['=', ',']) {
            let path = format!("logging.vmodule[{i}]");
            errors.invalid(
                &path,
                entry.file_pattern.as_str(),
                "File pattern must not be empty, nor contain equal sign or comma",
            );
        }
    }
}
