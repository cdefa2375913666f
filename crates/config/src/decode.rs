//! Text to configuration: strict first, then lenient with a warning that names the field, as upstream's `loadConfig` does.

use crate::GoDuration;
use crate::types::{API_VERSION, FlushFrequency, KIND, KubeProxyConfiguration};
use model::address::parse_ip;
use serde_json::Value;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A configuration and what was odd about its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The configuration, with defaults filled in.
    pub config: KubeProxyConfiguration,
    /// Paths of fields that mean nothing, in the order met. They were ignored.
    pub unknown_fields: Vec<String>,
    /// The parser's words on the first key that is there twice. The last one counts.
    pub doubled_key: Option<String>,
    /// How many more documents the text has. They were ignored.
    pub further_documents: usize,
}

/// Why a text is no configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Neither YAML nor JSON; holds the parser's words, with the place.
    Syntax(String),
    /// Nothing in it.
    Empty,
    /// Missing or other `apiVersion` or `kind`: the field, and what was found.
    NotOurs {
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// What was found, if anything.
        found: String,
        /// What is wanted.
        wanted: &'static str,
    },
    /// A field has the wrong type or an unreadable value.
    Field {
        /// Path of the field.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Syntax(reason) => write!(f, "neither YAML nor JSON: {reason}"),
            DecodeError::Empty => write!(
                f,
                "the file is empty; it needs apiVersion {API_VERSION} and kind {KIND}"
            ),
            DecodeError::NotOurs { field, found, wanted } if found.is_empty() => {
                write!(f, "{field}: missing; it must be {wanted}")
            }
            DecodeError::NotOurs { field, found, wanted } => write!(f, "{field}: {found:?} must be {wanted}"),
            DecodeError::Field { path, reason } => write!(f, "{path}: {reason}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Reads a `KubeProxyConfiguration` from YAML or JSON, the first document if there are several.
///
/// # Errors
/// One that names the field and the reason. Unknown fields and doubled keys are no errors.
pub fn decode(text: &str) -> Result<Decoded, DecodeError> {
    let FirstDocument {
        mut value,
        doubled_key,
        further_documents,
    } = first_document(text)?;
    drop_nulls(&mut value);
    if value.is_null() {
        return Err(DecodeError::Empty);
    }
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let found = value.get(field).and_then(Value::as_str).unwrap_or_default();
        if found != wanted {
            return Err(DecodeError::NotOurs {
                field,
                found: found.to_owned(),
                wanted,
            });
        }
    }
    sections_are_no_lists(&value)?;
    let mut unknown_fields = Vec::new();
    let mut note = |path: serde_ignored::Path<'_>| unknown_fields.push(path.to_string());
    let mut track = serde_path_to_error::Track::new();
    let ignoring = serde_ignored::Deserializer::new(value, &mut note);
    let tracking = serde_path_to_error::Deserializer::new(ignoring, &mut track);
    let parsed: Result<KubeProxyConfiguration, _> = serde::Deserialize::deserialize(tracking);
    let mut config = parsed.map_err(|err| DecodeError::Field {
        path: track.path().to_string(),
        reason: err.to_string(),
    })?;
    // Upstream reads these and forgets them, whatever the feature gate says.
    config.logging.options.text.split_stream = false;
    config.logging.options.json.split_stream = false;
    config.fill_defaults();
    Ok(Decoded {
        config,
        unknown_fields,
        doubled_key,
        further_documents,
    })
}

/// A list in the place of a section would be taken for its fields in order.
fn sections_are_no_lists(value: &Value) -> Result<(), DecodeError> {
    const SECTIONS: [&str; 11] = [
        "clientConnection",
        "logging",
        "logging.options",
        "logging.options.text",
        "logging.options.json",
        "iptables",
        "ipvs",
        "nftables",
        "winkernel",
        "detectLocal",
        "conntrack",
    ];
    for path in SECTIONS {
        let found = path.split('.').try_fold(value, |at, name| at.get(name));
        if found.is_some_and(Value::is_array) {
            return Err(DecodeError::Field {
                path: path.to_owned(),
                reason: "invalid type: sequence, expected fields with names".to_owned(),
            });
        }
    }
    Ok(())
}

/// Takes out fields that are `null`: Go decodes them as if they were absent.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// What YAML's first document says, and what there is besides.
struct FirstDocument {
    /// As JSON has it.
    value: Value,
    /// Of keys that are there twice, what the parser says of the first.
    doubled_key: Option<String>,
    /// How many other documents there are.
    further_documents: usize,
}

impl FirstDocument {
    fn of(documents: Vec<Value>, doubled_key: Option<String>) -> Self {
        let mut documents = documents.into_iter();
        FirstDocument {
            value: documents.next().unwrap_or(Value::Null),
            doubled_key,
            // Nothing after a last `---` is no document that somebody meant.
            further_documents: documents.filter(|document| !document.is_null()).count(),
        }
    }
}

/// Of doubled keys the last one counts, as upstream's lenient decoding has it.
fn first_document(text: &str) -> Result<FirstDocument, DecodeError> {
    use serde_saphyr::options::DuplicateKeyPolicy::{Error, LastWins};
    let strict = serde_saphyr::options! { duplicate_keys: Error };
    let lenient = serde_saphyr::options! { duplicate_keys: LastWins };
    match serde_saphyr::from_multiple_with_options::<Value>(text, strict) {
        Ok(documents) => Ok(FirstDocument::of(documents, None)),
        Err(doubled) => serde_saphyr::from_multiple_with_options::<Value>(text, lenient)
            .map(|documents| FirstDocument::of(documents, Some(one_line(&doubled.to_string()))))
            .map_err(|err| DecodeError::Syntax(err.to_string())),
    }
}

/// The first line that says something.
fn one_line(words: &str) -> String {
    words
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default()
        .to_owned()
}

impl KubeProxyConfiguration {
    /// The configuration of an empty file: upstream's defaults.
    pub fn defaults() -> Self {
        let mut config = KubeProxyConfiguration {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            ..KubeProxyConfiguration::default()
        };
        config.fill_defaults();
        config
    }

    /// What flags start from. Flags differ from an empty file in one default, `ipvs.minSyncPeriod`:
    /// 1s for flags, none for files.
    ///
    /// [`Self::fill_linux_defaults`] has to follow.
    pub fn before_flags() -> Self {
        let mut config = Self::defaults();
        config.mode.clear();
        config.detect_local_mode.clear();
        config.ipvs.min_sync_period = GoDuration::from_secs(1);
        config
    }

    /// Defaults that depend on what else is set (upstream `platformApplyDefaults`).
    pub fn fill_linux_defaults(&mut self) {
        set_if_empty(&mut self.mode, "iptables");
        set_if_empty(&mut self.detect_local_mode, "ClusterCIDR");
        let unset = self.node_port_addresses.as_ref().is_none_or(Vec::is_empty);
        if self.mode == "nftables" && unset {
            self.node_port_addresses = Some(vec!["primary".to_owned()]);
        }
    }

    /// Replaces zero values by upstream's defaults (`pkg/proxy/apis/config/v1alpha1/defaults.go`).
    pub(crate) fn fill_defaults(&mut self) {
        set_if_empty(&mut self.bind_address, "0.0.0.0");
        let v4 = matches!(parse_ip(&self.bind_address), Some(IpAddr::V4(_)));
        let (any, loopback) = if v4 {
            ("0.0.0.0", "127.0.0.1")
        } else {
            ("[::]", "[::1]")
        };
        default_address(&mut self.healthz_bind_address, any, 10256);
        default_address(&mut self.metrics_bind_address, loopback, 10249);
        self.fill_linux_defaults();
        set_if_empty(
            &mut self.client_connection.content_type,
            "application/vnd.kubernetes.protobuf",
        );
        if self.client_connection.qps == 0.0 {
            self.client_connection.qps = 5.0;
        }
        if self.client_connection.burst == 0 {
            self.client_connection.burst = 10;
        }
        set_if_empty(&mut self.logging.format, "text");
        let unset = [
            FlushFrequency::Nanoseconds(0),
            FlushFrequency::Duration(GoDuration::default()),
        ];
        if unset.contains(&self.logging.flush_frequency) {
            self.logging.flush_frequency = FlushFrequency::Duration(GoDuration::from_secs(5));
        }
        set_if_zero(&mut self.config_sync_period, 15 * 60);
        self.oom_score_adj.get_or_insert(-999);
        self.fill_mode_defaults();
        self.fill_conntrack_defaults();
    }

    fn fill_mode_defaults(&mut self) {
        self.iptables.masquerade_bit.get_or_insert(14);
        self.iptables.localhost_node_ports.get_or_insert(true);
        set_if_zero(&mut self.iptables.sync_period, 30);
        set_if_zero(&mut self.iptables.min_sync_period, 1);
        self.nftables.masquerade_bit.get_or_insert(14);
        set_if_zero(&mut self.nftables.sync_period, 30);
        set_if_zero(&mut self.nftables.min_sync_period, 1);
        set_if_zero(&mut self.ipvs.sync_period, 30);
    }

    fn fill_conntrack_defaults(&mut self) {
        self.conntrack.max_per_core.get_or_insert(32 * 1024);
        self.conntrack.min.get_or_insert(128 * 1024);
        self.conntrack
            .tcp_established_timeout
            .get_or_insert(GoDuration::from_secs(24 * 3600));
        self.conntrack
            .tcp_close_wait_timeout
            .get_or_insert(GoDuration::from_secs(3600));
    }
}

fn set_if_empty(field: &mut String, value: &str) {
    if field.is_empty() {
        value.clone_into(field);
    }
}

fn set_if_zero(field: &mut GoDuration, seconds: i64) {
    if field.nanos() == 0 {
        *field = GoDuration::from_secs(seconds);
    }
}

/// An empty address becomes `host:port`, a bare IP gets the port.
fn default_address(field: &mut String, host: &str, port: u16) {
    if field.is_empty() {
        *field = format!("{host}:{port}");
    } else if let Some(ip) = parse_ip(field) {
        *field = SocketAddr::new(ip, port).to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::{DecodeError, decode};
    use crate::KubeProxyConfiguration;
    use crate::validate;

    const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

    fn with(rest: &str) -> Result<super::Decoded, DecodeError> {
        decode(&format!("{HEAD}{rest}"))
    }

    #[test]
    fn an_empty_configuration_has_upstreams_defaults_and_is_valid() {
        let config = with("").unwrap().config;
        assert_eq!(config, KubeProxyConfiguration::defaults());
        assert_eq!(config.healthz_bind_address, "0.0.0.0:10256");
        assert_eq!(config.iptables.sync_period.to_string(), "30s");
        assert_eq!(validate(&config), []);
    }

    #[test]
    fn unknown_and_doubled_fields_are_named_not_fatal() {
        let decoded = with(
            "mode: ipvs\niptables: {masqueradeAl: true}\nhostnameOverride: null\nMode: x\nmode: iptables\n",
        )
        .unwrap();
        assert_eq!(decoded.unknown_fields, ["Mode", "iptables.masqueradeAl"]);
        assert_eq!(decoded.config.mode, "iptables");
    }

    #[test]
    fn of_several_documents_the_first_counts_and_the_others_are_counted() {
        for (rest, more) in [
            ("mode: ipvs\n", 0),
            ("mode: ipvs\n---\n", 0),
            ("mode: ipvs\n---\n# nothing\n", 0),
            ("mode: ipvs\n---\nmode: nftables\n", 1),
            ("mode: ipvs\n---\nmode: nftables\n---\na: b\n", 2),
            ("mode: iptables\nmode: ipvs\n---\nmode: nftables\n", 1),
        ] {
            let decoded = with(rest).unwrap();
            assert_eq!(
                (decoded.config.mode.as_str(), decoded.further_documents),
                ("ipvs", more),
                "{rest}"
            );
        }
    }

    #[test]
    fn a_wrong_type_names_the_field() {
        let err = with("conntrack: {maxPerCore: many}\n").unwrap_err().to_string();
        assert!(err.starts_with("conntrack.maxPerCore: "), "{err}");
        let err = with("iptables: {syncPeriod: 30}\n").unwrap_err().to_string();
        assert!(
            err.starts_with("iptables.syncPeriod: ") && err.contains("duration"),
            "{err}"
        );
    }

    #[test]
    fn another_kind_is_refused_with_the_wanted_one() {
        let err = decode("apiVersion: v1\nkind: Pod\n").unwrap_err().to_string();
        assert_eq!(err, "apiVersion: \"v1\" must be kubeproxy.config.k8s.io/v1alpha1");
        assert_eq!(decode("").unwrap_err(), DecodeError::Empty);
        assert_eq!(decode("# nothing\n").unwrap_err(), DecodeError::Empty);
        assert!(matches!(decode("a: [").unwrap_err(), DecodeError::Syntax(_)));
    }

    #[test]
    fn an_ipv6_bind_address_moves_the_default_addresses() {
        let config = with("bindAddress: '::'\nhealthzBindAddress: 127.0.0.1\n")
            .unwrap()
            .config;
        assert_eq!(config.healthz_bind_address, "127.0.0.1:10256");
        assert_eq!(config.metrics_bind_address, "[::1]:10249");
    }

    #[test]
    fn all_faults_are_reported_at_once_with_their_paths() {
        let config = with("mode: fast\nclusterCIDR: 10.0.0.0/8,x\niptables: {masqueradeBit: 32}\nnodePortAddresses: [primary, 10.0.0.0/8]\n").unwrap().config;
        let found: Vec<String> = validate(&config).iter().map(ToString::to_string).collect();
        for start in [
            "KubeProxyConfiguration.KubeProxyIPTablesConfiguration.MasqueradeBit: Invalid value: 32: must be within",
            "KubeProxyConfiguration.Mode.ProxyMode: Invalid value: \"fast\": must be iptables, ipvs,",
            "KubeProxyConfiguration.NodePortAddresses[0]: Invalid value: \"primary\": can't use both",
            "KubeProxyConfiguration.DetectLocalConfiguration.ClusterCIDRs[1]: Invalid value: \"x\": must be a valid CIDR",
        ] {
            assert!(
                found.iter().any(|line| line.starts_with(start)),
                "{start}\n{found:#?}"
            );
        }
    }
}
