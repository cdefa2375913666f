//! The fields of `KubeProxyConfiguration` (kubeproxy.config.k8s.io/v1alpha1) with upstream 1.36's defaults.
//!
//! Zero values are turned into defaults by [`crate::decode()`], since upstream cannot tell an explicit zero from an
//! absent field where the Go field is no pointer.

use crate::GoDuration;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The API version that is read and written.
pub const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
/// The kind that is read and written.
pub const KIND: &str = "KubeProxyConfiguration";

/// The configuration file. Field docs give the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeProxyConfiguration {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always [`KIND`].
    pub kind: String,
    /// Feature gates by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_gates: BTreeMap<String, bool>,
    /// How to reach the API server.
    pub client_connection: ClientConnection,
    /// Logging.
    pub logging: Logging,
    /// The Node's name when it is not the host's: empty.
    pub hostname_override: String,
    /// Overrides the node's primary IP: `0.0.0.0`.
    pub bind_address: String,
    /// Where health is served: `0.0.0.0:10256`.
    pub healthz_bind_address: String,
    /// Where metrics are served: `127.0.0.1:10249`.
    pub metrics_bind_address: String,
    /// Whether a port that cannot be opened ends the process.
    pub bind_address_hard_fail: bool,
    /// Profiling pages on the metrics address.
    pub enable_profiling: bool,
    /// Unhide metrics that this version hides.
    pub show_hidden_metrics_for_version: String,
    /// `iptables`, `nftables`, `ipvs`; empty is `iptables`.
    pub mode: String,
    /// Of iptables mode.
    pub iptables: IptablesConfiguration,
    /// Of ipvs mode.
    pub ipvs: IpvsConfiguration,
    /// Of nftables mode.
    pub nftables: NftablesConfiguration,
    /// Of Windows; accepted, without effect.
    pub winkernel: WinkernelConfiguration,
    /// `ClusterCIDR`, `NodeCIDR`, `BridgeInterface`, `InterfaceNamePrefix`; empty is `ClusterCIDR`.
    pub detect_local_mode: String,
    /// What the detect-local mode needs.
    pub detect_local: DetectLocal,
    /// Pod CIDRs of the cluster, comma separated.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    /// CIDRs of the host's addresses that serve node ports, or the one word `primary`.
    pub node_port_addresses: Option<Vec<String>>,
    /// Written to `/proc/self/oom_score_adj`: -999.
    pub oom_score_adj: Option<i32>,
    /// Conntrack sysctls.
    pub conntrack: ConntrackConfiguration,
    /// How often everything is listed again: 15m.
    pub config_sync_period: GoDuration,
    /// Without effect.
    pub port_range: String,
    /// Without effect.
    #[serde(skip_serializing_if = "is_false")]
    pub windows_run_as_service: bool,
    /// Ours: the networks that external IPs may be of; `None` is any. The flag `--external-ip-allowed-cidrs` fills it,
    /// no file does.
    #[serde(skip)]
    pub allowed_external_ips: Option<Arc<[IpNet]>>,
}

/// `clientConnection`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConnection {
    /// Path; empty means in-cluster.
    pub kubeconfig: String,
    /// `Accept` header.
    pub accept_content_types: String,
    /// `application/vnd.kubernetes.protobuf`.
    pub content_type: String,
    /// Requests per second: 5.
    pub qps: f32,
    /// Requests at once: 10.
    pub burst: i32,
}

/// `logging`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Logging {
    /// `text` or `json`.
    pub format: String,
    /// A duration's text, or nanoseconds as a number: 5s.
    pub flush_frequency: FlushFrequency,
    /// 0.
    pub verbosity: u32,
    /// Verbosity per source file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vmodule: Vec<VModule>,
    /// Options per format.
    pub options: LoggingOptions,
}

/// `logging.flushFrequency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FlushFrequency {
    /// In nanoseconds.
    Nanoseconds(i64),
    /// As a duration's text.
    Duration(GoDuration),
}

impl FlushFrequency {
    /// As a std duration; negative ones are zero.
    pub fn to_std(self) -> Duration {
        match self {
            FlushFrequency::Nanoseconds(nanos) => GoDuration::from_nanos(nanos).to_std(),
            FlushFrequency::Duration(duration) => duration.to_std(),
        }
    }
}

