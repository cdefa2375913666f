//! `--external-ip-allowed-cidrs`: ours, for daemon and tools alike (ADR 37).

use config::KubeProxyConfiguration;
use model::address::parse_net;

/// The flag.
pub const FLAG: &str = "external-ip-allowed-cidrs";

/// Allows further networks, comma separated; before the first, all are allowed.
///
/// # Errors
/// Names what is no network. An empty list would be read as "all" by some and as "none" by others.
pub fn allow(config: &mut KubeProxyConfiguration, text: &str) -> Result<(), String> {
    let mut nets = config
        .allowed_external_ips
        .as_deref()
        .unwrap_or_default()
        .to_vec();
    for word in text.split(',') {
        let net = parse_net(word.trim()).ok_or_else(|| {
            format!(
                "{word:?} is no CIDR such as 203.0.113.0/24 or 2001:db8::/32; to honour no external IP at all, give --feature-gates AllowServiceExternalIPs=false"
            )
        })?;
        nets.push(net);
    }
    config.allowed_external_ips = Some(nets.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(texts: &[&str]) -> Result<Vec<String>, String> {
        let mut config = KubeProxyConfiguration::defaults();
        for text in texts {
            allow(&mut config, text)?;
        }
        let nets = config.allowed_external_ips.unwrap_or_default();
        Ok(nets.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn networks_add_up_over_commas_and_flags() {
        let want = ["203.0.113.0/24", "2001:db8::/32", "198.51.100.7/32"].map(str::to_owned);
        assert_eq!(
            allowed(&["203.0.113.9/24, 2001:db8::/32", "198.51.100.7/32"]),
            Ok(want.to_vec())
        );
    }

    #[test]
    fn what_is_no_network_is_named() {
        for text in ["", "203.0.113.9", "203.0.113.0/24,", "all", "203.0.113.0/33"] {
            let error = allowed(&[text]).expect_err(text);
            assert!(error.contains("is no CIDR"), "{error}");
        }
    }

    #[test]
    fn it_counts_beside_a_configuration_file() {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.0.0.0/8\n";
        std::fs::write(file.path(), text).expect("it can be written to");
        let path = file.path().to_string_lossy().into_owned();
        let words = ["--config", &path, "--external_ip_allowed_cidrs", "203.0.113.0/24"].map(str::to_owned);
        let args = crate::daemon_args::Flags::read(&words).expect("flags");
        let config = args.complete().expect("a valid configuration").config;
        assert_eq!(config.cluster_cidr, "10.0.0.0/8");
        let nets = config.allowed_external_ips.unwrap_or_default();
        assert_eq!(
            nets.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["203.0.113.0/24"]
        );
        let settings = config::settings(
            &KubeProxyConfiguration {
                allowed_external_ips: Some(nets.clone()),
                ..KubeProxyConfiguration::defaults()
            },
            &model::NodeFacts::default(),
        );
        assert_eq!(settings.external_ips, model::ExternalIps::Within(nets));
    }
}
