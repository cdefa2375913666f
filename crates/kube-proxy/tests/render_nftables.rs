//! The binary's `render --proxy-mode nftables` over the golden clusters: one file that `nft` takes and lists, and steps that
//! lead to the same table.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use scenario::{GoldenCase, golden_cases};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// What `render` prints of a case, its mode said by a flag or by the configuration.
fn rendered(case: &GoldenCase, flag: bool, more: &[&str]) -> String {
    let folder = scenario::root().join("golden").join(&case.name);
    let text = std::fs::read_to_string(folder.join("node.yaml")).unwrap();
    let node: Value = serde_saphyr::from_str(&text).unwrap();
    let mut config = node.get("config").cloned().unwrap_or_else(|| json!({}));
    config["apiVersion"] = json!("kubeproxy.config.k8s.io/v1alpha1");
    config["kind"] = json!("KubeProxyConfiguration");
    config["hostnameOverride"] = json!("node-a");
    if !flag {
        config["mode"] = json!("nftables");
    }
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("config.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    command
        .arg("render")
        .arg("--manifests")
        .arg(folder.join("cluster.json"));
    command.arg("--config").arg(&file).args(more);
    if flag {
        command.args(["--proxy-mode", "nftables"]);
    }
    for address in &case.addresses {
        command.args(["--node-address", &address.to_string()]);
    }
    let output = command.output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaints}", case.name);
    String::from_utf8(output.stdout).unwrap()
}

/// Gives files to `nft -f` one after the other in a namespace of their own; all that is listed then, as words in any order,
/// since the kernel hashes elements.
fn listed(files: &[&str]) -> Vec<String> {
    const SCRIPT: &str = "set -e\nfor file in \"$0\"/*.nft; do nft -f \"$file\"; done\n\
        nft -j list ruleset > /dev/null\nnft list ruleset > \"$0/one\"\nnft flush ruleset\nnft -f \"$0/one\"\n\
        nft list ruleset | cmp - \"$0/one\"\ncat \"$0/one\"";
    let scratch = tempfile::tempdir().unwrap();
    for (number, text) in files.iter().enumerate() {
        std::fs::write(scratch.path().join(format!("{number:03}.nft")), text).unwrap();
    }
    let flags = if rustix::process::geteuid().is_root() {
        "-n"
    } else {
        "-Urn"
    };
    let output = Command::new("unshare")
        .args([flags, "sh", "-c", SCRIPT])
        .arg(scratch.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}\n{}", files.join("\n----\n"));
    let text = String::from_utf8(output.stdout).unwrap();
    let parts = text.split(['\n', ',']).map(|part| {
        let part = part
            .trim()
            .trim_start_matches("elements = {")
            .trim_end_matches('}');
        part.trim().to_owned()
    });
    let mut parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    parts.sort();
    parts
}

/// The steps of a plan, each a file.
fn steps(plan: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = plan.match_indices("# step ").map(|(at, _)| at).collect();
    starts.push(plan.len());
    starts.windows(2).map(|ends| &plan[ends[0]..ends[1]]).collect()
}

fn available() -> bool {
    let tried = Command::new("unshare")
        .args(["-Urn", "nft", "list", "ruleset"])
        .output();
    let root = Command::new("unshare")
        .args(["-n", "nft", "list", "ruleset"])
        .output();
    let works = [tried, root]
        .into_iter()
        .flatten()
        .any(|output| output.status.success());
    assert!(
        works || std::env::var_os("KPRS_REQUIRE_LIVE").is_none(),
        "nft cannot be run in a namespace"
    );
    if !works {
        // Past the capture of the test harness: a skip has to be seen.
        _ = writeln!(std::io::stderr(), "SKIPPED: nft cannot be run in a namespace");
    }
    works
}

#[test]
fn nft_takes_the_rendered_file_of_every_golden_cluster_and_the_steps_lead_to_the_same() {
    if !available() {
        return;
    }
    let mut elements = 0;
    for case in golden_cases() {
        let file = rendered(&case, true, &[]);
        let by_configuration = rendered(&case, false, &[]);
        assert!(
            file == by_configuration,
            "{}: flag and configuration differ",
            case.name
        );
        elements += file.matches("add element ").count();
        for table in ["# table ip kube-proxy\n", "# table ip6 kube-proxy\n"] {
            assert!(file.contains(table), "{}", case.name);
        }
        let plan = rendered(&case, true, &["--stage", "plan"]);
        let steps = steps(&plan);
        assert!(steps.len() >= 2, "{}: {plan}", case.name);
        assert_eq!(listed(&[&file]), listed(&steps), "{}", case.name);
    }
    assert!(elements > 500, "{elements}");
}

#[test]
fn objects_and_what_traffic_should_do_are_printed_in_this_mode_as_well() {
    let case = golden_cases()
        .into_iter()
        .find(|case| case.name == "dual-stack")
        .unwrap();
    assert!(rendered(&case, true, &["--stage", "snapshot"]).contains("default/ds"));
    let desired = rendered(&case, true, &["--stage", "desired", "--family", "ipv6"]);
    assert!(
        desired.starts_with("# table ip6 kube-proxy\n") && desired.contains("default/ds"),
        "{desired}"
    );
}
