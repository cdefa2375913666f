//! kube-proxy's own command-line flags as data: each fills one field of the configuration.
//!
//! Flags that are no configuration fields (`--config`, `--cleanup`, ...) belong to the command line itself.

use crate::go;
use crate::quantity::Quantity;
use crate::types::{FlushFrequency, VModule};
use crate::validate::split_host_port;
use crate::{GoDuration, KubeProxyConfiguration};
use model::address::parse_ip;

/// What a flag's value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagKind {
    /// `--name`, `--name=true`, `--name=false`.
    Bool,
    /// One value.
    Value,
    /// Comma separated, repeatable.
    List,
}

/// What becomes of a flag when `--config` is given: upstream's decoded file replaces all that flags built, but for a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithConfig {
    /// The file replaces it.
    FileWins,
    /// It replaces the file's value.
    FlagWins,
}

/// What a flag does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// What its help says.
    AsSaid,
    /// Nothing so far: it is accepted so that upstream's command lines start this proxy as well.
    NotYet,
}

/// One flag.
#[derive(Clone, Copy)]
pub struct Flag {
    /// Without the dashes.
    pub name: &'static str,
    /// What its value looks like.
    pub kind: FlagKind,
    /// The word for its value in the help.
    pub value_name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Flag or file.
    pub with_config: WithConfig,
    /// Hidden from the help, and why that is.
    pub deprecated: Option<&'static str>,
    /// Whether this proxy does anything about it.
    pub effect: Effect,
    /// Puts the value into the configuration, or says what is wrong with it.
    pub apply: fn(&mut KubeProxyConfiguration, &str) -> Result<(), String>,
}

type Config = KubeProxyConfiguration;
type Applied = Result<(), String>;

const fn flag(
    name: &'static str,
    value_name: &'static str,
    help: &'static str,
    apply: fn(&mut Config, &str) -> Applied,
) -> Flag {
    Flag {
        name,
        kind: FlagKind::Value,
        value_name,
        help,
        with_config: WithConfig::FileWins,
        deprecated: None,
        effect: Effect::AsSaid,
        apply,
    }
}

const fn switch(name: &'static str, help: &'static str, apply: fn(&mut Config, &str) -> Applied) -> Flag {
    Flag {
        kind: FlagKind::Bool,
        ..flag(name, "true|false", help, apply)
    }
}

const fn list(name: &'static str, help: &'static str, apply: fn(&mut Config, &str) -> Applied) -> Flag {
    Flag {
        kind: FlagKind::List,
        ..flag(name, "strings", help, apply)
    }
}

const fn over_file(flag: Flag) -> Flag {
    Flag {
        with_config: WithConfig::FlagWins,
        ..flag
    }
}

const fn not_yet(flag: Flag) -> Flag {
    Flag {
        effect: Effect::NotYet,
        ..flag
    }
}

const fn deprecated(flag: Flag, why: &'static str) -> Flag {
    Flag {
        deprecated: Some(why),
        ..flag
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "every setter has the one signature of the table"
)]
fn text(field: &mut String, value: &str) -> Applied {
    value.clone_into(field);
    Ok(())
}

fn duration(field: &mut GoDuration, value: &str) -> Applied {
    *field = GoDuration::read(value)?;
    Ok(())
}

fn boolean(field: &mut bool, value: &str) -> Applied {
    *field = go::boolean(value)?;
    Ok(())
}

fn number(field: &mut i32, value: &str) -> Applied {
    *field = go::int32(value)?;
    Ok(())
}

fn quantity(field: &mut String, value: &str) -> Applied {
    *field = Quantity::parse(value)?.to_string();
    Ok(())
}

fn optional<T: Default>(field: &mut Option<T>, value: &str, set: fn(&mut T, &str) -> Applied) -> Applied {
    set(field.get_or_insert_default(), value)
}

/// An address, or an address and port. Empty is ignored, as upstream ignores it.
fn address(field: &mut String, value: &str) -> Applied {
    if value.is_empty() || parse_ip(value).is_some() {
        return if value.is_empty() {
            Ok(())
        } else {
            text(field, value)
        };
    }
    let Some((host, port)) = split_host_port(value) else {
        return Err(format!(
            "{value:?} is not in a valid format (ip or ip:port): address {value}: missing port in address"
        ));
    };
    if parse_ip(host).is_none() {
        return Err(format!("{host:?} is not a valid IP address"));
    }
    if port.parse::<u16>().is_err() {
        return Err(format!("{port:?} is not a valid number"));
    }
    text(field, value)
}

fn append(field: &mut Option<Vec<String>>, value: &str) -> Applied {
    field.get_or_insert_default().extend(go::comma_separated(value)?);
    Ok(())
}

