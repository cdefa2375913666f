//! What the daemon cannot start with: one clear line that names the thing, status 1, and the rules in place stay.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::live::available;
use lab::{Finished, Lab};
use live::cluster::{self, NODE, web};
use live::daemon::{Setup, binary, configuration};
use live::manifests::Manifests;
use live::traffic::{all_answered, commits, on_web, settled, watch, web_answers};
use live::within;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// Runs the binary at the node until it ends, five seconds at most, behind another command if one is given.
fn run(lab: &Lab, before: &[&str], args: &[&str]) -> Finished {
    let proxy = binary().to_string_lossy();
    let mut command = vec!["timeout", "5"];
    command.extend(before);
    command.push(&proxy);
    command.extend(args);
    lab.exec(NODE, &command)
        .unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// It ended with 1, and what it printed has a line with all these words.
#[track_caller]
fn refused(finished: &Finished, words: &[&str]) {
    let text = format!("{}{}", finished.stdout, finished.stderr);
    assert_eq!(finished.status.code(), Some(1), "{text}");
    let is_named = text
        .lines()
        .any(|line| words.iter().all(|word| line.contains(word)));
    assert!(is_named, "no line with {words:?} in:\n{text}");
    assert!(!text.contains("panicked"), "{text}");
}

/// Files that are missing or wrong.
fn refuses_files(lab: &Lab, manifests: &Manifests) {
    let folder = manifests.path().to_string_lossy().into_owned();
    let config = |parts| {
        let file = manifests.file("config");
        fs::write(&file, configuration(&parts).to_string()).unwrap();
        file.to_string_lossy().into_owned()
    };
    let with = |args: &[&str]| run(lab, &[], &[args, &["--hostname-override", NODE]].concat());
    refused(&with(&["--manifests", "/nowhere"]), &["/nowhere", "check"]);
    refused(
        &with(&["--manifests", &folder, "--config", "/nowhere"]),
        &["--config", "/nowhere"],
    );
    let bad_cidr = config(json!({"clusterCIDR": "10.0.0.0/99"}));
    refused(
        &with(&["--manifests", &folder, "--config", &bad_cidr]),
        &["10.0.0.0/99"],
    );
    let bad_type = config(json!({"iptables": {"masqueradeBit": "many"}}));
    refused(
        &with(&["--manifests", &folder, "--config", &bad_type]),
        &["masqueradeBit"],
    );
    refused(&with(&["--kubeconfig", "/nowhere"]), &["/nowhere"]);
}

/// No root, no tools.
fn refuses_surroundings(lab: &Lab, manifests: &Manifests) {
    // Others may read what nobody is to read.
    fs::set_permissions(manifests.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let good = manifests.file("web.json").to_string_lossy().into_owned();
    let args = ["--manifests", &good, "--hostname-override", NODE];
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    refused(&run(lab, &nobody, &args), &["root"]);
    let hide = "mount -t tmpfs none /usr/sbin; mount -t tmpfs none /usr/local/sbin; exec \"$@\"";
    let without_tools = [
        "unshare",
        "--mount",
        "env",
        "PATH=/usr/bin:/bin",
        "sh",
        "-c",
        hide,
        "sh",
    ];
    refused(&run(lab, &without_tools, &args), &["iptables", "install"]);
}

#[test]
fn daemon_that_cannot_start_says_why_and_leaves_the_rules_alone() {
    if !available(&["iptables", "setpriv", "unshare"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("start"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    web_answers(&lab, &daemon);
    let mut watch = watch(&lab);
    settled(&mut watch);
    daemon.kill();
    let prober = on_web(&lab);

    refuses_files(&lab, &manifests);
    refuses_surroundings(&lab, &manifests);
    let written = commits(&mut watch);
    assert!(written.is_empty(), "{written:?}");
    all_answered(prober, 1);
}

#[test]
fn unreachable_api_server_is_named_and_waited_for_and_the_rules_stay() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("noapi"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    web_answers(&lab, &daemon);
    let mut watch = watch(&lab);
    settled(&mut watch);
    daemon.kill();
    let prober = on_web(&lab);
    let program = binary().to_string_lossy().into_owned();
    // Nobody listens on port 1.
    let argv = [
        &*program,
        "--master",
        "https://127.0.0.1:1",
        "--hostname-override",
        NODE,
    ];
    let mut process = lab
        .spawn(NODE, &argv, "noapi")
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let named = within(Duration::from_secs(5), || process.log().contains("127.0.0.1:1"));
    assert!(named.is_some(), "the server is not named:\n{}", process.log());
    std::thread::sleep(Duration::from_secs(2));
    assert!(process.ended().unwrap().is_none(), "it ended:\n{}", process.log());
    assert!(
        process.log().lines().count() < 40,
        "it floods the log:\n{}",
        process.log()
    );
    let written = commits(&mut watch);
    assert!(written.is_empty(), "{written:?}\n{}", process.log());
    all_answered(prober, 200);
}

#[test]
fn node_without_an_object_is_named() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nonode"), Manifests::new());
    manifests.put("web.json", &web(4));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.config["hostnameOverride"] = json!("nobody-knows-me");
    let program = binary().to_string_lossy().into_owned();
    let config = manifests.file("config");
    fs::write(&config, setup.config.to_string()).unwrap();
    let (folder, config) = (manifests.path().to_string_lossy(), config.to_string_lossy());
    let argv = [&*program, "--manifests", &folder, "--config", &config];
    let process = lab
        .spawn(NODE, &argv, "nonode")
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let says = |line: &str| line.contains("nobody-knows-me") && line.contains("Node");
    let named = within(live::daemon::PATIENCE, || process.log().lines().any(says));
    assert!(named.is_some(), "the Node is not named:\n{}", process.log());
}
