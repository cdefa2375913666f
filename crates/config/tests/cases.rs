//! Configurations after public reports (`scenarios/cases`): accepted, with what is odd about them named.

use std::path::Path;

#[test]
fn case_39_fields_of_old_releases_are_named_and_no_failure() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/cases/39-config-left-over-fields");
    let text = std::fs::read_to_string(folder.join("config.yaml")).expect("the case is there");
    let decoded = config::decode(&text).expect("it is accepted");
    // `portRange` is still a field, and does nothing.
    assert_eq!(
        decoded.unknown_fields,
        ["conntrack.max", "resourceContainer", "udpIdleTimeout"]
    );
    let doubled = decoded.doubled_key.expect("a key is there twice");
    assert!(doubled.contains("syncPeriod"), "{doubled}");
    let config = decoded.config;
    // The last one counts.
    assert_eq!(config.sync_periods().0.to_string(), "45s");
    assert_eq!(config.conntrack.max_per_core, Some(32_768));
    assert_eq!(config.conntrack.min, Some(131_072));
    assert_eq!(config.cluster_cidr, "10.244.0.0/16");
    assert_eq!(config::validate(&config), []);
}