fn gates(config: &mut Config, value: &str) -> Applied {
    for pair in value.split(',').filter(|pair| !pair.is_empty()) {
        let (name, state) = pair.split_once('=').ok_or("malformed pair, expect string=bool")?;
        let (name, state) = (name.trim(), state.trim());
        let on = go::boolean(state).map_err(|err| format!("invalid value of {name}: {state}, err: {err}"))?;
        config.feature_gates.insert(name.to_owned(), on);
    }
    Ok(())
}

fn vmodule(config: &mut Config, value: &str) -> Applied {
    let mut entries = Vec::new();
    for entry in value.split(',').filter(|entry| !entry.is_empty()) {
        let pair = entry
            .split_once('=')
            .filter(|(pattern, level)| !pattern.is_empty() && !level.is_empty());
        let (pattern, level) = pair.ok_or_else(|| format!("{entry:?} does not have the pattern=N format"))?;
        entries.push(VModule {
            file_pattern: pattern.to_owned(),
            verbosity: go::level(level).map_err(|err| format!("parsing verbosity in {entry:?}: {err}"))?,
        });
    }
    config.logging.vmodule.extend(entries);
    Ok(())
}

/// No text of a configuration can say infinity, so upstream fails when it writes one; here it is refused at once.
fn rate(config: &mut Config, value: &str) -> Applied {
    let rate = go::float32(value)?;
    if !rate.is_finite() {
        return Err("must be a finite number; negative means no limit".to_owned());
    }
    config.client_connection.qps = rate;
    Ok(())
}

/// Sync periods given by the iptables flags hold for every mode but ipvs.
fn sync_period(config: &mut Config, value: &str) -> Applied {
    duration(&mut config.iptables.sync_period, value)?;
    duration(&mut config.nftables.sync_period, value)
}

fn min_sync_period(config: &mut Config, value: &str) -> Applied {
    duration(&mut config.iptables.min_sync_period, value)?;
    duration(&mut config.nftables.min_sync_period, value)
}

fn masquerade_all(config: &mut Config, value: &str) -> Applied {
    boolean(&mut config.iptables.masquerade_all, value)?;
    boolean(&mut config.nftables.masquerade_all, value)
}

/// The deprecated ports complete an address once all flags are read; here they only have to be numbers.
fn port(_: &mut Config, value: &str) -> Applied {
    go::int32(value).map(|_| ())
}

