//! The binary's `render` over the golden clusters: upstream's rules, and the texts of our own stages.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use iptables::compare::differences;
use iptables::parse;
use model::Family;
use scenario::{GoldenCase, golden_cases};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

/// Whose stages are looked at through the binary as well.
const STAGES: [&str; 3] = ["dual-stack", "loadbalancer", "policy"];

fn word(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

fn folder(case: &GoldenCase) -> PathBuf {
    scenario::root().join("golden").join(&case.name)
}

/// A configuration file of what `node.yaml` says, as an operator would write it.
fn config_file(case: &GoldenCase, scratch: &tempfile::TempDir) -> PathBuf {
    let text = std::fs::read_to_string(folder(case).join("node.yaml")).unwrap();
    let node: Value = serde_saphyr::from_str(&text).unwrap();
    let mut config = node.get("config").cloned().unwrap_or_else(|| json!({}));
    config["apiVersion"] = json!("kubeproxy.config.k8s.io/v1alpha1");
    config["kind"] = json!("KubeProxyConfiguration");
    config["hostnameOverride"] = json!("node-a");
    let path = scratch.path().join(format!("{}.yaml", case.name));
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// What `render` prints for one family, without its heading.
fn rendered(case: &GoldenCase, family: Family, more: &[&str]) -> String {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    command
        .args(["render", "--family", word(family)])
        .arg("--manifests")
        .arg(folder(case).join("cluster.json"))
        .arg("--config")
        .arg(config_file(case, &scratch))
        .args(more);
    for address in &case.addresses {
        command.args(["--node-address", &address.to_string()]);
    }
    for (name, address) in &case.interfaces {
        command.args(["--interface", &format!("{name}={address}")]);
    }
    let output = command.output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaints}", case.name);
    let text = String::from_utf8(output.stdout).unwrap();
    let (heading, text) = text.split_once('\n').unwrap();
    assert!(heading.starts_with("# ip"), "{heading}");
    text.to_owned()
}

#[test]
fn render_prints_upstreams_rules_for_every_golden_cluster() {
    let mut report = Vec::new();
    for case in golden_cases() {
        for family in Family::ALL {
            let want = parse::save(case.saved.get(family), family);
            let have = parse::save(&rendered(&case, family, &[]), family);
            assert_eq!(
                (want.opaque, have.opaque),
                (vec![], vec![]),
                "{} {family}",
                case.name
            );
            let found = differences(&want.ruleset, &have.ruleset);
            report.extend(
                found
                    .iter()
                    .map(|d| format!("{} {family}: {}", case.name, d.text(family))),
            );
        }
    }
    assert!(
        report.is_empty(),
        "{} differences:\n{}",
        report.len(),
        report.join("\n")
    );
}

#[test]
fn render_prints_stages_as_their_goldens_have_them() {
    let cases = golden_cases();
    for case in cases.iter().filter(|case| STAGES.contains(&case.name.as_str())) {
        for (stage, family, file) in [
            ("desired", Family::V4, "desired.v4.txt"),
            ("desired", Family::V6, "desired.v6.txt"),
            ("plan", Family::V4, "first-plan.txt"),
        ] {
            let golden = scenario::root().join("stages").join(&case.name).join(file);
            let want = std::fs::read_to_string(&golden).unwrap();
            let have = rendered(case, family, &["--stage", stage]);
            assert_eq!(have, want, "{}", golden.display());
        }
    }
}
