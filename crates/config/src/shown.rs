//! The value that a flag's variable has, as upstream's flag library prints it: in the log, on `/flagz`, in the help.

use crate::KubeProxyConfiguration;
use crate::types::FlushFrequency;

/// The value of the flag of this name; `None` for flags that fill no field.
pub fn flag_value(name: &str, config: &KubeProxyConfiguration) -> Option<String> {
    node_and_rules(name, config)
        .or_else(|| conntrack_and_ipvs(name, config))
        .or_else(|| process(name, config))
}

fn node_and_rules(name: &str, config: &KubeProxyConfiguration) -> Option<String> {
    let iptables = &config.iptables;
    Some(match name {
        "bind-address" => config.bind_address.clone(),
        "cluster-cidr" => config.cluster_cidr.clone(),
        "detect-local-mode" => config.detect_local_mode.clone(),
        "iptables-localhost-nodeports" => iptables.localhost_node_ports.unwrap_or(true).to_string(),
        "iptables-masquerade-bit" => iptables.masquerade_bit.unwrap_or(14).to_string(),
        "iptables-min-sync-period" => iptables.min_sync_period.to_string(),
        "iptables-sync-period" => iptables.sync_period.to_string(),
        "masquerade-all" => iptables.masquerade_all.to_string(),
        "nodeport-addresses" => list(config.node_port_addresses.as_deref()),
        "pod-bridge-interface" => config.detect_local.bridge_interface.clone(),
        "pod-interface-name-prefix" => config.detect_local.interface_name_prefix.clone(),
        "proxy-mode" => config.mode.clone(),
        _ => return None,
    })
}

fn conntrack_and_ipvs(name: &str, config: &KubeProxyConfiguration) -> Option<String> {
    let (conntrack, ipvs) = (&config.conntrack, &config.ipvs);
    let hours = |duration: Option<crate::GoDuration>, usual: i64| {
        duration
            .unwrap_or(crate::GoDuration::from_secs(usual * 3600))
            .to_string()
    };
    Some(match name {
        "conntrack-max-per-core" => conntrack.max_per_core.unwrap_or(32768).to_string(),
        "conntrack-min" => conntrack.min.unwrap_or(131_072).to_string(),
        "conntrack-tcp-be-liberal" => conntrack.tcp_be_liberal.to_string(),
        "conntrack-tcp-timeout-close-wait" => hours(conntrack.tcp_close_wait_timeout, 1),
        "conntrack-tcp-timeout-established" => hours(conntrack.tcp_established_timeout, 24),
        "conntrack-udp-timeout" => conntrack.udp_timeout.to_string(),
        "conntrack-udp-timeout-stream" => conntrack.udp_stream_timeout.to_string(),
        "ipvs-exclude-cidrs" => list(ipvs.exclude_cidrs.as_deref()),
        "ipvs-min-sync-period" => ipvs.min_sync_period.to_string(),
        "ipvs-scheduler" => ipvs.scheduler.clone(),
        "ipvs-strict-arp" => ipvs.strict_arp.to_string(),
        "ipvs-sync-period" => ipvs.sync_period.to_string(),
        "ipvs-tcp-timeout" => ipvs.tcp_timeout.to_string(),
        "ipvs-tcpfin-timeout" => ipvs.tcp_fin_timeout.to_string(),
        "ipvs-udp-timeout" => ipvs.udp_timeout.to_string(),
        _ => return None,
    })
}

fn process(name: &str, config: &KubeProxyConfiguration) -> Option<String> {
    let (client, logging) = (&config.client_connection, &config.logging);
    Some(match name {
        "bind-address-hard-fail" => config.bind_address_hard_fail.to_string(),
        "config-sync-period" => config.config_sync_period.to_string(),
        "feature-gates" => {
            let gates = config.feature_gates.iter();
            let pairs: Vec<String> = gates.map(|(gate, on)| format!("{gate}={on}")).collect();
            pairs.join(",")
        }
        "healthz-bind-address" => config.healthz_bind_address.clone(),
        "kube-api-burst" => client.burst.to_string(),
        "kube-api-content-type" => client.content_type.clone(),
        "kube-api-qps" => client.qps.to_string(),
        "kubeconfig" => client.kubeconfig.clone(),
        "log-flush-frequency" => match logging.flush_frequency {
            FlushFrequency::Nanoseconds(nanos) => crate::GoDuration::from_nanos(nanos).to_string(),
            FlushFrequency::Duration(duration) => duration.to_string(),
        },
        "log-json-info-buffer-size" => logging.options.json.info_buffer_size.clone(),
        "log-json-split-stream" => logging.options.json.split_stream.to_string(),
        "log-text-info-buffer-size" => logging.options.text.info_buffer_size.clone(),
        "log-text-split-stream" => logging.options.text.split_stream.to_string(),
        "logging-format" => logging.format.clone(),
        "metrics-bind-address" => config.metrics_bind_address.clone(),
        "oom-score-adj" => config.oom_score_adj.unwrap_or(-999).to_string(),
        "profiling" => config.enable_profiling.to_string(),
        "show-hidden-metrics-for-version" => config.show_hidden_metrics_for_version.clone(),
        "v" => logging.verbosity.to_string(),
        "vmodule" => {
            let entries = logging.vmodule.iter();
            let pairs: Vec<String> = entries
                .map(|entry| format!("{}={}", entry.file_pattern, entry.verbosity))
                .collect();
            pairs.join(",")
        }
        _ => return None,
    })
}

