//! A configuration file that changes under the daemon, as the volume of a `ConfigMap` does.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::live::available;
use live::cluster::{self, NODE, web};
use live::daemon::{PATIENCE, binary, configuration};
use live::manifests::Manifests;
use live::{rules, within};
use model::Family;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// One state of the volume: a folder of its own, which `..data` points at.
fn generation(volume: &Path, name: &str, config: &Value) {
    fs::create_dir(volume.join(name)).unwrap();
    fs::write(volume.join(name).join("config.conf"), config.to_string()).unwrap();
    symlink(name, volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
}

#[test]
fn a_config_map_that_is_swapped_ends_the_daemon_with_one_and_its_rules_stay() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("configmap"), Manifests::new());
    manifests.put("web.json", &web(4));
    let volume = tempfile::tempdir().unwrap();
    let path = volume.path();
    generation(path, "..2026_01", &configuration(&json!({})));
    symlink("..data/config.conf", path.join("config.conf")).unwrap();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let argv = [
        text(binary()),
        "--manifests".into(),
        text(manifests.path()),
        "--config".into(),
        text(&path.join("config.conf")),
        "--hostname-override".into(),
        NODE.into(),
    ];
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let mut process = lab
        .spawn(NODE, &argv, "configmap")
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let saved = || rules::saved(&lab, NODE, Family::V4);
    let there = within(PATIENCE, || saved().contains("default/web"));
    assert!(there.is_some(), "{}", process.log());

    // The same text again is what the kubelet writes when another key of the ConfigMap changes.
    generation(path, "..2026_02", &configuration(&json!({})));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(process.ended().unwrap(), None, "{}", process.log());

    generation(path, "..2026_03", &configuration(&json!({"oomScoreAdj": -998})));
    let status = process
        .wait(Duration::from_mins(1))
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let log = process.log();
    assert_eq!(status.and_then(|status| status.code()), Some(1), "{log}");
    let last = log.lines().last().unwrap_or_default();
    assert!(
        last.ends_with(
            "\"command failed\" err=\"content of the proxy server's configuration file was updated\""
        ),
        "{log}"
    );
    assert!(saved().contains("default/web"), "{}", saved());
}
