//! Settings that are accepted and do nothing here.

use crate::{KubeProxyConfiguration, info_buffer_bytes, stream_options};

/// The fields that were set to something and do nothing, by path.
pub fn without_effect(config: &KubeProxyConfiguration) -> Vec<&'static str> {
    let usual = KubeProxyConfiguration::defaults();
    let (client, usual_client) = (&config.client_connection, &usual.client_connection);
    let fields = [
        (
            "clientConnection.acceptContentTypes",
            client.accept_content_types != usual_client.accept_content_types,
        ),
        (
            "clientConnection.contentType",
            client.content_type != usual_client.content_type,
        ),
        (
            "configSyncPeriod",
            config.config_sync_period != usual.config_sync_period,
        ),
        (
            "logging.flushFrequency",
            config.logging.flush_frequency != usual.logging.flush_frequency && !holds_lines_back(config),
        ),
        (
            "logging.options",
            config.logging.options != usual.logging.options && !splits_streams(config),
        ),
        ("portRange", config.port_range != usual.port_range),
        (
            "windowsRunAsService",
            config.windows_run_as_service != usual.windows_run_as_service,
        ),
        ("winkernel", config.winkernel != usual.winkernel),
    ];
    fields
        .into_iter()
        .filter(|(_, set)| *set)
        .map(|(path, _)| path)
        .collect()
}

/// Without a split all lines go to stderr, and at once.
fn splits_streams(config: &KubeProxyConfiguration) -> bool {
    stream_options(&config.logging).split_stream
}

/// Whether there is anything to flush.
fn holds_lines_back(config: &KubeProxyConfiguration) -> bool {
    splits_streams(config) && info_buffer_bytes(stream_options(&config.logging)) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_set_is_named() {
        let mut config = KubeProxyConfiguration::defaults();
        assert_eq!(without_effect(&config), [""; 0]);
        config.winkernel.enable_dsr = true;
        config.port_range = "1-2".to_owned();
        assert_eq!(without_effect(&config), ["portRange", "winkernel"]);
    }
}