fn list(values: Option<&[String]>) -> String {
    format!("[{}]", values.unwrap_or_default().join(","))
}

#[cfg(test)]
mod tests {
    use super::flag_value;
    use crate::KubeProxyConfiguration;
    use crate::flags::FLAGS;

    /// Upstream 1.36's defaults, as its help and its log print them.
    #[rustfmt::skip]
    const DEFAULTS: [(&str, &str); 49] = [
        ("bind-address", "0.0.0.0"), ("bind-address-hard-fail", "false"), ("cluster-cidr", ""),
        ("config-sync-period", "15m0s"), ("conntrack-max-per-core", "32768"), ("conntrack-min", "131072"),
        ("conntrack-tcp-be-liberal", "false"), ("conntrack-tcp-timeout-close-wait", "1h0m0s"),
        ("conntrack-tcp-timeout-established", "24h0m0s"), ("conntrack-udp-timeout", "0s"),
        ("conntrack-udp-timeout-stream", "0s"), ("detect-local-mode", ""), ("feature-gates", ""),
        ("healthz-bind-address", "0.0.0.0:10256"), ("iptables-localhost-nodeports", "true"),
        ("iptables-masquerade-bit", "14"), ("iptables-min-sync-period", "1s"), ("iptables-sync-period", "30s"),
        ("ipvs-exclude-cidrs", "[]"), ("ipvs-min-sync-period", "1s"), ("ipvs-scheduler", ""),
        ("ipvs-strict-arp", "false"), ("ipvs-sync-period", "30s"), ("ipvs-tcp-timeout", "0s"),
        ("ipvs-tcpfin-timeout", "0s"), ("ipvs-udp-timeout", "0s"), ("kube-api-burst", "10"),
        ("kube-api-content-type", "application/vnd.kubernetes.protobuf"), ("kube-api-qps", "5"), ("kubeconfig", ""),
        ("log-flush-frequency", "5s"), ("log-json-info-buffer-size", "0"), ("log-json-split-stream", "false"),
        ("log-text-info-buffer-size", "0"), ("log-text-split-stream", "false"), ("logging-format", "text"),
        ("masquerade-all", "false"), ("metrics-bind-address", "127.0.0.1:10249"), ("nodeport-addresses", "[]"),
        ("oom-score-adj", "-999"), ("pod-bridge-interface", ""), ("pod-interface-name-prefix", ""),
        ("profiling", "false"), ("proxy-mode", ""), ("show-hidden-metrics-for-version", ""), ("v", "0"), ("vmodule", ""),
        // The command line knows these two.
        ("healthz-port", ""), ("metrics-port", ""),
    ];

    #[test]
    fn every_flag_has_upstreams_default() {
        let config = KubeProxyConfiguration::before_flags();
        for flag in FLAGS {
            let expected = DEFAULTS.iter().find(|(name, _)| *name == flag.name);
            let (_, expected) = expected.unwrap_or_else(|| panic!("--{} is not in the table", flag.name));
            let shown = flag_value(flag.name, &config).unwrap_or_default();
            assert_eq!(&shown, expected, "--{}", flag.name);
        }
        assert_eq!(FLAGS.len(), DEFAULTS.len());
    }

    #[test]
    fn what_was_given_is_shown_in_one_spelling() {
        for (name, given, shown) in [
            ("iptables-sync-period", "90s", "1m30s"),
            ("nodeport-addresses", "10.0.0.0/8,::/0", "[10.0.0.0/8,::/0]"),
            ("feature-gates", "B=1,A=f", "A=false,B=true"),
            ("vmodule", "a=1,b*=2", "a=1,b*=2"),
            ("log-text-info-buffer-size", "1024Ki", "1Mi"),
            ("profiling", "T", "true"),
            ("kube-api-qps", "0.5", "0.5"),
        ] {
            let mut config = KubeProxyConfiguration::before_flags();
            let flag = FLAGS.iter().find(|flag| flag.name == name).unwrap();
            (flag.apply)(&mut config, given).unwrap();
            assert_eq!(flag_value(name, &config).as_deref(), Some(shown), "--{name}");
        }
    }
}
