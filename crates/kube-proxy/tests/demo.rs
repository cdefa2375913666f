//! The demonstration, with real packets: it agrees with itself, and notices a rule that is broken by hand.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// What `kube-proxy lab demo --output json` with more words says, and its exit status.
fn demo(words: &[&str]) -> (Value, i32) {
    let child = Command::new(env!("CARGO_BIN_EXE_kube-proxy"))
        .args(["lab", "demo", "--output", "json"])
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary is built");
    let prefix = format!("demo_{}-", child.id());
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    let left = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with(&prefix))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    assert!(
        !Path::new("/run/kube-proxy-lab")
            .join(prefix.trim_end_matches('-'))
            .exists()
    );
    let report = report.unwrap_or_else(|error| panic!("{error}; it said {said}"));
    (report, output.status.code().expect("not killed"))
}

fn can_run() -> bool {
    lab::live::available(&["iptables-nft", "nft"])
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The observed steps of a request, `TABLE:CHAIN`.
fn observed(report: &Value, request: usize) -> Vec<String> {
    let steps = report["requests"][request]["steps"].as_array().expect("steps");
    let observed = steps
        .iter()
        .map(|row| &row["observed"])
        .filter(|step| !step.is_null());
    observed
        .map(|step| format!("{}:{}", text(step, "/table"), text(step, "/chain")))
        .collect()
}

/// Whether steps, addresses and answer of a request are the same on both sides.
fn agrees(report: &Value, request: usize) -> bool {
    let request = &report["requests"][request];
    let steps = request["steps"].as_array().expect("steps");
    steps.iter().all(|row| row["predicted"] == row["observed"]) && request["predicted"] == request["observed"]
}

#[test]
fn every_prediction_of_the_demonstration_comes_true() {
    if !can_run() {
        return;
    }
    let (report, status) = demo(&[]);
    assert_eq!(status, 0, "{report:#}");
    assert_eq!(report["agrees"], true);
    assert_eq!(
        report["differences"],
        serde_json::json!([]),
        "kube-proxy writes what render shows"
    );
    for request in 0..3 {
        assert!(agrees(&report, request), "{report:#}");
        assert_eq!(report["requests"][request]["trace_of_live_rules_agrees"], true);
        let name = text(&report["requests"][request], "/observed/answered_by");
        assert!(name.starts_with("spring-test-"), "{name}");
    }
    // What the three kinds of source meet and become, by the known experiment and not by our tracer.
    assert_eq!(report["requests"][0]["observed"]["source"], "10.244.1.7");
    let pod = observed(&report, 0);
    assert_eq!(
        pod[..3],
        [
            "nat:PREROUTING",
            "nat:KUBE-SERVICES",
            "nat:KUBE-SVC-HKCWQRYAXFH7ZPX3"
        ]
    );
    assert!(pod[3].starts_with("nat:KUBE-SEP-"), "{pod:?}");
    assert!(pod.contains(&"filter:FORWARD".to_owned()), "{pod:?}");
    assert!(!pod.contains(&"nat:KUBE-MARK-MASQ".to_owned()), "{pod:?}");
    let node = observed(&report, 1);
    assert_eq!(node[..2], ["nat:OUTPUT", "nat:KUBE-SERVICES"]);
    assert!(node.contains(&"nat:KUBE-MARK-MASQ".to_owned()), "{node:?}");
    let outside = observed(&report, 2);
    assert_eq!(
        outside[..4],
        [
            "nat:PREROUTING",
            "nat:KUBE-SERVICES",
            "nat:KUBE-NODEPORTS",
            "nat:KUBE-EXT-HKCWQRYAXFH7ZPX3"
        ]
    );
    let seen = text(&report["requests"][2], "/observed/source");
    assert!(["192.168.50.238", "10.244.1.1"].contains(&seen), "{seen}");
}

#[test]
fn translation_to_another_pod_by_hand_is_noticed() {
    if !can_run() {
        return;
    }
    // Both endpoints of spring-test lead to the sender's pod.
    let command = "for chain in KUBE-SEP-YRHRNHV2V2F35SK2 KUBE-SEP-6JBGLP5EV4JHVRIR; do
        iptables-nft -t nat -R $chain 2 -p tcp -j DNAT --to-destination 10.244.2.7:8080; done";
    let (report, status) = demo(&["--tamper", command]);
    assert_eq!(status, 1, "{report:#}");
    assert_eq!(report["agrees"], false);
    for request in 0..3 {
        assert!(!agrees(&report, request), "{report:#}");
        let asked = &report["requests"][request];
        assert_eq!(text(asked, "/observed/answered_by"), "sender-b", "{report:#}");
        assert!(text(asked, "/predicted/answered_by").starts_with("spring-test-"));
        assert_eq!(asked["trace_of_live_rules_agrees"], true, "{report:#}");
    }
}

#[test]
fn missing_mark_is_noticed_where_packets_are_masqueraded() {
    if !can_run() {
        return;
    }
    let (report, status) = demo(&["--tamper", "iptables-nft -t nat -F KUBE-MARK-MASQ"]);
    assert_eq!(status, 1, "{report:#}");
    assert!(
        agrees(&report, 0),
        "a pod's packet is not marked anyway: {report:#}"
    );
    assert!(!agrees(&report, 1), "{report:#}");
    assert!(!agrees(&report, 2), "{report:#}");
    assert_eq!(
        text(&report["requests"][2], "/predicted_source"),
        "masqueraded, was 192.168.50.10"
    );
    assert_eq!(text(&report["requests"][2], "/observed/source"), "192.168.50.10");
}

#[test]
fn forgotten_firewall_is_noticed_and_explained() {
    if !can_run() {
        return;
    }
    let command = "iptables-nft -I FORWARD -p tcp --dport 8080 -j DROP";
    let (report, status) = demo(&["--tamper", command]);
    assert_eq!(status, 1, "{report:#}");
    assert!(
        agrees(&report, 1),
        "the node's own packets are not forwarded: {report:#}"
    );
    for request in [0, 2] {
        assert!(!agrees(&report, request), "{report:#}");
        assert_eq!(
            observed(&report, request).last().map(String::as_str),
            Some("filter:FORWARD")
        );
        let asked = &report["requests"][request];
        assert_eq!(text(asked, "/outcome"), "no answer");
        assert_eq!(asked["trace_of_live_rules_agrees"], true, "{report:#}");
    }
}

/// Whether every fact of a request of nftables mode is the same on both sides.
fn facts_agree(report: &Value, request: usize) -> bool {
    let facts = report["requests"][request]["facts"].as_array().expect("facts");
    assert_eq!(facts.len(), 3, "{report:#}");
    facts.iter().all(|fact| fact["agrees"] == true)
}

/// The chains of the table that a request met.
fn chains(report: &Value, request: usize) -> Vec<&str> {
    let way = report["requests"][request]["way"].as_array().expect("a way");
    way.iter().map(|step| text(step, "/chain")).collect()
}

#[test]
fn in_nftables_mode_every_prediction_of_the_oracle_comes_true() {
    if !can_run() {
        return;
    }
    let (report, status) = demo(&["--proxy-mode", "nftables"]);
    assert_eq!(status, 0, "{report:#}");
    assert_eq!(report["differences"], serde_json::json!([]));
    for request in 0..3 {
        assert!(facts_agree(&report, request), "{report:#}");
        let name = text(&report["requests"][request], "/facts/2/observed");
        assert!(name.starts_with("spring-test-"), "{name}");
    }
    // By the known experiment, and not by our oracle.
    assert_eq!(text(&report["requests"][0], "/facts/1/observed"), "10.244.1.7");
    let [pod, node, outside] = [0, 1, 2].map(|request| chains(&report, request));
    assert!(
        pod.contains(&"service/endpoints") && !pod.contains(&"masquerading"),
        "{pod:?}"
    );
    assert!(
        node.contains(&"nat-output") && node.contains(&"masquerading"),
        "{node:?}"
    );
    assert!(
        outside.contains(&"nodeport/endpoints") && outside.contains(&"masquerading"),
        "{outside:?}"
    );
}

#[test]
fn in_nftables_mode_a_source_that_is_not_rewritten_is_noticed() {
    if !can_run() {
        return;
    }
    let command = "nft flush chain ip kube-proxy masquerading";
    let (report, status) = demo(&["--proxy-mode", "nftables", "--tamper", command]);
    assert_eq!(status, 1, "{report:#}");
    assert!(
        facts_agree(&report, 0),
        "a pod's source is kept anyway: {report:#}"
    );
    assert!(!facts_agree(&report, 2), "{report:#}");
    assert_eq!(text(&report["requests"][2], "/facts/1/observed"), "192.168.50.10");
}

#[test]
fn demonstration_that_cannot_be_done_says_why_and_ends_with_2() {
    if !can_run() {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_kube-proxy"))
        .args(["lab", "demo", "--tamper", "echo no such rule >&2; exit 3"])
        .output()
        .expect("the binary is built");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("--tamper") && said.contains("no such rule"),
        "{said}"
    );
}