/// Every flag that fills the configuration, by name.
#[rustfmt::skip]
pub static FLAGS: &[Flag] = &[
    flag("bind-address", "ip", "Overrides the node's primary IP; nothing is bound to it", |c, v| {
        if v.is_empty() { return Ok(()); }
        parse_ip(v).ok_or_else(|| format!("{v:?} is not a valid IP address"))?;
        text(&mut c.bind_address, v)
    }),
    switch("bind-address-hard-fail", "End the process if the healthz or metrics port cannot be opened", |c, v| boolean(&mut c.bind_address_hard_fail, v)),
    flag("cluster-cidr", "string", "Pod CIDRs of the cluster, one or one per family, comma separated; traffic from elsewhere to cluster IPs is masqueraded", |c, v| text(&mut c.cluster_cidr, v)),
    not_yet(flag("config-sync-period", "duration", "How often everything is listed again", |c, v| duration(&mut c.config_sync_period, v))),
    flag("conntrack-max-per-core", "int32", "Conntrack entries per core; 0 leaves the limit as it is", |c, v| optional(&mut c.conntrack.max_per_core, v, number)),
    flag("conntrack-min", "int32", "Least number of conntrack entries", |c, v| optional(&mut c.conntrack.min, v, number)),
    switch("conntrack-tcp-be-liberal", "Let conntrack accept out-of-window TCP packets", |c, v| boolean(&mut c.conntrack.tcp_be_liberal, v)),
    flag("conntrack-tcp-timeout-close-wait", "duration", "Conntrack timeout of TCP in CLOSE_WAIT; 0 leaves it", |c, v| optional(&mut c.conntrack.tcp_close_wait_timeout, v, duration)),
    flag("conntrack-tcp-timeout-established", "duration", "Conntrack timeout of established TCP; 0 leaves it", |c, v| optional(&mut c.conntrack.tcp_established_timeout, v, duration)),
    flag("conntrack-udp-timeout", "duration", "Conntrack timeout of unreplied UDP; 0 leaves it", |c, v| duration(&mut c.conntrack.udp_timeout, v)),
    flag("conntrack-udp-timeout-stream", "duration", "Conntrack timeout of UDP streams; 0 leaves it", |c, v| duration(&mut c.conntrack.udp_stream_timeout, v)),
    flag("detect-local-mode", "mode", "How local pods' traffic is told: ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix", |c, v| text(&mut c.detect_local_mode, v)),
    flag("feature-gates", "name=bool,...", "Feature gates; AllowServiceExternalIPs, ComponentFlagz, ComponentStatusz and those of logging mean something here", gates),
    flag("healthz-bind-address", "ip:port", "Where health is served", |c, v| address(&mut c.healthz_bind_address, v)),
    deprecated(flag("healthz-port", "int32", "Port of healthz-bind-address", port), "This flag is deprecated and will be removed in a future release. Please use --healthz-bind-address instead."),
    switch("iptables-localhost-nodeports", "Serve node ports on 127/8 (iptables mode, IPv4)", |c, v| optional(&mut c.iptables.localhost_node_ports, v, boolean)),
    flag("iptables-masquerade-bit", "int32", "Bit of the packet mark that asks for source NAT, 0 to 31", |c, v| optional(&mut c.iptables.masquerade_bit, v, number)),
    flag("iptables-min-sync-period", "duration", "Least time between two writes of rules", min_sync_period),
    flag("iptables-sync-period", "duration", "How often the rules are looked after, and how long a failed write waits", sync_period),
    not_yet(list("ipvs-exclude-cidrs", "Virtual servers in these CIDRs are left alone", |c, v| append(&mut c.ipvs.exclude_cidrs, v))),
    not_yet(flag("ipvs-min-sync-period", "duration", "As --iptables-min-sync-period, in ipvs mode", |c, v| duration(&mut c.ipvs.min_sync_period, v))),
    not_yet(flag("ipvs-scheduler", "string", "Scheduler of ipvs mode", |c, v| text(&mut c.ipvs.scheduler, v))),
    not_yet(switch("ipvs-strict-arp", "Set arp_ignore and arp_announce in ipvs mode", |c, v| boolean(&mut c.ipvs.strict_arp, v))),
    not_yet(flag("ipvs-sync-period", "duration", "As --iptables-sync-period, in ipvs mode", |c, v| duration(&mut c.ipvs.sync_period, v))),
    not_yet(flag("ipvs-tcp-timeout", "duration", "Timeout of idle TCP in ipvs mode; 0 leaves it", |c, v| duration(&mut c.ipvs.tcp_timeout, v))),
    not_yet(flag("ipvs-tcpfin-timeout", "duration", "Timeout of TCP after FIN in ipvs mode; 0 leaves it", |c, v| duration(&mut c.ipvs.tcp_fin_timeout, v))),
    not_yet(flag("ipvs-udp-timeout", "duration", "Timeout of UDP in ipvs mode; 0 leaves it", |c, v| duration(&mut c.ipvs.udp_timeout, v))),
    flag("kube-api-burst", "int32", "Requests to the API server at once", |c, v| number(&mut c.client_connection.burst, v)),
    not_yet(flag("kube-api-content-type", "string", "Content type of requests to the API server", |c, v| text(&mut c.client_connection.content_type, v))),
    flag("kube-api-qps", "float32", "Requests a second to the API server", rate),
    flag("kubeconfig", "path", "How to reach the API server; without it and --master, the in-cluster way", |c, v| text(&mut c.client_connection.kubeconfig, v)),
    over_file(flag("log-flush-frequency", "duration", "Longest time that lines are held back, where a buffer size lets them be", |c, v| {
        let mut span = GoDuration::default();
        duration(&mut span, v)?;
        c.logging.flush_frequency = FlushFrequency::Duration(span);
        Ok(())
    })),
    over_file(flag("log-json-info-buffer-size", "quantity", "As --log-text-info-buffer-size, of JSON lines", |c, v| quantity(&mut c.logging.options.json.info_buffer_size, v))),
    over_file(switch("log-json-split-stream", "As --log-text-split-stream, of JSON lines", |c, v| boolean(&mut c.logging.options.json.split_stream, v))),
    over_file(flag("log-text-info-buffer-size", "quantity", "How many bytes of information are held back when streams are split (alpha: needs the gate LoggingAlphaOptions)", |c, v| quantity(&mut c.logging.options.text.info_buffer_size, v))),
    over_file(switch("log-text-split-stream", "Information to stdout, errors and warnings to stderr, not all to stderr (alpha: needs the gate LoggingAlphaOptions)", |c, v| boolean(&mut c.logging.options.text.split_stream, v))),
    over_file(flag("logging-format", "string", "text or json", |c, v| text(&mut c.logging.format, v))),
    switch("masquerade-all", "Source NAT for all traffic to cluster IPs", masquerade_all),
    flag("metrics-bind-address", "ip:port", "Where metrics are served", |c, v| address(&mut c.metrics_bind_address, v)),
    deprecated(flag("metrics-port", "int32", "Port of metrics-bind-address", port), "This flag is deprecated and will be removed in a future release. Please use --metrics-bind-address instead."),
    list("nodeport-addresses", "CIDRs of the host's addresses that serve node ports, or the one word primary", |c, v| append(&mut c.node_port_addresses, v)),
    flag("oom-score-adj", "int32", "The process's oom_score_adj, -1000 to 1000", |c, v| optional(&mut c.oom_score_adj, v, number)),
    flag("pod-bridge-interface", "string", "For --detect-local-mode BridgeInterface", |c, v| text(&mut c.detect_local.bridge_interface, v)),
    flag("pod-interface-name-prefix", "string", "For --detect-local-mode InterfaceNamePrefix", |c, v| text(&mut c.detect_local.interface_name_prefix, v)),
    switch("profiling", "Pages to profile the process and to change its verbosity, on the metrics address", |c, v| boolean(&mut c.enable_profiling, v)),
    flag("proxy-mode", "mode", "iptables (the default) or nftables; ipvs is known and not there yet", |c, v| text(&mut c.mode, v)),
    not_yet(flag("show-hidden-metrics-for-version", "string", "The previous minor version, to see metrics hidden since", |c, v| text(&mut c.show_hidden_metrics_for_version, v))),
    over_file(flag("v", "level", "Verbosity of the log: 1 tells the flags, 2 each write of rules, 4 each request, 9 everything", |c, v| { c.logging.verbosity = go::level(v)?; Ok(()) })),
    over_file(flag("vmodule", "pattern=N,...", "Verbosity per source file, by its name without .rs: tell=4,watch=5 (text format)", vmodule)),
];

