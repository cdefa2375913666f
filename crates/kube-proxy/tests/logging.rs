//! What the daemon says before it serves: its log in both forms and on both streams, its help, its complaints. No root.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

struct Said {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

fn kube_proxy(args: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    let output = command
        .args(args)
        .env("NO_COLOR", "1")
        .env("COLUMNS", "80")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Said {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// With these flags it logs a line or more, and ends.
fn written(args: &[&str]) -> Said {
    let folder = tempfile::tempdir().unwrap();
    let to = format!("--write-config-to={}", folder.path().join("c.yaml").display());
    let said = kube_proxy(&[args, &[to.as_str()]].concat());
    assert_eq!(said.status, Some(0), "{}", said.stderr);
    said
}

fn flags(text: &str) -> Vec<&str> {
    let after = |line: &'_ str| line.find("FLAG: ").map(|at| at + "FLAG: ".len());
    text.lines()
        .filter_map(|line| after(line).map(|at| &line[at..]))
        .collect()
}

#[test]
fn every_flag_is_told_at_verbosity_one_and_none_at_zero() {
    let said = written(&[
        "-v=1",
        "--iptables-sync-period=60s",
        "--nodeport-addresses=10.0.0.0/8",
    ]);
    let told = flags(&said.stderr);
    let name = |line: &&str| line.split('=').next().unwrap_or_default().to_owned();
    assert!(told.iter().map(name).is_sorted(), "{told:?}");
    for line in [
        "--v=\"1\"",
        "--iptables-sync-period=\"1m0s\"",
        "--nodeport-addresses=\"[10.0.0.0/8]\"",
        "--healthz-port=\"10256\"",
        "--proxy-mode=\"iptables\"",
        "--cleanup=\"false\"",
        "--help=\"false\"",
        "--version=\"false\"",
        "--master=\"\"",
    ] {
        assert!(told.contains(&line), "{line} in {told:?}");
    }
    for flag in config::flags::FLAGS {
        let start = format!("--{}=", flag.name);
        assert_eq!(
            told.iter().filter(|line| line.starts_with(&start)).count(),
            1,
            "{start}"
        );
    }
    // klog does not quote such lines.
    assert!(said.stderr.contains("] FLAG: --v=\"1\"\n"), "{}", said.stderr);
    assert_eq!(flags(&written(&[]).stderr), [""; 0]);
}

#[test]
fn vmodule_lets_one_file_say_more() {
    for (vmodule, expected) in [
        ("daemon=1", true),
        ("d?em*=9", true),
        ("daemon=0,d*=9", false),
        ("tell=9", false),
    ] {
        let said = written(&[&format!("--vmodule={vmodule}")]);
        assert_eq!(
            !flags(&said.stderr).is_empty(),
            expected,
            "{vmodule}: {}",
            said.stderr
        );
    }
}

#[test]
fn json_lines_have_upstreams_keys() {
    let said = written(&["-v=1", "--logging-format=json"]);
    assert_eq!(said.stdout, "");
    let lines: Vec<Value> = said
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let flag = lines
        .iter()
        .find(|line| line["msg"] == "FLAG: --v=\"1\"")
        .unwrap();
    assert_eq!(flag["v"], 1);
    assert!(flag["ts"].is_f64());
    let caller = flag["caller"].as_str().unwrap();
    assert!(caller.starts_with("src/daemon.rs:"), "{caller}");
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["msg"], &last["v"]),
        (&"Wrote configuration".into(), &0.into())
    );
}

#[test]
fn what_ends_it_is_said_in_the_form_that_was_asked_for() {
    let said = kube_proxy(&["--logging-format=json", "--oom-score-adj=2000"]);
    assert_eq!(said.status, Some(1));
    let last: Value = serde_json::from_str(said.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(last["msg"], "command failed");
    let words = last["err"].as_str().unwrap();
    assert!(
        words.starts_with("failed validate: ") && words.contains("OOMScoreAdj"),
        "{words}"
    );
    assert_eq!(last.get("v"), None);
}

#[test]
fn information_goes_to_stdout_when_streams_are_split_and_nothing_held_back_is_lost() {
    let alpha = "--feature-gates=LoggingAlphaOptions=true";
    for more in [
        &[][..],
        &["--log-text-info-buffer-size=1Mi", "--log-flush-frequency=1h"],
    ] {
        let args = [&[alpha, "--log-text-split-stream", "--vmodule=x=1"][..], more].concat();
        let said = written(&args);
        assert!(said.stdout.contains("Wrote configuration"), "{}", said.stdout);
        assert!(!said.stdout.contains("without effect"), "{}", said.stdout);
        assert_eq!(said.stderr, "");
    }
    let json = written(&[alpha, "--logging-format=json", "--log-json-split-stream"]);
    assert!(json.stdout.contains("Wrote configuration"), "{}", json.stdout);
    // Without a split there is nothing to hold back, and no use in saying how.
    let said = written(&["--log-flush-frequency=1s"]);
    assert!(said.stderr.contains("logging.flushFrequency"), "{}", said.stderr);
}

#[test]
fn help_fits_eighty_columns_in_groups_with_defaults() {
    let said = kube_proxy(&["--help"]);
    assert_eq!(
        (said.status, said.stderr.as_str()),
        (Some(0), ""),
        "{}",
        said.stdout
    );
    let long: Vec<&str> = said
        .stdout
        .lines()
        .filter(|line| line.chars().count() > 80)
        .collect();
    assert_eq!(long, [""; 0]);
    for flag in config::flags::FLAGS {
        let there = said.stdout.contains(&format!("--{}", flag.name));
        assert_eq!(there, flag.deprecated.is_none(), "--{}", flag.name);
    }
    let ours = said
        .stdout
        .split("Not in upstream's kube-proxy:")
        .nth(1)
        .expect("a group");
    let ours = ours.split("\n\n").next().unwrap_or_default();
    assert!(
        ours.contains("--manifests") && ours.contains("--conntrack-cut-gone-tcp"),
        "{ours}"
    );
    assert!(!ours.contains("--config "), "{ours}");
    assert!(said.stdout.contains("[30s]"), "{}", said.stdout);
}

#[test]
fn what_is_wrong_with_the_command_line_comes_last_after_a_word_on_usage() {
    for (args, last) in [
        (&["--sillyness"][..], "Error: unknown flag: --sillyness"),
        (
            &["serve"],
            "Error: \"kube-proxy\" does not take any arguments, got [\"serve\"]",
        ),
        (&["--config"], "Error: flag needs an argument: --config"),
    ] {
        let said = kube_proxy(args);
        assert_eq!((said.status, said.stdout.as_str()), (Some(1), ""), "{args:?}");
        assert!(said.stderr.starts_with("Usage: kube-proxy "), "{}", said.stderr);
        assert_eq!(said.stderr.lines().last(), Some(last));
    }
}

#[test]
fn a_deprecated_flag_is_one_line_and_no_obstacle() {
    let said = written(&["--healthz-port=1"]);
    let lines = said.stderr.lines().filter(|line| line.contains("deprecated"));
    assert_eq!(lines.count(), 1, "{}", said.stderr);
    assert!(
        said.stderr
            .starts_with("Flag --healthz-port has been deprecated, "),
        "{}",
        said.stderr
    );
}

#[test]
fn an_underscore_counts_as_a_dash() {
    let said = written(&["-v=1", "--oom_score_adj=7"]);
    assert!(flags(&said.stderr).contains(&"--oom-score-adj=\"7\""));
}

#[test]
fn it_ends_although_nobody_reads_what_it_says() {
    let (reader, writer) = std::io::pipe().unwrap();
    // Less than the flags take.
    rustix::pipe::fcntl_setpipe_size(&reader, 4_096).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_kube-proxy"))
        .args(["-v=1", "--write-config-to"])
        .arg(folder.path().join("c.yaml"))
        .stdin(Stdio::null())
        .stderr(writer)
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_mins(1);
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Nothing to kill, unless it hangs.
    let _ = child.kill();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(reader);
}

/// With this file.
fn written_with(file: &str) -> Said {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    std::fs::write(&config, [head, file].concat()).unwrap();
    written(&["--config", &config.to_string_lossy()])
}

#[test]
fn thousands_of_oddities_in_a_file_are_a_few_lines() {
    use std::fmt::Write;
    let mut fields = String::new();
    let mut gates = "featureGates:\n".to_owned();
    for i in 0..5_000 {
        writeln!(fields, "field{i}: 1").unwrap();
        writeln!(gates, "  Gate{i}: true").unwrap();
    }
    let said = written_with(&format!("{fields}{}: 1\n{gates}", "long".repeat(250)));
    assert!(said.stderr.lines().count() < 50, "{}", said.stderr);
    for words in [
        "unknown field \\\"field0\\\" is ignored",
        "4981 more unknown fields are ignored",
        "unrecognized feature gate: Gate0\"",
        "unrecognized feature gates: 4980 more",
    ] {
        assert!(said.stderr.contains(words), "{words}\n{}", said.stderr);
    }
    let said = written_with(&format!("{}: 1\n", "long".repeat(250)));
    assert!(
        said.stderr.contains("longlong...") && said.stderr.len() < 1_000,
        "{}",
        said.stderr
    );
}

#[test]
fn a_name_that_no_node_has_is_refused_by_its_field() {
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    for (name, reason) in [
        ("a\\0b".to_owned(), "control characters"),
        ("\\e[31mred".to_owned(), "control characters"),
        ("a".repeat(1 << 20), "no longer than 253 bytes"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yaml");
        std::fs::write(&config, format!("{head}hostnameOverride: \"{name}\"\n")).unwrap();
        let said = kube_proxy(&["--config", &config.to_string_lossy(), "--manifests", "/nowhere"]);
        assert_eq!(said.status, Some(1), "{}", said.stderr);
        let last = said.stderr.lines().last().unwrap();
        assert!(
            last.contains("KubeProxyConfiguration.HostnameOverride: Invalid value: ")
                && last.contains(reason),
            "{last}"
        );
        assert!(last.len() < 1_000 && !last.contains(char::is_control), "{last:?}");
    }
}

#[test]
fn another_document_in_a_file_is_spoken_of() {
    let said = written_with("mode: iptables\n---\nmode: nftables\n");
    let told = said
        .stderr
        .lines()
        .filter(|line| line.contains("1 more after a line of ---"));
    assert_eq!(told.count(), 1, "{}", said.stderr);
    assert!(!written_with("mode: iptables\n---\n").stderr.contains("---"));
}
