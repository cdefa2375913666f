//! Bad input to the tools and to the daemon, without root: one clear line that names the thing, and the right status.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A scratch folder with one good cluster.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        let scratch = Scratch(tempfile::tempdir().unwrap());
        scratch.file(
            "good.yaml",
            "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\n---\n\
             apiVersion: v1\nkind: Service\nmetadata: {namespace: ns, name: svc}\n\
             spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n",
        );
        scratch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and gives back its name.
    fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).to_string_lossy().into_owned()
    }

    fn good(&self) -> String {
        self.path("good.yaml").to_string_lossy().into_owned()
    }
}

fn output(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    command
        .args(args)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Status and complaints.
fn run(args: &[&str]) -> (Option<i32>, String) {
    let output = output(args);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// What it prints when all is well.
#[track_caller]
fn prints(args: &[&str]) -> String {
    let output = output(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// It ends with this status, and its last line has all these words.
#[track_caller]
fn says(args: &[&str], status: i32, words: &[&str]) {
    let (code, complaints) = run(args);
    assert_eq!(code, Some(status), "{args:?}: {complaints}");
    let line = complaints.lines().last().unwrap_or_default();
    for word in words {
        assert!(line.contains(word), "{args:?}: no {word:?} in: {complaints}");
    }
    assert!(!complaints.contains("panicked"), "{complaints}");
}

#[test]
fn tools_name_a_file_that_cannot_be_used() {
    let scratch = Scratch::new();
    let cut = scratch.file("cut.json", "{\"kind\":\"List\",\"items\":[{\"kind\":\"Service\"");
    let words = scratch.file("words.yaml", "just words\n");
    let pods = scratch.file("pods.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n");
    says(
        &["render", "--manifests", "/nowhere"],
        2,
        &["--manifests", "/nowhere", "check"],
    );
    says(&["render", "--manifests", &cut], 2, &["cut.json", "document 1"]);
    says(&["render", "--manifests", &words], 2, &["words.yaml"]);
    says(
        &["render", "--manifests", &pods],
        2,
        &["pods.yaml", "no Service", "Pod", "give"],
    );
    says(&["render"], 2, &["--manifests"]);
    says(
        &[
            "trace",
            "--from",
            "10.0.0.1",
            "--to",
            "10.0.0.2:80",
            "--dump",
            "/nowhere",
        ],
        2,
        &["/nowhere"],
    );
}

/// A dump that somebody mailed has comments that anybody wrote.
#[test]
fn rules_of_others_steer_no_terminal_that_a_trace_is_printed_on() {
    let scratch = Scratch::new();
    let rule = "-A FORWARD -m comment --comment \"\u{1b}]0;x\u{7} \u{9b}31m\" -j DROP";
    let dump = scratch.file(
        "dump.txt",
        &format!("*filter\n:FORWARD ACCEPT [0:0]\n{rule}\nCOMMIT\n"),
    );
    for form in ["text", "json", "svg", "dot", "mermaid"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
        command.args([
            "trace",
            "--dump",
            &dump,
            "--from",
            "10.0.0.1",
            "--to",
            "10.0.0.2:80",
        ]);
        command.args(["--in-interface", "eth0", "--output", form]);
        // As on a terminal: elsewhere all that looks like a colour is taken out.
        let output = command.env("CLICOLOR_FORCE", "1").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("31m"), "{form}: {text:?}");
        assert!(
            !text.contains(|c: char| c.is_control() && c != '\n'),
            "{form}: {text:?}"
        );
    }
}

#[test]
fn tools_name_the_node_that_is_not_there_and_those_that_are() {
    let scratch = Scratch::new();
    says(
        &["render", "--manifests", &scratch.good(), "--node", "node-b"],
        2,
        &["node-b", "node-a"],
    );
}

#[test]
fn tools_name_the_field_of_a_configuration_that_is_wrong() {
    let scratch = Scratch::new();
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    let bad_cidr = scratch.file("cidr.yaml", &format!("{head}clusterCIDR: 10.0.0.0/99\n"));
    let wrong_type = scratch.file("type.yaml", &format!("{head}iptables: {{masqueradeBit: many}}\n"));
    let wrong_kind = scratch.file("kind.yaml", "apiVersion: v1\nkind: ConfigMap\n");
    let typo = scratch.file("typo.yaml", &format!("{head}clusterCidr: 10.0.0.0/8\n"));
    let with = |config: &str, words: &[&str]| {
        says(
            &["render", "--manifests", &scratch.good(), "--config", config],
            2,
            words,
        );
    };
    with(&bad_cidr, &["ClusterCIDR", "10.0.0.0/99"]);
    with(&wrong_type, &["type.yaml", "masqueradeBit"]);
    with(&wrong_kind, &["kind.yaml", "kubeproxy.config.k8s.io/v1alpha1"]);
    with("/nowhere", &["--config", "/nowhere", "check"]);
    // Ignored as upstream ignores it, but not in silence.
    let (status, complaints) = run(&["render", "--manifests", &scratch.good(), "--config", &typo]);
    assert_eq!(status, Some(0), "{complaints}");
    assert!(
        complaints.contains("clusterCidr") && complaints.contains("spelling"),
        "{complaints}"
    );
}

#[test]
fn tools_name_the_flag_that_is_wrong() {
    let scratch = Scratch::new();
    let good = scratch.good();
    says(
        &["render", "--manifests", &good, "--cluster-cidr", "10.0.0.0/40"],
        2,
        &["10.0.0.0/40", "CIDR"],
    );
    says(
        &["render", "--manifests", &good, "--node-address", "1.2.3"],
        2,
        &["--node-address", "1.2.3"],
    );
    says(
        &["render", "--manifests", &good, "--form", "restore"],
        2,
        &["--family"],
    );
    says(
        &[
            "render",
            "--manifests",
            &good,
            "--form",
            "restore",
            "--stage",
            "plan",
        ],
        2,
        &["--stage"],
    );
    let (status, complaints) = run(&["render", "--manifests", &good, "--stage", "magic"]);
    assert_eq!(status, Some(2), "{complaints}");
    assert!(
        complaints.contains("snapshot, desired, rules, plan"),
        "{complaints}"
    );
    for args in [
        &["render", "--sillyness"][..],
        &["trace", "--from", "nobody", "--to", "10.0.0.1:80"],
    ] {
        let (status, complaints) = run(args);
        assert_eq!(status, Some(2), "{complaints}");
        assert!(complaints.contains("--help"), "{complaints}");
    }
}

#[test]
fn every_stage_prints_itself() {
    let scratch = Scratch::new();
    let good = scratch.good();
    let stage = |more: &[&str]| prints(&[&["render", "--manifests", &good], more].concat());
    assert_eq!(
        stage(&["--stage", "snapshot"]),
        "Node node-a\nService ns/svc ClusterIP\n  policy internal Cluster, external Cluster\n  \
         cluster IP 10.96.0.1\n  port TCP 80\n"
    );
    let desired = stage(&["--stage", "desired", "--family", "ipv4"]);
    assert!(desired.starts_with("# iptables\nIPv4\n"), "{desired}");
    let route = "  cluster IP 10.96.0.1:80 from pod: reject (NoEndpoints)\n";
    assert!(desired.contains(route), "{desired}");
    let plan = stage(&["--stage", "plan", "--family", "ipv6"]);
    assert!(plan.starts_with("# ip6tables\nstep 1:"), "{plan}");
    assert_eq!(stage(&[]), stage(&["--stage", "rules"]));
    let both = stage(&["--stage", "plan"]);
    assert!(
        both.contains("# iptables\nstep 1: ns/svc\n") && both.ends_with(&plan),
        "{both}"
    );
}

#[test]
fn render_help_shows_how_each_stage_is_asked_for() {
    let help = prints(&["render", "--help"]);
    for stage in ["snapshot", "desired", "plan"] {
        assert!(help.contains(&format!("--stage {stage}")), "{help}");
    }
}

#[test]
fn other_objects_among_those_that_count_are_mentioned() {
    let scratch = Scratch::new();
    let text = fs::read_to_string(scratch.good()).unwrap();
    let mixed = scratch.file(
        "mixed.yaml",
        &format!("{text}---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: x}}\n"),
    );
    let (status, complaints) = run(&["render", "--manifests", &mixed]);
    assert_eq!(
        (status, complaints.trim()),
        (Some(0), "note: objects of these kinds are not read: Deployment")
    );
}

#[test]
fn daemon_names_what_is_wrong_with_its_start_and_ends_with_one() {
    let scratch = Scratch::new();
    let good = scratch.good();
    says(
        &["--manifests", &good, "--config", "/nowhere"],
        1,
        &["--config", "/nowhere", "check"],
    );
    says(
        &["--manifests", &good, "--cluster-cidr", "10.0.0.0/40"],
        1,
        &["10.0.0.0/40"],
    );
    says(&["--manifests", &good, "--proxy-mode", "magic"], 1, &["magic"]);
    says(
        &["--manifests", &good, "--hostname-override", " "],
        1,
        &["hostname-override"],
    );
    // A note, and so not the last line.
    let (status, complaints) = run(&["--manifests", "/nowhere", "--ipvs-scheduler", "rr"]);
    assert_eq!(status, Some(1), "{complaints}");
    assert!(
        complaints.contains("without effect") && complaints.contains("--ipvs-scheduler"),
        "{complaints}"
    );
    let (status, complaints) = run(&["--sillyness"]);
    assert_eq!(status, Some(1), "{complaints}");
    assert!(complaints.contains("--sillyness"), "{complaints}");
}

#[test]
fn the_age_of_what_is_remembered_is_a_duration_and_more_than_nothing() {
    let with =
        |age: &str, words: &[&str]| says(&["--state-dir", "/nowhere", "--state-max-age", age], 1, words);
    with("1 day", &["--state-max-age", "1 day", "unit"]);
    with("0s", &["--state-max-age", "more than zero"]);
    with("-1h", &["--state-max-age", "more than zero"]);
}

#[test]
fn no_more_services_can_be_counted_than_a_node_should_expose() {
    let with = |number: &str| {
        says(
            &["--manifests", "/nowhere", "--service-metrics", number],
            1,
            &["--service-metrics", "0 (off) to 1000"],
        );
    };
    ["1001", "-1", "many", ""].into_iter().for_each(with);
    for number in ["0", "1000"] {
        let (_, complaints) = run(&["--manifests", "/nowhere", "--service-metrics", number]);
        assert!(!complaints.contains("invalid argument"), "{complaints}");
    }
}

#[test]
fn objects_from_files_are_not_remembered_and_the_flag_says_so() {
    let scratch = Scratch::new();
    let written = scratch.path("written").to_string_lossy().into_owned();
    let idle = |more: &[&str]| {
        let args = [&["--write-config-to", &written][..], more].concat();
        let (status, complaints) = run(&args);
        assert_eq!(status, Some(0), "{complaints}");
        complaints.contains("without effect") && complaints.contains("--state-")
    };
    assert!(idle(&["--state-dir", "/nowhere", "--manifests", &scratch.good()]));
    assert!(idle(&["--state-max-age", "1h"]));
    assert!(!idle(&["--state-dir", "/nowhere", "--state-max-age", "1h"]));
}

#[test]
fn what_is_no_regular_file_is_no_configuration() {
    let scratch = Scratch::new();
    let good = scratch.good();
    let pipe = scratch.path("pipe").to_string_lossy().into_owned();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for other in [pipe.as_str(), "/dev/zero"] {
        says(
            &[
                "render",
                "--manifests",
                &good,
                "--node",
                "node-a",
                "--config",
                other,
            ],
            2,
            &[other, "no regular file"],
        );
    }
}

#[test]
fn empty_standard_input_is_no_empty_cluster() {
    says(
        &["render", "--manifests", "-", "--node", "node-a"],
        2,
        &["standard input", "holds nothing"],
    );
}

#[test]
fn a_dump_without_its_end_is_refused() {
    let scratch = Scratch::new();
    let cut = scratch.file("cut", "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m comm");
    says(
        &[
            "trace",
            "--dump",
            &cut,
            "--from",
            "10.0.0.1",
            "--to",
            "10.0.0.2:80",
        ],
        2,
        &[&cut, "COMMIT"],
    );
}

/// What a table without words in iptables does is in the list of nftables, or not known.
#[test]
fn a_dump_that_leaves_out_a_table_needs_the_list_of_nftables() {
    let scratch = Scratch::new();
    let saved = scratch.file(
        "saved",
        "# Table `filter' is incompatible, use 'nft' tool.\n*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n",
    );
    let packet = ["--from", "10.0.0.1", "--to", "10.0.0.2:80"];
    let asked = [&["trace", "--dump", &saved], &packet[..]].concat();
    says(&asked, 2, &[&saved, "table filter", "nft list ruleset"]);
    let listed = scratch.file(
        "listed",
        "table ip filter {\nchain FORWARD {\ntype filter hook forward priority filter; policy drop;\n}\n}\n",
    );
    let asked = [&["trace", "--dump", &saved, "--dump", &listed], &packet[..]].concat();
    assert_eq!(run(&asked), (Some(0), String::new()));
}

#[test]
fn a_dump_in_another_encoding_is_read() {
    let scratch = Scratch::new();
    let path = scratch.file("latin", "");
    let rule =
        b"*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m comment --comment \"caf\xe9\" -j ACCEPT\nCOMMIT\n";
    fs::write(&path, rule).unwrap();
    let asked = [
        "trace",
        "--dump",
        &path,
        "--from",
        "10.0.0.1",
        "--to",
        "10.0.0.2:80",
    ];
    assert_eq!(run(&asked), (Some(0), String::new()));
}

#[test]
fn external_ips_outside_the_allowed_networks_get_no_rules_and_the_tool_says_so() {
    let scratch = Scratch::new();
    let manifests = scratch.file(
        "external.yaml",
        "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {namespace: ns, name: svc}\n\
         spec: {clusterIP: 10.96.0.1, externalIPs: [203.0.113.9, 198.51.100.7], ports: [{port: 80}]}\n",
    );
    let render = |more: &[&str]| {
        let args = [&["render", "--family", "ipv4", "--manifests", &manifests], more].concat();
        let output = output(&args);
        assert!(output.status.success(), "{output:?}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let (rules, _) = render(&[]);
    assert!(
        rules.contains("203.0.113.9") && rules.contains("198.51.100.7"),
        "{rules}"
    );
    let (rules, said) = render(&["--external-ip-allowed-cidrs", "192.0.2.0/24,203.0.113.0/28"]);
    assert!(
        rules.contains("203.0.113.9") && !rules.contains("198.51.100.7"),
        "{rules}"
    );
    assert!(said.contains("ns/svc") && said.contains("198.51.100.7"), "{said}");
    says(
        &[
            "render",
            "--manifests",
            &manifests,
            "--external-ip-allowed-cidrs",
            "203.0.113.9",
        ],
        2,
        &["--external-ip-allowed-cidrs", "203.0.113.9", "CIDR"],
    );
    // The daemon's flag is checked as well, and says what it is called.
    let (status, complaints) = run(&["--external-ip-allowed-cidrs", ""]);
    assert_eq!(status, Some(1), "{complaints}");
    assert!(complaints.contains("--external-ip-allowed-cidrs"), "{complaints}");
}