impl Default for FlushFrequency {
    fn default() -> Self {
        FlushFrequency::Nanoseconds(0)
    }
}

/// One entry of `logging.vmodule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VModule {
    /// Pattern of the source file's name.
    pub file_pattern: String,
    /// Verbosity for it.
    pub verbosity: u32,
}

/// `logging.options`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoggingOptions {
    /// Of the text format.
    pub text: StreamOptions,
    /// Of the JSON format.
    pub json: StreamOptions,
}

/// Options of one log format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamOptions {
    /// Info messages to stdout, the rest to stderr.
    #[serde(skip_serializing_if = "is_false")]
    pub split_stream: bool,
    /// A quantity.
    #[serde(deserialize_with = "quantity")]
    pub info_buffer_size: String,
}

impl Default for StreamOptions {
    fn default() -> Self {
        StreamOptions {
            split_stream: false,
            info_buffer_size: "0".to_owned(),
        }
    }
}

/// `iptables`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IptablesConfiguration {
    /// 14.
    pub masquerade_bit: Option<i32>,
    /// Source NAT for all cluster-IP traffic.
    pub masquerade_all: bool,
    /// Node ports on 127/8 (IPv4): true.
    pub localhost_node_ports: Option<bool>,
    /// 30s.
    pub sync_period: GoDuration,
    /// 1s.
    pub min_sync_period: GoDuration,
}

/// `nftables`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NftablesConfiguration {
    /// 14.
    pub masquerade_bit: Option<i32>,
    /// Source NAT for all cluster-IP traffic.
    pub masquerade_all: bool,
    /// 30s.
    pub sync_period: GoDuration,
    /// 1s.
    pub min_sync_period: GoDuration,
}

/// `ipvs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpvsConfiguration {
    /// 30s.
    pub sync_period: GoDuration,
    /// 0s.
    pub min_sync_period: GoDuration,
    /// Empty is `rr`.
    pub scheduler: String,
    /// Left alone at clean-up.
    #[serde(rename = "excludeCIDRs")]
    pub exclude_cidrs: Option<Vec<String>>,
    /// `arp_ignore` and `arp_announce`.
    #[serde(rename = "strictARP")]
    pub strict_arp: bool,
    /// 0s leaves it.
    pub tcp_timeout: GoDuration,
    /// 0s leaves it.
    pub tcp_fin_timeout: GoDuration,
    /// 0s leaves it.
    pub udp_timeout: GoDuration,
}

/// `winkernel`, accepted and without effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WinkernelConfiguration {
    /// Without effect.
    pub network_name: String,
    /// Without effect.
    pub source_vip: String,
    /// Without effect.
    #[serde(rename = "enableDSR")]
    pub enable_dsr: bool,
    /// Without effect.
    pub root_hns_endpoint_name: String,
    /// Without effect.
    pub forward_health_check_vip: bool,
}

/// `detectLocal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DetectLocal {
    /// For `BridgeInterface`.
    pub bridge_interface: String,
    /// For `InterfaceNamePrefix`.
    pub interface_name_prefix: String,
}

/// `conntrack`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConntrackConfiguration {
    /// 32768; 0 leaves the limit.
    pub max_per_core: Option<i32>,
    /// 131072.
    pub min: Option<i32>,
    /// 24h; 0 leaves it.
    pub tcp_established_timeout: Option<GoDuration>,
    /// 1h; 0 leaves it.
    pub tcp_close_wait_timeout: Option<GoDuration>,
    /// True writes 1 to the sysctl.
    pub tcp_be_liberal: bool,
    /// 0s leaves it.
    pub udp_timeout: GoDuration,
    /// 0s leaves it.
    pub udp_stream_timeout: GoDuration,
}

/// A quantity is written as text or as a number.
fn quantity<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Number(serde_json::Number),
    }
    let text = match Written::deserialize(deserializer)? {
        Written::Text(text) => text,
        Written::Number(number) => number.to_string(),
    };
    let quantity = crate::quantity::Quantity::parse(&text).map_err(serde::de::Error::custom)?;
    Ok(quantity.to_string())
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if hands out references"
)]
fn is_false(value: &bool) -> bool {
    !value
}