/// Reads a switch's value.
///
/// # Errors
/// Go's words.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    go::boolean(text)
}

/// Reads a number's value.
///
/// # Errors
/// Go's words.
pub fn parse_int(text: &str) -> Result<i32, String> {
    go::int32(text)
}

/// Reads a verbosity.
///
/// # Errors
/// Go's words.
pub fn parse_level(text: &str) -> Result<u32, String> {
    go::level(text)
}

#[cfg(test)]
mod tests {
    use super::{FLAGS, FlagKind, WithConfig};
    use crate::KubeProxyConfiguration;

    fn apply(name: &str, value: &str) -> Result<KubeProxyConfiguration, String> {
        let mut config = KubeProxyConfiguration::defaults();
        let flag = FLAGS.iter().find(|flag| flag.name == name).unwrap();
        (flag.apply)(&mut config, value).map(|()| config)
    }

    #[test]
    fn every_flag_takes_a_good_value() {
        for flag in FLAGS {
            let good = ["true", "7", "192.0.2.1", "7s", "A=true", "x=1"];
            assert!(
                good.iter().any(|value| apply(flag.name, value).is_ok()),
                "--{}",
                flag.name
            );
        }
    }

    #[test]
    fn names_are_sorted_and_single() {
        assert!(FLAGS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn lists_append_and_the_first_sync_period_flag_counts_for_nftables_too() {
        let mut config = KubeProxyConfiguration::defaults();
        let flag = FLAGS
            .iter()
            .find(|flag| flag.name == "nodeport-addresses")
            .unwrap();
        assert_eq!(flag.kind, FlagKind::List);
        (flag.apply)(&mut config, "10.0.0.0/8,192.0.2.0/24").unwrap();
        (flag.apply)(&mut config, "::/0").unwrap();
        assert_eq!(
            config.node_port_addresses.unwrap(),
            ["10.0.0.0/8", "192.0.2.0/24", "::/0"]
        );
        assert_eq!(
            apply("iptables-sync-period", "7s")
                .unwrap()
                .nftables
                .sync_period
                .to_string(),
            "7s"
        );
    }

    #[test]
    fn bad_values_say_what_is_wrong() {
        for (name, value, wrong) in [
            ("bind-address", "x", "\"x\""),
            ("masquerade-all", "maybe", "\"maybe\""),
            ("iptables-sync-period", "30", "\"30\""),
            ("iptables-masquerade-bit", "3.5", "\"3.5\""),
            ("feature-gates", "A", "string=bool"),
            ("vmodule", "a", "pattern=N"),
            ("healthz-bind-address", "nowhere:10", "\"nowhere\""),
        ] {
            let err = apply(name, value).unwrap_err();
            assert!(err.contains(wrong), "--{name}={value}: {err}");
        }
    }

    #[test]
    fn only_logging_flags_win_over_the_file() {
        let over: Vec<&str> = FLAGS
            .iter()
            .filter(|flag| flag.with_config == WithConfig::FlagWins)
            .map(|flag| flag.name)
            .collect();
        assert!(
            over.iter()
                .all(|name| name.starts_with("log") || name.starts_with('v')),
            "{over:?}"
        );
    }
}
